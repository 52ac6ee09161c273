// Keyboard shortcuts. They are inactive while the user types and in combination with Ctrl, Alt or Meta, which belong to
// the browser.

import { h } from "./dom.js";
import { openDialog } from "./dialogs.js";

/** How long the first key of a sequence waits for the second. */
const SECOND_KEY_MS = 1500;

/** Storage key of the switch for single-key shortcuts, which speech input can trigger by accident. */
const STORAGE_KEY = "docket-keys";

let singleKeysEnabled = true;
try {
  singleKeysEnabled = localStorage.getItem(STORAGE_KEY) !== "off";
} catch {
  // Without storage they are enabled.
}

function setSingleKeys(enabled) {
  singleKeysEnabled = enabled;
  try {
    if (enabled) localStorage.removeItem(STORAGE_KEY);
    else localStorage.setItem(STORAGE_KEY, "off");
  } catch {
    // Without storage the choice lasts until the page is closed.
  }
}

const bindings = new Map();
let pendingKey = null;
let timer = null;

/**
 * Binds shortcuts such as `{ "g o": { label, run, isNative } }` until the signal aborts, or permanently without a
 * signal. When `isNative(event)` returns true, the browser handles the key.
 */
export function bindKeys(keys, signal) {
  for (const [key, binding] of Object.entries(keys)) {
    bindings.set(key, binding);
    signal?.addEventListener("abort", () => bindings.get(key) === binding && bindings.delete(key));
  }
}

function isTextInput(element) {
  if (!element) return false;
  if (element.isContentEditable) return true;
  if (element.tagName === "INPUT") return !["checkbox", "radio", "button", "range"].includes(element.type);
  return ["TEXTAREA", "SELECT"].includes(element.tagName);
}

/** Lists whose rows the arrow keys move through: list selector to row selector. */
const ROW_SELECTORS = { "tbody": ":scope > tr", "ul.attention": ":scope > li", "ul.runs": ":scope > li", "ul.listing": ":scope > li", "ul.tree": "li", "ul.reasons": ":scope > li" };
const FOCUSABLE = "a[href],button:not([disabled]),summary,input:not([disabled])";

/** Moves the focus to the control at the same position in the next or previous row. Returns whether it moved. */
function moveBetweenRows(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const [listSelector, rowSelector] = Object.entries(ROW_SELECTORS).find(([selector]) => step && event.target.closest?.(selector)) ?? [];
  if (!listSelector) return false;
  // Tree lists are nested; the outermost one contains all rows.
  let list = event.target.closest(listSelector);
  while (list.parentElement?.closest(listSelector)) list = list.parentElement.closest(listSelector);
  const rows = [...list.querySelectorAll(rowSelector)];
  const focusableIn = (row) => [...row.querySelectorAll(FOCUSABLE)].filter((element) => element.closest(listSelector === "ul.tree" ? "li" : rowSelector.replace(":scope > ", "")) === row);
  const rowIndex = rows.findIndex((row) => focusableIn(row).includes(event.target));
  if (rowIndex < 0) return false;
  const position = focusableIn(rows[rowIndex]).indexOf(event.target);
  for (let n = rowIndex + step; n >= 0 && n < rows.length; n += step) {
    const targets = focusableIn(rows[n]);
    if (targets.length === 0) continue;
    targets[Math.min(position, targets.length - 1)].focus();
    return true;
  }
  return false;
}

/**
 * In an open menu, Esc closes it and returns the focus to its button, and arrow keys move through its items. Returns
 * whether the key was handled.
 */
function handleMenuKey(event) {
  const menu = event.target.closest?.("details.menu[open]");
  if (!menu) return false;
  const summary = menu.querySelector("summary");
  if (event.key === "Escape") {
    menu.open = false;
    summary.focus();
    return true;
  }
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return false;
  const items = [summary, ...menu.querySelectorAll("a[href],button")];
  const next = items.indexOf(event.target) + step;
  items[(next + items.length) % items.length].focus();
  return true;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (document.querySelector("dialog[open]")) return;
  if (isTextInput(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (handleMenuKey(event) || moveBetweenRows(event)) return event.preventDefault();
  if (!singleKeysEnabled && event.key.length === 1) return;
  const sequence = pendingKey ? `${pendingKey} ${event.key}` : event.key;
  pendingKey = null;
  clearTimeout(timer);
  const binding = bindings.get(sequence) ?? bindings.get(event.key);
  if (binding && !binding.isNative?.(event)) {
    // Otherwise arrow keys would also move a focused slider, and Enter and Space would press the focused control.
    event.preventDefault();
    binding.run(event);
  } else if ([...bindings.keys()].some((key) => key.startsWith(`${event.key} `))) {
    pendingKey = event.key;
    timer = setTimeout(() => (pendingKey = null), SECOND_KEY_MS);
  }
});

/** Opens the list of shortcuts of the current page. */
export function showKeyboardHelp() {
  const rows = [...bindings].filter(([, binding]) => binding.label);
  const toggle = (event) => setSingleKeys(event.target.checked);
  openDialog({
    title: "Keyboard shortcuts",
    body: [
      h(
        "dl",
        { class: "keys" },
        rows.map(([key, binding]) => [h("dt", {}, key.split(" ").map((part) => h("kbd", {}, part))), h("dd", {}, binding.label)]),
      ),
      h("label", {}, h("input", { type: "checkbox", checked: singleKeysEnabled, "aria-describedby": "single-keys", on: { change: toggle } }), " Single-key shortcuts"),
      h("p", { class: "hint", id: "single-keys" }, "When off, only Enter, Esc and arrow keys work; the ? button at the top opens this help."),
    ],
    closeLabel: "Close",
  });
}
