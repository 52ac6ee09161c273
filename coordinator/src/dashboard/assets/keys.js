// The keyboard. Keys do nothing while one types, nor with Ctrl, Alt or the system's key, which are the browser's.

import { h } from "./dom.js";
import { dialog } from "./dialogs.js";

/** How long a first key waits for the second. */
const SECOND_KEY_MS = 1500;

/** Where it is kept that keys of one sign do nothing: who speaks to their machine presses such keys by chance. */
const KEPT = "docket-keys";

let single = true;
try {
  single = localStorage.getItem(KEPT) !== "off";
} catch {
  // A browser that keeps nothing has them.
}

function turnSingle(on) {
  single = on;
  try {
    if (on) localStorage.removeItem(KEPT);
    else localStorage.setItem(KEPT, "off");
  } catch {
    // Then it is so until the page is left.
  }
}

const bound = new Map();
let first = null;
let timer = null;

/** Binds `{ "g o": { does, run, leaves } }` (`leaves(event)` = the key is the browser's this time) until the signal aborts; without one, for good. */
export function bind(keys, signal) {
  for (const [key, act] of Object.entries(keys)) {
    bound.set(key, act);
    signal?.addEventListener("abort", () => bound.get(key) === act && bound.delete(key));
  }
}

function types(element) {
  if (!element) return false;
  if (element.isContentEditable) return true;
  if (element.tagName === "INPUT") return !["checkbox", "radio", "button", "range"].includes(element.type);
  return ["TEXTAREA", "SELECT"].includes(element.tagName);
}

/** Tables and lists, and what one goes through in them by arrows. */
const ROWS = { "tbody": ":scope > tr", "ul.asks": ":scope > li", "ul.runs": ":scope > li", "ul.listing": ":scope > li", "ul.tree": "li", "ul.reasons": ":scope > li" };
const STOPS = "a[href],button:not([disabled]),summary,input:not([disabled])";

/** Moves the focus from what has it in a row to what stands in the same place of the next one; whether it did. */
function among(event) {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const [kind, of] = Object.entries(ROWS).find(([name]) => by && event.target.closest?.(name)) ?? [];
  if (!kind) return false;
  // A tree's lists stand in each other: its outermost has all rows.
  let list = event.target.closest(kind);
  while (list.parentElement?.closest(kind)) list = list.parentElement.closest(kind);
  const rows = [...list.querySelectorAll(of)];
  const stops = (row) => [...row.querySelectorAll(STOPS)].filter((stop) => stop.closest(kind === "ul.tree" ? "li" : of.replace(":scope > ", "")) === row);
  const now = rows.findIndex((row) => stops(row).includes(event.target));
  if (now < 0) return false;
  const at = stops(rows[now]).indexOf(event.target);
  for (let n = now + by; n >= 0 && n < rows.length; n += by) {
    const there = stops(rows[n]);
    if (there.length === 0) continue;
    there[Math.min(at, there.length - 1)].focus();
    return true;
  }
  return false;
}

/** Esc shuts an open menu and gives the focus back to what opened it; arrows go through it. Whether it did. */
function within(event) {
  const menu = event.target.closest?.("details.menu[open]");
  if (!menu) return false;
  const summary = menu.querySelector("summary");
  if (event.key === "Escape") {
    menu.open = false;
    summary.focus();
    return true;
  }
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!by) return false;
  const items = [summary, ...menu.querySelectorAll("a[href],button")];
  const next = items.indexOf(event.target) + by;
  items[(next + items.length) % items.length].focus();
  return true;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (document.querySelector("dialog[open]")) return;
  if (types(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (within(event) || among(event)) return event.preventDefault();
  if (!single && event.key.length === 1) return;
  const both = first ? `${first} ${event.key}` : event.key;
  first = null;
  clearTimeout(timer);
  const act = bound.get(both) ?? bound.get(event.key);
  if (act && !act.leaves?.(event)) {
    // Arrows move a focused slider, and Enter and Space press what has the focus.
    event.preventDefault();
    act.run(event);
  } else if ([...bound.keys()].some((key) => key.startsWith(`${event.key} `))) {
    first = event.key;
    timer = setTimeout(() => (first = null), SECOND_KEY_MS);
  }
});

/** What can be pressed here. */
export function help() {
  const rows = [...bound].filter(([, act]) => act.does);
  const turn = (event) => turnSingle(event.target.checked);
  dialog({
    title: "Keyboard",
    body: [
      h(
        "dl",
        { class: "keys" },
        rows.map(([key, act]) => [h("dt", {}, key.split(" ").map((k) => h("kbd", {}, k))), h("dd", {}, act.does)]),
      ),
      h("label", {}, h("input", { type: "checkbox", checked: single, "aria-describedby": "single-keys", on: { change: turn } }), " Shortcuts of a single letter or sign"),
      h("p", { class: "hint", id: "single-keys" }, "Off, only Enter, Esc, the arrows and their like do something; this help is behind the ? at the top."),
    ],
    close: "Close",
  });
}
