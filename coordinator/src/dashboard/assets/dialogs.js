// Dialogs and notifications. Dialogs are native: Esc closes them and the page behind is inert. Tab cycles within the
// dialog, and closing it returns the focus to its opener, even if that was redrawn in the meantime.

import { appendChildren, byId, h, setChildren } from "./dom.js";
import { renderProse } from "./format.js";

/** How long a notice stays visible. */
const NOTICE_MS = 6000;

/** Shows a temporary notice that screen readers announce. */
export function showNotice(text) {
  const note = appendNote("notices", h("p", {}, renderProse(text)));
  setTimeout(() => note.remove(), NOTICE_MS);
}

/** Shows an error. It stays until dismissed, because it may require action. */
export function showAlert(text) {
  const dismissButton = h("button", { type: "button", class: "quiet", "aria-label": "Dismiss", title: "Dismiss (Esc)", on: { click: () => dismissNote(note) } }, "✕");
  const note = h("p", {}, h("span", {}, renderProse(text)), dismissButton);
  appendNote("alerts", note);
}

function appendNote(containerId, note) {
  const container = byId(containerId);
  // Keep only the newest few.
  while (container.children.length >= 4) dismissNote(container.firstElementChild);
  container.append(note);
  return note;
}

function dismissNote(note) {
  const hadFocus = note.contains(document.activeElement);
  note.remove();
  if (hadFocus) byId("main").focus({ preventScroll: true });
}

// Esc dismisses the newest alert before it has any other effect on the page. Open dialogs and menus handle Esc
// themselves.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented || document.querySelector("dialog[open], details.menu[open]")) return;
  const newest = byId("alerts").lastElementChild;
  if (!newest) return;
  event.preventDefault();
  dismissNote(newest);
});

const FOCUSABLE = "a[href],button:not([disabled]),input:not([disabled]),select:not([disabled]),textarea:not([disabled])";

/** Keeps Tab within the dialog: after the last control comes the first, and vice versa. */
function trapFocus(event, box) {
  if (event.key !== "Tab") return;
  const focusable = [...box.querySelectorAll(FOCUSABLE)];
  const [first, last] = [focusable[0], focusable.at(-1)];
  if (!first) return;
  const active = document.activeElement;
  const isLeaving = event.shiftKey ? active === first || active === box : active === last;
  if (!isLeaving && box.contains(active)) return;
  event.preventDefault();
  (event.shiftKey ? last : first).focus();
}

/**
 * Remembers the focused element. The returned function restores the focus if the browser could not, because the element
 * is gone.
 */
function rememberFocus() {
  const opener = document.activeElement;
  const label = opener?.textContent;
  const ancestors = [];
  for (let element = opener; element; element = element.parentElement) ancestors.push(element);
  const rowKey = opener?.closest("[data-key]")?.dataset.key;
  return () => {
    // The browser already restored the focus, or it has moved elsewhere.
    if (document.activeElement !== document.body) return;
    // A redrawn list has a new button with the same label, in the row with the same key.
    const container = ancestors.find((element) => element.isConnected && element !== document.body) ?? byId("main");
    const scope = rowKey === undefined ? container : ([...container.querySelectorAll("[data-key]")].find((element) => element.dataset.key === rowKey) ?? container);
    const matches = [...scope.querySelectorAll(FOCUSABLE)].filter((element) => element.textContent === label);
    (matches.length === 1 ? matches[0] : byId("main")).focus({ preventScroll: true });
  };
}

/**
 * Opens a dialog. Resolves with the form's fields when it is submitted and with null when it is closed. `submitLabel`
 * is null for dialogs without an action, `danger` marks actions that cannot be undone, and `validate(fields)` may
 * return an error message.
 */
export function openDialog({ title, body, submitLabel = null, danger = false, closeLabel = "Cancel", validate = () => null }) {
  return new Promise((resolve) => {
    let result = null;
    const restoreFocus = rememberFocus();
    const errorLine = h("p", { class: "error", role: "alert" });
    const box = h(
      "dialog",
      { class: "dialog", "aria-labelledby": "dialog-title", on: { close: () => (box.remove(), restoreFocus(), resolve(result)), keydown: (event) => trapFocus(event, box) } },
      h(
        "form",
        {
          method: "dialog",
          on: {
            submit: (event) => {
              const fields = Object.fromEntries(new FormData(event.target));
              const problem = validate(fields);
              if (problem) {
                event.preventDefault();
                setChildren(errorLine, problem);
              } else {
                result = fields;
              }
            },
          },
        },
        h("h2", { id: "dialog-title" }, title),
        appendChildren(h("div", { class: "dialog-body" }), body),
        errorLine,
        h(
          "div",
          { class: "dialog-actions" },
          h("button", { type: "button", on: { click: () => box.close() } }, closeLabel),
          submitLabel && h("button", { type: "submit", class: danger ? "danger" : "primary" }, submitLabel),
        ),
      ),
    );
    // A click outside the dialog closes it.
    box.addEventListener("click", (event) => event.target === box && box.close());
    document.body.append(box);
    box.showModal();
  });
}

let fieldCount = 0;

/** A labeled form field. */
export function formField(label, name, { rows = 0, hint = null, ...props } = {}) {
  const id = `field-${(fieldCount += 1)}`;
  const hintId = hint ? `${id}-hint` : null;
  const common = { id, name, "aria-describedby": hintId, ...props };
  return h(
    "div",
    { class: "field" },
    h("label", { for: id }, label),
    rows ? h("textarea", { rows, ...common }) : h("input", { type: "text", autocomplete: "off", ...common }),
    hint && h("p", { class: "hint", id: hintId }, hint),
  );
}
