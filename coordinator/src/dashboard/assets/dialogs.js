// Questions to the person at the page, and news for them. Native dialogs: they hold the focus and give it back.

import { add, byId, fill, h } from "./dom.js";
import { prose } from "./format.js";

/** How long news stand. */
const NEWS_MS = 6000;

/** Tells something in passing, also to those who hear the page. */
export function news(text) {
  tell("news", text);
}

/** Tells what went wrong. */
export function alert(text) {
  tell("alerts", text);
}

function tell(where, text) {
  const note = h("p", {}, prose(text));
  const place = byId(where);
  // More than a few at once nobody reads.
  while (place.children.length >= 4) place.firstElementChild.remove();
  place.append(note);
  setTimeout(() => note.remove(), NEWS_MS);
}

/**
 * Opens a dialog; resolves with the form's fields once the act is chosen, with null otherwise. `act` = the words of
 * the button that does it, none where there is nothing to do; `danger` = it cannot be taken back; `check(fields)`
 * may answer what is wrong with them.
 */
export function dialog({ title, body, act = null, danger = false, close = "Cancel", check = () => null }) {
  return new Promise((resolve) => {
    let result = null;
    const wrong = h("p", { class: "wrong", role: "alert" });
    const box = h(
      "dialog",
      { class: "dialog", "aria-labelledby": "dialog-title", on: { close: () => (box.remove(), resolve(result)) } },
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
