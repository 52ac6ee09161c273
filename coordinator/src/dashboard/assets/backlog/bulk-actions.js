// Bulk actions: a dry run collects the affected tasks, the user confirms their number, and the action is applied in
// pages.

import { isAbortError, post } from "../api.js";
import { priorityField } from "../task-actions.js";
import { formField, openDialog, showAlert, showNotice } from "../dialogs.js";
import { h } from "../dom.js";
import { formatCount, pluralize, singleLine } from "../format.js";

/** Most tasks per request. */
const PAGE_SIZE = 500;
/** Number of titles that the confirmation lists. */
const TITLES_SHOWN = 5;

const BULK_ACTIONS = [
  { act: "pause", name: "Pause", doneText: "paused" },
  { act: "unpause", name: "Unpause", doneText: "unpaused" },
  { act: "retry", name: "Retry", doneText: "retried", reason: true },
  { act: "reprioritize", name: "Priority", doneText: "reprioritized", priority: true },
  { act: "cancel", name: "Cancel", doneText: "cancelled", danger: true, reason: true },
];

/**
 * The buttons of the bulk bar. `selection` is `{ selectedIds(), filter(), isFiltered, busy(on), onDone(),
 * onInterrupted() }`. While an action is in progress (`busy()` returns true), clicks are ignored; the buttons are not
 * `disabled`, so that they keep the focus.
 */
export function bulkActionButtons(selection, selectedCount) {
  const hasNoTarget = selectedCount === 0 && !selection.isFiltered;
  const press = async (action) => {
    if (selection.busy()) return;
    selection.busy(true);
    try {
      await runBulkAction(action, selection);
    } catch (error) {
      if (!isAbortError(error)) showAlert(error.message);
    } finally {
      selection.busy(false);
    }
  };
  return BULK_ACTIONS.map((action) =>
    h("button", { type: "button", class: action.danger ? "danger" : null, disabled: hasNoTarget, "aria-disabled": selection.busy() ? "true" : null, on: { click: () => press(action) } }, action.name),
  );
}

/** Splits the selection into requests: the selected tasks by id, or one request with the filter. */
function requestPages(selection) {
  const ids = selection.selectedIds();
  if (ids.length === 0) return [{ filter: { ...withoutEmpty(selection.filter()), limit: PAGE_SIZE } }];
  const pages = [];
  for (let n = 0; n < ids.length; n += PAGE_SIZE) pages.push({ tasks: ids.slice(n, n + PAGE_SIZE) });
  return pages;
}

function withoutEmpty(filter) {
  return Object.fromEntries(Object.entries(filter).filter(([, value]) => value));
}

/** Sends all requests; a filter is continued from the cursor of each response. */
async function* sendPages(selection, request) {
  for (const page of requestPages(selection)) {
    let cursor = null;
    do {
      const filter = page.filter && { ...page.filter, ...(cursor ? { before: cursor } : {}) };
      const response = await post("/v1/tasks/bulk", { ...request, ...(filter ? { filter } : { tasks: page.tasks }) });
      yield response.tasks;
      cursor = page.filter ? (response.next ?? null) : null;
    } while (cursor);
  }
}

async function runBulkAction(action, selection) {
  const act = action.priority ? { reprioritize: 0 } : action.act;
  const counted = [];
  for await (const tasks of sendPages(selection, { act, dry_run: true })) counted.push(...tasks);
  if (counted.length === 0) return showNotice("No matching tasks.");
  const states = new Map();
  for (const task of counted) states.set(task.state, (states.get(task.state) ?? 0) + 1);
  const fields = await openDialog({
    title: `${action.name === "Priority" ? "Change priority of" : action.name} ${pluralize(counted.length, "task")}?`,
    body: [
      h("p", {}, [...states].map(([state, n]) => `${formatCount(n)} ${state}`).join(", ")),
      h("ul", {}, counted.slice(0, TITLES_SHOWN).map((task) => h("li", { class: "truncate" }, h("bdi", {}, singleLine(task.title || "untitled", 120))))),
      counted.length > TITLES_SHOWN && h("p", { class: "muted" }, `and ${formatCount(counted.length - TITLES_SHOWN)} more`),
      action.priority && priorityField(),
      action.reason && formField("Reason", "reason", { hint: "Optional. Recorded in the log." }),
    ],
    submitLabel: `${action.name === "Priority" ? "Set for" : action.name} ${pluralize(counted.length, "task")}`,
    danger: action.danger,
    closeLabel: "Go back",
  });
  if (!fields) return;
  const request = { act: action.priority ? { reprioritize: Number(fields.priority) } : action.act, reason: fields.reason ?? "" };
  const refused = [];
  let [doneCount, failure] = [0, null];
  // Apply to the confirmed tasks only, not to tasks that matched the filter since.
  const countedSelection = { selectedIds: () => counted.map((task) => task.id), filter: () => ({}) };
  try {
    for await (const tasks of sendPages(countedSelection, request)) {
      for (const task of tasks) {
        if (task.refused) refused.push(task);
        else doneCount += 1;
      }
    }
  } catch (error) {
    failure = error;
  }
  if (refused.length) showAlert(`${pluralize(refused.length, "task")} refused: ${singleLine(refused[0].refused, 200)}`);
  if (failure === null) {
    showNotice(`${pluralize(doneCount, "task")} ${action.doneText}`);
    return selection.onDone();
  }
  // Without a response it is unknown whether the last request was applied; the refreshed list will show it.
  const uncertain = failure.status === 0 ? "; the last request may have been applied as well" : "";
  showAlert(`${formatCount(doneCount)} of ${pluralize(counted.length, "task")} ${action.doneText}, then failed: ${failure.message}${uncertain}`);
  selection.onInterrupted();
}
