// What is shown of a run beneath its slider: one tab at a time, each fetched when it is looked at.

import { isAbort } from "../api.js";
import { exchange, fill, h, refill } from "../dom.js";
import { poll } from "../live.js";
import { ended } from "../pages/run.js";
import { beside, timelineOf } from "./beside.js";
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

/** How long until what the coordinator did not answer is asked for again. */
const AGAIN_MS = 3000;

/** How often a run that stands beside this one, and goes on, is asked for. */
const BESIDE_MS = 2000;

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
  let watched = null;
  let watching = new AbortController();
  /** The other run goes on as well: it is asked for while one looks at it and it has not ended. */
  const watch = () => {
    const { other } = keep;
    const wanted = view.at.tab === "beside" && view.at.with && other && !ended(other) ? other.run : null;
    if (wanted === watched) return;
    watched = wanted;
    watching.abort();
    watching = new AbortController();
    if (wanted === null) return;
    const ask = async (signal) => {
      const timeline = await timelineOf(wanted, keep.other?.run === wanted ? keep.other : null, signal);
      if (["head", "standing", "status"].every((of) => timeline[of] === keep.other?.[of])) return;
      keep.other = timeline;
      keep.fresh = true;
      keep.rounds = (keep.rounds ?? 0) + 1;
      draw();
    };
    poll(ask, { every: BESIDE_MS, later: true }, AbortSignal.any([view.signal, watching.signal]));
  };
  const draw = async () => {
    watch();
    const tab = TABS.find((one) => one.name === view.at.tab) ?? TABS[0];
    TABS.forEach((one, n) => {
      buttons[n].setAttribute("aria-selected", String(one === tab));
      buttons[n].tabIndex = one === tab ? 0 : -1;
    });
    pane.setAttribute("aria-labelledby", `tab-${tab.name}`);
    const row = view.timeline.turns.find((one) => one.turn === view.at.turn);
    const other = tab.name === "beside" && [view.timeline.standing, keep.rounds];
    const sign = JSON.stringify([tab.name, view.at, row, tab.name === "forks" && view.timeline.head, other]);
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
      told = `${tab.name} ${view.at.turn}`;
      (same ? refill : exchange)(pane, shown);
      watch();
    } catch (error) {
      if (isAbort(error) || mine !== asked) return;
      fill(pane, h("p", { class: "wrong", role: "alert" }, error.message));
      drawn = "";
      if (error.status === undefined) throw error;
      // Of a run that has ended nothing else would draw it again once the coordinator is back.
      if (error.status !== 0 && error.status < 500) return;
      const timer = setTimeout(draw, AGAIN_MS);
      signal.addEventListener("abort", () => clearTimeout(timer));
    }
  };
  return { draw };
}
