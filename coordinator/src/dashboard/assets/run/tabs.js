// What is shown of a run beneath its slider: one tab at a time, each fetched when it is looked at.

import { isAbort } from "../api.js";
import { fill, h, refill } from "../dom.js";
import { beside } from "./beside.js";
import { changes } from "./changes.js";
import { files } from "./files.js";
import { forks } from "./forks.js";
import { ledger } from "./ledger.js";
import { turn } from "./turn.js";

/** `draw(view, keep)` resolves with what to show; `keep` remembers between two draws of one page. */
const TABS = [
  { name: "turn", word: "Turn", draw: turn },
  { name: "changes", word: "Changes", draw: changes },
  { name: "files", word: "Files", draw: files },
  { name: "ledger", word: "Ledger", draw: ledger },
  { name: "forks", word: "Forks", draw: forks },
  { name: "beside", word: "Beside", draw: beside },
];

/** How long a turn is looked at before it is asked for. */
const SETTLED_MS = 60;

/** What of a pane is open and shut, by what stands in its line. */
const folds = (pane) => new Map([...pane.querySelectorAll("details")].map((fold) => [fold.querySelector("summary")?.textContent, fold.open]));

function unfold(pane, opened) {
  for (const fold of pane.querySelectorAll("details")) {
    const was = opened.get(fold.querySelector("summary")?.textContent);
    if (was !== undefined) fold.open = was;
  }
}

export function tabs(place, view) {
  const buttons = TABS.map((tab) =>
    h("button", { type: "button", role: "tab", id: `tab-${tab.name}`, "aria-controls": "pane", on: { click: () => view.show({ tab: tab.name }) } }, tab.word),
  );
  const list = h("div", { class: "tablist", role: "tablist", "aria-label": "Of this run" }, buttons);
  list.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const n = (TABS.findIndex((tab) => tab.name === view.at.tab) + step + TABS.length) % TABS.length;
    view.show({ tab: TABS[n].name });
    buttons[n].focus();
  });
  const pane = h("div", { class: "pane", role: "tabpanel", id: "pane", tabindex: "-1" });
  fill(place, list, pane);

  const keep = {};
  let drawn = "";
  let asked = 0;
  let told = "";
  let before = new AbortController();
  const draw = async () => {
    const tab = TABS.find((one) => one.name === view.at.tab) ?? TABS[0];
    TABS.forEach((one, n) => {
      buttons[n].setAttribute("aria-selected", String(one === tab));
      buttons[n].tabIndex = one === tab ? 0 : -1;
    });
    pane.setAttribute("aria-labelledby", `tab-${tab.name}`);
    const row = view.timeline.turns.find((one) => one.turn === view.at.turn);
    const sign = JSON.stringify([tab.name, view.at, row, tab.name === "forks" && view.timeline.head]);
    if (sign === drawn) return;
    const fresh = JSON.parse(drawn || "[]")[0] !== tab.name;
    drawn = sign;
    const mine = (asked += 1);
    before.abort();
    before = new AbortController();
    const signal = AbortSignal.any([view.signal, before.signal]);
    if (fresh) fill(pane, h("p", { class: "muted wait" }, "…"));
    try {
      // A slider that is dragged passes turns that nobody looks at.
      await new Promise((resolve) => setTimeout(resolve, SETTLED_MS));
      if (mine !== asked || signal.aborted) return;
      const shown = await tab.draw({ ...view, signal }, keep);
      if (mine !== asked || signal.aborted) return;
      const same = told === `${tab.name} ${view.at.turn}`;
      const opened = same ? folds(pane) : new Map();
      told = `${tab.name} ${view.at.turn}`;
      refill(pane, shown);
      unfold(pane, opened);
    } catch (error) {
      if (isAbort(error) || mine !== asked) return;
      fill(pane, h("p", { class: "wrong", role: "alert" }, error.message));
      drawn = "";
      if (error.status === undefined) throw error;
    }
  };
  return { draw };
}
