// The backlog: filtered, sorted, acted on. Rows are drawn as they come into sight, so that thousands scroll as ten do;
// pages of them are asked for as one gets near their end.

import { get, may } from "../api.js";
import { bulkBar } from "../bulk.js";
import { Held, PAGE_MAX } from "../backlog/held.js";
import { Side } from "../backlog/side.js";
import { fill, h, listen, refill } from "../dom.js";
import { count, line, plural, short, since } from "../format.js";
import { bind } from "../keys.js";
import { poll } from "../live.js";
import { stateOf } from "../parts.js";
import { go, remember, to } from "../router.js";

const STATES = ["pending", "scheduled", "available", "running", "retryable", "blocked", "completed", "cancelled", "discarded"];
/** Rows of what is held that must be left below before the next page is asked for. */
const AHEAD = 60;
/** Tasks that are asked for to be sorted in another order than they come in; of more, the newest are. */
const SORTED_MAX = 5000;
/** How often what is held is asked for again. */
const EVERY_MS = 5000;
/** Height of a row, as the style has it: 2.25rem. */
const ROW_REM = 2.25;
/** Rows drawn beyond what is seen. */
const SPARE = 8;

const SORTS = {
  newest: { words: "Submitted", by: (a, b) => (a.id < b.id ? 1 : -1) },
  state: { words: "State", by: (a, b) => STATES.indexOf(a.state) - STATES.indexOf(b.state) },
  title: { words: "Title", by: (a, b) => a.spec.title.localeCompare(b.spec.title) },
  queue: { words: "Queue", by: (a, b) => a.spec.queue.localeCompare(b.spec.queue) },
  priority: { words: "Priority", by: (a, b) => (b.spec.priority ?? 0) - (a.spec.priority ?? 0) },
};

export async function open(main, { query, signal }) {
  const page = new Backlog(query, signal);
  page.draw(main);
  await page.load();
}

class Backlog {
  constructor(query, signal) {
    this.signal = signal;
    this.filter = {
      states: new Set((query.get("state") ?? "").split(",").filter((word) => STATES.includes(word))),
      queue: query.get("queue") ?? "",
      batch: query.get("batch") ?? "",
      title: query.get("title") ?? "",
    };
    this.sort = SORTS[query.get("sort")] ? query.get("sort") : "newest";
    this.reverse = query.get("reverse") === "1";
    this.at = query.get("task");
    this.chosen = new Set();
    const failed = (error) => fill(this.told, error.message);
    this.held = new Held({ asked: () => this.asked(), changed: () => this.arrange(), failed }, signal);
    this.side = new Side({ changed: () => this.anew(), closed: () => this.close() }, signal);
    this.rows = [];
    this.drawn = new Map();
    this.part = "title";
    this.busy = false;
  }

  /** The filter as the API takes it. */
  asked() {
    const { states, queue, batch, title } = this.filter;
    return { state: [...states].join(","), queue, batch, title: title && (/[*?]/.test(title) ? title : `*${title}*`) };
  }

  isFiltered() {
    return Object.values(this.asked()).some(Boolean);
  }

  draw(main) {
    this.told = h("span", { class: "muted", role: "status" });
    this.body = h("div", { class: "grid-body", role: "rowgroup" });
    this.bulk = h("div", { class: "bulk" });
    this.head = h("div", { class: "grid-row grid-head", role: "row" });
    this.list = h("div", { class: "list", role: "grid", tabindex: "0", "aria-label": "Tasks", "aria-multiselectable": "true" }, h("div", { role: "rowgroup" }, this.head), this.body);
    this.both = h("div", { class: "backlog" }, h("section", { class: "panel", "aria-label": "List of tasks" }, this.bulk, this.list), this.side.place);
    fill(main, h("div", { class: "head" }, h("h1", {}, "Backlog"), this.told), this.filters(), this.both);
    listen(this.list, "scroll", () => this.paint(), this.signal);
    listen(this.list, "keydown", (event) => this.arrow(event), this.signal);
    const watch = new ResizeObserver(() => this.paint());
    watch.observe(this.list);
    this.signal.addEventListener("abort", () => watch.disconnect());
    this.keys();
    this.tellHead();
    this.tellBulk();
    if (this.at) this.look(this.at);
  }

  filters() {
    const { states, queue, title } = this.filter;
    let timer = null;
    const soon = () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.refilter(), 200);
    };
    const input = (name, label, value, wide) => {
      const id = `filter-${name}`;
      const on = { input: (event) => ((this.filter[name] = event.target.value.trim()), soon()) };
      return h("div", { class: ["field", wide && "wide"] }, h("label", { for: id }, label), h("input", { id, type: "search", list: name === "queue" ? "queues" : null, value, autocomplete: "off", spellcheck: "false", on }));
    };
    const box = (word) => {
      const on = { change: (event) => (event.target.checked ? states.add(word) : states.delete(word), this.refilter()) };
      return h("label", {}, h("input", { type: "checkbox", checked: states.has(word), on }), word);
    };
    const sort = h(
      "select",
      { id: "filter-sort", on: { change: (event) => this.sortBy(event.target.value) } },
      Object.entries(SORTS).map(([name, { words }]) => h("option", { value: name, selected: name === this.sort }, words)),
    );
    const queues = h("datalist", { id: "queues" });
    const batches = h("select", { id: "filter-batch", on: { change: (event) => ((this.filter.batch = event.target.value), this.refilter()) } });
    this.choices(queues, batches);
    return h(
      "form",
      { role: "search", "aria-label": "Filters", on: { submit: (event) => event.preventDefault() } },
      h("div", { class: "filters" }, input("title", "Title holds", title, true), input("queue", "Queue", queue), queues, h("div", { class: "field" }, h("label", { for: "filter-batch" }, "Batch"), batches), h("div", { class: "field" }, h("label", { for: "filter-sort" }, "Sort by"), sort)),
      h("fieldset", { class: "states" }, h("legend", { class: "unseen" }, "States"), STATES.map(box)),
    );
  }

  /** Queues and batches that there are; the filter's own is there in any case. */
  async choices(queues, batches) {
    const tell = (known) => {
      const { batch } = this.filter;
      const rest = batch && !known.some((one) => one.id === batch) ? [{ id: batch }] : [];
      const name = (one) => `${one.name ? `${line(one.name, 40)} ` : ""}${short(one.id)}${one.tasks ? ` (${count(one.tasks)})` : ""}`;
      fill(batches, h("option", { value: "" }, "any"), [...rest, ...known].map((one) => h("option", { value: one.id, selected: one.id === batch }, name(one))));
    };
    tell([]);
    try {
      const [there, list] = await Promise.all([get("/v1/queues", null, { signal: this.signal }), get("/v1/batches", null, { signal: this.signal })]);
      fill(queues, there.queues.map((one) => h("option", { value: one.name })));
      tell(list.batches);
    } catch {
      // One can type a queue, and go on without batches.
    }
  }

  /** Marks the row that lies so many rows from the marked one. */
  step(by) {
    const now = this.rows.findIndex((task) => task.id === this.at);
    const row = Math.max(0, Math.min(this.rows.length - 1, now < 0 ? by - 1 : now + by));
    if (this.rows[row]) this.mark(this.rows[row].id, row);
  }

  /** The arrows within the list, as in any grid: up and down the rows, left and right in one. */
  arrow(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.head.contains(event.target)) return;
    const page = Math.max(1, Math.floor(this.list.clientHeight / rowHeight()) - 2);
    const rows = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.rows.length, End: this.rows.length };
    if (event.key in rows) {
      this.step(rows[event.key]);
    } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      this.part = event.key === "ArrowLeft" && may.submit() ? "box" : "title";
      this.hold();
    } else {
      return;
    }
    event.preventDefault();
  }

  keys() {
    bind(
      {
        j: { does: "Next task (↓ within the list)", run: () => this.step(1) },
        k: { does: "Task before (↑ within the list)", run: () => this.step(-1) },
        x: { does: "Select the task", run: () => this.at && this.choose(this.at, !this.chosen.has(this.at)) },
        Enter: { does: "Open the task", run: (event) => this.enter(event) },
        Escape: { does: "Close the side, or let go of what is selected", run: () => (this.side.open ? this.close() : this.chooseNone()) },
      },
      this.signal,
    );
  }

  /** Enter on a button or a link is the browser's own. */
  enter(event) {
    if (event.target.closest("a[href],button")) return event.target.click();
    const task = this.held.tasks.get(this.at);
    if (task) go(task.last_run ? to.run(task.last_run) : to.task(task.id));
  }

  refilter() {
    this.held.forget();
    this.chosen.clear();
    this.list.scrollTop = 0;
    this.remember();
    this.tellBulk();
    this.again();
  }

  /** After something was done: what was asked before does not know of it. */
  anew() {
    this.held.outdate();
    this.again();
  }

  sortBy(name) {
    this.reverse = name === this.sort && !this.reverse;
    this.sort = name;
    document.getElementById("filter-sort").value = name;
    this.remember();
    this.tellHead();
    this.arrange();
  }

  remember() {
    const query = new URLSearchParams();
    const { states, ...words } = this.filter;
    if (states.size) query.set("state", [...states].join(","));
    for (const [name, word] of Object.entries(words)) if (word) query.set(name, word);
    if (this.sort !== "newest") query.set("sort", this.sort);
    if (this.reverse) query.set("reverse", "1");
    if (this.at && this.side.open) query.set("task", this.at);
    remember(query);
  }

  async load() {
    const failed = (error) => fill(this.told, error.message);
    const round = async (signal) => {
      this.side.again();
      await this.held.round(() => this.seen(), signal);
    };
    this.again = poll(round, { every: EVERY_MS, later: true, failed }, this.signal);
    await this.again();
  }

  /** Ids of what is in sight; none where another order spreads it over all that is held. */
  seen() {
    return this.sort === "newest" ? [...this.drawn.keys()] : [];
  }

  arrange() {
    const { by } = SORTS[this.sort];
    this.rows = [...this.held.tasks.values()].sort((a, b) => by(a, b) || (a.id < b.id ? 1 : -1));
    if (this.reverse) this.rows.reverse();
    for (const id of this.chosen) if (!this.held.tasks.has(id)) this.chosen.delete(id);
    const rest = this.isOwnOrder() ? null : this.rest();
    this.list.setAttribute("aria-rowcount", this.held.next ? -1 : this.rows.length + 1);
    const words = this.rows.length === 0 ? "no task" : plural(this.rows.length, "task");
    const told = rest ?? `${words}${this.held.next ? " so far" : ""}`;
    // Those who hear the page hear it when it is another.
    if (this.told.textContent !== told) fill(this.told, told);
    this.paint();
    this.tellBulk();
  }

  /** Whether rows stand in the order in which the API gives them: then a page more goes below those that are there. */
  isOwnOrder() {
    return this.sort === "newest" && !this.reverse;
  }

  /** For another order all are wanted: asks for the next of them, up to a bound, and says so; null once they are here. */
  rest() {
    if (!this.held.next) return null;
    if (this.held.tasks.size >= SORTED_MAX) return `the newest ${count(this.rows.length)} tasks, sorted; there are more, which a filter brings within reach`;
    this.held.more(PAGE_MAX);
    return "asking for the rest, to sort all of them…";
  }

  /** Draws the rows in sight, and asks for more where few are left. */
  paint() {
    const high = rowHeight();
    const first = Math.max(0, Math.floor(this.list.scrollTop / high) - SPARE);
    const last = Math.min(this.rows.length, Math.ceil((this.list.scrollTop + this.list.clientHeight) / high) + SPARE);
    this.body.style.height = `${Math.max(this.rows.length, 1) * high}px`;
    const old = this.drawn;
    this.drawn = new Map();
    const children = [];
    let lost = null;
    this.stop = this.held.tasks.has(this.at) ? this.at : this.rows[0]?.id;
    for (let n = first; n < last; n += 1) {
      const task = this.rows[n];
      const mark = `${task.seq}:${task.state}:${this.chosen.has(task.id)}:${this.at === task.id}:${this.stop === task.id}`;
      let row = old.get(task.id);
      const held = row?.contains(document.activeElement) ? document.activeElement.dataset.part : null;
      if (!row || row.dataset.mark !== mark) row = this.row(task, mark);
      row.style.top = `${n * high}px`;
      row.setAttribute("aria-rowindex", n + 2);
      this.drawn.set(task.id, row);
      children.push(row);
      if (held) lost = () => row.querySelector(`[data-part="${held}"]`)?.focus({ preventScroll: true });
    }
    if (this.rows.length === 0) children.push(this.nothing());
    sync(this.body, children);
    // A row that is told anew keeps the focus that it had.
    if (lost && !this.body.contains(document.activeElement)) lost();
    if (this.isOwnOrder() && this.rows.length - last < AHEAD) this.held.more();
  }

  nothing() {
    const words = this.held.asking || this.held.next === null ? "Asking…" : this.isFiltered() ? "No task is like that." : "The backlog is empty. docket submit puts a task into it.";
    return h("div", { class: "grid-row", role: "row" }, h("span", { role: "gridcell" }), h("span", { role: "gridcell", class: "muted nothing" }, words));
  }

  row(task, mark) {
    const cell = (part, ...children) => h("span", { role: "gridcell", class: part }, children);
    const title = line(task.spec.title || "untitled");
    // One stop for Tab in the whole list: the marked row, or the first where none is.
    const stop = this.stop === task.id ? 0 : -1;
    const look = (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.look(task.id);
    };
    return h(
      "div",
      { class: ["grid-row", this.at === task.id && "at"], role: "row", "aria-selected": String(this.chosen.has(task.id)), data: { mark } },
      cell(null, may.submit() && h("input", { type: "checkbox", checked: this.chosen.has(task.id), "aria-label": `Select ${title}`, tabindex: stop, data: { part: "box" }, on: { change: (event) => this.choose(task.id, event.target.checked) } })),
      cell(null, stateOf(task)),
      cell(null, h("a", { href: to.task(task.id), title, tabindex: stop, data: { part: "title" }, on: { click: look } }, h("bdi", {}, title))),
      cell("wide-only", task.spec.queue),
      cell("wide-only mono muted", short(task.id)),
      cell("wide-only number", String(task.spec.priority ?? 0)),
      cell("number muted", since(task.submitted_at)),
    );
  }

  tellHead() {
    const sorts = (name, kind) => {
      const { words } = SORTS[name];
      const now = this.sort === name;
      const order = now ? ((this.reverse ? name !== "newest" : name === "newest") ? "descending" : "ascending") : "none";
      const sign = now ? (order === "descending" ? " ↓" : " ↑") : "";
      return h("span", { role: "columnheader", "aria-sort": order, class: kind }, h("button", { type: "button", on: { click: () => this.sortBy(name) } }, words, h("span", { "aria-hidden": "true" }, sign)));
    };
    const all = may.submit() && h("input", { type: "checkbox", "aria-label": "Select all that are loaded", on: { change: (event) => this.chooseAll(event.target.checked) } });
    this.all = all || null;
    fill(
      this.head,
      h("span", { role: "columnheader" }, all, h("span", { class: "unseen" }, "Selected")),
      sorts("state"),
      sorts("title"),
      sorts("queue", "wide-only"),
      h("span", { role: "columnheader", class: "wide-only" }, "Task"),
      sorts("priority", "wide-only number"),
      sorts("newest", "number"),
    );
  }

  choose(id, on) {
    if (!may.submit()) return;
    if (on) this.chosen.add(id);
    else this.chosen.delete(id);
    this.paint();
    this.tellBulk();
  }

  chooseAll(on) {
    this.chosen = new Set(on ? this.held.tasks.keys() : []);
    this.paint();
    this.tellBulk();
  }

  chooseNone() {
    this.chooseAll(false);
  }

  tellBulk() {
    if (this.all) {
      this.all.checked = this.chosen.size > 0 && this.chosen.size === this.held.tasks.size;
      this.all.indeterminate = this.chosen.size > 0 && this.chosen.size < this.held.tasks.size;
    }
    if (!may.submit()) {
      this.bulk.hidden = true;
      return;
    }
    const sign = `${this.chosen.size}:${this.isFiltered()}`;
    if (this.bulk.dataset.sign === sign) return;
    this.bulk.dataset.sign = sign;
    const more = { chosen: () => [...this.chosen], filter: () => this.asked(), filtered: this.isFiltered(), busy: (on) => this.beBusy(on), done: () => (this.chooseNone(), this.anew()), again: () => this.anew() };
    const words = this.chosen.size ? `${count(this.chosen.size)} selected` : this.isFiltered() ? "All that the filter lets through:" : "Select tasks, or filter, to act on many.";
    refill(this.bulk, h("span", { class: this.chosen.size ? null : "muted" }, words), bulkBar(more, this.chosen.size));
  }

  /** Whether something is done to many just now; with `on`, from now on. */
  beBusy(on = this.busy) {
    this.busy = on;
    for (const button of this.bulk.querySelectorAll("button")) {
      if (on) button.setAttribute("aria-disabled", "true");
      else button.removeAttribute("aria-disabled");
    }
    return on;
  }

  /** Marks a row and brings it into sight. */
  mark(id, n) {
    this.at = id;
    const high = rowHeight();
    const top = n * high;
    const under = this.head.offsetHeight;
    if (top < this.list.scrollTop) this.list.scrollTop = top;
    else if (top + high + under > this.list.scrollTop + this.list.clientHeight) this.list.scrollTop = top + high + under - this.list.clientHeight;
    this.paint();
    this.hold();
    if (this.side.open) this.look(id);
  }

  /** Gives the focus to the marked row: to the part of it that the arrows chose. */
  hold() {
    this.drawn.get(this.at)?.querySelector(`[data-part=${this.part}]`)?.focus({ preventScroll: true });
  }

  /** Shows a task at the side. */
  look(id) {
    this.at = id;
    this.both.classList.add("with-side");
    const shown = this.side.show(id);
    this.paint();
    this.remember();
    return shown;
  }

  close() {
    this.side.hide();
    this.both.classList.remove("with-side");
    this.remember();
    this.hold();
  }
}

/** Asked once: whoever changes the size of letters reloads. */
let high = 0;
function rowHeight() {
  high ||= ROW_REM * parseFloat(getComputedStyle(document.documentElement).fontSize);
  return high;
}

/** Makes `children` the children of `parent`, moving none that stands where it should. */
function sync(parent, children) {
  const wanted = new Set(children);
  for (const child of [...parent.children]) if (!wanted.has(child)) child.remove();
  let at = parent.firstElementChild;
  for (const child of children) {
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
  }
}
