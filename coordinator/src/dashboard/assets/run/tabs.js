// What is shown of a run beneath its slider: one tab at a time, each fetched when it is looked at.

import { isAbort } from "../api.js";
import { fill, h } from "../dom.js";
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
    if (fresh) fill(pane, h("p", { class: "muted wait" }, "…"));
    try {
      const shown = await tab.draw(view, keep);
      if (mine !== asked || view.signal.aborted) return;
      fill(pane, shown);
    } catch (error) {
      if (isAbort(error) || mine !== asked) return;
      fill(pane, h("p", { class: "wrong", role: "alert" }, error.message));
      drawn = "";
      if (error.status === undefined) throw error;
    }
  };
  return { draw };
}
