// Run page: the turns of a live or finished run, and forking or resuming from any of them.

import { get, isAbortError } from "../api.js";
import { h, setChildren } from "../dom.js";
import { followRun, poll, refreshTimeline } from "../live.js";
import { bindKeys } from "../keyboard.js";
import { replaceQuery, setTitle, showPage } from "../router.js";
import { runHeader } from "../run/header.js";
import { turnSlider } from "../run/turn-slider.js";
import { runTabs } from "../run/tabs.js";

/** How often the task's record is refreshed; its changes are not events of the run. */
const TASK_REFRESH_MS = 3000;
/** Shortest interval between timeline refreshes triggered by events. */
const REFRESH_MS = 400;

export async function open(main, { params, query, signal }) {
  const id = params.id;
  const run = `/v1/runs/${encodeURIComponent(id)}`;
  const selection = { turn: parseTurn(query.get("turn")), newest: !query.has("turn"), tab: query.get("tab") ?? "turn", path: query.get("path") ?? "", with: query.get("with") ?? "" };
  const view = { id, run, timeline: await refreshTimeline(run, null, signal), task: null, selection, signal };

  const parts = { header: h("div", {}), slider: h("div", {}), tabs: h("div", {}) };
  setChildren(main, parts.header, parts.slider, parts.tabs);

  const updateUrl = () => {
    const query = new URLSearchParams();
    if (!selection.newest) query.set("turn", String(selection.turn));
    if (selection.tab !== "turn") query.set("tab", selection.tab);
    if (selection.path && selection.tab === "files") query.set("path", selection.path);
    if (selection.with && selection.tab === "beside") query.set("with", selection.with);
    replaceQuery(query);
  };
  const lastTurn = () => view.timeline.turns.at(-1)?.turn ?? 0;
  view.select = (change) => {
    Object.assign(selection, change);
    if ("turn" in change) {
      selection.turn = Math.max(0, Math.min(change.turn ?? lastTurn(), lastTurn()));
      selection.newest = selection.turn === lastTurn() && !isRunEnded(view.timeline);
    }
    updateUrl();
    draw();
  };
  let refreshTask = () => {};
  view.refreshTask = () => refreshTask();

  const header = runHeader(parts.header, view);
  const slider = turnSlider(parts.slider, view);
  const tabs = runTabs(parts.tabs, view);
  const draw = () => {
    header.draw();
    slider.draw();
    tabs.draw();
  };

  if (selection.turn === null) selection.turn = view.timeline.opens_at;
  selection.turn = Math.min(selection.turn, lastTurn());
  selection.newest = selection.turn === lastTurn() && !isRunEnded(view.timeline);

  // At most one refresh is in progress and one scheduled, however many events arrive.
  let isRefreshing = false;
  let timer = null;
  const scheduleRefresh = (delay = REFRESH_MS) => {
    if (timer === null && !signal.aborted) timer = setTimeout(refresh, delay);
  };
  const refresh = async () => {
    timer = null;
    if (isRefreshing) return scheduleRefresh();
    isRefreshing = true;
    try {
      view.timeline = await refreshTimeline(run, view.timeline, signal);
      if (selection.newest) selection.turn = lastTurn();
      draw();
    } catch (error) {
      if (isAbortError(error)) return;
      reloadIfArchived(error);
      scheduleRefresh(TASK_REFRESH_MS);
    } finally {
      isRefreshing = false;
    }
  };
  signal.addEventListener("abort", () => clearTimeout(timer));
  const loadTask = async (roundSignal) => {
    view.task = await get(`/v1/tasks/${view.timeline.task}`, null, { signal: roundSignal });
    setTitle(view.task.task.spec.title);
    header.draw();
  };
  await loadTask(signal);
  refreshTask = poll(loadTask, { intervalMs: TASK_REFRESH_MS, skipFirst: true, onError: reloadIfArchived }, signal);
  draw();
  bindKeys(pageKeys(view, lastTurn), signal);
  followRun(id, { after: view.timeline.head, onEvent: () => scheduleRefresh(), onEnd: () => scheduleRefresh(), onState: (state) => header.setConnection(state) }, signal);
}

/** Reopens the page if the run was archived while it was open, to show the archive notice. */
const reloadIfArchived = (error) => error.status === 404 && showPage();

const parseTurn = (text) => (text !== null && /^\d{1,9}$/.test(text) ? Number(text) : null);

/** Whether the run cannot have further turns. */
export const isRunEnded = (timeline) => !["not ended", "blocked", "paused"].includes(timeline.standing);

/** The nearest failed turn after (`step > 0`) or before `turn`, or null. */
export function findFailure(timeline, turn, step) {
  const failed = timeline.turns.filter((row) => row.failed && (step > 0 ? row.turn > turn : row.turn < turn));
  return (step > 0 ? failed[0] : failed.at(-1))?.turn ?? null;
}

/** Whether the focused element scrolls, in which case the arrow keys belong to it. */
const isScrollable = (event) => {
  const box = event.target.closest?.("[tabindex='0']");
  return box !== null && box !== undefined && (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight);
};

function pageKeys(view, lastTurn) {
  const { selection } = view;
  const move = (step) => view.select({ turn: selection.turn + step });
  const toFailure = (step) => {
    const turn = findFailure(view.timeline, selection.turn, step);
    if (turn !== null) view.select({ turn });
  };
  return {
    ArrowLeft: { label: "Previous turn", run: () => move(-1), isNative: isScrollable },
    ArrowRight: { label: "Next turn", run: () => move(1), isNative: isScrollable },
    Home: { label: null, run: () => view.select({ turn: 0 }), isNative: isScrollable },
    End: { label: "Newest turn", run: () => view.select({ turn: lastTurn() }), isNative: isScrollable },
    n: { label: "Next failure", run: () => toFailure(1) },
    p: { label: "Previous failure", run: () => toFailure(-1) },
    1: { label: "Turn", run: () => view.select({ tab: "turn" }) },
    2: { label: "Changes", run: () => view.select({ tab: "changes" }) },
    3: { label: "Files", run: () => view.select({ tab: "files" }) },
    4: { label: "Ledger", run: () => view.select({ tab: "ledger" }) },
    5: { label: "Forks", run: () => view.select({ tab: "forks" }) },
    6: { label: "Compare", run: () => view.select({ tab: "beside" }) },
  };
}
