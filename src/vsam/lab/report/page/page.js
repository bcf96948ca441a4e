"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const boxes = [...document.querySelectorAll('input[name="method"]')];
  const drawn = new Set();
  const place = (number) => document.getElementById(`chart-${number}`);
  const isShown = () => {
    const names = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    return (trace) => names.has(trace.meta);
  };

  function theme() {
    const css = getComputedStyle(document.documentElement);
    const color = (name) => css.getPropertyValue(name).trim();
    const axis = { gridcolor: color("--grid"), linecolor: color("--line"), tickcolor: color("--line") };
    return {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: color("--ink") },
      hoverlabel: { bgcolor: color("--paper"), bordercolor: color("--line"), font: { color: color("--ink") } },
      axis,
    };
  }

  function themed(layout) {
    const { axis, ...rest } = theme();
    return { ...layout, ...rest, xaxis: { ...layout.xaxis, ...axis }, yaxis: { ...layout.yaxis, ...axis } };
  }

  // Rows of traces that are shown move together, so that no gap stays where others were.
  function rowPlaces(rows, visible) {
    let count = 0;
    const places = rows.map((names, trace) => names.map(() => (visible[trace] ? count++ : null)));
    const names = rows.filter((names, trace) => visible[trace]).flat();
    const axis = { tickmode: "array", tickvals: names.map((name, row) => row), ticktext: names };
    return { places, axis: { ...axis, range: [Math.max(count, 1) - 0.5, -0.5] } };
  }

  function draw(number) {
    if (drawn.has(number)) return;
    drawn.add(number);
    const shown = isShown();
    const data = charts[number].data.map((trace) => ({ ...trace, visible: shown(trace) }));
    const layout = themed(charts[number].layout);
    if (charts[number].rows) {
      const { places, axis } = rowPlaces(charts[number].rows, data.map((trace) => trace.visible));
      data.forEach((trace, index) => { trace.y = places[index]; });
      Object.assign(layout.yaxis, axis);
    }
    // A finger that scrolls the page must not zoom a figure.
    const isTouched = matchMedia("(pointer: coarse)").matches;
    if (isTouched) layout.dragmode = false;
    Plotly.newPlot(place(number), data, layout, {
      responsive: true,
      displaylogo: false,
      displayModeBar: isTouched ? false : "hover",
      modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]],
      typesetMath: false,
      showSendToCloud: false,
      plotlyServerURL: "",
    });
  }

  function update() {
    const shown = isShown();
    for (const number of drawn) {
      const visible = charts[number].data.map(shown);
      const { places, axis } = charts[number].rows ? rowPlaces(charts[number].rows, visible) : {};
      const moved = Object.entries(axis || {}).map(([name, value]) => [`yaxis.${name}`, value]);
      Plotly.update(place(number), places ? { visible, y: places } : { visible }, Object.fromEntries(moved));
    }
  }

  function repaint(size) {
    for (const number of drawn) {
      const { axis, ...rest } = theme();
      const colors = {};
      for (const [name, value] of Object.entries(axis)) {
        colors[`xaxis.${name}`] = value;
        colors[`yaxis.${name}`] = value;
      }
      Plotly.relayout(place(number), { ...rest, ...colors, ...size(place(number)) });
    }
  }

  const observer = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => {
      observer.unobserve(entry.target);
      draw(Number(entry.target.id.slice("chart-".length)));
    }),
    { rootMargin: "800px" },
  );
  charts.forEach((chart, number) => observer.observe(place(number)));

  boxes.forEach((box) => box.addEventListener("change", update));
  document.querySelectorAll("button[data-all]").forEach((button) => button.addEventListener("click", () => {
    boxes.forEach((box) => { box.checked = Boolean(button.dataset.all); });
    update();
  }));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => repaint(() => ({})));
  // The colours of paper must be known before the browser changes to them.
  addEventListener("beforeprint", () => {
    document.documentElement.classList.add("printed");
    charts.forEach((chart, number) => draw(number));
    repaint((div) => ({ width: div.closest(".grid") ? 330 : 670 }));
  });
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove("printed");
    repaint(() => ({ width: null, autosize: true }));
  });
})();
