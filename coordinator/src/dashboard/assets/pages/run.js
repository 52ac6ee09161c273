// A run: its head, and what can be done to its task.

import { get } from "../api.js";
import { taskActs } from "../actions.js";
import { fill, h } from "../dom.js";
import { running, said, since } from "../format.js";
import { poll } from "../live.js";
import { fact, facts, idOf, state, stateOf } from "../parts.js";
import { title, to } from "../router.js";

/** How often the head is asked for. */
const EVERY_MS = 2000;

export async function open(main, { params, signal }) {
  const head = h("div", { class: "head" });
  const about = h("div", {});
  fill(main, head, about);
  let last = "";
  const ask = async () => {
    const run = await get(`/v1/runs/${encodeURIComponent(params.id)}`, null, { signal });
    const view = await get(`/v1/tasks/${run.task}`, null, { signal });
    const sign = JSON.stringify([run, view]);
    if (sign === last) return;
    last = sign;
    title(view.task.spec.title);
    fill(head, h("h1", {}, said(view.task.spec.title || "untitled")), state(run.status), h("div", { class: "acts" }, taskActs(view.task, () => ask().catch(() => {}))));
    fill(
      about,
      facts(
        fact("Run", idOf(run.id)),
        fact("Task", [h("a", { href: to.task(run.task) }, idOf(run.task)), " ", stateOf(view.task)]),
        fact("Turn", run.turn),
        fact("Begun", run.started_at && since(run.started_at)),
        fact(run.ended_at ? "Ended" : "For", run.ended_at ? since(run.ended_at) : run.started_at && running(run.started_at)),
        fact("Says", view.task.message && said(view.task.message)),
      ),
    );
  };
  await ask();
  poll(ask, { every: EVERY_MS, later: true }, signal);
}
