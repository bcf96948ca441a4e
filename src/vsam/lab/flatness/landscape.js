"use strict";
// Figures that only this page has: bars with errors, contours, and surfaces that rotate when dragged.
(() => {
  const { add, extent, format, frame } = Chart.tools;
  const STOPS = [[68, 1, 84], [65, 68, 135], [42, 120, 142], [34, 168, 132], [122, 209, 81], [253, 231, 37]];

  function color(share) {
    const place = Math.min(Math.max(share, 0), 1) * (STOPS.length - 1);
    const low = Math.min(Math.floor(place), STOPS.length - 2);
    return `rgb(${STOPS[low].map((one, i) => Math.round(one + (place - low) * (STOPS[low + 1][i] - one))).join(" ")})`;
  }

  // From 0 at the lowest level to 1 at the highest, on a logarithmic scale.
  function share(spec, loss) {
    const [low, high] = [Math.log(spec.levels[0]), Math.log(spec.levels.at(-1))];
    const value = Math.log(Math.min(Math.max(loss ?? Infinity, spec.levels[0]), spec.levels.at(-1)));
    return (value - low) / (high - low);
  }

  function bars(div, spec, height, series) {
    const ends = series.flatMap((one) => [0, one.value - one.error, one.value + one.error]);
    const names = series.map((one) => `${one.name}   `); // trailing spaces leave room for wide letters
    const drawn = frame(div, spec, Math.max(60 + 26 * series.length, 86), extent(ends), [Math.max(series.length, 1) - 0.5, -0.5], names);
    const { plot, x, y, box } = drawn;
    series.forEach((one, row) => {
      const group = add(plot, "g", { class: "series", "data-label": one.label });
      const [from, to] = [x(0), x(one.value)];
      add(group, "rect", { class: "bar", x: Math.min(from, to), width: Math.abs(to - from), y: y(row) - 8, height: 16,
        fill: one.color, opacity: one.converged ? 1 : 0.45 });
      add(group, "line", { class: "error", x1: x(one.value - one.error), x2: x(one.value + one.error), y1: y(row), y2: y(row),
        stroke: "currentColor", "stroke-width": 1.4 });
    });
    add(plot, "line", { x1: x(0), x2: x(0), y1: box.top, y2: box.bottom, stroke: "currentColor", "stroke-width": 0.8 });
    const at = (px, py) => {
      const one = series[Math.round(((py - box.top) / (box.bottom - box.top)) * series.length - 0.5)];
      return one ? { head: one.name, lines: one.lines.map((text) => ({ color: one.color, text })), x: null } : null;
    };
    return { ...drawn, at };
  }

  // The segments where the losses of neighbouring points cross a level (marching squares).
  function crossings(axis, losses, level) {
    const found = [];
    for (let i = 0; i + 1 < axis.length; i += 1) {
      for (let j = 0; j + 1 < axis.length; j += 1) {
        const corners = [[i, j], [i + 1, j], [i + 1, j + 1], [i, j + 1]];
        const ends = [];
        corners.forEach(([a, b], side) => {
          const [c, d] = corners[(side + 1) % 4];
          const [here, there] = [losses[a][b] ?? Infinity, losses[c][d] ?? Infinity];
          if ((here < level) === (there < level) || !Number.isFinite(here + there)) return;
          const part = (level - here) / (there - here);
          ends.push([axis[a] + part * (axis[c] - axis[a]), axis[b] + part * (axis[d] - axis[b])]);
        });
        for (let k = 0; k + 1 < ends.length; k += 2) found.push([ends[k], ends[k + 1]]);
      }
    }
    return found;
  }

  function contour(div, spec, height, series) {
    const { axis, losses } = spec;
    const ends = [axis[0], axis.at(-1)];
    const drawn = frame(div, spec, Math.min(height, Math.max(div.clientWidth, 200)), ends, ends);
    const { plot, x, y, box } = drawn;
    const nearest = (value) => axis.reduce((best, one, i) => (Math.abs(one - value) < Math.abs(axis[best] - value) ? i : best), 0);
    if (series.length) {
      const group = add(plot, "g", { class: "series", "data-label": series[0].label });
      const half = (axis[1] - axis[0]) / 2;
      axis.forEach((a, i) => axis.forEach((b, j) => add(group, "rect", { class: "cell", x: x(a - half), y: y(b + half),
        width: x(a + half) - x(a - half) + 0.5, height: y(b - half) - y(b + half) + 0.5, fill: color(share(spec, losses[i][j])) })));
      for (const level of spec.levels.slice(1, -1)) {
        const d = crossings(axis, losses, level).map(([p, q]) => `M${x(p[0])} ${y(p[1])}L${x(q[0])} ${y(q[1])}`).join("");
        add(group, "path", { class: "isoline", d, stroke: "white", "stroke-width": 0.8, fill: "none" });
      }
      add(group, "path", { d: `M${x(0) - 6} ${y(0)}h12M${x(0)} ${y(0) - 6}v12`, stroke: "#d55e00", "stroke-width": 2.5 });
    }
    const at = (px, py) => {
      if (!series.length || px < box.left || px > box.right || py < box.top || py > box.bottom) return null;
      const [a, b] = [px, py].map((p, i) => (i ? box.bottom - p : p - box.left) / (i ? box.bottom - box.top : box.right - box.left));
      const [i, j] = [a, b].map((part) => nearest(ends[0] + part * (ends[1] - ends[0])));
      const loss = losses[i][j];
      return { head: `${format(axis[i])}, ${format(axis[j])}`, lines: [{ color: color(share(spec, loss)),
        text: `loss ${loss === null ? "not finite" : format(loss)}` }], x: null };
    };
    return { ...drawn, at };
  }

  const turns = new WeakMap(); // the rotation of each surface

  function surface(div, spec, height, series) {
    const width = Math.max(div.clientWidth, 200);
    const tall = Math.min(height, width);
    const svg = add(div, "svg", { viewBox: `0 0 ${width} ${tall}`, "aria-hidden": "true", class: "turnable" });
    const box = { left: 0, right: width, top: 0, bottom: tall, width, height: tall };
    const { axis, losses } = spec;
    const middle = (axis.length - 1) / 2;
    const group = add(svg, "g", { class: "series", "data-label": series[0]?.label ?? "" });
    const [first] = [turns.get(div) || { around: -0.7, above: 0.55 }];
    let view = first;

    function paint() {
      group.replaceChildren();
      if (!series.length) return;
      const [c, s, ca, sa] = [Math.cos(view.around), Math.sin(view.around), Math.cos(view.above), Math.sin(view.above)];
      const size = Math.min(width * 0.62, tall * 0.85);
      const project = (i, j) => {
        const [a, b, z] = [(i - middle) / (2 * middle), (j - middle) / (2 * middle), 0.75 * share(spec, losses[i][j]) - 0.35];
        const [across, depth] = [a * c - b * s, a * s + b * c];
        return [width / 2 + size * across, tall * 0.52 - size * (z * ca - depth * sa * 0.9), depth * ca + z * sa];
      };
      const faces = [];
      for (let i = 0; i + 1 < axis.length; i += 1) {
        for (let j = 0; j + 1 < axis.length; j += 1) {
          const corners = [[i, j], [i + 1, j], [i + 1, j + 1], [i, j + 1]];
          const points = corners.map(([a, b]) => project(a, b));
          const mean = corners.reduce((sum, [a, b]) => sum + share(spec, losses[a][b]) / 4, 0);
          faces.push({ points, depth: points.reduce((sum, point) => sum + point[2], 0), mean });
        }
      }
      faces.sort((one, other) => other.depth - one.depth);
      for (const face of faces) {
        const points = face.points.map((point) => `${point[0].toFixed(1)},${point[1].toFixed(1)}`).join(" ");
        add(group, "polygon", { class: "face", points, fill: color(face.mean), stroke: "rgb(0 0 0 / 22%)", "stroke-width": 0.4 });
      }
    }

    paint();
    let last = null;
    svg.addEventListener("pointerdown", (event) => { last = event; svg.setPointerCapture(event.pointerId); });
    svg.addEventListener("pointerup", () => { last = null; });
    svg.addEventListener("pointermove", (event) => {
      if (!last) return;
      view = { around: view.around + (event.clientX - last.clientX) / 120,
        above: Math.min(1.4, Math.max(0.05, view.above + (event.clientY - last.clientY) / 160)) };
      turns.set(div, view);
      last = event;
      paint();
    });
    return { svg, box, at: () => null };
  }

  Object.assign(Chart.kinds, { bars, contour, surface });
})();
