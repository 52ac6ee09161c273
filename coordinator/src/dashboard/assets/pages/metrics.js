// How well tasks went: the twelve metrics by week against their targets, and engines and models compared. All of it is
// added up from the log's own fractions; what was not measured is told as such and is never a zero.

import { get, isAbort } from "../api.js";
import { lineChart } from "../charts.js";
import { fill, h } from "../dom.js";
import { count, plural, said, span, usd, whole } from "../format.js";
import { empty, modelOf, panel, state, table } from "../parts.js";
import { remember } from "../router.js";

const WEEKS = [4, 8, 12, 26];
const DAY_MS = 86_400_000;
const WEEK_MS = 7 * DAY_MS;
/** Tasks of a page, and pages that are added up at most. */
const PAGE = 200;
const PAGES_MAX = 25;

const NAMES = {
  task_success_rate: "Tasks that succeeded",
  patch_apply_rate: "Edits that applied",
  build_pass_rate: "Builds that pass",
  test_pass_rate: "Tests that pass",
  regression_rate: "Regressions",
  rework_rate: "Reworked",
  time_to_plan_s: "Time to the plan",
  time_to_complete_s: "Time to completion",
  tool_error_rate: "Tool calls that failed",
  policy_denial_rate: "Calls denied, per task",
  sandbox_violation_rate: "Walls hit, per task",
  artifact_completeness: "Artifacts that are there",
};

const isTime = (metric) => metric.endsWith("_s");
const told = (metric, value) => (value === null || value === undefined ? "not measured" : isTime(metric) ? span(value * 1000) : `${Number((value * 100).toFixed(1))} %`);
const target = (view) => `${view.side === "at_least" ? "≥" : "≤"} ${told(view.metric, view.target)}`;

/** A sum of fractions: its value, and whether the target is met; null = nothing was measured. */
function valued(view) {
  const { of, all } = view.ratio;
  if (all === 0) return { ...view, value: null, verdict: "not_measured" };
  const value = of / (all * (isTime(view.metric) ? 1000 : 1));
  const met = view.side === "at_least" ? value >= view.target : value <= view.target;
  return { ...view, value, verdict: met ? "met" : "missed" };
}

/** Adds views of one kind up. */
function sum(lists) {
  const sums = new Map();
  for (const view of lists.flat()) {
    const had = sums.get(view.metric);
    const ratio = had ? { of: had.ratio.of + view.ratio.of, all: had.ratio.all + view.ratio.all } : view.ratio;
    sums.set(view.metric, { ...view, ratio });
  }
  return new Map([...sums].map(([metric, view]) => [metric, valued(view)]));
}

export async function open(main, { query, signal }) {
  const choice = {
    weeks: WEEKS.includes(Number(query.get("weeks"))) ? Number(query.get("weeks")) : 8,
    scripted: query.get("scripted") === "1",
    metric: NAMES[query.get("metric")] ? query.get("metric") : "task_success_rate",
  };
  const place = h("div", { class: "metrics" });
  const note = h("span", { class: "muted", role: "status" });
  let load = new AbortController();
  const again = async () => {
    load.abort();
    load = new AbortController();
    const both = AbortSignal.any([signal, load.signal]);
    keepChoice(choice);
    place.setAttribute("aria-busy", "true");
    fill(note, "Adding up…");
    try {
      const found = await fetched(choice, both);
      fill(note, words(found));
      tellAll(place, found, choice);
    } catch (error) {
      if (isAbort(error) || both.aborted) return;
      fill(note, error.message);
    } finally {
      if (!both.aborted) place.removeAttribute("aria-busy");
    }
  };
  fill(main, h("div", { class: "head" }, h("h1", {}, "Metrics"), note), controls(choice, again), place);
  await again();
}

function keepChoice({ weeks, scripted, metric }) {
  const query = new URLSearchParams();
  if (weeks !== 8) query.set("weeks", weeks);
  if (scripted) query.set("scripted", "1");
  if (metric !== "task_success_rate") query.set("metric", metric);
  remember(query);
}

function controls(choice, again) {
  return h(
    "form",
    { class: "filters", "aria-label": "What is added up", on: { submit: (event) => event.preventDefault() } },
    h(
      "div",
      { class: "field" },
      h("label", { for: "weeks" }, "Weeks"),
      h("select", { id: "weeks", on: { change: (event) => ((choice.weeks = Number(event.target.value)), again()) } }, WEEKS.map((n) => h("option", { value: String(n), selected: n === choice.weeks }, String(n)))),
    ),
    h("label", {}, h("input", { type: "checkbox", checked: choice.scripted, on: { change: (event) => ((choice.scripted = event.target.checked), again()) } }), " with models that follow a script"),
  );
}

/** Pages of an answer from the newest back, until there are no more or enough: whether that was all, or since when it was. */
async function pages(path, query, take, signal) {
  let after = null;
  let from = null;
  for (let n = 0; n < PAGES_MAX; n += 1) {
    const page = await get(path, { ...query, after, limit: PAGE }, { signal });
    take(page);
    after = page.next ?? null;
    from = page.from ?? null;
    if (!after) return { whole: true, from: null };
  }
  return { whole: false, from };
}

/** The first instant of the Monday so many weeks before. */
function monday(weeks) {
  const now = new Date();
  const day = Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate() - ((now.getUTCDay() + 6) % 7));
  return new Date(day - (weeks - 1) * WEEK_MS).toISOString();
}

/** The name of the week that begins on a Monday, by ISO 8601: `2026-W47`. It is of the year that its Thursday is in. */
export function weekOf(monday) {
  const thursday = new Date(monday + 3 * DAY_MS);
  const year = thursday.getUTCFullYear();
  const nth = 1 + Math.floor((thursday - Date.UTC(year, 0, 1)) / WEEK_MS);
  return `${year}-W${String(nth).padStart(2, "0")}`;
}

/** All weeks from the first in which something was measured until now: in some of them nothing was. */
function weeksOf(found, choice) {
  const from = Date.parse(monday(choice.weeks));
  const all = Array.from({ length: choice.weeks }, (_, n) => weekOf(from + n * WEEK_MS));
  const first = all.findIndex((week) => found.weeks.has(week));
  return all.slice(Math.max(first, 0)).map((week) => {
    const { tasks, lists } = found.weeks.get(week) ?? { tasks: 0, lists: [] };
    return { week, tasks, metrics: sum(lists) };
  });
}

async function fetched(choice, signal) {
  const from = monday(choice.weeks);
  const found = { weeks: new Map(), tasks: [], left_out: 0, specs: new Map(), costs: new Map(), whole: true, from: null };
  const metrics = pages(
    "/v1/metrics",
    { from, scripted: choice.scripted ? "true" : null },
    (page) => {
      found.tasks.push(...page.tasks);
      found.left_out += page.scripted_left_out;
      for (const week of page.weeks) {
        if (!week.week) continue;
        const had = found.weeks.get(week.week) ?? { tasks: 0, lists: [] };
        found.weeks.set(week.week, { tasks: had.tasks + week.tasks, lists: [...had.lists, week.metrics] });
      }
    },
    signal,
  );
  Object.assign(found, await metrics);
  if (found.tasks.length === 0) return found;
  const [specs, costs] = await Promise.all([described(found, signal), costed(found, from, signal)]);
  found.whole &&= specs && costs.whole;
  return found;
}

/** Engine and model of the tasks that were measured, the newest first. */
async function described(found, signal) {
  const wanted = new Set(found.tasks.map((task) => task.task));
  let before = null;
  for (let n = 0; n < PAGES_MAX && wanted.size > 0; n += 1) {
    const page = await get("/v1/tasks", { state: "completed,cancelled,discarded", before, limit: PAGE }, { signal });
    for (const task of page.tasks) {
      if (wanted.delete(task.id)) found.specs.set(task.id, { engine: task.spec.engine, model: modelOf(task.spec.model) });
    }
    before = page.next ?? null;
    if (!before) break;
  }
  return wanted.size === 0;
}

function costed(found, from, signal) {
  const take = (page) => {
    for (const run of page.runs) {
      const cost = run.rows.reduce((all, row) => all + row.sums.cost_nusd, 0);
      const unpriced = run.rows.some((row) => row.sums.unpriced > 0);
      const had = found.costs.get(run.task) ?? { cost: 0, unpriced: false };
      found.costs.set(run.task, { cost: had.cost + cost, unpriced: had.unpriced || unpriced });
    }
  };
  return pages("/v1/cost", { from }, take, signal);
}

function words({ tasks, left_out: left, whole: all, from }) {
  return [
    plural(tasks.length, "task"),
    left > 0 && `${plural(left, "task")} with scripted models left out`,
    !all && `only the newest of many are added up${from ? `, all that ended since ${whole(from)}` : ""}; docket metrics tells all`,
  ]
    .filter(Boolean)
    .join("; ");
}

function tellAll(place, found, choice) {
  if (found.tasks.length === 0) {
    fill(place, panel("Nothing was measured", {}, empty(found.left_out ? "All tasks of these weeks follow a script: they say nothing of models. The box above takes them in." : "No task ended in these weeks.")));
    return;
  }
  const weeks = weeksOf(found, choice);
  const all = sum(found.tasks.map((task) => task.metrics));
  const chart = h("div", {});
  const draw = () => fill(chart, trend(weeks, all, choice, draw));
  draw();
  fill(place, byWeek(weeks, all), chart, compared(found));
}

/** A value with its verdict, in a sign as well as in a colour. */
function cell(view) {
  if (!view || view.value === null) return h("span", { class: "muted", title: "not measured" }, h("span", { "aria-hidden": "true" }, "–"), h("span", { class: "unseen" }, "not measured"));
  const { of, all } = view.ratio;
  const title = isTime(view.metric) ? `mean of ${count(all)}` : `${count(of)} of ${count(all)}`;
  return h("span", { title }, state(view.verdict === "met" ? "completed" : "discarded", [told(view.metric, view.value), h("span", { class: "unseen" }, view.verdict === "met" ? ", target met" : ", target missed")]));
}

function byWeek(weeks, all) {
  const columns = [
    { head: "Metric", kind: "nowrap", cell: (metric) => h("span", { title: metric }, NAMES[metric]) },
    { head: "Target", kind: "number", cell: (metric) => target(all.get(metric)) },
    { head: "All", kind: "number", cell: (metric) => cell(all.get(metric)) },
    ...weeks.toReversed().map(({ week, tasks, metrics }) => ({
      head: h("span", { title: plural(tasks, "task") }, week),
      kind: "number",
      cell: (metric) => cell(metrics.get(metric)),
    })),
  ];
  return panel("The twelve, by week", { more: "✓ target met, ✕ missed, – not measured" }, table("Metrics by week", columns, Object.keys(NAMES)));
}

function trend(weeks, all, choice, draw) {
  const { metric } = choice;
  const view = all.get(metric);
  const points = weeks.map((week) => ({ label: week.week.slice(5), title: week.week, value: week.metrics.get(metric)?.value ?? null }));
  const change = (event) => {
    choice.metric = event.target.value;
    keepChoice(choice);
    draw();
    document.getElementById("trend-metric")?.focus();
  };
  const choose = h(
    "select",
    { id: "trend-metric", "aria-label": "Metric of the chart", on: { change } },
    Object.entries(NAMES).map(([name, told_as]) => h("option", { value: name, selected: name === metric }, told_as)),
  );
  const chart = lineChart({ title: `${NAMES[metric]}, by week`, name: NAMES[metric], points, target: view.target, most: isTime(metric) ? 0 : 1, unit: isTime(metric) ? 60 : 1, tell: (value) => told(metric, value) });
  return panel("Over the weeks", { more: choose }, h("div", { class: "within" }, chart, h("p", { class: "hint" }, `The broken line is the target, ${target(view)}.`)));
}

const COMPARED = ["task_success_rate", "patch_apply_rate", "test_pass_rate", "regression_rate", "tool_error_rate", "time_to_complete_s"];

function compared(found) {
  const groups = new Map();
  for (const task of found.tasks) {
    const spec = found.specs.get(task.task);
    if (!spec) continue;
    const key = `${spec.engine}\t${spec.model}`;
    const group = groups.get(key) ?? { ...spec, tasks: 0, lists: [], cost: 0, costed: 0, unpriced: false };
    const cost = found.costs.get(task.task);
    group.tasks += 1;
    group.lists.push(task.metrics);
    if (cost) {
      group.cost += cost.cost;
      group.costed += 1;
      group.unpriced ||= cost.unpriced;
    }
    groups.set(key, group);
  }
  const rows = [...groups.values()].map((group) => ({ ...group, metrics: sum(group.lists) })).sort((a, b) => b.tasks - a.tasks);
  const money = (row) => {
    if (row.costed === 0) return h("span", { class: "muted" }, "–");
    if (row.unpriced && row.cost === 0) return h("span", { class: "muted", title: "its model has no price" }, "no price");
    return usd(row.cost / row.costed);
  };
  const columns = [
    { head: "Engine", cell: (row) => row.engine },
    { head: "Model", cell: (row) => said(row.model, 60) },
    { head: "Tasks", kind: "number", cell: (row) => count(row.tasks) },
    ...COMPARED.map((metric) => ({ head: NAMES[metric], kind: "number", cell: (row) => cell(row.metrics.get(metric)) })),
    { head: "Cost a task", kind: "number", cell: money },
  ];
  return panel("Engines and models", {}, rows.length ? table("Engines and models compared", columns, rows) : empty("Nothing to compare."));
}
