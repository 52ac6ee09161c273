// The tasks loaded by the backlog page. They are fetched a page at a time and refreshed regularly, so that changes
// appear and tasks that are gone or no longer match the filter disappear.
//
// Requests run one after another, so responses cannot arrive out of order, and responses to requests sent before a
// user's action are discarded.

import { get } from "../api.js";

/** Tasks per page. */
export const PAGE_SIZE = 100;
/** The API's largest page, used when all tasks are needed. */
export const PAGE_SIZE_MAX = 1000;
/**
 * Tasks outside the first page and the visible rows that each round refreshes; rounds walk through all of them in turn.
 */
const REFRESH_PAGE_SIZE = 200;

const newestFirst = (ids) => [...ids].sort().reverse();

export class LoadedTasks {
  /**
   * `getFilter()` returns the API's filter parameters; `onChange()` is called after a page was merged, `onError(error)`
   * after a failure.
   */
  constructor({ getFilter, onChange, onError }, signal) {
    Object.assign(this, { getFilter, onChange, onError, signal });
    this.tasks = new Map();
    this.generation = 0;
    this.requestChain = Promise.resolve();
    this.reset();
  }

  /** Drops all tasks, for a new filter. */
  reset() {
    this.tasks.clear();
    /** Cursor of the next page: `null` while unknown, `false` after the last page. */
    this.nextCursor = null;
    /** Where the next round continues its walk through the loaded tasks. */
    this.refreshCursor = null;
    this.invalidate();
  }

  /** Discards requests in progress, because they predate a user's action. */
  invalidate() {
    this.abortController?.abort();
    this.abortController = new AbortController();
    this.generation += 1;
    this.pendingPage = null;
  }

  /**
   * Fetches the tasks older than `before` after all earlier requests. Resolves with null if `invalidate` was called
   * since.
   */
  fetchPage(before, limit, signal) {
    const { generation } = this;
    const request = this.requestChain.then(async () => {
      if (generation !== this.generation) return null;
      const page = await get("/v1/tasks", { ...this.getFilter(), before, limit }, { signal });
      return generation === this.generation ? page : null;
    });
    this.requestChain = request.catch(() => {});
    return request;
  }

  /**
   * Refreshes the newest tasks, then the visible ones (`visibleIds()`, if they are contiguous), then some of the
   * others.
   */
  async refresh(visibleIds, signal) {
    const first = await this.fetchPage(null, PAGE_SIZE, signal);
    if (!first) return;
    this.mergePage(first, null);
    // If no further page is loaded, the next one starts after this page.
    if (this.nextCursor === null || this.tasks.size <= first.tasks.length) this.nextCursor = first.next ?? false;
    this.onChange();
    for (const [before, limit] of this.pagesToRefresh(first.next, visibleIds())) {
      const page = await this.fetchPage(before, limit, signal);
      if (!page) return;
      this.mergePage(page, before);
      if (limit === REFRESH_PAGE_SIZE) this.refreshCursor = page.next ?? null;
      this.onChange();
    }
  }

  /** Replaces the loaded tasks in the range of a page with that page; tasks missing from it are removed. */
  mergePage(page, before) {
    const present = new Set(page.tasks.map((task) => task.id));
    const oldestId = page.next ?? "";
    for (const id of [...this.tasks.keys()]) {
      if ((before === null || id < before) && id >= oldestId && !present.has(id)) this.tasks.delete(id);
    }
    for (const task of page.tasks) this.tasks.set(task.id, task);
  }

  /** The pages after the first that a round refreshes, as `[before, limit]`. */
  pagesToRefresh(oldestId, visibleIds) {
    const loadedIds = oldestId ? newestFirst(this.tasks.keys()).filter((id) => id < oldestId) : [];
    if (loadedIds.length === 0) return [];
    const pages = [];
    const [firstVisible] = newestFirst(visibleIds).filter((id) => id < oldestId);
    if (firstVisible) {
      const indexAbove = loadedIds.indexOf(firstVisible) - 1;
      pages.push([indexAbove >= 0 ? loadedIds[indexAbove] : oldestId, PAGE_SIZE]);
    }
    const refreshFrom = this.refreshCursor !== null && loadedIds.some((id) => id < this.refreshCursor) ? this.refreshCursor : oldestId;
    pages.push([refreshFrom, REFRESH_PAGE_SIZE]);
    return pages;
  }

  /** Loads the next page, unless that is already in progress. */
  loadMore(limit = PAGE_SIZE) {
    if (this.pendingPage || !this.nextCursor) return;
    const { generation, nextCursor: cursor } = this;
    const signal = AbortSignal.any([this.signal, this.abortController.signal]);
    this.pendingPage = this.fetchPage(cursor, limit, signal)
      .then((page) => {
        if (!page) return;
        this.mergePage(page, cursor);
        this.nextCursor = page.next ?? false;
      })
      .catch((error) => {
        if (signal.aborted) return;
        this.onError(error);
        this.nextCursor = null;
      })
      .finally(() => {
        if (generation !== this.generation) return;
        this.pendingPage = null;
        if (!signal.aborted) this.onChange();
      });
  }
}
