// Questions to the person at the page, and news for them. Native dialogs: Esc shuts them, and what stands behind is
// out of reach. Tab goes round within one, and the focus goes back to what opened it, also where that was told anew.

import { add, byId, fill, h } from "./dom.js";
import { prose } from "./format.js";

/** How long news stand. */
const NEWS_MS = 6000;

/** Tells something in passing, also to those who hear the page. */
export function news(text) {
  const note = tell("news", h("p", {}, prose(text)));
  setTimeout(() => note.remove(), NEWS_MS);
}

/** Tells what went wrong; it stands until somebody dismisses it, for it may ask them to do something. */
export function alert(text) {
  const shut = h("button", { type: "button", class: "quiet", "aria-label": "Dismiss", title: "Dismiss (Esc)", on: { click: () => dismiss(note) } }, "✕");
  const note = h("p", {}, h("span", {}, prose(text)), shut);
  tell("alerts", note);
}

function tell(where, note) {
  const place = byId(where);
  // More than a few at once nobody reads.
  while (place.children.length >= 4) dismiss(place.firstElementChild);
  place.append(note);
  return note;
}

function dismiss(note) {
  const held = note.contains(document.activeElement);
  note.remove();
  if (held) byId("main").focus({ preventScroll: true });
}

// Esc takes the newest away, before it does anything else on the page; a dialog's is the dialog's own.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented || document.querySelector("dialog[open], details.menu[open]")) return;
  const newest = byId("alerts").lastElementChild;
  if (!newest) return;
  event.preventDefault();
  dismiss(newest);
});

const STOPS = "a[href],button:not([disabled]),input:not([disabled]),select:not([disabled]),textarea:not([disabled])";

/** From the last of what can be pressed to the first, and back: Tab leads no further. */
function round(event, box) {
  if (event.key !== "Tab") return;
  const stops = [...box.querySelectorAll(STOPS)];
  const [first, last] = [stops[0], stops.at(-1)];
  if (!first) return;
  const at = document.activeElement;
  const leaves = event.shiftKey ? at === first || at === box : at === last;
  if (!leaves && box.contains(at)) return;
  event.preventDefault();
  (event.shiftKey ? last : first).focus();
}

/** Remembers what has the focus; answers what gives it back where the browser cannot, for it is not there any more. */
function opener() {
  const from = document.activeElement;
  const words = from?.textContent;
  const around = [];
  for (let at = from; at; at = at.parentElement) around.push(at);
  const row = from?.closest("[data-key]")?.dataset.key;
  return () => {
    // The browser gave it back already, or it is elsewhere by now.
    if (document.activeElement !== document.body) return;
    // What a list tells anew is another button with the same words, in the row of the same thing.
    const place = around.find((at) => at.isConnected && at !== document.body) ?? byId("main");
    const within = row === undefined ? place : ([...place.querySelectorAll("[data-key]")].find((at) => at.dataset.key === row) ?? place);
    const same = [...within.querySelectorAll(STOPS)].filter((stop) => stop.textContent === words);
    (same.length === 1 ? same[0] : byId("main")).focus({ preventScroll: true });
  };
}

/**
 * Opens a dialog; resolves with the form's fields once the act is chosen, with null otherwise. `act` = the words of
 * the button that does it, none where there is nothing to do; `danger` = it cannot be taken back; `check(fields)`
 * may answer what is wrong with them.
 */
export function dialog({ title, body, act = null, danger = false, close = "Cancel", check = () => null }) {
  return new Promise((resolve) => {
    let result = null;
    const back = opener();
    const wrong = h("p", { class: "wrong", role: "alert" });
    const box = h(
      "dialog",
      { class: "dialog", "aria-labelledby": "dialog-title", on: { close: () => (box.remove(), back(), resolve(result)), keydown: (event) => round(event, box) } },
      h(
        "form",
        {
          method: "dialog",
          on: {
            submit: (event) => {
              const fields = Object.fromEntries(new FormData(event.target));
              const problem = check(fields);
              if (problem) {
                event.preventDefault();
                fill(wrong, problem);
              } else {
                result = fields;
              }
            },
          },
        },
        h("h2", { id: "dialog-title" }, title),
        add(h("div", { class: "dialog-body" }), body),
        wrong,
        h(
          "div",
          { class: "dialog-acts" },
          h("button", { type: "button", on: { click: () => box.close() } }, close),
          act && h("button", { type: "submit", class: danger ? "danger" : "primary" }, act),
        ),
      ),
    );
    // A click beside it closes it, as people expect.
    box.addEventListener("click", (event) => event.target === box && box.close());
    document.body.append(box);
    box.showModal();
  });
}

let fields = 0;

/** A labelled field for a dialog. */
export function field(label, name, { rows = 0, hint = null, ...props } = {}) {
  const id = `field-${(fields += 1)}`;
  const about = hint ? `${id}-hint` : null;
  const common = { id, name, "aria-describedby": about, ...props };
  return h(
    "div",
    { class: "field" },
    h("label", { for: id }, label),
    rows ? h("textarea", { rows, ...common }) : h("input", { type: "text", autocomplete: "off", ...common }),
    hint && h("p", { class: "hint", id: about }, hint),
  );
}
