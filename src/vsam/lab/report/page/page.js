"use strict";
(() => {
  const { charts, look } = JSON.parse(document.getElementById("charts").textContent);
  const boxes = [...document.querySelectorAll('input[name="method"]')];
  const places = charts.map((chart, number) => document.getElementById(`chart-${number}`));
  const drawn = new Map();
  const zooms = new Map();

  function draw(number) {
    const names = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    const { spec, height } = charts[number];
    drawn.set(number, Chart(places[number], spec, height, look, (label) => names.has(label), zooms.get(number)));
  }

  function drawSeen() {
    for (const number of drawn.keys()) draw(number);
  }

  // Show a tooltip for what is under the pointer.
  function show(number, event) {
    const div = places[number];
    const { svg, box, at } = drawn.get(number);
    hide(number);
    const bounds = svg.getBoundingClientRect();
    const scale = box.width / bounds.width;
    const [px, py] = [(event.clientX - bounds.left) * scale, (event.clientY - bounds.top) * scale];
    const found = px >= box.left - 20 && px <= box.right + 20 && py <= box.bottom + 10 ? at(px, py) : null;
    if (!found) return;
    const tip = div.appendChild(document.createElement("div"));
    tip.className = "tip";
    tip.appendChild(document.createElement("strong")).textContent = found.head;
    for (const line of found.lines.slice(0, 24)) {
      const row = tip.appendChild(document.createElement("div"));
      row.appendChild(document.createElement("i")).style.background = line.color;
      row.append(line.text);
    }
    if (found.x !== null) {
      const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
      const ends = { class: "cursor", x1: found.x, x2: found.x, y1: box.top, y2: box.bottom };
      for (const [key, value] of Object.entries(ends)) line.setAttribute(key, value);
      svg.append(line);
    }
    const space = div.clientWidth - tip.offsetWidth;
    const beside = px / scale + 14 <= space ? px / scale + 14 : px / scale - 14 - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(beside, space))}px`;
    tip.style.top = `${Math.max(0, Math.min(py / scale - 20, div.clientHeight - tip.offsetHeight))}px`;
  }

  function hide(number) {
    places[number].querySelectorAll(".tip, .cursor").forEach((one) => one.remove());
  }

  // Dragging with a mouse zooms into curves; a finger scrolls the page instead.
  function listen(number) {
    const div = places[number];
    let start = null;
    const across = (event) => {
      const { svg, box, back } = drawn.get(number);
      const bounds = svg.getBoundingClientRect();
      return back((event.clientX - bounds.left) * (box.width / bounds.width));
    };
    div.addEventListener("pointermove", (event) => drawn.has(number) && show(number, event));
    div.addEventListener("pointerleave", () => hide(number));
    div.addEventListener("pointerdown", (event) => {
      start = event.pointerType === "mouse" && drawn.get(number)?.zoomable ? across(event) : null;
      if (drawn.has(number)) show(number, event);
    });
    div.addEventListener("pointerup", (event) => {
      if (start === null) return;
      const range = [start, across(event)].sort((a, b) => a - b);
      start = null;
      const before = zooms.get(number);
      const inside = charts[number].spec.series.flatMap((one) => one.x).filter((x) => x >= range[0] && x <= range[1]);
      if (new Set(inside).size < 2) return;
      zooms.set(number, before ? [Math.max(range[0], before[0]), Math.min(range[1], before[1])] : range);
      draw(number);
    });
    div.addEventListener("dblclick", () => {
      zooms.delete(number);
      draw(number);
    });
  }

  // Clicking a heading sorts its table: numbers descending first, methods in their original order; dashes last.
  function makeSortable(table) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const value = (row, column) => Number.parseFloat(row.cells[column].textContent.replace(/[~,\s]/g, ""));
    const headings = [...table.querySelectorAll("th[data-column]")];
    for (const heading of headings) {
      const column = Number(heading.dataset.column);
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const downwards = heading.getAttribute("aria-sort") !== "descending" && column > 0;
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", downwards ? "descending" : "ascending");
        const known = (row) => column === 0 || !Number.isNaN(value(row, column));
        const order = (a, b) => (column === 0 ? rows.indexOf(a) - rows.indexOf(b) : value(a, column) - value(b, column));
        const sorted = rows.filter(known).sort(downwards ? (a, b) => order(b, a) : order);
        body.append(...sorted, ...rows.filter((row) => !known(row)));
      });
    }
  }

  // Figures below the fold are drawn when they come near.
  const observer = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => {
      observer.unobserve(entry.target);
      draw(places.indexOf(entry.target));
    }),
    { rootMargin: "800px" },
  );
  places.forEach((div, number) => {
    observer.observe(div);
    listen(number);
  });
  let width = document.body.clientWidth;
  new ResizeObserver(() => {
    if (width !== document.body.clientWidth) {
      width = document.body.clientWidth;
      drawSeen();
    }
  }).observe(document.body);

  boxes.forEach((box) => box.addEventListener("change", drawSeen));
  document.querySelectorAll("button[data-all]").forEach((button) => button.addEventListener("click", () => {
    boxes.forEach((box) => { box.checked = Boolean(button.dataset.all); });
    drawSeen();
  }));
  document.querySelectorAll("table.results").forEach(makeSortable);
  addEventListener("beforeprint", () => places.forEach((div, number) => drawn.has(number) || draw(number)));
})();
