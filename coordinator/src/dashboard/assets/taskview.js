// A task as the backlog's side panel and its own page show it.

import { taskActs } from "./actions.js";
import { h } from "./dom.js";
import { prose, said, since, span, whole } from "./format.js";
import { fact, facts, idOf, modelOf, state, stateOf, text } from "./parts.js";
import { to } from "./router.js";

/** Its title, state and buttons, under a heading of this level. */
export function taskHead(level, task, done) {
  return [
    h(level, {}, said(task.spec.title || "untitled", 400)),
    stateOf(task),
    h("div", { class: "acts" }, taskActs(task, done)),
  ];
}

const links = (ids) => ids.map((id, n) => [n > 0 && ", ", h("a", { href: to.task(id) }, idOf(id))]);

/** What one asks of a task, most wanted first: `view` of `/v1/tasks/{id}`, `why` of `…/why`. */
export function taskParts(view, why, level) {
  const { task, runs } = view;
  const { spec } = task;
  const after = spec.conditions?.after ?? [];
  return [
    h("section", {}, h(level, {}, "Why"), h("p", {}, h("bdi", {}, prose(why.text))), why.tasks?.length > 0 && h("p", {}, links(why.tasks))),
    task.message && h("section", {}, h(level, {}, "It says"), text(task.message)),
    facts(
      fact("Task", h("a", { href: to.task(task.id) }, idOf(task.id))),
      fact("Queue", h("a", { href: to.backlog(`?queue=${encodeURIComponent(spec.queue)}`) }, spec.queue)),
      fact("Priority", String(spec.priority)),
      fact("Engine", spec.engine),
      fact("Model", said(modelOf(spec.model))),
      fact("Batch", spec.batch && h("a", { href: to.backlog(`?batch=${spec.batch}`) }, said(spec.batch_name ?? ""), " ", idOf(spec.batch))),
      fact("Submitted", since(task.submitted_at)),
      fact("Not before", task.state === "scheduled" && whole(task.available_at)),
      fact("Tried again", task.state === "retryable" && since(task.available_at)),
      fact("Ended", task.ended_at && since(task.ended_at)),
      fact("Unverified", task.unverified && said(task.unverified, 600)),
      fact("Runs failed", task.failures > 0 && `${task.failures} of ${spec.attempts_max}`),
      fact("Faults of workers", task.worker_faults > 0 && `${task.worker_faults} in a row`),
      fact("Crashes", task.crashes > 0 && String(task.crashes)),
      fact("Comes after", after.length > 0 && links(after)),
      fact("Waits for", task.waits_for?.length > 0 && links(task.waits_for)),
      fact("Branch", spec.branch && h("code", {}, said(spec.branch))),
    ),
    runs.length > 0 && h("section", {}, h(level, {}, "Runs"), h("ul", { class: "runs" }, runs.map(runLine).reverse())),
    h("section", {}, h(level, {}, "What was asked"), text(spec.text || "nothing but the title")),
  ];
}

function runLine(run) {
  const took = run.started_at && run.ended_at && span(Date.parse(run.ended_at) - Date.parse(run.started_at));
  return h(
    "li",
    {},
    state(run.status),
    h("a", { href: to.run(run.id) }, "Run ", idOf(run.id)),
    h("span", { class: "muted" }, `turn ${run.turn}`, took && `, ${took}`),
  );
}
