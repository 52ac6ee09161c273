// The keyboard. Keys do nothing while one types, nor with Ctrl, Alt or the system's key, which are the browser's.

import { h } from "./dom.js";
import { dialog } from "./dialogs.js";

/** How long a first key waits for the second. */
const SECOND_KEY_MS = 1500;

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

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (document.querySelector("dialog[open]")) return;
  if (types(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
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
  dialog({
    title: "Keyboard",
    body: h(
      "dl",
      { class: "keys" },
      rows.map(([key, act]) => [h("dt", {}, key.split(" ").map((k) => h("kbd", {}, k))), h("dd", {}, act.does)]),
    ),
    close: "Close",
  });
}
