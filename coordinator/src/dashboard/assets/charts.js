// Charts in plain SVG. Each chart also has its data as a table, which is always available to screen readers and which
// everyone else can open, because hovering needs a mouse.

import { h, setChildren, svg } from "./dom.js";

/** Height and margins of a drawing in pixels. Its width follows the container, and a resize redraws it. */
const CHART = { height: 170, left: 46, right: 8, top: 8, bottom: 22 };
const WIDTH_MIN = 240;
/** Space that a label of the horizontal axis needs, in pixels. */
const LABEL_WIDTH_MIN = 56;

/** Round tick values for an axis from 0 to `max`, in at most `maxSteps` steps. */
export function axisTicks(max, maxSteps = 4) {
  if (max <= 0) return [0, 1];
  const rough = max / maxSteps;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * unit).find((factor) => factor >= rough);
  const values = [];
  for (let index = 0; values.length < 2 || values.at(-1) < max; index += 1) values.push(index * step);
  return values;
}

/**
 * Stacked bars. `points` are `{ label, title, values }` with one value per series, `series` are the names of the
 * series, `format(value)` renders a value, and every `labelEvery`th point may get a label.
 */
export function barChart({ title, points, series, format = String, labelEvery = 1, integers = false }) {
  const { height, left, right, top, bottom } = CHART;
  const sums = points.map((point) => point.values.reduce((sum, value) => sum + value, 0));
  const max = Math.max(...sums, 0);
  const tickValues = axisTicks(integers ? Math.max(max, 4) : max);
  const axisMax = tickValues.at(-1);
  const y = (value) => top + (height - top - bottom) * (1 - value / axisMax);
  const draw = (width) => {
    const slot = (width - left - right) / Math.max(points.length, 1);
    const barWidth = Math.max(1, slot * 0.72);
    const columns = points.map((point, n) => {
      let base = 0;
      const x = left + slot * n + (slot - barWidth) / 2;
      const segments = point.values.map((value, seriesIndex) => {
        const from = y(base);
        base += value;
        const to = y(base);
        return value > 0 && svg("rect", { class: `s${seriesIndex + 1}`, x, y: to, width: barWidth, height: Math.max(from - to, 1) });
      });
      const tooltip = `${point.title}: ${series.map((name, seriesIndex) => `${format(point.values[seriesIndex])} ${name}`).join(", ")}`;
      const hoverArea = svg("rect", { x: left + slot * n, y: top, width: slot, height: height - top - bottom, fill: "transparent" });
      return svg("g", { class: "hoverable" }, svg("title", {}, tooltip), hoverArea, segments);
    });
    return [gridLines(tickValues, y, format, width), columns, axisLabels(points, (n) => left + slot * (n + 0.5), slot, labelEvery)];
  };
  return chartFigure(title, { series, rows: points.map((point) => [point.title, ...point.values.map(format)]) }, draw);
}

/** A line chart. Points with the value `null` interrupt the line. Axis ticks are multiples of `unit`. */
export function lineChart({ title, points, format = String, target = null, maxAtLeast = 0, unit = 1, seriesName }) {
  const { height, left, right, top, bottom } = CHART;
  const values = points.map((point) => point.value).filter((value) => value !== null);
  const tickValues = axisTicks(Math.max(...values, target ?? 0, maxAtLeast) / unit).map((step) => step * unit);
  const axisMax = tickValues.at(-1);
  const y = (value) => top + (height - top - bottom) * (1 - value / axisMax);
  const draw = (width) => {
    const slot = (width - left - right) / Math.max(points.length, 1);
    const x = (n) => left + slot * (n + 0.5);
    let path = "";
    let isGap = true;
    points.forEach((point, n) => {
      if (point.value === null) {
        isGap = true;
        return;
      }
      path += `${isGap ? "M" : "L"}${x(n).toFixed(1)} ${y(point.value).toFixed(1)}`;
      isGap = false;
    });
    const dots = points.map(
      (point, n) =>
        point.value !== null &&
        svg("circle", { class: "s1 hoverable", cx: x(n), cy: y(point.value), r: 3.5 }, svg("title", {}, `${point.title}: ${format(point.value)}`)),
    );
    return [
      gridLines(tickValues, y, format, width),
      target !== null && svg("line", { class: "target", x1: left, x2: width - right, y1: y(target), y2: y(target) }),
      path && svg("path", { class: "line", d: path }),
      dots,
      axisLabels(points, x, slot, 1),
    ];
  };
  const rows = points.map((point) => [point.title, point.value === null ? "not measured" : format(point.value)]);
  return chartFigure(title, { series: [seriesName], rows }, draw);
}

function gridLines(tickValues, y, format, width) {
  const { left, right } = CHART;
  return tickValues.map((value, n) => [
    svg("line", { class: n === 0 ? "axis" : "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
    svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, format(value)),
  ]);
}

/** Labels of the horizontal axis, as many as fit. */
function axisLabels(points, x, slot, labelEvery) {
  let step = labelEvery;
  while (slot * step < LABEL_WIDTH_MIN && step < points.length) step += labelEvery;
  return points.map((point, n) => n % step === 0 && point.label && svg("text", { x: x(n), y: CHART.height - 6, "text-anchor": "middle" }, point.label));
}

function chartFigure(title, { series, rows }, draw) {
  const swatch = (n) => svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { class: `s${n + 1}`, width: 10, height: 10 }));
  const drawing = svg("svg", { class: "drawing", height: CHART.height, "aria-hidden": "true", focusable: "false" });
  const element = h(
    "figure",
    { class: "chart" },
    drawing,
    series.length > 1 && h("div", { class: "legend", "aria-hidden": "true" }, series.map((name, n) => h("span", {}, swatch(n), name))),
    h("details", { class: "chart-toggle" }, h("summary", {}, "Show data", h("span", { class: "visually-hidden" }, `: ${title}`))),
    h(
      "div",
      { class: "chart-numbers" },
      h(
        "table",
        {},
        h("caption", { class: "visually-hidden" }, title),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Time"), series.map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, rows.map(([head, ...cells]) => h("tr", {}, h("th", { scope: "row" }, head), cells.map((cell) => h("td", {}, cell))))),
      ),
    ),
  );
  let width = 0;
  new ResizeObserver(([entry]) => {
    const available = Math.max(WIDTH_MIN, Math.floor(entry.contentRect.width));
    if (available === width) return;
    width = available;
    drawing.setAttribute("viewBox", `0 0 ${width} ${CHART.height}`);
    setChildren(drawing, draw(width));
  }).observe(element);
  return element;
}
