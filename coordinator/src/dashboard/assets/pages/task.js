// Task page: prompt, state with its reason, and runs.

import { get } from "../api.js";
import { h, setChildren, updateChildren } from "../dom.js";
import { poll } from "../live.js";
import { taskDetails, taskHeader } from "../task-details.js";
import { setTitle, showPage } from "../router.js";

/** How often the task is refreshed. */
const REFRESH_MS = 3000;

export async function open(main, { params, signal }) {
  const header = h("div", { class: "head" });
  const body = h("div", { class: "panel" });
  setChildren(main, header, body);
  let lastSignature = "";
  const load = async (roundSignal) => {
    const id = encodeURIComponent(params.id);
    const [view, why] = await Promise.all([
      get(`/v1/tasks/${id}`, null, { signal: roundSignal }),
      get(`/v1/tasks/${id}/why`, null, { signal: roundSignal }),
    ]);
    const signature = JSON.stringify([view, why]);
    if (signature === lastSignature) return;
    lastSignature = signature;
    setTitle(view.task.spec.title);
    updateChildren(header, taskHeader("h1", view.task, () => refresh()));
    updateChildren(body, h("div", { class: "panel-body stack" }, taskDetails(view, why, "h2")));
  };
  let refresh = () => {};
  await load(signal);
  // A task archived while its page is open: reopening shows the archive notice.
  const onError = (error) => error.status === 404 && showPage();
  refresh = poll(load, { intervalMs: REFRESH_MS, skipFirst: true, onError }, signal);
}
