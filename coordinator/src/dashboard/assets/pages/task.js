// A task: what was asked, how it stands and why, its runs.

import { get } from "../api.js";
import { fill, h, refill } from "../dom.js";
import { poll } from "../live.js";
import { taskHead, taskParts } from "../taskview.js";
import { show, title } from "../router.js";

/** How often it is asked for. */
const EVERY_MS = 3000;

export async function open(main, { params, signal }) {
  const head = h("div", { class: "head" });
  const parts = h("div", { class: "panel" });
  fill(main, head, parts);
  let last = "";
  const ask = async (of) => {
    const id = encodeURIComponent(params.id);
    const [view, why] = await Promise.all([
      get(`/v1/tasks/${id}`, null, { signal: of }),
      get(`/v1/tasks/${id}/why`, null, { signal: of }),
    ]);
    const sign = JSON.stringify([view, why]);
    if (sign === last) return;
    last = sign;
    title(view.task.spec.title);
    refill(head, taskHead("h1", view.task, () => again()));
    refill(parts, h("div", { class: "within stack" }, taskParts(view, why, "h2")));
  };
  let again = () => {};
  await ask(signal);
  // One that went to the archive while one looked is told as that.
  const failed = (error) => error.status === 404 && show();
  again = poll(ask, { every: EVERY_MS, later: true, failed }, signal);
}
