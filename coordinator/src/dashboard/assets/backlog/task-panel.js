// Side panel of the backlog with the details of one task, refreshed while open.

import { get, isAbortError } from "../api.js";
import { h, setChildren, updateChildren } from "../dom.js";
import { taskDetails, taskHeader } from "../task-details.js";

export class TaskPanel {
  /** `onChange()` is called after an action on the task, `onClose()` when the user closes the panel. */
  constructor({ onChange, onClose }, signal) {
    Object.assign(this, { onChange, onClose, signal });
    this.element = h("aside", { class: "panel task-panel", "aria-label": "Task details", hidden: true });
    this.id = null;
    this.signature = "";
    this.loadAbort = new AbortController();
  }

  get isOpen() {
    return !this.element.hidden;
  }

  show(id) {
    this.id = id;
    this.signature = "";
    this.element.hidden = false;
    return this.refresh();
  }

  hide() {
    this.loadAbort.abort();
    this.element.hidden = true;
    this.id = null;
  }

  /** Reloads the task. A request in progress is aborted, because its response would be older. */
  async refresh() {
    if (this.id === null) return;
    const { id } = this;
    this.loadAbort.abort();
    this.loadAbort = new AbortController();
    const signal = AbortSignal.any([this.signal, this.loadAbort.signal]);
    try {
      const path = `/v1/tasks/${encodeURIComponent(id)}`;
      const [view, why] = await Promise.all([get(path, null, { signal }), get(`${path}/why`, null, { signal })]);
      const signature = JSON.stringify([view, why]);
      if (signature === this.signature) return;
      this.signature = signature;
      const onDone = () => (this.refresh(), this.onChange());
      updateChildren(
        this.element,
        h("header", {}, taskHeader("h2", view.task, onDone), h("button", { type: "button", class: "quiet panel-aside", "aria-label": "Close", title: "Close (Esc)", on: { click: this.onClose } }, "✕")),
        h("div", { class: "panel-body stack" }, taskDetails(view, why, "h3")),
      );
    } catch (error) {
      if (isAbortError(error) || signal.aborted) return;
      // Keep the current content, if any, until the next round.
      if (this.signature === "") setChildren(this.element, h("p", { class: "error" }, error.message));
    }
  }
}
