// Charts in plain SVG. Each has a title, and its numbers as a table: for those who do not see it at any time, and for
// all others, who may have no mouse to point with, once they open it.

import { fill, h, svg } from "./dom.js";

/** Size of a drawing in pixels, and its margins; it is as wide as its place, and drawn anew where that changes. */
const BOX = { height: 170, left: 46, right: 8, top: 8, bottom: 22 };
const WIDTH_MIN = 240;
/** Room that a label of the lower axis needs. */
const LABEL_PX = 56;

/** Round numbers for an axis from 0 to `most`, at most `n` steps. */
export function ticks(most, n = 4) {
  if (most <= 0) return [0, 1];
  const rough = most / n;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((by) => by * unit).find((by) => by >= rough);
  const found = [];
  for (let at = 0; found.length < 2 || found.at(-1) < most; at += 1) found.push(at * step);
  return found;
}

/**
 * Bars, stacked. `points`: `{ label, title, values }`, one value per series; `series`: their names; `tell(value)` =
 * a value in words; `every` = how many points a label stands for.
 */
export function bars({ title, points, series, tell = String, every = 1, whole = false }) {
  const { height, left, right, top, bottom } = BOX;
  const sums = points.map((point) => point.values.reduce((sum, value) => sum + value, 0));
  const most = Math.max(...sums, 0);
  const steps = ticks(whole ? Math.max(most, 4) : most);
  const high = steps.at(-1);
  const y = (value) => top + (height - top - bottom) * (1 - value / high);
  const draw = (width) => {
    const slot = (width - left - right) / Math.max(points.length, 1);
    const wide = Math.max(1, slot * 0.72);
    const drawn = points.map((point, n) => {
      let under = 0;
      const x = left + slot * n + (slot - wide) / 2;
      const parts = point.values.map((value, of) => {
        const from = y(under);
        under += value;
        const to = y(under);
        return value > 0 && svg("rect", { class: `s${of + 1}`, x, y: to, width: wide, height: Math.max(from - to, 1) });
      });
      const words = `${point.title}: ${series.map((name, of) => `${tell(point.values[of])} ${name}`).join(", ")}`;
      const catcher = svg("rect", { x: left + slot * n, y: top, width: slot, height: height - top - bottom, fill: "transparent" });
      return svg("g", { class: "over" }, svg("title", {}, words), catcher, parts);
    });
    return [grid(steps, y, tell, width), drawn, labelsOf(points, (n) => left + slot * (n + 0.5), slot, every)];
  };
  return figure(title, { series, rows: points.map((point) => [point.title, ...point.values.map(tell)]) }, draw);
}

/** A line over points, `null` where nothing was measured: there the line breaks off. `unit` = what the axis counts in. */
export function lineChart({ title, points, tell = String, target = null, most = 0, unit = 1, name }) {
  const { height, left, right, top, bottom } = BOX;
  const values = points.map((point) => point.value).filter((value) => value !== null);
  const steps = ticks(Math.max(...values, target ?? 0, most) / unit).map((step) => step * unit);
  const high = steps.at(-1);
  const y = (value) => top + (height - top - bottom) * (1 - value / high);
  const draw = (width) => {
    const slot = (width - left - right) / Math.max(points.length, 1);
    const x = (n) => left + slot * (n + 0.5);
    let path = "";
    let broken = true;
    points.forEach((point, n) => {
      if (point.value === null) {
        broken = true;
        return;
      }
      path += `${broken ? "M" : "L"}${x(n).toFixed(1)} ${y(point.value).toFixed(1)}`;
      broken = false;
    });
    const dots = points.map(
      (point, n) =>
        point.value !== null &&
        svg("circle", { class: "s1 over", cx: x(n), cy: y(point.value), r: 3.5 }, svg("title", {}, `${point.title}: ${tell(point.value)}`)),
    );
    return [
      grid(steps, y, tell, width),
      target !== null && svg("line", { class: "target", x1: left, x2: width - right, y1: y(target), y2: y(target) }),
      path && svg("path", { class: "line", d: path }),
      dots,
      labelsOf(points, x, slot, 1),
    ];
  };
  const rows = points.map((point) => [point.title, point.value === null ? "not measured" : tell(point.value)]);
  return figure(title, { series: [name], rows }, draw);
}

function grid(steps, y, tell, width) {
  const { left, right } = BOX;
  return steps.map((value, n) => [
    svg("line", { class: n === 0 ? "axis" : "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
    svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, tell(value)),
  ]);
}

/** Labels of the lower axis, as many as there is room for. */
function labelsOf(points, x, slot, every) {
  let step = every;
  while (slot * step < LABEL_PX && step < points.length) step += every;
  return points.map((point, n) => n % step === 0 && point.label && svg("text", { x: x(n), y: BOX.height - 6, "text-anchor": "middle" }, point.label));
}

function figure(title, { series, rows }, draw) {
  const sign = (n) => svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { class: `s${n + 1}`, width: 10, height: 10 }));
  const drawing = svg("svg", { class: "drawing", height: BOX.height, "aria-hidden": "true", focusable: "false" });
  const place = h(
    "figure",
    { class: "chart" },
    drawing,
    series.length > 1 && h("div", { class: "legend", "aria-hidden": "true" }, series.map((name, n) => h("span", {}, sign(n), name))),
    h("details", { class: "numbers" }, h("summary", {}, "Numbers", h("span", { class: "unseen" }, ` of: ${title}`))),
    h(
      "div",
      { class: "of-chart" },
      h(
        "table",
        {},
        h("caption", { class: "unseen" }, title),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "When"), series.map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, rows.map(([head, ...cells]) => h("tr", {}, h("th", { scope: "row" }, head), cells.map((cell) => h("td", {}, cell))))),
      ),
    ),
  );
  let width = 0;
  new ResizeObserver(([entry]) => {
    const now = Math.max(WIDTH_MIN, Math.floor(entry.contentRect.width));
    if (now === width) return;
    width = now;
    drawing.setAttribute("viewBox", `0 0 ${width} ${BOX.height}`);
    fill(drawing, draw(width));
  }).observe(place);
  return place;
}
