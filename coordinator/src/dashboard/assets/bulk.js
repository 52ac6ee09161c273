// One thing done to many tasks: first it is counted which are meant, then a person confirms that number, then it is
// done a page at a time.

import { isAbort, post } from "./api.js";
import { priorityField } from "./actions.js";
import { alert, dialog, field, news } from "./dialogs.js";
import { h } from "./dom.js";
import { count, line, plural } from "./format.js";

/** Tasks of one request, at most. */
const PAGE = 500;
/** Titles that the question names. */
const NAMED = 5;

const ACTS = [
  { act: "pause", name: "Pause", done: "paused" },
  { act: "unpause", name: "Unpause", done: "unpaused" },
  { act: "retry", name: "Retry", done: "put back", reason: true },
  { act: "reprioritize", name: "Priority", done: "given another priority", priority: true },
  { act: "cancel", name: "Cancel", done: "cancelled", danger: true, reason: true },
];

/**
 * The buttons. `meant`: `{ chosen(), filter(), filtered, busy(on), done(), again() }`; `busy()` says whether something is
 * under way, during which a press does nothing. The buttons keep the focus meanwhile, so they are not `disabled`.
 */
export function bulkBar(meant, chosen) {
  const idle = chosen === 0 && !meant.filtered;
  const press = async (one) => {
    if (meant.busy()) return;
    meant.busy(true);
    try {
      await start(one, meant);
    } catch (error) {
      if (!isAbort(error)) alert(error.message);
    } finally {
      meant.busy(false);
    }
  };
  return ACTS.map((one) =>
    h("button", { type: "button", class: one.danger ? "danger" : null, disabled: idle, "aria-disabled": meant.busy() ? "true" : null, on: { click: () => press(one) } }, one.name),
  );
}

/** What a request names: the chosen tasks, or what the filter lets through. */
function pagesOf(meant) {
  const chosen = meant.chosen();
  if (chosen.length === 0) return [{ filter: { ...clean(meant.filter()), limit: PAGE } }];
  const pages = [];
  for (let n = 0; n < chosen.length; n += PAGE) pages.push({ tasks: chosen.slice(n, n + PAGE) });
  return pages;
}

function clean(filter) {
  return Object.fromEntries(Object.entries(filter).filter(([, word]) => word));
}

/** Sends all pages; a filter's go on where the answer says. */
async function* each(meant, request) {
  for (const page of pagesOf(meant)) {
    let before = null;
    do {
      const filter = page.filter && { ...page.filter, ...(before ? { before } : {}) };
      const answer = await post("/v1/tasks/bulk", { ...request, ...(filter ? { filter } : { tasks: page.tasks }) });
      yield answer.tasks;
      before = page.filter ? (answer.next ?? null) : null;
    } while (before);
  }
}

async function start(one, meant) {
  const act = one.priority ? { reprioritize: 0 } : one.act;
  const found = [];
  for await (const tasks of each(meant, { act, dry_run: true })) found.push(...tasks);
  if (found.length === 0) return news("No task is meant.");
  const states = new Map();
  for (const task of found) states.set(task.state, (states.get(task.state) ?? 0) + 1);
  const fields = await dialog({
    title: `${one.name === "Priority" ? "Another priority for" : one.name} ${plural(found.length, "task")}?`,
    body: [
      h("p", {}, [...states].map(([state, n]) => `${count(n)} ${state}`).join(", ")),
      h("ul", {}, found.slice(0, NAMED).map((task) => h("li", { class: "clip" }, h("bdi", {}, line(task.title || "untitled", 120))))),
      found.length > NAMED && h("p", { class: "muted" }, `and ${count(found.length - NAMED)} more`),
      one.priority && priorityField(),
      one.reason && field("Reason", "reason", { hint: "Optional; it stands in the log." }),
    ],
    act: `${one.name === "Priority" ? "Set for" : one.name} ${plural(found.length, "task")}`,
    danger: one.danger,
    close: "Leave them",
  });
  if (!fields) return;
  const request = { act: one.priority ? { reprioritize: Number(fields.priority) } : one.act, reason: fields.reason ?? "" };
  const refused = [];
  let [done, broke] = [0, null];
  // Those that were counted, and none that came in between.
  const counted = { chosen: () => found.map((task) => task.id), filter: () => ({}) };
  try {
    for await (const tasks of each(counted, request)) {
      for (const task of tasks) {
        if (task.refused) refused.push(task);
        else done += 1;
      }
    }
  } catch (error) {
    broke = error;
  }
  if (refused.length) alert(`${plural(refused.length, "task")} refused: ${line(refused[0].refused, 200)}`);
  if (broke === null) {
    news(`${plural(done, "task")} ${one.done}`);
    return meant.done();
  }
  // Without an answer nobody knows whether the last page was carried out; the list, asked for again, tells.
  const perhaps = broke.status === 0 ? "; those that were asked for last may be as well" : "";
  alert(`${count(done)} of ${plural(found.length, "task")} ${one.done}; then: ${broke.message}${perhaps}`);
  meant.again();
}
