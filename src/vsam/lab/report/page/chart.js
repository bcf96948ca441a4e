"use strict";
// Figures as SVG: curves with bands, points with error bars, rows of cells. Axis and text colours come from the page's
// CSS. Text is only ever set as text, so that no name can become markup.
const Chart = (() => {
  const LETTER = 6.6; // approximate width in pixels of a character on the axes
  const identity = (value) => value;

  function add(parent, name, attributes = {}, text = "") {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = text;
    return parent.appendChild(element);
  }

  function format(value) {
    const size = Math.abs(value);
    if (size > 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(2);
    return value.toLocaleString("en", { maximumSignificantDigits: size >= 1e4 ? 9 : 4 });
  }

  // Round numbers from low to high, at most about `most`.
  function ticks(low, high, most, least = 0) {
    const rough = (high - low) / Math.max(most, 1);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(least, [1, 2, 5, 10].map((times) => times * power).find((one) => one >= rough * 0.999));
    const first = Math.ceil(low / step - 1e-9);
    return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, place) =>
      Number(((first + place) * step).toPrecision(12)));
  }

  // The range of values plus a margin; either end may be fixed.
  function extent(values, [low, high] = [null, null], margin = 0.06) {
    let least = Infinity;
    let most = -Infinity;
    for (const value of values) {
      least = Math.min(least, value);
      most = Math.max(most, value);
    }
    if (least > most) [least, most] = [0, 1];
    least = low ?? least;
    const room = most > least ? (most - least) * margin : Math.abs(most) * margin || 1;
    return [low ?? least - room, high ?? most + room];
  }

  // A title in which _x is a subscript.
  function title(parent, text, attributes) {
    const element = add(parent, "text", { class: "title", "text-anchor": "middle", ...attributes });
    text.split(/_(\w+)/).forEach((part, place) => {
      const below = document.createElementNS("http://www.w3.org/2000/svg", "tspan");
      below.textContent = part;
      if (place % 2) below.setAttribute("dy", "3");
      if (place % 2 === 0 && place) below.setAttribute("dy", "-3");
      element.append(below);
    });
  }

  // Axes with grid and titles; returns the plot and the functions from values to pixels.
  function frame(div, spec, height, xs, ys, rows = null) {
    const width = Math.max(div.clientWidth, 200);
    const svg = add(div, "svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    const across = ticks(...xs, width / 90, spec.kind === "points" || spec.fractional ? 0 : 1);
    const up = rows ? rows.map((name, row) => row) : ticks(...ys, (height - 60) / 45);
    const names = rows || up.map(format);
    const left = (rows ? 12 : 34) + LETTER * Math.max(...names.map((name) => name.length), 1);
    const box = { left, right: width - 14, top: 10, bottom: height - 44, width, height };
    const x = (value) => box.left + ((value - xs[0]) / (xs[1] - xs[0])) * (box.right - box.left);
    const y = (value) => box.bottom - ((value - ys[0]) / (ys[1] - ys[0])) * (box.bottom - box.top);
    for (const value of across) {
      if (!rows) add(svg, "line", { class: "grid", x1: x(value), x2: x(value), y1: box.top, y2: box.bottom });
      add(svg, "text", { x: x(value), y: box.bottom + 17, "text-anchor": "middle" }, format(value));
    }
    up.forEach((value, place) => {
      if (!rows) add(svg, "line", { class: "grid", x1: box.left, x2: box.right, y1: y(value), y2: y(value) });
      add(svg, "text", { class: "tick", x: box.left - 7, y: y(value) + 4, "text-anchor": "end" }, names[place]);
    });
    title(svg, spec.x, { x: (box.left + box.right) / 2, y: height - 6 });
    if (spec.y) title(svg, spec.y, { transform: `translate(13 ${(box.top + box.bottom) / 2}) rotate(-90)` });
    const clip = add(add(svg, "clipPath", { id: `clip-${div.id}` }), "rect");
    const inside = { x: box.left - 1, y: box.top - 1, width: box.right - box.left + 2, height: box.bottom - box.top + 2 };
    for (const [key, value] of Object.entries(inside)) clip.setAttribute(key, value);
    return { svg, box, x, y, plot: add(svg, "g", { "clip-path": `url(#clip-${div.id})` }) };
  }

  function path(xs, ys, x, y) {
    return xs.map((value, place) => `${place ? "L" : "M"}${x(value).toFixed(1)} ${y(ys[place]).toFixed(1)}`).join("");
  }

  function curves(div, spec, height, series, look, zoom) {
    const xs = zoom || extent(series.flatMap((one) => [one.x[0], one.x.at(-1)]), undefined, 0.01);
    const seen = (one, values) => values.filter((_, place) => one.x[place] >= xs[0] && one.x[place] <= xs[1]);
    const ys = extent(series.flatMap((one) => [one.y, one.low || [], one.high || []].flatMap((values) => seen(one, values))),
      spec.bounds);
    const drawn = frame(div, spec, height, xs, ys);
    const { plot, x, y } = drawn;
    const groups = series.map((one) => add(plot, "g", { class: "series", "data-label": one.label }));
    series.forEach((one, place) => {
      if (!one.low) return;
      const there = path(one.x, one.high, x, y);
      const back = path([...one.x].reverse(), [...one.low].reverse(), x, y).replace("M", "L");
      add(groups[place], "path", { class: "band", d: `${there}${back}Z`, fill: one.color, opacity: 0.15 });
    });
    series.forEach((one, place) => {
      const stroke = { stroke: one.color, "stroke-width": one.width, "stroke-dasharray": look.dashes[one.dash], fill: "none" };
      if (one.x.length > 1) add(groups[place], "path", { class: "curve", d: path(one.x, one.y, x, y), ...stroke });
      else add(groups[place], "circle", { class: "curve", cx: x(one.x[0]), cy: y(one.y[0]), r: 4, fill: one.color });
    });
    const places = [...new Set(series.flatMap((one) => one.x))].sort((a, b) => a - b);
    const at = (px) => {
      const near = places.reduce((best, one) => (Math.abs(x(one) - px) < Math.abs(x(best) - px) ? one : best), places[0]);
      const lines = series.filter((one) => one.x.includes(near))
        .map((one) => ({ color: one.color, text: `${one.name}: ${format(one.y[one.x.indexOf(near)])}` }));
      return { head: `${spec.x} ${format(near)}`, lines, x: x(near) };
    };
    const back = (px) => xs[0] + ((px - drawn.box.left) / (drawn.box.right - drawn.box.left)) * (xs[1] - xs[0]);
    return { ...drawn, at: places.length ? at : () => null, zoomable: true, back };
  }

  function points(div, spec, height, series, look) {
    const ends = (key) => series.flatMap((one) => [one[key] - one[`${key}_std`], one[key] + one[`${key}_std`]]);
    const drawn = frame(div, spec, height, extent(ends("x"), undefined, 0.1), extent(ends("y"), undefined, 0.1));
    const { plot, x, y } = drawn;
    for (const one of series) {
      const group = add(plot, "g", { class: "series", "data-label": one.label, stroke: one.color });
      const bar = (x1, x2, y1, y2) => add(group, "line", { class: "error", x1, x2, y1, y2, "stroke-width": 1.2 });
      if (one.x_std) bar(x(one.x - one.x_std), x(one.x + one.x_std), y(one.y), y(one.y));
      if (one.y_std) bar(x(one.x), x(one.x), y(one.y - one.y_std), y(one.y + one.y_std));
      const fill = one.hollow ? "none" : one.color;
      add(group, "path", { class: "point", d: look.shapes[one.marker], fill, "stroke-width": one.hollow ? 2 : 0,
        transform: `translate(${x(one.x) - 14} ${y(one.y) - 6})` });
    }
    const at = (px, py) => {
      const distance = (one) => Math.hypot(x(one.x) - px, y(one.y) - py);
      const near = series.reduce((best, one) => (best && distance(best) <= distance(one) ? best : one), null);
      if (!near || distance(near) > 40) return null;
      return { head: near.name, lines: near.lines.map((text) => ({ color: near.color, text })), x: null };
    };
    return { ...drawn, at };
  }

  function strips(div, spec, height, series) {
    const rows = series.flatMap((one) => one.rows.map((row) => ({ ...row, color: one.color, label: one.label })));
    const tall = Math.max(60 + 22 * rows.length, 82);
    const xs = [0.5, spec.total + 0.5];
    const drawn = frame(div, spec, tall, xs, [Math.max(rows.length, 1) - 0.5, -0.5], rows.map((row) => row.name));
    const { plot, x, y } = drawn;
    rows.forEach((row, place) => {
      const group = add(plot, "g", { class: "series", "data-label": row.label });
      row.share.forEach((share, cell) => {
        if (!share) return;
        const from = x(cell * spec.width + 0.5);
        const to = x(Math.min((cell + 1) * spec.width, spec.total) + 0.5);
        add(group, "rect", { class: "cell", x: from, y: y(place) - 9, width: to - from + 0.3, height: 18, fill: row.color, opacity: share });
      });
    });
    const at = (px, py) => {
      const row = rows[Math.round(((py - drawn.box.top) / (drawn.box.bottom - drawn.box.top)) * rows.length - 0.5)];
      const step = 0.5 + ((px - drawn.box.left) / (drawn.box.right - drawn.box.left)) * spec.total;
      const cell = Math.floor((step - 0.5) / spec.width);
      if (!row || row.share[cell] === undefined) return null;
      const last = Math.min((cell + 1) * spec.width, spec.total);
      const steps = spec.width > 1 ? `steps ${format(cell * spec.width + 1)} to ${format(last)}` : `step ${format(last)}`;
      return { head: steps, lines: [{ color: row.color, text: `${row.name}: ${Math.round(100 * row.share[cell])} % sampled` }], x: null };
    };
    return { ...drawn, at };
  }

  const kinds = { curves, points, strips };

  // Draw `spec` into an element, only series whose label `isShown`; `zoom` is the x range, null for all of it.
  function draw(div, spec, height, look, isShown = identity, zoom = null) {
    div.replaceChildren();
    const shown = spec.series.filter((one) => isShown(one.label));
    const drawn = kinds[spec.kind](div, spec, height, shown, look, zoom);
    if (!shown.length) title(drawn.svg, "no method is shown", { x: drawn.box.width / 2, y: drawn.box.height / 2 });
    return drawn;
  }
  return Object.assign(draw, { kinds, tools: { add, extent, format, frame } }); // for pages with their own kinds
})();
