// Overview page: tasks that need a person, running and ended tasks, charts, cost, queues and workers. It refreshes
// every few seconds.

import { ApiError, get } from "../api.js";
import { taskActionButtons } from "../task-actions.js";
import { barChart, lineChart } from "../charts.js";
import { h, reconcileChildren, setChildren, updateChildren } from "../dom.js";
import { elapsedTime, formatCompact, formatCount, formatDateTime, formatDay, formatTime, formatTimeAgo, formatUsd, isolatedText, pluralize, renderProse, shortId, singleLine, timeAgo } from "../format.js";
import { poll } from "../live.js";
import { emptyNote, formatModel, isUndelivered, panel, persistentPanel, progressBar, stateBadge, taskLink, taskStateBadge, updateTable } from "../components.js";
import { setTitle, urlTo } from "../router.js";

/** How often the overview is refreshed. */
const REFRESH_MS = 3000;
/** Days in the cost chart, most pages of runs that are summed for it, and how often it is refreshed. */
const COST_DAYS = 14;
const COST_PAGES_MAX = 20;
const COST_REFRESH_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

export async function open(main, { signal }) {
  const view = { range: "day", endedHours: 24, overview: null };
  const parts = buildPage(main, view, { refresh: () => refresh(), redraw: () => draw(view.overview) });
  const draw = (overview) => {
    view.overview = overview;
    drawOverview(parts, overview, view, () => refresh());
  };
  const load = async (roundSignal) => draw(await get("/v1/overview", { since: hoursAgo(view.endedHours) }, { signal: roundSignal }));
  const refresh = poll(load, { intervalMs: REFRESH_MS, skipFirst: true }, signal);
  await refresh();
  if (!view.overview) throw new ApiError(0, { detail: "the coordinator is not responding; this page will retry" });
  pollCosts(parts.cost, signal);
}

/** Rounded to the minute, so that consecutive requests have the same URL. */
const hoursAgo = (hours) => new Date(Math.floor(Date.now() / 60_000) * 60_000 - hours * HOUR_MS).toISOString();

/** Creates the parts of the page; they stay in place while their contents are redrawn. */
function buildPage(main, view, { refresh, redraw }) {
  const placeholder = () => h("div", {});
  const parts = {
    head: placeholder(),
    needsYou: placeholder(),
    running: persistentPanel("Running"),
    ended: persistentPanel("Ended"),
    throughput: persistentPanel("Throughput", "panel-body"),
    depth: persistentPanel("Queue depth", "panel-body"),
    cost: placeholder(),
    queues: persistentPanel("Queues"),
    workers: persistentPanel("Workers"),
  };
  const chooseRange = (range) => () => ((view.range = range), redraw());
  addChoices(parts.ended.panel, "Since", ENDED_RANGES.map(([hours, label]) => [label, () => view.endedHours === hours, () => ((view.endedHours = hours), refresh())]));
  addChoices(parts.throughput.panel, "Range", [["24 h", () => view.range === "day", chooseRange("day")], ["7 days", () => view.range === "week", chooseRange("week")]]);
  setChildren(parts.cost, panel("Cost by day", {}, emptyNote("Loading…")));
  setChildren(
    main,
    h("div", { class: "head" }, h("h1", {}, "Overview"), parts.head),
    h(
      "div",
      { class: "overview" },
      h("div", { class: "column" }, parts.needsYou, parts.running.panel, parts.ended.panel),
      h("div", { class: "column" }, parts.throughput.panel, parts.depth.panel, parts.cost, parts.queues.panel, parts.workers.panel),
    ),
  );
  return parts;
}

/** Signature of the data that each container shows; unchanged data is not redrawn. */
const drawnData = new WeakMap();
function drawIfChanged(container, data, draw) {
  const signature = JSON.stringify(data);
  if (drawnData.get(container) === signature) return;
  drawnData.set(container, signature);
  draw();
}

function drawOverview(parts, overview, view, refresh) {
  const hour = Math.floor(Date.parse(overview.at) / HOUR_MS);
  drawIfChanged(parts.head, overview.tasks, () => updateChildren(parts.head, stateCounts(overview)));
  drawNeedsYou(parts.needsYou, overview, refresh);
  drawRunning(parts.running, overview);
  drawEnded(parts.ended, overview, view);
  drawIfChanged(parts.throughput.body, [overview.hours, hour, view.range], () => drawThroughput(parts.throughput, overview, view));
  drawIfChanged(parts.depth.body, [overview.tasks, overview.hours, overview.submitted, hour, view.range], () => drawQueueDepth(parts.depth, overview, view));
  drawQueues(parts.queues, overview);
  drawWorkers(parts.workers, overview);
}

const countOf = (counts, state) => counts.find((one) => one.state === state)?.count ?? 0;

function stateCounts({ tasks }) {
  const shownStates = ["running", "available", "blocked", "retryable", "scheduled", "pending"].filter((state) => countOf(tasks, state) > 0 || state === "running");
  return h(
    "div",
    { class: "tally" },
    shownStates.map((state) => h("a", { class: "muted", href: urlTo.backlog(`?state=${state}`) }, h("strong", {}, formatCount(countOf(tasks, state))), ` ${state}`)),
  );
}

/** Number of discarded tasks; the list may contain only some of them. */
const discardedCount = (overview) => Math.max(overview.discarded_count ?? 0, overview.discarded.length);

/** Everything that needs a person, in one list. */
function drawNeedsYou(container, overview, refresh) {
  const deadLetters = overview.notifications_dead ?? 0;
  const items = [
    ...overview.asks.map((task) => ({ kind: "task", task })),
    ...overview.discarded.map((task) => ({ kind: "task", task })),
    ...overview.budgets.map((budget) => ({ kind: "budget", budget })),
    ...(deadLetters > 0 ? [{ kind: "notifications", deadLetters }] : []),
  ];
  const waiting = overview.blocked.filter((one) => ["person", "provider", "budget"].includes(one.why)).reduce((sum, one) => sum + one.count, 0);
  const total = waiting + discardedCount(overview) + overview.budgets.length + (deadLetters > 0 ? 1 : 0);
  setTitle(`${total > 0 ? `(${formatCount(total)}) ` : ""}Overview`);
  let list = container.querySelector("ul.attention");
  if (!list) {
    list = h("ul", { class: "attention", "aria-live": "polite", "aria-relevant": "additions" });
    setChildren(container, panel("Needs you", { id: "needs-you", aside: h("span", { class: "panel-count" }) }, list));
  }
  setChildren(container.querySelector(".panel-count"), total > items.length ? `${formatCount(items.length)} of ${formatCount(total)}` : total > 0 ? formatCount(total) : null);
  if (items.length === 0) {
    reconcileChildren(list, [{}], { key: () => "nothing", create: () => h("li", {}, h("span", { class: "summary muted" }, "Nothing needs you right now.")) });
    return;
  }
  reconcileChildren(list, items, {
    key: (item) => (item.kind === "task" ? item.task.id : item.kind === "budget" ? item.budget.batch : "notifications"),
    create: (item) => (item.kind === "task" ? taskItem(item.task, refresh) : item.kind === "budget" ? budgetItem(item.budget) : undeliveredItem(item.deadLetters)),
  });
}

/** Actions that unblock a task. The others are only on the page of the task or run. */
const QUICK_ACTIONS = ["Answer", "Unpause", "Accept", "Retry", "Resume"];

function taskItem(task, refresh) {
  const record = { ...task, spec: { title: task.title, priority: 0 } };
  const buttons = taskActionButtons(record, refresh).filter((button) => QUICK_ACTIONS.includes(button.textContent));
  const message = task.message ?? (isUndelivered(task) ? "The result could not be delivered." : null);
  return h(
    "li",
    {},
    taskStateBadge(task),
    h("div", { class: "summary" }, h("span", { class: "truncate" }, taskLink(task)), message && h("p", { class: "detail", dir: "auto" }, singleLine(message))),
    h("div", { class: "actions" }, h("span", { class: "muted nowrap" }, timeAgo(task.ended_at ?? task.submitted_at)), buttons),
  );
}

function budgetItem({ batch, budget, used }) {
  const { tokens: tokenLimit, cost_nusd: costLimit } = budget.budget;
  const fraction = Math.max(tokenLimit ? used.tokens / tokenLimit : 0, costLimit ? used.cost_nusd / costLimit : 0);
  const usage = [costLimit && `${formatUsd(used.cost_nusd)} of ${formatUsd(costLimit)}`, tokenLimit && `${formatCompact(used.tokens)} of ${formatCompact(tokenLimit)} tokens`].filter(Boolean).join(", ");
  return h(
    "li",
    {},
    stateBadge("blocked", budget.spent ? "budget spent" : "budget low"),
    h(
      "div",
      { class: "summary" },
      h("a", { href: urlTo.backlog(`?batch=${batch}`) }, `Batch ${shortId(batch)}`),
      h("p", { class: "detail" }, usage),
      progressBar(fraction, budget.spent ? "bad" : "warn"),
    ),
    h("div", { class: "actions" }, h("code", { class: "muted" }, `docket batch ${shortId(batch)}`)),
  );
}

/** Notifications whose delivery failed for good. */
function undeliveredItem(deadLetters) {
  return h(
    "li",
    {},
    stateBadge("discarded", "not delivered"),
    h("div", { class: "summary" }, pluralize(deadLetters, "notification"), h("p", { class: "detail" }, "Delivery failed; will not be retried automatically.")),
    h("div", { class: "actions" }, h("code", { class: "muted" }, "docket notify")),
  );
}

function drawRunning({ aside, body }, { running: tasks, tasks: counts, workers: workerList }) {
  const names = new Map(workerList.map((worker) => [worker.incarnation, worker.name]));
  const total = countOf(counts, "running");
  const columns = [
    { head: "Task", className: "truncate-cell", cell: ({ task }) => taskLink(task) },
    { head: "Model", cell: ({ task }) => isolatedText(formatModel(task.model), 40) },
    { head: "Worker", className: "narrow-hidden", cell: ({ worker }) => isolatedText(worker, 30) },
    { head: "Running for", className: "number", cell: ({ task }) => (task.leased_at ? elapsedTime(task.leased_at) : "—") },
  ];
  drawIfChanged(aside, [total, tasks.length], () => updateChildren(aside, total > tasks.length ? h("a", { href: urlTo.backlog("?state=running") }, `all ${formatCount(total)}`) : total > 0 ? formatCount(total) : null));
  const rows = tasks.map((task) => ({ task, worker: names.get(task.worker) ?? "—" }));
  updateTable(body, "Running tasks", columns, rows, { key: ({ task }) => task.id, emptyText: "No running tasks." });
}

/** Time ranges of the list of ended tasks: hours and label. */
const ENDED_RANGES = [[8, "8 h"], [24, "24 h"], [168, "7 days"]];

function drawEnded({ panel: panelElement, aside, body }, { ended, ended_counts: counts, since: from }, view) {
  const columns = [
    { head: "Task", className: "truncate-cell", cell: (task) => taskLink(task) },
    { head: "State", cell: (task) => taskStateBadge(task) },
    { head: "Duration", className: "number narrow-hidden", cell: (task) => duration(task) },
    { head: "Ended", className: "number", cell: (task) => timeAgo(task.ended_at) },
  ];
  const summary = counts.filter((one) => one.count > 0).map((one) => `${formatCount(one.count)} ${one.state}`).join(", ");
  drawIfChanged(aside, [summary, from], () => setChildren(aside, h("span", { title: `since ${formatDateTime(from)}` }, summary)));
  updatePressed(panelElement);
  updateTable(body, "Ended tasks", columns, ended, { key: (task) => task.id, emptyText: "No tasks ended." });
}

/** Time from submission to end, including waiting. */
function duration(task) {
  const ms = Date.parse(task.ended_at) - Date.parse(task.submitted_at);
  const hours = ms / HOUR_MS;
  if (hours >= 1) return `${hours.toFixed(1)} h`;
  return ms >= 60_000 ? `${Math.round(ms / 60_000)} min` : `${Math.round(ms / 1000)} s`;
}

/** Buckets of a time chart: a point with labels per bucket, and a function from instant to bucket index. */
function timeBuckets(at, isDay) {
  const step = isDay ? HOUR_MS : 6 * HOUR_MS;
  const bucketCount = isDay ? 24 : 28;
  const now = Math.floor(Date.parse(at) / HOUR_MS) * HOUR_MS;
  const first = Math.floor(now / step) * step - (bucketCount - 1) * step;
  const points = Array.from({ length: bucketCount }, (_, index) => {
    const start = first + index * step;
    return { label: isDay ? formatTime(start) : formatDay(start), title: isDay ? formatTime(start) : `${formatDay(start)}, ${formatTime(start)}` };
  });
  return { points, bucketOf: (instant) => Math.floor((Date.parse(instant) - first) / step) };
}

function drawThroughput({ panel: panelElement, aside, body }, { hours, at }, view) {
  const isDay = view.range === "day";
  const { points: buckets, bucketOf } = timeBuckets(at, isDay);
  const points = buckets.map((point) => ({ ...point, values: [0, 0, 0] }));
  const seriesIndex = { completed: 0, discarded: 1, cancelled: 2 };
  for (const hour of hours) {
    const point = points[bucketOf(hour.at)];
    if (point) point.values[seriesIndex[hour.state]] += hour.count;
  }
  const chart = barChart({
    title: isDay ? "Ended tasks by hour, last 24 hours" : "Ended tasks by six hours, last 7 days",
    points,
    series: ["completed", "discarded", "cancelled"],
    labelEvery: isDay ? 3 : 4,
    integers: true,
    format: (value) => formatCount(value),
  });
  const sum = points.reduce((total, point) => total + point.values.reduce((a, b) => a + b, 0), 0);
  setChildren(aside, `${pluralize(sum, "task")} ended`);
  updateChildren(body, chart);
  updatePressed(panelElement);
}

/**
 * Draws the number of open tasks at the end of each bucket, computed backwards from the current number with the tasks
 * submitted and ended since. A retried task counts as if it had never ended.
 */
function drawQueueDepth({ aside, body }, { tasks, hours, submitted, at }, view) {
  const isDay = view.range === "day";
  const { points, bucketOf } = timeBuckets(at, isDay);
  const change = points.map(() => 0);
  for (const hour of submitted ?? []) if (bucketOf(hour.at) in change) change[bucketOf(hour.at)] += hour.count;
  for (const hour of hours) if (bucketOf(hour.at) in change) change[bucketOf(hour.at)] -= hour.count;
  const open = tasks.filter((one) => !["completed", "cancelled", "discarded"].includes(one.state)).reduce((sum, one) => sum + one.count, 0);
  const depths = [];
  let now = open;
  for (let n = points.length - 1; n >= 0; n -= 1) {
    depths[n] = Math.max(0, now);
    now -= change[n];
  }
  const chart = lineChart({
    title: isDay ? "Open tasks by hour, last 24 hours" : "Open tasks by six hours, last 7 days",
    seriesName: "open",
    points: points.map((point, n) => ({ ...point, value: depths[n] })),
    maxAtLeast: 4,
    format: (value) => formatCount(value),
  });
  setChildren(aside, `${pluralize(open, "task")} open`);
  updateChildren(body, chart);
}

/** The choice buttons of each panel, with a function that tells whether each is chosen. */
const panelChoices = new WeakMap();

/** Adds a group of choice buttons to the header of a panel. `choices` are `[text, isChosen(), onClick()]`. */
function addChoices(panelElement, label, choices) {
  const buttons = choices.map(([text, , onClick]) => h("button", { type: "button", on: { click: onClick } }, text));
  panelElement.querySelector("header").append(h("span", { class: "tabs", role: "group", "aria-label": label }, buttons));
  panelChoices.set(panelElement, choices.map(([, isChosen], n) => [buttons[n], isChosen]));
  updatePressed(panelElement);
}

/** Updates the pressed state of the choice buttons of a panel. */
function updatePressed(panelElement) {
  for (const [button, isChosen] of panelChoices.get(panelElement)) button.setAttribute("aria-pressed", String(isChosen()));
}

/**
 * Sums the cost of the last days, reading pages of runs from the newest backwards, and refreshes it regularly. Days
 * that were complete at the last refresh are not read again. A day that was read only in part is left out, because its
 * sum would be wrong.
 */
function pollCosts(container, signal) {
  const days = new Map();
  let lastDay = null;
  const load = async (roundSignal) => {
    const today = Math.floor(Date.now() / DAY_MS) * DAY_MS;
    const first = today - (COST_DAYS - 1) * DAY_MS;
    const from = Math.max(first, lastDay ?? first);
    const totals = new Map();
    let [cursor, readFrom, pages] = [null, null, 0];
    do {
      const page = await get("/v1/cost/days", { from: new Date(from).toISOString(), after: cursor, limit: 100 }, { signal: roundSignal });
      for (const one of page.days) {
        const at = Date.parse(one.at);
        const sum = totals.get(at) ?? { cost: 0, tokens: 0, unpriced: 0 };
        sum.cost += one.sums.cost_nusd;
        sum.unpriced += one.sums.unpriced;
        sum.tokens += totalTokens(one.sums.usage);
        totals.set(at, sum);
      }
      cursor = page.next ?? null;
      readFrom = page.from ?? null;
      pages += 1;
    } while (cursor && pages < COST_PAGES_MAX);
    // The day in which reading stopped is incomplete.
    const completeFrom = cursor === null ? from : readFrom === null ? Infinity : Math.ceil(Date.parse(readFrom) / DAY_MS) * DAY_MS;
    for (let at = from; at <= today; at += DAY_MS) days.set(at, at < completeFrom ? null : (totals.get(at) ?? { cost: 0, tokens: 0, unpriced: 0 }));
    for (const at of [...days.keys()]) if (at < first) days.delete(at);
    lastDay = today;
    drawIfChanged(container, [...days], () => updateChildren(container, costPanel(days)));
  };
  const onError = (error) => {
    // Keep the last result until the next success.
    if (lastDay === null) setChildren(container, panel("Cost by day", {}, h("p", { class: "empty" }, error.message)));
  };
  poll(load, { intervalMs: COST_REFRESH_MS, onError }, signal);
}

const totalTokens = (usage) =>
  (usage.input_tokens ?? 0) + (usage.cache_read_tokens ?? 0) + (usage.cache_write_tokens ?? 0) + (usage.output_tokens ?? 0);

/** Formats a day; cost is summed by UTC day. */
const formatUtcDay = (at) => new Date(at).toLocaleDateString(undefined, { month: "short", day: "numeric", timeZone: "UTC" });

function costPanel(days) {
  const complete = [...days].filter(([, sums]) => sums !== null).sort(([a], [b]) => a - b);
  if (complete.length === 0) return panel("Cost by day", {}, h("p", { class: "empty" }, renderProse("Too many runs to total here. `docket cost` totals all of them.")));
  const sum = (field) => complete.reduce((total, [, sums]) => total + sums[field], 0);
  const [cost, tokenCount, unpriced] = [sum("cost"), sum("tokens"), sum("unpriced")];
  // Without prices there is no cost to show, so show tokens.
  const hasPrices = cost > 0 || tokenCount === 0;
  const points = complete.map(([at, sums]) => ({ label: formatUtcDay(at), title: formatUtcDay(at), values: [hasPrices ? sums.cost / 1e9 : sums.tokens] }));
  const formatDollars = (dollars) => (dollars === 0 ? "$0" : dollars < 0.01 ? `$${dollars.toPrecision(1)}` : dollars < 10 ? `$${dollars.toFixed(2)}` : `$${formatCount(Math.round(dollars))}`);
  const missingDays = [...days].filter(([, sums]) => sums === null).map(([at]) => at);
  const missesToday = missingDays.includes(Math.max(...days.keys()));
  const notes = [
    "Days in UTC",
    hasPrices && `${formatCompact(tokenCount)} tokens`,
    unpriced > 0 && `${pluralize(unpriced, "call")} to models without a price`,
    missingDays.length > 0 && `${pluralize(missingDays.length, "day")}${missesToday ? ", including today," : ""} with too many runs to total ${missingDays.length === 1 ? "is" : "are"} left out; \`docket cost\` totals all runs`,
  ].filter(Boolean);
  const totalText = hasPrices ? formatUsd(cost) : `${formatCompact(tokenCount)} tokens`;
  return panel(
    "Cost by day",
    { aside: missingDays.length > 0 ? `${totalText} since ${formatUtcDay(complete[0][0])}` : `${totalText} in ${COST_DAYS} days` },
    h("div", { class: "panel-body" }, barChart({ title: hasPrices ? "Cost of model calls by day" : "Tokens of model calls by day", points, series: [hasPrices ? "dollars" : "tokens"], format: hasPrices ? formatDollars : formatCompact }), h("p", { class: "hint" }, renderProse(notes.join("; ")))),
  );
}

function drawQueues({ aside, body }, { queues: all, queues_left_out: leftOut = 0 }) {
  const queueCount = (queue, state) => countOf(queue.tasks, state);
  const countCell = (state) => (queue) => {
    const n = queueCount(queue, state);
    return n ? h("a", { href: urlTo.backlog(`?queue=${encodeURIComponent(queue.name)}&state=${state}`) }, formatCount(n)) : h("span", { class: "muted" }, "0");
  };
  const columns = [
    { head: "Queue", cell: (queue) => [queue.name, queue.settings.paused && h("span", { class: "tag" }, "paused")] },
    { head: "Running", className: "number", cell: (queue) => [countCell("running")(queue), queue.settings.running_max && h("span", { class: "muted" }, ` of ${queue.settings.running_max}`)] },
    { head: "Available", className: "number", cell: countCell("available") },
    { head: "Blocked", className: "number", cell: countCell("blocked") },
    { head: "Oldest", className: "number", cell: (queue) => (queue.oldest_available_at ? elapsedTime(queue.oldest_available_at) : "—") },
  ];
  setChildren(aside, leftOut > 0 ? `busiest ${formatCount(all.length)} of ${formatCount(all.length + leftOut)}` : null);
  updateTable(body, "Queues", columns, all, { key: (queue) => queue.name, emptyText: "No queue has open tasks." });
}

function drawWorkers({ aside, body }, { workers: all }) {
  const present = all.filter((worker) => worker.held > 0 || !worker.draining);
  const load = (worker) => {
    const slots = worker.room?.slots ?? null;
    if (slots === null) return formatCount(worker.held);
    return [`${worker.held} of ${slots} `, progressBar(slots ? worker.held / slots : 0)];
  };
  const columns = [
    { head: "Worker", cell: (worker) => [isolatedText(worker.name, 40), worker.draining && h("span", { class: "tag" }, "draining")] },
    { head: "Load", className: "nowrap", cell: load },
    { head: "Sandbox", cell: (worker) => layerDetails(worker.about?.layers ?? []) },
    { head: "Last seen", className: "number", cell: (worker) => timeAgo(worker.seen_at) },
  ];
  setChildren(aside, present.length ? formatCount(present.length) : null);
  updateTable(body, "Workers", columns, present, {
    key: (worker) => worker.incarnation,
    // Heartbeats change `seen_at` every few seconds; that alone must not recreate the row.
    signatureOf: ({ seen_at: _, ...rest }) => JSON.stringify(rest),
    update: (row, worker) => updateSeenAt(row.querySelector("time"), worker.seen_at),
    emptyText: "No workers connected. Start one with docket worker or docket up.",
  });
}

function updateSeenAt(time, at) {
  if (time.dataset.ago === at) return;
  Object.assign(time, { dateTime: at, title: formatDateTime(at), textContent: formatTimeAgo(Date.now() - Date.parse(at)) });
  time.dataset.ago = at;
}

function layerDetails(names) {
  if (names.length === 0) return h("span", { class: "muted" }, "not reported");
  const list = names.map((name) => singleLine(name, 60)).join(", ");
  return h("details", {}, h("summary", {}, pluralize(names.length, "layer")), h("span", { class: "muted" }, list));
}
