// The tasks that the backlog holds of those that its filter admits: asked for a page at a time, and again and again, so
// that what changed is told and what is gone, or fits the filter no more, goes.
//
// Questions go one behind the other, so an answer never meets one that was asked for later; and what was asked before a
// person did something is told to nobody.

import { get } from "../api.js";

/** Tasks of a page. */
export const PAGE = 100;
/** Tasks of a page of the API, at most: for what is wanted as a whole. */
export const PAGE_MAX = 1000;
/** Tasks of what is held but neither new nor in sight that a round asks for again: of thousands, some each time. */
const WALK = 200;

const newest = (ids) => [...ids].sort().reverse();

export class Held {
  /** `asked()` = the filter as the API takes it; `changed()` is called when something came; `failed(error)` when not. */
  constructor({ asked, changed, failed }, signal) {
    Object.assign(this, { asked, changed, failed, signal });
    this.tasks = new Map();
    this.era = 0;
    this.line = Promise.resolve();
    this.forget();
  }

  /** Holds nothing: another filter. */
  forget() {
    this.tasks.clear();
    /** Where the next page begins: `null` = not known yet, `false` = there is none. */
    this.next = null;
    /** Where the next round asks on among what is held. */
    this.walked = null;
    this.outdate();
  }

  /** Whatever is under way is older than what a person just did. */
  outdate() {
    this.ends?.abort();
    this.ends = new AbortController();
    this.era += 1;
    this.asking = null;
  }

  /** A page of tasks that are older than `before`, once all that was asked before is answered; null of another era. */
  page(before, limit, signal) {
    const { era } = this;
    const asked = this.line.then(async () => {
      if (era !== this.era) return null;
      const page = await get("/v1/tasks", { ...this.asked(), before, limit }, { signal });
      return era === this.era ? page : null;
    });
    this.line = asked.catch(() => {});
    return asked;
  }

  /** The newest again, then what is in sight (`seen()`: ids, where they stand together), then some of the rest. */
  async round(seen, signal) {
    const first = await this.page(null, PAGE, signal);
    if (!first) return;
    this.take(first, null);
    // Where nothing was asked for behind it, the next page begins here.
    if (this.next === null || this.tasks.size <= first.tasks.length) this.next = first.next ?? false;
    this.changed();
    for (const [before, limit] of this.stale(first.next, seen())) {
      const page = await this.page(before, limit, signal);
      if (!page) return;
      this.take(page, before);
      if (limit === WALK) this.walked = page.next ?? null;
      this.changed();
    }
  }

  /** Makes what is held of the range of a page what the page says: what is not there any more, or fits no more, goes. */
  take(page, before) {
    const present = new Set(page.tasks.map((task) => task.id));
    const lowest = page.next ?? "";
    for (const id of [...this.tasks.keys()]) {
      if ((before === null || id < before) && id >= lowest && !present.has(id)) this.tasks.delete(id);
    }
    for (const task of page.tasks) this.tasks.set(task.id, task);
  }

  /** Pages of what is held beyond the first one that a round asks for: `[before, limit]`. */
  stale(lowest, seen) {
    const held = lowest ? newest(this.tasks.keys()).filter((id) => id < lowest) : [];
    if (held.length === 0) return [];
    const pages = [];
    const [first] = newest(seen).filter((id) => id < lowest);
    if (first) {
      const above = held.indexOf(first) - 1;
      pages.push([above >= 0 ? held[above] : lowest, PAGE]);
    }
    const from = this.walked !== null && held.some((id) => id < this.walked) ? this.walked : lowest;
    pages.push([from, WALK]);
    return pages;
  }

  /** The next page, once. */
  more(limit = PAGE) {
    if (this.asking || !this.next) return;
    const { era, next } = this;
    const signal = AbortSignal.any([this.signal, this.ends.signal]);
    this.asking = this.page(next, limit, signal)
      .then((page) => {
        if (!page) return;
        this.take(page, next);
        this.next = page.next ?? false;
      })
      .catch((error) => {
        if (signal.aborted) return;
        this.failed(error);
        this.next = null;
      })
      .finally(() => {
        if (era !== this.era) return;
        this.asking = null;
        if (!signal.aborted) this.changed();
      });
  }
}
