// Metrics page: the twelve metrics by week against their targets, and a comparison of engines and models. Values are
// sums of the fractions in the log; a metric without measurements is shown as not measured, never as zero.

import { get, isAbortError } from "../api.js";
import { lineChart } from "../charts.js";
import { h, setChildren } from "../dom.js";
import { formatCount, formatDateTime, formatDuration, formatUsd, isolatedText, pluralize } from "../format.js";
import { emptyNote, formatModel, panel, stateBadge, table } from "../components.js";
import { replaceQuery } from "../router.js";

const WEEK_CHOICES = [4, 8, 12, 26];
const DAY_MS = 86_400_000;
const WEEK_MS = 7 * DAY_MS;
/** Tasks per page, and most pages that are summed. */
const PAGE_SIZE = 200;
const PAGES_MAX = 25;

const METRIC_NAMES = {
  task_success_rate: "Tasks succeeded",
  patch_apply_rate: "Edits applied",
  build_pass_rate: "Builds passing",
  test_pass_rate: "Tests passing",
  regression_rate: "Regressions",
  rework_rate: "Rework",
  time_to_plan_s: "Time to plan",
  time_to_complete_s: "Time to completion",
  tool_error_rate: "Failed tool calls",
  policy_denial_rate: "Denied calls per task",
  sandbox_violation_rate: "Sandbox violations per task",
  artifact_completeness: "Required artifacts present",
};

const isDuration = (metric) => metric.endsWith("_s");
const formatMetric = (metric, value) => (value === null || value === undefined ? "not measured" : isDuration(metric) ? formatDuration(value * 1000) : `${Number((value * 100).toFixed(1))} %`);
const formatTarget = (view) => `${view.side === "at_least" ? "≥" : "≤"} ${formatMetric(view.metric, view.target)}`;

/** Adds the value of a fraction and whether it meets the target. The value is null if nothing was measured. */
function withVerdict(view) {
  const { of: numerator, all: denominator } = view.ratio;
  if (denominator === 0) return { ...view, value: null, verdict: "not_measured" };
  const value = numerator / (denominator * (isDuration(view.metric) ? 1000 : 1));
  const isMet = view.side === "at_least" ? value >= view.target : value <= view.target;
  return { ...view, value, verdict: isMet ? "met" : "missed" };
}

/** Sums the metrics of several tasks or weeks by name. */
function sumMetrics(lists) {
  const sums = new Map();
  for (const view of lists.flat()) {
    const previous = sums.get(view.metric);
    const ratio = previous ? { of: previous.ratio.of + view.ratio.of, all: previous.ratio.all + view.ratio.all } : view.ratio;
    sums.set(view.metric, { ...view, ratio });
  }
  return new Map([...sums].map(([metric, view]) => [metric, withVerdict(view)]));
}

export async function open(main, { query, signal }) {
  const choice = {
    weeks: WEEK_CHOICES.includes(Number(query.get("weeks"))) ? Number(query.get("weeks")) : 8,
    scripted: query.get("scripted") === "1",
    metric: METRIC_NAMES[query.get("metric")] ? query.get("metric") : "task_success_rate",
  };
  const container = h("div", { class: "metrics" });
  const status = h("span", { class: "muted", role: "status" });
  let loadAbort = new AbortController();
  const refresh = async () => {
    loadAbort.abort();
    loadAbort = new AbortController();
    const loadSignal = AbortSignal.any([signal, loadAbort.signal]);
    updateUrl(choice);
    container.setAttribute("aria-busy", "true");
    setChildren(status, "Loading…");
    try {
      const data = await fetchData(choice, loadSignal);
      setChildren(status, summarize(data));
      drawMetrics(container, data, choice);
    } catch (error) {
      if (isAbortError(error) || loadSignal.aborted) return;
      setChildren(status, error.message);
    } finally {
      if (!loadSignal.aborted) container.removeAttribute("aria-busy");
    }
  };
  setChildren(main, h("div", { class: "head" }, h("h1", {}, "Metrics"), status), filterForm(choice, refresh), container);
  await refresh();
}

function updateUrl({ weeks, scripted, metric }) {
  const query = new URLSearchParams();
  if (weeks !== 8) query.set("weeks", weeks);
  if (scripted) query.set("scripted", "1");
  if (metric !== "task_success_rate") query.set("metric", metric);
  replaceQuery(query);
}

function filterForm(choice, refresh) {
  return h(
    "form",
    { class: "filters", "aria-label": "Metrics filters", on: { submit: (event) => event.preventDefault() } },
    h(
      "div",
      { class: "field" },
      h("label", { for: "weeks" }, "Weeks"),
      h("select", { id: "weeks", on: { change: (event) => ((choice.weeks = Number(event.target.value)), refresh()) } }, WEEK_CHOICES.map((n) => h("option", { value: String(n), selected: n === choice.weeks }, String(n)))),
    ),
    h("label", {}, h("input", { type: "checkbox", checked: choice.scripted, on: { change: (event) => ((choice.scripted = event.target.checked), refresh()) } }), " Include scripted models"),
  );
}

/**
 * Reads pages from the newest backwards, up to `PAGES_MAX`. Returns whether that was everything, and otherwise the
 * start of the covered time.
 */
async function readPages(path, query, onPage, signal) {
  let after = null;
  let from = null;
  for (let n = 0; n < PAGES_MAX; n += 1) {
    const page = await get(path, { ...query, after, limit: PAGE_SIZE }, { signal });
    onPage(page);
    after = page.next ?? null;
    from = page.from ?? null;
    if (!after) return { isComplete: true, from: null };
  }
  return { isComplete: false, from };
}

/** Start of the Monday that begins a range of `weeks` weeks up to now, as an ISO string. */
function firstMonday(weeks) {
  const now = new Date();
  const day = Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate() - ((now.getUTCDay() + 6) % 7));
  return new Date(day - (weeks - 1) * WEEK_MS).toISOString();
}

/** ISO 8601 name of the week that begins on a Monday, such as `2026-W47`. Its year is the year of its Thursday. */
export function isoWeek(monday) {
  const thursday = new Date(monday + 3 * DAY_MS);
  const year = thursday.getUTCFullYear();
  const number = 1 + Math.floor((thursday - Date.UTC(year, 0, 1)) / WEEK_MS);
  return `${year}-W${String(number).padStart(2, "0")}`;
}

/** All weeks from the first with measurements until now, including weeks without any. */
function metricsByWeek(data, choice) {
  const from = Date.parse(firstMonday(choice.weeks));
  const names = Array.from({ length: choice.weeks }, (_, n) => isoWeek(from + n * WEEK_MS));
  const first = names.findIndex((week) => data.weeks.has(week));
  return names.slice(Math.max(first, 0)).map((week) => {
    const { tasks, lists } = data.weeks.get(week) ?? { tasks: 0, lists: [] };
    return { week, tasks, metrics: sumMetrics(lists) };
  });
}

async function fetchData(choice, signal) {
  const from = firstMonday(choice.weeks);
  const data = { weeks: new Map(), tasks: [], leftOut: 0, specs: new Map(), costs: new Map(), isComplete: true, from: null };
  const metrics = readPages(
    "/v1/metrics",
    { from, scripted: choice.scripted ? "true" : null },
    (page) => {
      data.tasks.push(...page.tasks);
      data.leftOut += page.scripted_left_out;
      for (const week of page.weeks) {
        if (!week.week) continue;
        const previous = data.weeks.get(week.week) ?? { tasks: 0, lists: [] };
        data.weeks.set(week.week, { tasks: previous.tasks + week.tasks, lists: [...previous.lists, week.metrics] });
      }
    },
    signal,
  );
  Object.assign(data, await metrics);
  if (data.tasks.length === 0) return data;
  const [specs, costs] = await Promise.all([loadSpecs(data, signal), loadCosts(data, from, signal)]);
  data.isComplete &&= specs && costs.isComplete;
  return data;
}

/** Loads engine and model of the measured tasks. Returns whether all were found. */
async function loadSpecs(data, signal) {
  const wanted = new Set(data.tasks.map((task) => task.task));
  let before = null;
  for (let n = 0; n < PAGES_MAX && wanted.size > 0; n += 1) {
    const page = await get("/v1/tasks", { state: "completed,cancelled,discarded", before, limit: PAGE_SIZE }, { signal });
    for (const task of page.tasks) {
      if (wanted.delete(task.id)) data.specs.set(task.id, { engine: task.spec.engine, model: formatModel(task.spec.model) });
    }
    before = page.next ?? null;
    if (!before) break;
  }
  return wanted.size === 0;
}

function loadCosts(data, from, signal) {
  const onPage = (page) => {
    for (const run of page.runs) {
      const cost = run.rows.reduce((total, row) => total + row.sums.cost_nusd, 0);
      const unpriced = run.rows.some((row) => row.sums.unpriced > 0);
      const previous = data.costs.get(run.task) ?? { cost: 0, unpriced: false };
      data.costs.set(run.task, { cost: previous.cost + cost, unpriced: previous.unpriced || unpriced });
    }
  };
  return readPages("/v1/cost", { from }, onPage, signal);
}

function summarize({ tasks, leftOut, isComplete, from }) {
  return [
    pluralize(tasks.length, "task"),
    leftOut > 0 && `${pluralize(leftOut, "task")} with scripted models excluded`,
    !isComplete && `only the newest are included${from ? `, those that ended since ${formatDateTime(from)}` : ""}; docket metrics covers all`,
  ]
    .filter(Boolean)
    .join("; ");
}

function drawMetrics(container, data, choice) {
  if (data.tasks.length === 0) {
    setChildren(container, panel("No data", {}, emptyNote(data.leftOut ? "All tasks of these weeks used scripted models, which are excluded by default. Use the checkbox above to include them." : "No tasks ended in these weeks.")));
    return;
  }
  const weeks = metricsByWeek(data, choice);
  const all = sumMetrics(data.tasks.map((task) => task.metrics));
  const chart = h("div", {});
  const draw = () => setChildren(chart, trendChart(weeks, all, choice, draw));
  draw();
  setChildren(container, weekTable(weeks, all), chart, comparisonTable(data));
}

/** A value with its verdict, shown by icon and color. */
function metricCell(view) {
  if (!view || view.value === null) return h("span", { class: "muted", title: "not measured" }, h("span", { "aria-hidden": "true" }, "–"), h("span", { class: "visually-hidden" }, "not measured"));
  const { of: numerator, all: denominator } = view.ratio;
  const title = isDuration(view.metric) ? `mean of ${formatCount(denominator)}` : `${formatCount(numerator)} of ${formatCount(denominator)}`;
  return h("span", { title }, stateBadge(view.verdict === "met" ? "completed" : "discarded", [formatMetric(view.metric, view.value), h("span", { class: "visually-hidden" }, view.verdict === "met" ? ", target met" : ", target missed")]));
}

function weekTable(weeks, all) {
  const columns = [
    { head: "Metric", className: "nowrap", cell: (metric) => h("span", { title: metric }, METRIC_NAMES[metric]) },
    { head: "Target", className: "number", cell: (metric) => formatTarget(all.get(metric)) },
    { head: "All", className: "number", cell: (metric) => metricCell(all.get(metric)) },
    ...weeks.toReversed().map(({ week, tasks, metrics }) => ({
      head: h("span", { title: pluralize(tasks, "task") }, week),
      className: "number",
      cell: (metric) => metricCell(metrics.get(metric)),
    })),
  ];
  return panel("Metrics by week", { aside: "✓ target met, ✕ missed, – not measured" }, table("Metrics by week", columns, Object.keys(METRIC_NAMES)));
}

function trendChart(weeks, all, choice, draw) {
  const { metric } = choice;
  const view = all.get(metric);
  const points = weeks.map((week) => ({ label: week.week.slice(5), title: week.week, value: week.metrics.get(metric)?.value ?? null }));
  const change = (event) => {
    choice.metric = event.target.value;
    updateUrl(choice);
    draw();
    document.getElementById("trend-metric")?.focus();
  };
  const select = h(
    "select",
    { id: "trend-metric", "aria-label": "Chart metric", on: { change } },
    Object.entries(METRIC_NAMES).map(([name, label]) => h("option", { value: name, selected: name === metric }, label)),
  );
  const chart = lineChart({ title: `${METRIC_NAMES[metric]}, by week`, seriesName: METRIC_NAMES[metric], points, target: view.target, maxAtLeast: isDuration(metric) ? 0 : 1, unit: isDuration(metric) ? 60 : 1, format: (value) => formatMetric(metric, value) });
  return panel("Trend", { aside: select }, h("div", { class: "panel-body" }, chart, h("p", { class: "hint" }, `The dashed line marks the target, ${formatTarget(view)}.`)));
}

const COMPARED_METRICS = ["task_success_rate", "patch_apply_rate", "test_pass_rate", "regression_rate", "tool_error_rate", "time_to_complete_s"];

function comparisonTable(data) {
  const groups = new Map();
  for (const task of data.tasks) {
    const spec = data.specs.get(task.task);
    if (!spec) continue;
    const key = `${spec.engine}\t${spec.model}`;
    const group = groups.get(key) ?? { ...spec, tasks: 0, lists: [], cost: 0, costed: 0, unpriced: false };
    const cost = data.costs.get(task.task);
    group.tasks += 1;
    group.lists.push(task.metrics);
    if (cost) {
      group.cost += cost.cost;
      group.costed += 1;
      group.unpriced ||= cost.unpriced;
    }
    groups.set(key, group);
  }
  const rows = [...groups.values()].map((group) => ({ ...group, metrics: sumMetrics(group.lists) })).sort((a, b) => b.tasks - a.tasks);
  const costCell = (row) => {
    if (row.costed === 0) return h("span", { class: "muted" }, "–");
    if (row.unpriced && row.cost === 0) return h("span", { class: "muted", title: "The model has no price" }, "no price");
    return formatUsd(row.cost / row.costed);
  };
  const columns = [
    { head: "Engine", cell: (row) => row.engine },
    { head: "Model", cell: (row) => isolatedText(row.model, 60) },
    { head: "Tasks", className: "number", cell: (row) => formatCount(row.tasks) },
    ...COMPARED_METRICS.map((metric) => ({ head: METRIC_NAMES[metric], className: "number", cell: (row) => metricCell(row.metrics.get(metric)) })),
    { head: "Cost per task", className: "number", cell: costCell },
  ];
  return panel("Engines and models", {}, rows.length ? table("Engines and models compared", columns, rows) : emptyNote("Nothing to compare."));
}
