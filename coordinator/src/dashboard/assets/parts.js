// What pages are made of: a task's state, its name, panels and tables.

import { add, fill, h, keep, refill, svg } from "./dom.js";
import { line, said, short } from "./format.js";
import { to } from "./router.js";

/** Each state's sign and tone. The word stands beside it always. */
const STATES = {
  pending: ["still", "M3 8h2M7.5 8h1M11 8h2"],
  scheduled: ["still", "M8 4.5V8l2.2 1.6M8 1.8a6.2 6.2 0 1 0 .01 0"],
  available: ["still", "M8 2.6a5.4 5.4 0 1 0 .01 0"],
  running: ["live", "M8 2a6 6 0 1 1-6 6"],
  waiting: ["still", "M8 2.6a5.4 5.4 0 1 0 .01 0"],
  retryable: ["warn", "M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3"],
  blocked: ["warn", "M5.5 3.5v9M10.5 3.5v9"],
  paused: ["still", "M5.5 3.5v9M10.5 3.5v9"],
  completed: ["good", "M2.8 8.6l3.4 3.4 7-7.6"],
  unverified: ["warn", "M2.8 8.6l3.4 3.4 7-7.6"],
  succeeded: ["good", "M2.8 8.6l3.4 3.4 7-7.6"],
  cancelled: ["still", "M3.5 8h9"],
  superseded: ["still", "M3.5 8h9"],
  discarded: ["bad", "M4 4l8 8M12 4l-8 8"],
  failed: ["bad", "M4 4l8 8M12 4l-8 8"],
};

/** For what a blocked task rests, in the words of a list. */
const WHY = {
  person: "asks",
  child: "waits for a task",
  paused: "paused",
  provider: "provider",
  outage: "outage",
  budget: "budget",
  worker_fault: "faults of workers",
};

/** A state: its sign and its word. */
export function state(word, more = null) {
  const [tone, path] = STATES[word] ?? ["still", "M3.5 8h9"];
  const sign = svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: path }));
  return h("span", { class: "state", data: { tone } }, sign, more ?? word);
}

/**
 * How a run stands, by its timeline and its record: the log alone cannot say whether a worker has it, or it waits for
 * one since its worker died.
 */
export const standing = (timeline, status) => (timeline.standing === "not ended" ? (status ?? "not ended") : timeline.standing);

/** The state of a task's record, with what it rests for. */
export function stateOf(task) {
  if (task.state === "completed" && task.unverified) return state("unverified", "completed, unverified");
  if (task.state !== "blocked") return state(task.state);
  if (undelivered(task)) return state("blocked", "undelivered");
  const why = WHY[task.blocked_why] ?? "blocked";
  return state("blocked", task.unverified ? `${why}, unverified` : why);
}

/** Completed, and its result could not be delivered: a person settles it. */
export const undelivered = (task) => task.state === "blocked" && task.blocked_why === "person" && !task.run;

/** A model as people write it: `provider:name`. */
export const modelOf = (model) => (typeof model === "string" ? model : `${model.provider}:${model.model ?? model.name}`);

export const ended = (task) => ["completed", "cancelled", "discarded"].includes(task.state);

/** Where one looks at a task: at its last run, or at itself where there is none. */
export const addressOf = (task) => (task.last_run ? to.run(task.last_run) : to.task(task.id));

/** A task's title as a link to it. */
export function titleOf(task, address = addressOf(task)) {
  const title = task.spec?.title ?? task.title ?? "";
  return h("a", { href: address }, said(title || "untitled"));
}

export const idOf = (id) => h("span", { class: "mono muted", title: id }, short(id));

/** A part of a page under a heading of its own. `more` stands at the right of the heading. */
export function panel(heading, { more = null, id } = {}, ...children) {
  const name = id ?? `panel-${heading.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return add(
    h("section", { class: "panel", "aria-labelledby": name }, h("header", {}, h("h2", { id: name }, heading), more && h("span", { class: "more" }, more))),
    children,
  );
}

/**
 * A table. `columns`: `{ head, cell(row), kind }`, `kind` = a class for the column's cells; the first column names
 * the row.
 */
export function table(caption, columns, rows) {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: column.kind }, column.head)))),
      h("tbody", {}, rows.map((row) => rowOf(columns, row))),
    ),
  );
}

function rowOf(columns, row) {
  const cell = (column, first) => h(first ? "th" : "td", { class: column.kind, scope: first ? "row" : null }, column.cell(row));
  return h("tr", {}, columns.map((column, n) => cell(column, n === 0)));
}

/**
 * The table that `place` holds, told anew: a row whose `sign` did not change stays as it is, and the table with it, with
 * focus, with how far it was scrolled, with what is open. `nothing` = what stands there where there is no row.
 */
export function retable(place, caption, columns, rows, { key, sign, update, nothing }) {
  if (rows.length === 0) {
    if (place.textContent !== nothing || place.querySelector("table")) refill(place, empty(nothing));
    return;
  }
  if (!place.querySelector("tbody")) fill(place, table(caption, columns, []));
  keep(place.querySelector("tbody"), rows, { key, sign, update, make: (row) => rowOf(columns, row) });
}

/** A panel that stays while what is in it is told anew: the panel, what stands at its heading's right, what is in it. */
export function lasting(heading, kind = null) {
  const more = h("span", { class: "more" });
  const body = h("div", { class: kind });
  const made = panel(heading, {}, body);
  made.querySelector("header").append(more);
  return { panel: made, more, body };
}

export const empty = (text) => h("p", { class: "empty" }, text);

/** A pair of a list of facts; nothing where there is no value. */
export function fact(name, value) {
  if (value === null || value === undefined || value === "" || value === false) return null;
  return [h("dt", {}, name), h("dd", {}, value)];
}

export const facts = (...pairs) => h("dl", { class: "facts" }, pairs);

/** How much of a whole: a bar, told in words beside it. `tone`: `warn` or `bad`. */
export function bar(part, tone = null) {
  const width = Math.max(0, Math.min(1, part)) * 100;
  return svg(
    "svg",
    { class: "bar", data: { tone: tone ?? "plain" }, viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "track", width: 100, height: 8 }),
    svg("rect", { class: "full", width, height: 8 }),
  );
}

/** Text from elsewhere as it is, with its line breaks. */
export const text = (words) => h("pre", { class: "text", dir: "auto", tabindex: "0" }, words);

export { line };
