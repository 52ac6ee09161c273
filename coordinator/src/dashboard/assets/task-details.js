// Header and details of a task, shared by the backlog's side panel and the task page.

import { taskActionButtons } from "./task-actions.js";
import { h } from "./dom.js";
import { formatDateTime, formatDuration, isolatedText, renderProse, timeAgo } from "./format.js";
import { fact, factList, formatModel, idLabel, stateBadge, taskStateBadge, textBlock } from "./components.js";
import { urlTo } from "./router.js";

/** The title, state and action buttons of a task; `level` is the heading tag. */
export function taskHeader(level, task, onDone) {
  return [
    h(level, {}, isolatedText(task.spec.title || "untitled", 400)),
    taskStateBadge(task),
    h("div", { class: "actions" }, taskActionButtons(task, onDone)),
  ];
}

const taskLinks = (ids) => ids.map((id, n) => [n > 0 && ", ", h("a", { href: urlTo.task(id) }, idLabel(id))]);

/** The details of a task, most important first. `view` comes from `/v1/tasks/{id}`, `why` from `/v1/tasks/{id}/why`. */
export function taskDetails(view, why, level) {
  const { task, runs } = view;
  const { spec } = task;
  const after = spec.conditions?.after ?? [];
  return [
    h("section", {}, h(level, {}, "Why"), h("p", {}, h("bdi", {}, renderProse(why.text))), why.tasks?.length > 0 && h("p", {}, taskLinks(why.tasks))),
    task.message && h("section", {}, h(level, {}, "Message"), textBlock(task.message)),
    factList(
      fact("Task", h("a", { href: urlTo.task(task.id) }, idLabel(task.id))),
      fact("Queue", h("a", { href: urlTo.backlog(`?queue=${encodeURIComponent(spec.queue)}`) }, spec.queue)),
      fact("Priority", String(spec.priority)),
      fact("Engine", spec.engine),
      fact("Model", isolatedText(formatModel(spec.model))),
      fact("Batch", spec.batch && h("a", { href: urlTo.backlog(`?batch=${spec.batch}`) }, isolatedText(spec.batch_name ?? ""), " ", idLabel(spec.batch))),
      fact("Submitted", timeAgo(task.submitted_at)),
      fact("Not before", task.state === "scheduled" && formatDateTime(task.available_at)),
      fact("Next retry", task.state === "retryable" && timeAgo(task.available_at)),
      fact("Ended", task.ended_at && timeAgo(task.ended_at)),
      fact("Unverified", task.unverified && isolatedText(task.unverified, 600)),
      fact("Runs failed", task.failures > 0 && `${task.failures} of ${spec.attempts_max}`),
      fact("Worker faults", task.worker_faults > 0 && `${task.worker_faults} in a row`),
      fact("Crashes", task.crashes > 0 && String(task.crashes)),
      fact("Runs after", after.length > 0 && taskLinks(after)),
      fact("Waiting for", task.waits_for?.length > 0 && taskLinks(task.waits_for)),
      fact("Branch", spec.branch && h("code", {}, isolatedText(spec.branch))),
    ),
    runs.length > 0 && h("section", {}, h(level, {}, "Runs"), h("ul", { class: "runs" }, runs.map(runItem).reverse())),
    h("section", {}, h(level, {}, "Prompt"), textBlock(spec.text || "No further text; the title is the prompt.")),
  ];
}

function runItem(run) {
  const took = run.started_at && run.ended_at && formatDuration(Date.parse(run.ended_at) - Date.parse(run.started_at));
  return h(
    "li",
    {},
    stateBadge(run.status),
    h("a", { href: urlTo.run(run.id) }, "Run ", idLabel(run.id)),
    h("span", { class: "muted" }, `turn ${run.turn}`, took && `, ${took}`),
  );
}
