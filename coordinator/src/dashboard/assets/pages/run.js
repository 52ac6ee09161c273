// A run: what happened in it turn by turn, as it goes or as it went, and what can be done from any of them.

import { get, isAbort } from "../api.js";
import { fill, h } from "../dom.js";
import { follow, freshTimeline, poll } from "../live.js";
import { bind } from "../keys.js";
import { remember, show, title } from "../router.js";
import { head } from "../run/head.js";
import { slider } from "../run/slider.js";
import { tabs } from "../run/tabs.js";

/** How often the task's record is asked for: what is no event of the run. */
const RECORD_MS = 3000;
/** What the events of a run changed in its timeline is fetched at most this often. */
const AGAIN_MS = 400;

export async function open(main, { params, query, signal }) {
  const id = params.id;
  const run = `/v1/runs/${encodeURIComponent(id)}`;
  const at = { turn: numberOf(query.get("turn")), newest: !query.has("turn"), tab: query.get("tab") ?? "turn", path: query.get("path") ?? "", with: query.get("with") ?? "" };
  const view = { id, run, timeline: await freshTimeline(run, null, signal), task: null, at, signal };

  const parts = { head: h("div", {}), slider: h("div", {}), tabs: h("div", {}) };
  fill(main, parts.head, parts.slider, parts.tabs);

  const tell = () => {
    const query = new URLSearchParams();
    if (!at.newest) query.set("turn", String(at.turn));
    if (at.tab !== "turn") query.set("tab", at.tab);
    if (at.path && at.tab === "files") query.set("path", at.path);
    if (at.with && at.tab === "beside") query.set("with", at.with);
    remember(query);
  };
  const last = () => view.timeline.turns.at(-1)?.turn ?? 0;
  view.show = (change) => {
    Object.assign(at, change);
    if ("turn" in change) {
      at.turn = Math.max(0, Math.min(change.turn ?? last(), last()));
      at.newest = at.turn === last() && !ended(view.timeline);
    }
    tell();
    draw();
  };
  let asked = () => {};
  view.again = () => asked();

  const top = head(parts.head, view);
  const time = slider(parts.slider, view);
  const pane = tabs(parts.tabs, view);
  const draw = () => {
    top.draw();
    time.draw();
    pane.draw();
  };

  if (at.turn === null) at.turn = view.timeline.opens_at;
  at.turn = Math.min(at.turn, last());
  at.newest = at.turn === last() && !ended(view.timeline);

  // At most one look is under way and one is due, whatever comes meanwhile.
  let looking = false;
  let due = null;
  const again = (wait = AGAIN_MS) => {
    if (due === null && !signal.aborted) due = setTimeout(look, wait);
  };
  const look = async () => {
    due = null;
    if (looking) return again();
    looking = true;
    try {
      view.timeline = await freshTimeline(run, view.timeline, signal);
      if (at.newest) at.turn = last();
      draw();
    } catch (error) {
      if (isAbort(error)) return;
      gone(error);
      again(RECORD_MS);
    } finally {
      looking = false;
    }
  };
  signal.addEventListener("abort", () => clearTimeout(due));
  const record = async (of) => {
    view.task = await get(`/v1/tasks/${view.timeline.task}`, null, { signal: of });
    title(view.task.task.spec.title);
    top.draw();
  };
  await record(signal);
  asked = poll(record, { every: RECORD_MS, later: true, failed: gone }, signal);
  draw();
  bind(keys(view, last), signal);
  follow(id, { after: view.timeline.head, event: () => again(), end: () => again(), state: (word) => top.link(word) }, signal);
}

/** What went to the archive while one looked is told as that. */
const gone = (error) => error.status === 404 && show();

const numberOf = (text) => (text !== null && /^\d{1,9}$/.test(text) ? Number(text) : null);

/** Whether no further turn will come. */
export const ended = (timeline) => !["not ended", "blocked", "paused"].includes(timeline.standing);

/** The next turn after `turn`, in this direction, in which something failed; none where there is none. */
export function failure(timeline, turn, step) {
  const failed = timeline.turns.filter((row) => row.failed && (step > 0 ? row.turn > turn : row.turn < turn));
  return (step > 0 ? failed[0] : failed.at(-1))?.turn ?? null;
}

/** Whether a key moves what has the focus: long lines are scrolled by the arrows. */
const scrolls = (event) => {
  const box = event.target.closest?.("[tabindex='0']");
  return box !== null && box !== undefined && (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight);
};

function keys(view, last) {
  const { at } = view;
  const move = (step) => view.show({ turn: at.turn + step });
  const toFailure = (step) => {
    const turn = failure(view.timeline, at.turn, step);
    if (turn !== null) view.show({ turn });
  };
  return {
    ArrowLeft: { does: "The turn before", run: () => move(-1), leaves: scrolls },
    ArrowRight: { does: "The next turn", run: () => move(1), leaves: scrolls },
    Home: { does: null, run: () => view.show({ turn: 0 }), leaves: scrolls },
    End: { does: "The newest turn", run: () => view.show({ turn: last() }), leaves: scrolls },
    n: { does: "The next failure", run: () => toFailure(1) },
    p: { does: "The failure before", run: () => toFailure(-1) },
    1: { does: "The turn", run: () => view.show({ tab: "turn" }) },
    2: { does: "Changes", run: () => view.show({ tab: "changes" }) },
    3: { does: "Files", run: () => view.show({ tab: "files" }) },
    4: { does: "Ledger", run: () => view.show({ tab: "ledger" }) },
    5: { does: "Forks", run: () => view.show({ tab: "forks" }) },
    6: { does: "Beside another run", run: () => view.show({ tab: "beside" }) },
  };
}
