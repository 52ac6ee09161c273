// Compare tab: two runs side by side, with the turn where they diverge and the differences between their files.

import { can, get } from "../api.js";
import { h } from "../dom.js";
import { formatCost, pluralize, shortId } from "../format.js";
import { refreshTimeline } from "../live.js";
import { currentRunStatus, stateBadge } from "../components.js";
import { urlTo } from "../router.js";
import { diffList } from "./diff.js";
import { isRunEnded } from "../pages/run.js";
import { turnView } from "./turn.js";

export async function drawComparison(view, tabState) {
  const { selection, signal } = view;
  if (!selection.with) {
    tabState.other = null;
    return otherRunForm(view, "");
  }
  const matches = await get(`/v1/resolve/${encodeURIComponent(selection.with)}`, null, { signal }).catch((error) => {
    if (error.status !== 404 && error.status !== 400 && error.status !== 409) throw error;
    return { runs: [], tasks: [] };
  });
  const otherId = matches.runs[0] ?? (await fetchLastRun(matches.tasks[0], signal));
  if (!otherId) {
    tabState.other = null;
    return otherRunForm(view, `No run or task matches ${selection.with}.`);
  }
  const otherView = { ...view, id: otherId, run: `/v1/runs/${encodeURIComponent(otherId)}` };
  // A timeline that polling just refreshed is not fetched again.
  const isCurrent = tabState.other?.run === otherId && (tabState.otherIsFresh || isRunEnded(tabState.other));
  tabState.otherIsFresh = false;
  if (!isCurrent) tabState.other = await fetchRunTimeline(otherId, null, signal);
  const otherTimeline = tabState.other;
  const otherTurn = Math.min(selection.turn, otherTimeline.turns.at(-1)?.turn ?? 0);
  const [ownTurn, theirTurn, fileDiff] = await Promise.all([
    get(`${view.run}/turn`, { turn: String(selection.turn) }, { signal }),
    get(`${otherView.run}/turn`, { turn: String(otherTurn) }, { signal }),
    can.administer() ? get(`${view.run}/diff`, { from: String(selection.turn), with: otherId, to: String(otherTurn) }, { signal }) : null,
  ]);
  return h(
    "div",
    { class: "turn" },
    otherRunForm(view, ""),
    turnMarks(view, otherTimeline),
    h(
      "div",
      { class: "two-columns" },
      runColumn("This run", view.id, { ...view.timeline, status: view.task?.runs.find((record) => record.id === view.id)?.status }, selection.turn, turnView(view, ownTurn)),
      runColumn("Other run", otherId, otherTimeline, otherTurn, turnView(otherView, theirTurn)),
    ),
    fileDiff && h("section", {}, h("h2", {}, "File differences"), diffList(fileDiff.changes)),
  );
}

/** Fetches the timeline of a run together with its status in the queue. `known` is the previous result, or null. */
export async function fetchRunTimeline(id, known, signal) {
  const run = `/v1/runs/${encodeURIComponent(id)}`;
  const [timeline, { status }] = await Promise.all([refreshTimeline(run, known, signal), get(run, null, { signal })]);
  return { ...timeline, status };
}

async function fetchLastRun(task, signal) {
  return task ? (await get(`/v1/tasks/${task}`, null, { signal })).task.last_run : null;
}

function otherRunForm(view, problem) {
  const input = h("input", { type: "text", id: "other", name: "other", value: view.selection.with, placeholder: "id of a run or task", spellcheck: "false", autocomplete: "off" });
  return h(
    "form",
    {
      class: "choice-row",
      on: {
        submit: (event) => {
          event.preventDefault();
          view.select({ with: input.value.trim() });
        },
      },
    },
    h("label", { for: "other" }, "Compare with "),
    input,
    h("button", { type: "submit" }, "Show"),
    problem && h("p", { class: "error", role: "alert" }, problem),
  );
}

function runColumn(heading, id, timeline, turn, content) {
  const row = timeline.turns.find((candidate) => candidate.turn === turn);
  return h(
    "section",
    { class: "run-column", "aria-label": heading },
    h("h2", {}, `${heading}: `, h("a", { href: urlTo.run(id, `?turn=${turn}`) }, `run ${shortId(id)}, turn ${turn}`)),
    h("p", { class: "muted" }, stateBadge(currentRunStatus(timeline, timeline.status)), ` ${timeline.engine ?? ""} · ${pluralize(timeline.turns.at(-1)?.turn ?? 0, "turn")} · `, formatCost(row?.cost_so_far_nusd ?? 0), " so far"),
    content,
  );
}

/** Compares a turn with the turn of the same number in the other run. */
function compareTurns(own, other) {
  if (!own || !other) return ["alone", "only in one run"];
  if ((!own.ended && !own.last) || (!other.ended && !other.last)) return ["open", "still in progress"];
  if (own.end_hash === other.end_hash) return ["shared", "identical events"];
  if (own.decided !== other.decided) return ["differs", "different decisions"];
  if (own.results !== other.results) return ["differs", "same decision, different results"];
  return ["same", "same decision and results"];
}

const MARK_SIGNS = { shared: "=", same: "≈", differs: "≠", alone: "+", open: "…" };

/** A turn, marked if it is the last of an ended run: such a turn is over without an end event. */
const turnRow = (timeline, n) => {
  const turn = timeline.turns[n];
  return turn && { ...turn, last: isRunEnded(timeline) && n === timeline.turns.length - 1 };
};

function turnMarks(view, other) {
  const turnCount = Math.max(view.timeline.turns.length, other.turns.length);
  const rows = Array.from({ length: turnCount }, (_, n) => {
    const [own, theirs] = [turnRow(view.timeline, n), turnRow(other, n)];
    return { turn: (own ?? theirs).turn, verdict: compareTurns(own, theirs), own };
  });
  const divergence = rows.find(({ verdict }) => verdict[0] === "differs" || verdict[0] === "alone");
  return h(
    "section",
    { "aria-label": "Divergence" },
    h("p", {}, divergence ? `Runs diverge at turn ${divergence.turn}: ${divergence.verdict[1]}.` : "Runs do not differ."),
    h(
      "ol",
      { class: "marks" },
      rows.map(({ turn, verdict, own }) =>
        h(
          "li",
          {},
          h(
            "button",
            {
              type: "button",
              class: "quiet",
              title: `turn ${turn}: ${verdict[1]}`,
              "aria-label": `turn ${turn}: ${verdict[1]}`,
              "aria-current": view.selection.turn === turn ? "true" : null,
              disabled: !own,
              data: { how: verdict[0] },
              on: { click: () => view.select({ turn }) },
            },
            `${MARK_SIGNS[verdict[0]]}${turn}`,
          ),
        ),
      ),
    ),
  );
}
