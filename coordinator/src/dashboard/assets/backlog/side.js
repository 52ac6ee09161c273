// The task at the side of the backlog: told as it is, and told anew while it stands there.

import { get, isAbort } from "../api.js";
import { fill, h, refill } from "../dom.js";
import { taskHead, taskParts } from "../taskview.js";

export class Side {
  /** `changed()` is called when something was done to the task; `closed()` when a person wants it away. */
  constructor({ changed, closed }, signal) {
    Object.assign(this, { changed, closed, signal });
    this.place = h("aside", { class: "panel side", "aria-label": "The task", hidden: true });
    this.id = null;
    this.told = "";
    this.asking = new AbortController();
  }

  get open() {
    return !this.place.hidden;
  }

  /** Shows this task. */
  show(id) {
    this.id = id;
    this.told = "";
    this.place.hidden = false;
    return this.again();
  }

  hide() {
    this.asking.abort();
    this.place.hidden = true;
    this.id = null;
  }

  /** Tells what is shown as it is now. A question that is under way is older. */
  async again() {
    if (this.id === null) return;
    const { id } = this;
    this.asking.abort();
    this.asking = new AbortController();
    const signal = AbortSignal.any([this.signal, this.asking.signal]);
    try {
      const path = `/v1/tasks/${encodeURIComponent(id)}`;
      const [view, why] = await Promise.all([get(path, null, { signal }), get(`${path}/why`, null, { signal })]);
      const sign = JSON.stringify([view, why]);
      if (sign === this.told) return;
      this.told = sign;
      const done = () => (this.again(), this.changed());
      refill(
        this.place,
        h("header", {}, taskHead("h2", view.task, done), h("button", { type: "button", class: "quiet more", "aria-label": "Close", title: "Close (Esc)", on: { click: this.closed } }, "✕")),
        h("div", { class: "within stack" }, taskParts(view, why, "h3")),
      );
    } catch (error) {
      if (isAbort(error) || signal.aborted) return;
      // What stands there stands until the next round.
      if (this.told === "") fill(this.place, h("p", { class: "wrong" }, error.message));
    }
  }
}
