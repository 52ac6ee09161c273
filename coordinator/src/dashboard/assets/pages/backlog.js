// Backlog page: filters, sorting, bulk actions and the task panel. Only visible rows are drawn, so that thousands of
// tasks scroll smoothly, and further pages are loaded as the user scrolls towards the end.

import { can, get } from "../api.js";
import { bulkActionButtons } from "../backlog/bulk-actions.js";
import { LoadedTasks, PAGE_SIZE_MAX } from "../backlog/loaded-tasks.js";
import { TaskPanel } from "../backlog/task-panel.js";
import { h, listen, setChildren, updateChildren } from "../dom.js";
import { formatCount, pluralize, shortId, singleLine, timeAgo } from "../format.js";
import { bindKeys } from "../keyboard.js";
import { poll } from "../live.js";
import { taskStateBadge } from "../components.js";
import { navigate, replaceQuery, urlTo } from "../router.js";

const STATES = ["pending", "scheduled", "available", "running", "retryable", "blocked", "completed", "cancelled", "discarded"];
/** The next page is loaded when fewer loaded rows than this remain below the visible ones. */
const PREFETCH_ROWS = 60;
/** Most tasks that are loaded to sort in an order other than the API's; beyond that, only the newest are sorted. */
const SORTED_MAX = 5000;
/** How often the loaded tasks are refreshed. */
const REFRESH_MS = 5000;
/** Row height in rem, as in the style sheet. */
const ROW_REM = 2.25;
/** Extra rows that are drawn above and below the visible ones. */
const OVERSCAN_ROWS = 8;

const SORT_ORDERS = {
  newest: { label: "Submitted", compare: (a, b) => (a.id < b.id ? 1 : -1) },
  state: { label: "State", compare: (a, b) => STATES.indexOf(a.state) - STATES.indexOf(b.state) },
  title: { label: "Title", compare: (a, b) => a.spec.title.localeCompare(b.spec.title) },
  queue: { label: "Queue", compare: (a, b) => a.spec.queue.localeCompare(b.spec.queue) },
  priority: { label: "Priority", compare: (a, b) => (b.spec.priority ?? 0) - (a.spec.priority ?? 0) },
};

export async function open(main, { query, signal }) {
  const page = new BacklogPage(query, signal);
  page.draw(main);
  await page.load();
}

class BacklogPage {
  constructor(query, signal) {
    this.signal = signal;
    this.filter = {
      states: new Set((query.get("state") ?? "").split(",").filter((state) => STATES.includes(state))),
      queue: query.get("queue") ?? "",
      batch: query.get("batch") ?? "",
      title: query.get("title") ?? "",
    };
    this.sort = SORT_ORDERS[query.get("sort")] ? query.get("sort") : "newest";
    this.reverse = query.get("reverse") === "1";
    this.activeId = query.get("task");
    this.selected = new Set();
    const onError = (error) => setChildren(this.statusLine, error.message);
    this.loaded = new LoadedTasks({ getFilter: () => this.apiFilter(), onChange: () => this.sortRows(), onError }, signal);
    this.taskPanel = new TaskPanel({ onChange: () => this.refreshAll(), onClose: () => this.closePanel() }, signal);
    this.rows = [];
    this.drawnRows = new Map();
    this.focusPart = "title";
    this.isBusy = false;
  }

  /** The filter as query parameters of the API. */
  apiFilter() {
    const { states, queue, batch, title } = this.filter;
    return { state: [...states].join(","), queue, batch, title: title && (/[*?]/.test(title) ? title : `*${title}*`) };
  }

  isFiltered() {
    return Object.values(this.apiFilter()).some(Boolean);
  }

  draw(main) {
    this.statusLine = h("span", { class: "muted", role: "status" });
    this.gridBody = h("div", { class: "grid-body", role: "rowgroup" });
    this.bulkBar = h("div", { class: "bulk" });
    this.headerRow = h("div", { class: "grid-row grid-head", role: "row" });
    this.list = h("div", { class: "list", role: "grid", tabindex: "0", "aria-label": "Tasks", "aria-multiselectable": "true" }, h("div", { role: "rowgroup" }, this.headerRow), this.gridBody);
    this.layout = h("div", { class: "backlog" }, h("section", { class: "panel", "aria-label": "Task list" }, this.bulkBar, this.list), this.taskPanel.element);
    setChildren(main, h("div", { class: "head" }, h("h1", {}, "Backlog"), this.statusLine), this.filterForm(), this.layout);
    listen(this.list, "scroll", () => this.drawVisibleRows(), this.signal);
    listen(this.list, "keydown", (event) => this.handleArrowKey(event), this.signal);
    const observer = new ResizeObserver(() => this.drawVisibleRows());
    observer.observe(this.list);
    this.signal.addEventListener("abort", () => observer.disconnect());
    this.bindPageKeys();
    this.drawHeader();
    this.drawBulkBar();
    if (this.activeId) this.openPanel(this.activeId);
  }

  filterForm() {
    const { states, queue, title } = this.filter;
    let timer = null;
    const applySoon = () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.applyFilter(), 200);
    };
    const textField = (name, label, value, wide) => {
      const id = `filter-${name}`;
      const on = { input: (event) => ((this.filter[name] = event.target.value.trim()), applySoon()) };
      return h("div", { class: ["field", wide && "wide"] }, h("label", { for: id }, label), h("input", { id, type: "search", list: name === "queue" ? "queues" : null, value, autocomplete: "off", spellcheck: "false", on }));
    };
    const stateBox = (state) => {
      const on = { change: (event) => (event.target.checked ? states.add(state) : states.delete(state), this.applyFilter()) };
      return h("label", {}, h("input", { type: "checkbox", checked: states.has(state), on }), state);
    };
    const sortSelect = h(
      "select",
      { id: "filter-sort", on: { change: (event) => this.sortBy(event.target.value) } },
      Object.entries(SORT_ORDERS).map(([name, { label }]) => h("option", { value: name, selected: name === this.sort }, label)),
    );
    const queueOptions = h("datalist", { id: "queues" });
    const batchSelect = h("select", { id: "filter-batch", on: { change: (event) => ((this.filter.batch = event.target.value), this.applyFilter()) } });
    this.loadFilterOptions(queueOptions, batchSelect);
    return h(
      "form",
      { role: "search", "aria-label": "Filters", on: { submit: (event) => event.preventDefault() } },
      h("div", { class: "filters" }, textField("title", "Title contains", title, true), textField("queue", "Queue", queue), queueOptions, h("div", { class: "field" }, h("label", { for: "filter-batch" }, "Batch"), batchSelect), h("div", { class: "field" }, h("label", { for: "filter-sort" }, "Sort by"), sortSelect)),
      h("fieldset", { class: "states" }, h("legend", { class: "visually-hidden" }, "States"), STATES.map(stateBox)),
    );
  }

  /** Loads the queues and batches to choose from. The batch of the current filter is always offered. */
  async loadFilterOptions(queueOptions, batchSelect) {
    const showBatches = (known) => {
      const { batch } = this.filter;
      const selected = batch && !known.some((one) => one.id === batch) ? [{ id: batch }] : [];
      const label = (one) => `${one.name ? `${singleLine(one.name, 40)} ` : ""}${shortId(one.id)}${one.tasks ? ` (${formatCount(one.tasks)})` : ""}`;
      setChildren(batchSelect, h("option", { value: "" }, "any"), [...selected, ...known].map((one) => h("option", { value: one.id, selected: one.id === batch }, label(one))));
    };
    showBatches([]);
    try {
      const [queueList, batchList] = await Promise.all([get("/v1/queues", null, { signal: this.signal }), get("/v1/batches", null, { signal: this.signal })]);
      setChildren(queueOptions, queueList.queues.map((one) => h("option", { value: one.name })));
      showBatches(batchList.batches);
    } catch {
      // The filters work without suggestions: a queue can be typed.
    }
  }

  /** Makes the row `step` rows from the active one active. */
  moveActive(step) {
    const current = this.rows.findIndex((task) => task.id === this.activeId);
    const index = Math.max(0, Math.min(this.rows.length - 1, current < 0 ? step - 1 : current + step));
    if (this.rows[index]) this.setActive(this.rows[index].id, index);
  }

  /** Arrow keys in the list: up and down between rows, left and right within a row. */
  handleArrowKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.headerRow.contains(event.target)) return;
    const pageRows = Math.max(1, Math.floor(this.list.clientHeight / rowHeight()) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: pageRows, PageUp: -pageRows, Home: -this.rows.length, End: this.rows.length };
    if (event.key in steps) {
      this.moveActive(steps[event.key]);
    } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      this.focusPart = event.key === "ArrowLeft" && can.submit() ? "box" : "title";
      this.focusActive();
    } else {
      return;
    }
    event.preventDefault();
  }

  bindPageKeys() {
    bindKeys(
      {
        j: { label: "Next task (↓ within the list)", run: () => this.moveActive(1) },
        k: { label: "Previous task (↑ within the list)", run: () => this.moveActive(-1) },
        x: { label: "Select the task", run: () => this.activeId && this.setSelected(this.activeId, !this.selected.has(this.activeId)) },
        Enter: { label: "Open the task", run: (event) => this.handleEnter(event) },
        Escape: { label: "Close the panel or clear the selection", run: () => (this.taskPanel.isOpen ? this.closePanel() : this.clearSelection()) },
      },
      this.signal,
    );
  }

  /** Opens the active task. On a link or button, Enter clicks it as usual. */
  handleEnter(event) {
    if (event.target.closest("a[href],button")) return event.target.click();
    const task = this.loaded.tasks.get(this.activeId);
    if (task) navigate(task.last_run ? urlTo.run(task.last_run) : urlTo.task(task.id));
  }

  applyFilter() {
    this.loaded.reset();
    this.selected.clear();
    this.list.scrollTop = 0;
    this.updateUrl();
    this.drawBulkBar();
    this.refresh();
  }

  /** Reloads after an action and discards responses that predate it. */
  refreshAll() {
    this.loaded.invalidate();
    this.refresh();
  }

  sortBy(name) {
    this.reverse = name === this.sort && !this.reverse;
    this.sort = name;
    document.getElementById("filter-sort").value = name;
    this.updateUrl();
    this.drawHeader();
    this.sortRows();
  }

  updateUrl() {
    const query = new URLSearchParams();
    const { states, ...texts } = this.filter;
    if (states.size) query.set("state", [...states].join(","));
    for (const [name, value] of Object.entries(texts)) if (value) query.set(name, value);
    if (this.sort !== "newest") query.set("sort", this.sort);
    if (this.reverse) query.set("reverse", "1");
    if (this.activeId && this.taskPanel.isOpen) query.set("task", this.activeId);
    replaceQuery(query);
  }

  async load() {
    const onError = (error) => setChildren(this.statusLine, error.message);
    const refreshRound = async (signal) => {
      this.taskPanel.refresh();
      await this.loaded.refresh(() => this.visibleIds(), signal);
    };
    this.refresh = poll(refreshRound, { intervalMs: REFRESH_MS, skipFirst: true, onError }, this.signal);
    await this.refresh();
  }

  /** Ids of the visible rows if they are contiguous in the API's order; in any other order none. */
  visibleIds() {
    return this.sort === "newest" ? [...this.drawnRows.keys()] : [];
  }

  sortRows() {
    const { compare } = SORT_ORDERS[this.sort];
    this.rows = [...this.loaded.tasks.values()].sort((a, b) => compare(a, b) || (a.id < b.id ? 1 : -1));
    if (this.reverse) this.rows.reverse();
    for (const id of this.selected) if (!this.loaded.tasks.has(id)) this.selected.delete(id);
    const sortStatus = this.isApiOrder() ? null : this.loadRestForSort();
    this.list.setAttribute("aria-rowcount", this.loaded.nextCursor ? -1 : this.rows.length + 1);
    const total = this.rows.length === 0 ? "no tasks" : pluralize(this.rows.length, "task");
    const status = sortStatus ?? `${total}${this.loaded.nextCursor ? " loaded" : ""}`;
    // Screen readers announce each update, so update only on changes.
    if (this.statusLine.textContent !== status) setChildren(this.statusLine, status);
    this.drawVisibleRows();
    this.drawBulkBar();
  }

  /** Whether rows are in the API's order, so that further pages only append rows. */
  isApiOrder() {
    return this.sort === "newest" && !this.reverse;
  }

  /**
   * Any other order needs all tasks: loads the next page, up to a limit, and returns a status text; null once all are
   * loaded.
   */
  loadRestForSort() {
    if (!this.loaded.nextCursor) return null;
    if (this.loaded.tasks.size >= SORTED_MAX) return `sorted the newest ${formatCount(this.rows.length)} tasks; use a filter to reach older ones`;
    this.loaded.loadMore(PAGE_SIZE_MAX);
    return "loading all tasks to sort them…";
  }

  /** Draws the visible rows and loads more tasks near the end. */
  drawVisibleRows() {
    const height = rowHeight();
    const first = Math.max(0, Math.floor(this.list.scrollTop / height) - OVERSCAN_ROWS);
    const last = Math.min(this.rows.length, Math.ceil((this.list.scrollTop + this.list.clientHeight) / height) + OVERSCAN_ROWS);
    this.gridBody.style.height = `${Math.max(this.rows.length, 1) * height}px`;
    const previous = this.drawnRows;
    this.drawnRows = new Map();
    const children = [];
    let restoreFocus = null;
    this.tabStopId = this.loaded.tasks.has(this.activeId) ? this.activeId : this.rows[0]?.id;
    for (let n = first; n < last; n += 1) {
      const task = this.rows[n];
      const signature = `${task.seq}:${task.state}:${this.selected.has(task.id)}:${this.activeId === task.id}:${this.tabStopId === task.id}`;
      let row = previous.get(task.id);
      const focusedPart = row?.contains(document.activeElement) ? document.activeElement.dataset.part : null;
      if (!row || row.dataset.signature !== signature) row = this.taskRow(task, signature);
      row.style.top = `${n * height}px`;
      row.setAttribute("aria-rowindex", n + 2);
      this.drawnRows.set(task.id, row);
      children.push(row);
      if (focusedPart) restoreFocus = () => row.querySelector(`[data-part="${focusedPart}"]`)?.focus({ preventScroll: true });
    }
    if (this.rows.length === 0) children.push(this.emptyRow());
    syncChildren(this.gridBody, children);
    // A redrawn row keeps the focus.
    if (restoreFocus && !this.gridBody.contains(document.activeElement)) restoreFocus();
    if (this.isApiOrder() && this.rows.length - last < PREFETCH_ROWS) this.loaded.loadMore();
  }

  emptyRow() {
    const message = this.loaded.pendingPage || this.loaded.nextCursor === null ? "Loading…" : this.isFiltered() ? "No matching tasks." : "The backlog is empty. Use docket submit to add a task.";
    return h("div", { class: "grid-row", role: "row" }, h("span", { role: "gridcell" }), h("span", { role: "gridcell", class: "muted empty-cell" }, message));
  }

  taskRow(task, signature) {
    const cell = (className, ...children) => h("span", { role: "gridcell", class: className }, children);
    const title = singleLine(task.spec.title || "untitled");
    // The list has one tab stop: the active row, or the first row if none is active.
    const tabIndex = this.tabStopId === task.id ? 0 : -1;
    const openPanel = (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.openPanel(task.id);
    };
    return h(
      "div",
      { class: ["grid-row", this.activeId === task.id && "active"], role: "row", "aria-selected": String(this.selected.has(task.id)), data: { signature } },
      cell(null, can.submit() && h("input", { type: "checkbox", checked: this.selected.has(task.id), "aria-label": `Select ${title}`, tabindex: tabIndex, data: { part: "box" }, on: { change: (event) => this.setSelected(task.id, event.target.checked) } })),
      cell(null, taskStateBadge(task)),
      cell(null, h("a", { href: urlTo.task(task.id), title, tabindex: tabIndex, data: { part: "title" }, on: { click: openPanel } }, h("bdi", {}, title))),
      cell("wide-only", task.spec.queue),
      cell("wide-only mono muted", shortId(task.id)),
      cell("wide-only number", String(task.spec.priority ?? 0)),
      cell("number muted", timeAgo(task.submitted_at)),
    );
  }

  drawHeader() {
    const sortHeader = (name, className) => {
      const { label } = SORT_ORDERS[name];
      const isActive = this.sort === name;
      const order = isActive ? ((this.reverse ? name !== "newest" : name === "newest") ? "descending" : "ascending") : "none";
      const arrow = isActive ? (order === "descending" ? " ↓" : " ↑") : "";
      return h("span", { role: "columnheader", "aria-sort": order, class: className }, h("button", { type: "button", on: { click: () => this.sortBy(name) } }, label, h("span", { "aria-hidden": "true" }, arrow)));
    };
    const selectAllBox = can.submit() && h("input", { type: "checkbox", "aria-label": "Select all loaded tasks", on: { change: (event) => this.setAllSelected(event.target.checked) } });
    this.selectAllBox = selectAllBox || null;
    setChildren(
      this.headerRow,
      h("span", { role: "columnheader" }, selectAllBox, h("span", { class: "visually-hidden" }, "Selected")),
      sortHeader("state"),
      sortHeader("title"),
      sortHeader("queue", "wide-only"),
      h("span", { role: "columnheader", class: "wide-only" }, "Task"),
      sortHeader("priority", "wide-only number"),
      sortHeader("newest", "number"),
    );
  }

  setSelected(id, selected) {
    if (!can.submit()) return;
    if (selected) this.selected.add(id);
    else this.selected.delete(id);
    this.drawVisibleRows();
    this.drawBulkBar();
  }

  setAllSelected(selected) {
    this.selected = new Set(selected ? this.loaded.tasks.keys() : []);
    this.drawVisibleRows();
    this.drawBulkBar();
  }

  clearSelection() {
    this.setAllSelected(false);
  }

  drawBulkBar() {
    if (this.selectAllBox) {
      this.selectAllBox.checked = this.selected.size > 0 && this.selected.size === this.loaded.tasks.size;
      this.selectAllBox.indeterminate = this.selected.size > 0 && this.selected.size < this.loaded.tasks.size;
    }
    if (!can.submit()) {
      this.bulkBar.hidden = true;
      return;
    }
    const signature = `${this.selected.size}:${this.isFiltered()}`;
    if (this.bulkBar.dataset.signature === signature) return;
    this.bulkBar.dataset.signature = signature;
    const selection = { selectedIds: () => [...this.selected], filter: () => this.apiFilter(), isFiltered: this.isFiltered(), busy: (on) => this.setBusy(on), onDone: () => (this.clearSelection(), this.refreshAll()), onInterrupted: () => this.refreshAll() };
    const text = this.selected.size ? `${formatCount(this.selected.size)} selected` : this.isFiltered() ? "Apply to all matching:" : "Select or filter tasks for bulk actions.";
    updateChildren(this.bulkBar, h("span", { class: this.selected.size ? null : "muted" }, text), bulkActionButtons(selection, this.selected.size));
  }

  /** Sets, or without an argument returns, whether a bulk action is in progress. */
  setBusy(busy = this.isBusy) {
    this.isBusy = busy;
    for (const button of this.bulkBar.querySelectorAll("button")) {
      if (busy) button.setAttribute("aria-disabled", "true");
      else button.removeAttribute("aria-disabled");
    }
    return busy;
  }

  /** Makes a row active and scrolls it into view. */
  setActive(id, n) {
    this.activeId = id;
    const height = rowHeight();
    const rowTop = n * height;
    const headerHeight = this.headerRow.offsetHeight;
    if (rowTop < this.list.scrollTop) this.list.scrollTop = rowTop;
    else if (rowTop + height + headerHeight > this.list.scrollTop + this.list.clientHeight) this.list.scrollTop = rowTop + height + headerHeight - this.list.clientHeight;
    this.drawVisibleRows();
    this.focusActive();
    if (this.taskPanel.isOpen) this.openPanel(id);
  }

  /** Focuses the part of the active row that the arrow keys chose. */
  focusActive() {
    this.drawnRows.get(this.activeId)?.querySelector(`[data-part=${this.focusPart}]`)?.focus({ preventScroll: true });
  }

  /** Shows a task in the side panel. */
  openPanel(id) {
    this.activeId = id;
    this.layout.classList.add("with-panel");
    const loaded = this.taskPanel.show(id);
    this.drawVisibleRows();
    this.updateUrl();
    return loaded;
  }

  closePanel() {
    this.taskPanel.hide();
    this.layout.classList.remove("with-panel");
    this.updateUrl();
    this.focusActive();
  }
}

/** Cached row height in pixels; a change of the font size takes effect after a reload. */
let cachedRowHeight = 0;
function rowHeight() {
  cachedRowHeight ||= ROW_REM * parseFloat(getComputedStyle(document.documentElement).fontSize);
  return cachedRowHeight;
}

/** Makes `children` the children of `parent` without moving those already in place. */
function syncChildren(parent, children) {
  const kept = new Set(children);
  for (const child of [...parent.children]) if (!kept.has(child)) child.remove();
  let cursor = parent.firstElementChild;
  for (const child of children) {
    if (child === cursor) cursor = cursor.nextElementSibling;
    else parent.insertBefore(child, cursor);
  }
}
