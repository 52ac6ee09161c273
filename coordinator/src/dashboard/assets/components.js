// Shared UI components: state badges, links to tasks, panels, tables.

import { appendChildren, h, reconcileChildren, setChildren, svg, updateChildren } from "./dom.js";
import { isolatedText, shortId } from "./format.js";
import { urlTo } from "./router.js";

/** Tone and icon path of each state. The icon always appears with the name of the state. */
const STATE_ICONS = {
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

/** Labels for the reason why a task is blocked. */
const BLOCKED_LABELS = {
  person: "needs you",
  child: "child task",
  paused: "paused",
  provider: "provider",
  outage: "outage",
  budget: "budget",
  worker_fault: "worker faults",
};

/** A badge with the icon and name of a state. */
export function stateBadge(state, label = null) {
  const [tone, path] = STATE_ICONS[state] ?? ["still", "M3.5 8h9"];
  const icon = svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: path }));
  return h("span", { class: "state", data: { tone } }, icon, label ?? state);
}

/**
 * The status of a run from its timeline and its record. The log alone cannot tell whether a worker holds the run or
 * whether its worker died and it waits for another.
 */
export const currentRunStatus = (timeline, status) => (timeline.standing === "not ended" ? (status ?? "not ended") : timeline.standing);

/** The badge for a task's state, with the reason if it is blocked. */
export function taskStateBadge(task) {
  if (task.state === "completed" && task.unverified) return stateBadge("unverified", "completed, unverified");
  if (task.state !== "blocked") return stateBadge(task.state);
  if (isUndelivered(task)) return stateBadge("blocked", "undelivered");
  const label = BLOCKED_LABELS[task.blocked_why] ?? "blocked";
  return stateBadge("blocked", task.unverified ? `${label}, unverified` : label);
}

/** Whether the task finished but its result could not be delivered, so that a person has to settle it. */
export const isUndelivered = (task) => task.state === "blocked" && task.blocked_why === "person" && !task.run;

/** Formats a model as `provider:name`. */
export const formatModel = (model) => (typeof model === "string" ? model : `${model.provider}:${model.model ?? model.name}`);

export const isTaskEnded = (task) => ["completed", "cancelled", "discarded"].includes(task.state);

/** URL of a task's last run, or of the task if it has no run. */
export const taskUrl = (task) => (task.last_run ? urlTo.run(task.last_run) : urlTo.task(task.id));

/** A link to a task, labeled with its title. */
export function taskLink(task, url = taskUrl(task)) {
  const title = task.spec?.title ?? task.title ?? "";
  return h("a", { href: url }, isolatedText(title || "untitled"));
}

export const idLabel = (id) => h("span", { class: "mono muted", title: id }, shortId(id));

/** A section with a heading; `aside` is shown at the right end of the heading. */
export function panel(heading, { aside = null, id } = {}, ...children) {
  const headingId = id ?? `panel-${heading.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return appendChildren(
    h("section", { class: "panel", "aria-labelledby": headingId }, h("header", {}, h("h2", { id: headingId }, heading), aside && h("span", { class: "panel-aside" }, aside))),
    children,
  );
}

/** A table. `columns` are `{ head, cell(row), className }`; cells of the first column are row headers. */
export function table(caption, columns, rows) {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", { class: "visually-hidden" }, caption),
      h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: column.className }, column.head)))),
      h("tbody", {}, rows.map((row) => tableRow(columns, row))),
    ),
  );
}

function tableRow(columns, row) {
  const cell = (column, first) => h(first ? "th" : "td", { class: column.className, scope: first ? "row" : null }, column.cell(row));
  return h("tr", {}, columns.map((column, n) => cell(column, n === 0)));
}

/**
 * Updates the table in `container`. Rows with an unchanged signature are kept together with their focus, scroll
 * position and open `<details>`. Without rows, `emptyText` is shown instead.
 */
export function updateTable(container, caption, columns, rows, { key, signatureOf, update, emptyText }) {
  if (rows.length === 0) {
    if (container.textContent !== emptyText || container.querySelector("table")) updateChildren(container, emptyNote(emptyText));
    return;
  }
  if (!container.querySelector("tbody")) setChildren(container, table(caption, columns, []));
  reconcileChildren(container.querySelector("tbody"), rows, { key, signatureOf, update, create: (row) => tableRow(columns, row) });
}

/** A panel that stays in place while its `aside` and `body` are redrawn. */
export function persistentPanel(heading, bodyClass = null) {
  const aside = h("span", { class: "panel-aside" });
  const body = h("div", { class: bodyClass });
  const element = panel(heading, {}, body);
  element.querySelector("header").append(aside);
  return { panel: element, aside, body };
}

export const emptyNote = (text) => h("p", { class: "empty" }, text);

/** An entry of a fact list; null without a value. */
export function fact(label, value) {
  if (value === null || value === undefined || value === "" || value === false) return null;
  return [h("dt", {}, label), h("dd", {}, value)];
}

export const factList = (...pairs) => h("dl", { class: "facts" }, pairs);

/** A decorative progress bar, always next to its value as text. `tone` is `warn` or `bad`. */
export function progressBar(fraction, tone = null) {
  const width = Math.max(0, Math.min(1, fraction)) * 100;
  return svg(
    "svg",
    { class: "bar", data: { tone: tone ?? "plain" }, viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "track", width: 100, height: 8 }),
    svg("rect", { class: "full", width, height: 8 }),
  );
}

/** A block of preformatted, untrusted text. */
export const textBlock = (content) => h("pre", { class: "text", dir: "auto", tabindex: "0" }, content);
