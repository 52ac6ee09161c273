// Tabs of the run page. Each tab loads its data when it is opened.

import { isAbortError } from "../api.js";
import { h, replaceContent, setChildren, updateChildren } from "../dom.js";
import { poll } from "../live.js";
import { isRunEnded } from "../pages/run.js";
import { drawComparison, fetchRunTimeline } from "./comparison.js";
import { drawChanges } from "./changes.js";
import { drawFiles } from "./files.js";
import { drawForks } from "./forks.js";
import { drawLedger } from "./ledger.js";
import { drawTurn } from "./turn.js";

/** `draw(view, tabState)` resolves with the content; `tabState` persists between draws while the page is open. */
const TABS = [
  { name: "turn", label: "Turn", draw: drawTurn },
  { name: "changes", label: "Changes", draw: drawChanges },
  { name: "files", label: "Files", draw: drawFiles },
  { name: "ledger", label: "Ledger", draw: drawLedger },
  { name: "forks", label: "Forks", draw: drawForks },
  { name: "beside", label: "Compare", draw: drawComparison },
];

/** How long a turn stays selected before it is fetched. */
const DEBOUNCE_MS = 60;

/** Delay before a draw is retried after the coordinator failed to respond. */
const RETRY_MS = 3000;

/** How often the other run of a comparison is refreshed while it is active. */
const OTHER_RUN_REFRESH_MS = 2000;

export function runTabs(container, view) {
  const buttons = TABS.map((tab) =>
    h("button", { type: "button", role: "tab", id: `tab-${tab.name}`, "aria-controls": "pane", on: { click: () => view.select({ tab: tab.name }) } }, tab.label),
  );
  const list = h("div", { class: "tablist", role: "tablist", "aria-label": "Run views" }, buttons);
  list.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const n = (TABS.findIndex((tab) => tab.name === view.selection.tab) + step + TABS.length) % TABS.length;
    view.select({ tab: TABS[n].name });
    buttons[n].focus();
  });
  const pane = h("div", { class: "pane", role: "tabpanel", id: "pane", tabindex: "-1" });
  setChildren(container, list, pane);

  const tabState = {};
  let drawnSignature = "";
  let drawCount = 0;
  let shownKey = "";
  let drawAbort = new AbortController();
  let watchedRun = null;
  let watchAbort = new AbortController();
  /** Polls the other run of the Compare tab while the tab is open and the run has not ended. */
  const watchOtherRun = () => {
    const { other } = tabState;
    const runToWatch = view.selection.tab === "beside" && view.selection.with && other && !isRunEnded(other) ? other.run : null;
    if (runToWatch === watchedRun) return;
    watchedRun = runToWatch;
    watchAbort.abort();
    watchAbort = new AbortController();
    if (runToWatch === null) return;
    const load = async (signal) => {
      const timeline = await fetchRunTimeline(runToWatch, tabState.other?.run === runToWatch ? tabState.other : null, signal);
      if (["head", "standing", "status"].every((key) => timeline[key] === tabState.other?.[key])) return;
      tabState.other = timeline;
      tabState.otherIsFresh = true;
      tabState.otherRevision = (tabState.otherRevision ?? 0) + 1;
      draw();
    };
    poll(load, { intervalMs: OTHER_RUN_REFRESH_MS, skipFirst: true }, AbortSignal.any([view.signal, watchAbort.signal]));
  };
  const draw = async () => {
    watchOtherRun();
    const tab = TABS.find((candidate) => candidate.name === view.selection.tab) ?? TABS[0];
    TABS.forEach((candidate, n) => {
      buttons[n].setAttribute("aria-selected", String(candidate === tab));
      buttons[n].tabIndex = candidate === tab ? 0 : -1;
    });
    pane.setAttribute("aria-labelledby", `tab-${tab.name}`);
    const row = view.timeline.turns.find((candidate) => candidate.turn === view.selection.turn);
    const otherSignature = tab.name === "beside" && [view.timeline.standing, tabState.otherRevision];
    const signature = JSON.stringify([tab.name, view.selection, row, tab.name === "forks" && view.timeline.head, otherSignature]);
    if (signature === drawnSignature) return;
    const isNewTab = JSON.parse(drawnSignature || "[]")[0] !== tab.name;
    drawnSignature = signature;
    const drawNumber = (drawCount += 1);
    drawAbort.abort();
    drawAbort = new AbortController();
    const signal = AbortSignal.any([view.signal, drawAbort.signal]);
    if (isNewTab) setChildren(pane, h("p", { class: "muted loading" }, "…"));
    try {
      // Do not fetch the turns that a dragged slider passes.
      await new Promise((resolve) => setTimeout(resolve, DEBOUNCE_MS));
      if (drawNumber !== drawCount || signal.aborted) return;
      const content = await tab.draw({ ...view, signal }, tabState);
      if (drawNumber !== drawCount || signal.aborted) return;
      const isSameView = shownKey === `${tab.name} ${view.selection.turn}`;
      shownKey = `${tab.name} ${view.selection.turn}`;
      (isSameView ? updateChildren : replaceContent)(pane, content);
      watchOtherRun();
    } catch (error) {
      if (isAbortError(error) || drawNumber !== drawCount) return;
      setChildren(pane, h("p", { class: "error", role: "alert" }, error.message));
      drawnSignature = "";
      if (error.status === undefined) throw error;
      // Nothing else would redraw the tab of an ended run once the coordinator is back.
      if (error.status !== 0 && error.status < 500) return;
      const timer = setTimeout(draw, RETRY_MS);
      signal.addEventListener("abort", () => clearTimeout(timer));
    }
  };
  return { draw };
}
