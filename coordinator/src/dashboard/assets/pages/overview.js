// What happened, what needs a person, what it cost: asked again every few seconds while somebody looks.

import { ApiError, get } from "../api.js";
import { taskActs } from "../actions.js";
import { bars, lineChart } from "../charts.js";
import { fill, h, keep, refill } from "../dom.js";
import { about, ago, clock, count, day, line, plural, prose, running, said, short, since, usd, whole } from "../format.js";
import { poll } from "../live.js";
import { bar, empty, lasting, modelOf, panel, retable, state, stateOf, titleOf, undelivered } from "../parts.js";
import { title, to } from "../router.js";

/** How often all of it is asked for. */
const EVERY_MS = 3000;
/** Days whose cost is shown, pages of runs that are added up for them, and how long the sum stands. */
const COST_DAYS = 14;
const COST_PAGES_MAX = 20;
const COST_STANDS_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

export async function open(main, { signal }) {
  const view = { range: "day", since: 24, last: null };
  const parts = skeleton(main, view, { again: () => again(), redraw: () => tell(view.last) });
  const tell = (overview) => {
    view.last = overview;
    tellAll(parts, overview, view, () => again());
  };
  const ask = async (of) => tell(await get("/v1/overview", { since: hoursAgo(view.since) }, { signal: of }));
  const again = poll(ask, { every: EVERY_MS, later: true }, signal);
  await again();
  if (!view.last) throw new ApiError(0, { detail: "the coordinator does not answer; this page tries again" });
  costs(parts.cost, signal);
}

/** To the minute, so that what is asked is the same for a while. */
const hoursAgo = (hours) => new Date(Math.floor(Date.now() / 60_000) * 60_000 - hours * HOUR_MS).toISOString();

/** The page's parts, each of which stays while what is in it is told anew. */
function skeleton(main, view, { again, redraw: drawn }) {
  const place = () => h("div", {});
  const parts = {
    head: place(),
    asks: place(),
    running: lasting("Running"),
    ended: lasting("Ended"),
    through: lasting("Throughput", "within"),
    depth: lasting("Queue depth", "within"),
    cost: place(),
    queues: lasting("Queues"),
    workers: lasting("Workers"),
  };
  const choose = (range) => () => ((view.range = range), drawn());
  tabbed(parts.ended.panel, "Since", SINCE.map(([hours, words]) => [words, () => view.since === hours, () => ((view.since = hours), again())]));
  tabbed(parts.through.panel, "Range", [["24 h", () => view.range === "day", choose("day")], ["7 days", () => view.range === "week", choose("week")]]);
  fill(parts.cost, panel("Cost by day", {}, empty("Adding up…")));
  fill(
    main,
    h("div", { class: "head" }, h("h1", {}, "Overview"), parts.head),
    h(
      "div",
      { class: "overview" },
      h("div", { class: "column" }, parts.asks, parts.running.panel, parts.ended.panel),
      h("div", { class: "column" }, parts.through.panel, parts.depth.panel, parts.cost, parts.queues.panel, parts.workers.panel),
    ),
  );
  return parts;
}

/** What each place tells of: where that is the same, what stands there stays. */
const told = new WeakMap();
function tellOf(place, of, tell) {
  const sign = JSON.stringify(of);
  if (told.get(place) === sign) return;
  told.set(place, sign);
  tell();
}

function tellAll(parts, overview, view, again) {
  const hour = Math.floor(Date.parse(overview.at) / HOUR_MS);
  tellOf(parts.head, overview.tasks, () => refill(parts.head, tally(overview)));
  asks(parts.asks, overview, again);
  runningTasks(parts.running, overview);
  endedTasks(parts.ended, overview, view);
  tellOf(parts.through.body, [overview.hours, hour, view.range], () => throughput(parts.through, overview, view));
  tellOf(parts.depth.body, [overview.tasks, overview.hours, overview.submitted, hour, view.range], () => depth(parts.depth, overview, view));
  queues(parts.queues, overview);
  workers(parts.workers, overview);
}

const of = (counts, word) => counts.find((one) => one.state === word)?.count ?? 0;

function tally({ tasks }) {
  const told = ["running", "available", "blocked", "retryable", "scheduled", "pending"].filter((word) => of(tasks, word) > 0 || word === "running");
  return h(
    "div",
    { class: "tally" },
    told.map((word) => h("a", { class: "muted", href: to.backlog(`?state=${word}`) }, h("strong", {}, count(of(tasks, word))), ` ${word}`)),
  );
}

/** How many failed in all, as far as the coordinator says so. */
const discardedOf = (overview) => Math.max(overview.discarded_count ?? 0, overview.discarded.length);

/** One list, so that whoever comes in the morning reads from the top. */
function asks(place, overview, again) {
  const dead = overview.notifications_dead ?? 0;
  const items = [
    ...overview.asks.map((task) => ({ kind: "task", task })),
    ...overview.discarded.map((task) => ({ kind: "task", task })),
    ...overview.budgets.map((budget) => ({ kind: "budget", budget })),
    ...(dead > 0 ? [{ kind: "letters", dead }] : []),
  ];
  const waiting = overview.blocked.filter((one) => ["person", "provider", "budget"].includes(one.why)).reduce((sum, one) => sum + one.count, 0);
  const all = waiting + discardedOf(overview) + overview.budgets.length + (dead > 0 ? 1 : 0);
  title(`${all > 0 ? `(${count(all)}) ` : ""}Overview`);
  let list = place.querySelector("ul.asks");
  if (!list) {
    list = h("ul", { class: "asks", "aria-live": "polite", "aria-relevant": "additions" });
    fill(place, panel("Needs you", { id: "needs-you", more: h("span", { class: "how-many" }) }, list));
  }
  fill(place.querySelector(".how-many"), all > items.length ? `${count(items.length)} of ${count(all)}` : all > 0 ? count(all) : null);
  if (items.length === 0) {
    keep(list, [{}], { key: () => "nothing", make: () => h("li", {}, h("span", { class: "what muted" }, "Nothing. Everything goes on without you.")) });
    return;
  }
  keep(list, items, {
    key: (item) => (item.kind === "task" ? item.task.id : item.kind === "budget" ? item.budget.batch : "letters"),
    make: (item) => (item.kind === "task" ? ask(item.task, again) : item.kind === "budget" ? nearly(item.budget) : letters(item.dead)),
  });
}

/** The acts that end the waiting; the others are where one looks at the task. */
const SOON = ["Answer", "Unpause", "Accept", "Retry", "Resume"];

function ask(task, again) {
  const record = { ...task, spec: { title: task.title, priority: 0 } };
  const acts = taskActs(record, again).filter((button) => SOON.includes(button.textContent));
  const words = task.message ?? (undelivered(task) ? "its result could not be delivered" : null);
  return h(
    "li",
    {},
    stateOf(task),
    h("div", { class: "what" }, h("span", { class: "clip" }, titleOf(task)), words && h("p", { class: "words", dir: "auto" }, line(words))),
    h("div", { class: "acts" }, h("span", { class: "muted nowrap" }, since(task.ended_at ?? task.submitted_at)), acts),
  );
}

function nearly({ batch, budget, used }) {
  const { tokens, cost_nusd: cost } = budget.budget;
  const part = Math.max(tokens ? used.tokens / tokens : 0, cost ? used.cost_nusd / cost : 0);
  const told = [cost && `${usd(used.cost_nusd)} of ${usd(cost)}`, tokens && `${about(used.tokens)} of ${about(tokens)} tokens`].filter(Boolean).join(", ");
  return h(
    "li",
    {},
    state("blocked", budget.spent ? "budget spent" : "budget nearly spent"),
    h(
      "div",
      { class: "what" },
      h("a", { href: to.backlog(`?batch=${batch}`) }, `Batch ${short(batch)}`),
      h("p", { class: "words" }, told),
      bar(part, budget.spent ? "bad" : "warn"),
    ),
    h("div", { class: "acts" }, h("code", { class: "muted" }, `docket batch ${short(batch)}`)),
  );
}

/** What nobody took of that which people and programs elsewhere are told. */
function letters(dead) {
  return h(
    "li",
    {},
    state("discarded", "not delivered"),
    h("div", { class: "what" }, plural(dead, "notification"), h("p", { class: "words" }, "Whom they were for did not take them, and is not asked again by itself.")),
    h("div", { class: "acts" }, h("code", { class: "muted" }, "docket notify")),
  );
}

function runningTasks({ more, body }, { running: tasks, tasks: counts, workers: of_workers }) {
  const names = new Map(of_workers.map((worker) => [worker.incarnation, worker.name]));
  const all = of(counts, "running");
  const columns = [
    { head: "Task", kind: "cut", cell: ({ task }) => titleOf(task) },
    { head: "Model", cell: ({ task }) => said(modelOf(task.model), 40) },
    { head: "Worker", kind: "narrow-hidden", cell: ({ worker }) => said(worker, 30) },
    { head: "For", kind: "number", cell: ({ task }) => (task.leased_at ? running(task.leased_at) : "—") },
  ];
  tellOf(more, [all, tasks.length], () => refill(more, all > tasks.length ? h("a", { href: to.backlog("?state=running") }, `all ${count(all)}`) : all > 0 ? count(all) : null));
  const rows = tasks.map((task) => ({ task, worker: names.get(task.worker) ?? "—" }));
  retable(body, "Tasks that run", columns, rows, { key: ({ task }) => task.id, nothing: "Nothing runs." });
}

/** Hours for which ended tasks are told. */
const SINCE = [[8, "8 h"], [24, "24 h"], [168, "7 days"]];

function endedTasks({ panel: made, more, body }, { ended, ended_counts: counts, since: from }, view) {
  const columns = [
    { head: "Task", kind: "cut", cell: (task) => titleOf(task) },
    { head: "State", cell: (task) => stateOf(task) },
    { head: "Took", kind: "number narrow-hidden", cell: (task) => took(task) },
    { head: "Ended", kind: "number", cell: (task) => since(task.ended_at) },
  ];
  const words = counts.filter((one) => one.count > 0).map((one) => `${count(one.count)} ${one.state}`).join(", ");
  tellOf(more, [words, from], () => fill(more, h("span", { title: `since ${whole(from)}` }, words)));
  pressed(made);
  retable(body, "Tasks that ended", columns, ended, { key: (task) => task.id, nothing: "Nothing ended." });
}

/** From submission to end: what a person waited. */
function took(task) {
  const ms = Date.parse(task.ended_at) - Date.parse(task.submitted_at);
  const hours = ms / HOUR_MS;
  if (hours >= 1) return `${hours.toFixed(1)} h`;
  return ms >= 60_000 ? `${Math.round(ms / 60_000)} min` : `${Math.round(ms / 1000)} s`;
}

/** The points of a chart over time: when each begins, its words, and how one finds the point of an instant. */
function timesOf(at, isDay) {
  const step = isDay ? HOUR_MS : 6 * HOUR_MS;
  const n = isDay ? 24 : 28;
  const now = Math.floor(Date.parse(at) / HOUR_MS) * HOUR_MS;
  const first = Math.floor(now / step) * step - (n - 1) * step;
  const points = Array.from({ length: n }, (_, k) => {
    const begins = first + k * step;
    return { label: isDay ? clock(begins) : day(begins), title: isDay ? clock(begins) : `${day(begins)}, ${clock(begins)}` };
  });
  return { points, of: (instant) => Math.floor((Date.parse(instant) - first) / step) };
}

function throughput({ panel: made, more, body }, { hours, at }, view) {
  const isDay = view.range === "day";
  const { points: bare, of: placeOf } = timesOf(at, isDay);
  const points = bare.map((point) => ({ ...point, values: [0, 0, 0] }));
  const place = { completed: 0, discarded: 1, cancelled: 2 };
  for (const hour of hours) {
    const point = points[placeOf(hour.at)];
    if (point) point.values[place[hour.state]] += hour.count;
  }
  const chart = bars({
    title: isDay ? "Tasks that ended, by hour of the last day" : "Tasks that ended, by six hours of the last week",
    points,
    series: ["completed", "discarded", "cancelled"],
    every: isDay ? 3 : 4,
    whole: true,
    tell: (value) => count(value),
  });
  const sum = points.reduce((all, point) => all + point.values.reduce((a, b) => a + b, 0), 0);
  fill(more, `${plural(sum, "task")} ended`);
  refill(body, chart);
  pressed(made);
}

/**
 * How many tasks had not ended at the end of each hour: as many as now, less those that came since, and those that have
 * ended since. A task that was put back into the backlog counts as if it had never left it.
 */
function depth({ more, body }, { tasks, hours, submitted, at }, view) {
  const isDay = view.range === "day";
  const { points, of: placeOf } = timesOf(at, isDay);
  const change = points.map(() => 0);
  for (const hour of submitted ?? []) if (placeOf(hour.at) in change) change[placeOf(hour.at)] += hour.count;
  for (const hour of hours) if (placeOf(hour.at) in change) change[placeOf(hour.at)] -= hour.count;
  const open = tasks.filter((one) => !["completed", "cancelled", "discarded"].includes(one.state)).reduce((sum, one) => sum + one.count, 0);
  const stood = [];
  let now = open;
  for (let n = points.length - 1; n >= 0; n -= 1) {
    stood[n] = Math.max(0, now);
    now -= change[n];
  }
  const chart = lineChart({
    title: isDay ? "Tasks that had not ended, by hour of the last day" : "Tasks that had not ended, by six hours of the last week",
    name: "not ended",
    points: points.map((point, n) => ({ ...point, value: stood[n] })),
    most: 4,
    tell: (value) => count(value),
  });
  fill(more, `${plural(open, "task")} now`);
  refill(body, chart);
}

/** Which of a panel's choices each is. */
const chosen = new WeakMap();

/** Puts a choice of a few into a panel's head: words, whether it is that one now, what choosing it does. */
function tabbed(made, label, choices) {
  const buttons = choices.map(([words, , run]) => h("button", { type: "button", on: { click: run } }, words));
  made.querySelector("header").append(h("span", { class: "tabs", role: "group", "aria-label": label }, buttons));
  chosen.set(made, choices.map(([, is], n) => [buttons[n], is]));
  pressed(made);
}

/** Says which of its choices a panel shows. */
function pressed(made) {
  for (const [button, is] of chosen.get(made)) button.setAttribute("aria-pressed", String(is()));
}

/**
 * Adds up the cost of the last days, a page of runs at a time from the newest back, and again while somebody looks: days
 * that were over at the last look stand as they are. A day of which not all was read is none, for its sum would be false.
 */
function costs(place, signal) {
  const days = new Map();
  let looked = null;
  const look = async (of) => {
    const today = Math.floor(Date.now() / DAY_MS) * DAY_MS;
    const first = today - (COST_DAYS - 1) * DAY_MS;
    const from = Math.max(first, looked ?? first);
    const found = new Map();
    let [after, known, pages] = [null, null, 0];
    do {
      const page = await get("/v1/cost/days", { from: new Date(from).toISOString(), after, limit: 100 }, { signal: of });
      for (const one of page.days) {
        const at = Date.parse(one.at);
        const sum = found.get(at) ?? { cost: 0, tokens: 0, unpriced: 0 };
        sum.cost += one.sums.cost_nusd;
        sum.unpriced += one.sums.unpriced;
        sum.tokens += tokens(one.sums.usage);
        found.set(at, sum);
      }
      after = page.next ?? null;
      known = page.from ?? null;
      pages += 1;
    } while (after && pages < COST_PAGES_MAX);
    // Of the day within which reading ended a part is lacking.
    const read = after === null ? from : known === null ? Infinity : Math.ceil(Date.parse(known) / DAY_MS) * DAY_MS;
    for (let at = from; at <= today; at += DAY_MS) days.set(at, at < read ? null : (found.get(at) ?? { cost: 0, tokens: 0, unpriced: 0 }));
    for (const at of [...days.keys()]) if (at < first) days.delete(at);
    looked = today;
    tellOf(place, [...days], () => refill(place, costPanel(days)));
  };
  const failed = (error) => {
    // What was added up stands until it can be again.
    if (looked === null) fill(place, panel("Cost by day", {}, h("p", { class: "empty" }, error.message)));
  };
  poll(look, { every: COST_STANDS_MS, failed }, signal);
}

const tokens = (usage) =>
  (usage.input_tokens ?? 0) + (usage.cache_read_tokens ?? 0) + (usage.cache_write_tokens ?? 0) + (usage.output_tokens ?? 0);

/** A day of the log, which is one of UTC. */
const dayOf = (at) => new Date(at).toLocaleDateString(undefined, { month: "short", day: "numeric", timeZone: "UTC" });

function costPanel(days) {
  const read = [...days].filter(([, sums]) => sums !== null).sort(([a], [b]) => a - b);
  if (read.length === 0) return panel("Cost by day", {}, h("p", { class: "empty" }, prose("More runs than are added up here. `docket cost` adds all up.")));
  const sum = (part) => read.reduce((total, [, sums]) => total + sums[part], 0);
  const [cost, used, unpriced] = [sum("cost"), sum("tokens"), sum("unpriced")];
  // Models without a price cost nothing that is known: then their tokens say more.
  const priced = cost > 0 || used === 0;
  const points = read.map(([at, sums]) => ({ label: dayOf(at), title: dayOf(at), values: [priced ? sums.cost / 1e9 : sums.tokens] }));
  const money = (dollars) => (dollars === 0 ? "$0" : dollars < 0.01 ? `$${dollars.toPrecision(1)}` : dollars < 10 ? `$${dollars.toFixed(2)}` : `$${count(Math.round(dollars))}`);
  const lacking = [...days].filter(([, sums]) => sums === null).map(([at]) => at);
  const isLast = lacking.includes(Math.max(...days.keys()));
  const notes = [
    "Days of UTC",
    priced && `${about(used)} tokens`,
    unpriced > 0 && `${plural(unpriced, "call")} of models without a price`,
    lacking.length > 0 && `${plural(lacking.length, "day")}${isLast ? ", today among them," : ""} with more runs than are added up here ${lacking.length === 1 ? "is" : "are"} left out; \`docket cost\` adds all up`,
  ].filter(Boolean);
  const told_as = priced ? usd(cost) : `${about(used)} tokens`;
  return panel(
    "Cost by day",
    { more: lacking.length > 0 ? `${told_as} since ${dayOf(read[0][0])}` : `${told_as} in ${COST_DAYS} days` },
    h("div", { class: "within" }, bars({ title: priced ? "Cost of model calls by day" : "Tokens of model calls by day", points, series: [priced ? "dollars" : "tokens"], tell: priced ? money : about }), h("p", { class: "hint" }, prose(notes.join("; ")))),
  );
}

function queues({ more, body }, { queues: all, queues_left_out: others = 0 }) {
  const get_count = (queue, word) => of(queue.tasks, word);
  const cell = (word) => (queue) => {
    const n = get_count(queue, word);
    return n ? h("a", { href: to.backlog(`?queue=${encodeURIComponent(queue.name)}&state=${word}`) }, count(n)) : h("span", { class: "muted" }, "0");
  };
  const columns = [
    { head: "Queue", cell: (queue) => [queue.name, queue.settings.paused && h("span", { class: "tag" }, "paused")] },
    { head: "Running", kind: "number", cell: (queue) => [cell("running")(queue), queue.settings.running_max && h("span", { class: "muted" }, ` of ${queue.settings.running_max}`)] },
    { head: "Available", kind: "number", cell: cell("available") },
    { head: "Blocked", kind: "number", cell: cell("blocked") },
    { head: "Oldest", kind: "number", cell: (queue) => (queue.oldest_available_at ? running(queue.oldest_available_at) : "—") },
  ];
  fill(more, others > 0 ? `the ${count(all.length)} with the most to do, of ${count(all.length + others)}` : null);
  retable(body, "Queues", columns, all, { key: (queue) => queue.name, nothing: "No queue has a task that has not ended." });
}

function workers({ more, body }, { workers: all }) {
  const here = all.filter((worker) => worker.held > 0 || !worker.draining);
  const load = (worker) => {
    const slots = worker.room?.slots ?? null;
    if (slots === null) return count(worker.held);
    return [`${worker.held} of ${slots} `, bar(slots ? worker.held / slots : 0)];
  };
  const columns = [
    { head: "Worker", cell: (worker) => [said(worker.name, 40), worker.draining && h("span", { class: "tag" }, "drains")] },
    { head: "Load", kind: "nowrap", cell: load },
    { head: "Sandbox", cell: (worker) => layers(worker.about?.layers ?? []) },
    { head: "Heard of", kind: "number", cell: (worker) => since(worker.seen_at) },
  ];
  fill(more, here.length ? count(here.length) : null);
  retable(body, "Workers", columns, here, {
    key: (worker) => worker.incarnation,
    // Each is heard of every few seconds, and what one reads of it is the same.
    sign: ({ seen_at: _, ...rest }) => JSON.stringify(rest),
    update: (row, worker) => heard(row.querySelector("time"), worker.seen_at),
    nothing: "No worker is there. docket worker, or docket up, starts one.",
  });
}

function heard(time, at) {
  if (time.dataset.ago === at) return;
  Object.assign(time, { dateTime: at, title: whole(at), textContent: ago(Date.now() - Date.parse(at)) });
  time.dataset.ago = at;
}

function layers(names) {
  if (names.length === 0) return h("span", { class: "muted" }, "not said");
  const list = names.map((name) => line(name, 60)).join(", ");
  return h("details", {}, h("summary", {}, plural(names.length, "layer")), h("span", { class: "muted" }, list));
}
