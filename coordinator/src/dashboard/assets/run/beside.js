// Two runs beside each other: where they part, the turn of each, and what differs between their files.

import { get, may } from "../api.js";
import { h } from "../dom.js";
import { cost, short } from "../format.js";
import { freshTimeline } from "../live.js";
import { standing, state } from "../parts.js";
import { to } from "../router.js";
import { changed } from "./diff.js";
import { ended } from "../pages/run.js";
import { turnView } from "./turn.js";

export async function beside(view, keep) {
  const { at, signal } = view;
  if (!at.with) {
    keep.other = null;
    return chooser(view, "");
  }
  const found = await get(`/v1/resolve/${encodeURIComponent(at.with)}`, null, { signal }).catch((error) => {
    if (error.status !== 404 && error.status !== 400 && error.status !== 409) throw error;
    return { runs: [], tasks: [] };
  });
  const other = found.runs[0] ?? (await lastRunOf(found.tasks[0], signal));
  if (!other) {
    keep.other = null;
    return chooser(view, `No run is called ${at.with}.`);
  }
  const theirs = { ...view, id: other, run: `/v1/runs/${encodeURIComponent(other)}` };
  // What its follower just brought is not asked for again.
  const known = keep.other?.run === other && (keep.fresh || ended(keep.other));
  keep.fresh = false;
  if (!known) keep.other = await timelineOf(other, null, signal);
  const timeline = keep.other;
  const turn = Math.min(at.turn, timeline.turns.at(-1)?.turn ?? 0);
  const [mine, their, differ] = await Promise.all([
    get(`${view.run}/turn`, { turn: String(at.turn) }, { signal }),
    get(`${theirs.run}/turn`, { turn: String(turn) }, { signal }),
    may.admin() ? get(`${view.run}/diff`, { from: String(at.turn), with: other, to: String(turn) }, { signal }) : null,
  ]);
  return h(
    "div",
    { class: "turn" },
    chooser(view, ""),
    strips(view, timeline),
    h(
      "div",
      { class: "two" },
      side("This run", view.id, { ...view.timeline, status: view.task?.runs.find((one) => one.id === view.id)?.status }, at.turn, turnView(view, mine)),
      side("The other", other, timeline, turn, turnView(theirs, their)),
    ),
    differ && h("section", {}, h("h2", {}, "What the other has otherwise in its files"), changed(differ.changes)),
  );
}

/** A run's timeline, with what the queue knows of it; `known` is the same as it was before, or null. */
export async function timelineOf(id, known, signal) {
  const run = `/v1/runs/${encodeURIComponent(id)}`;
  const [now, { status }] = await Promise.all([freshTimeline(run, known, signal), get(run, null, { signal })]);
  return { ...now, status };
}

async function lastRunOf(task, signal) {
  return task ? (await get(`/v1/tasks/${task}`, null, { signal })).task.last_run : null;
}

function chooser(view, problem) {
  const input = h("input", { type: "text", id: "other", name: "other", value: view.at.with, placeholder: "id of a run or task", spellcheck: "false", autocomplete: "off" });
  return h(
    "form",
    {
      class: "choose",
      on: {
        submit: (event) => {
          event.preventDefault();
          view.show({ with: input.value.trim() });
        },
      },
    },
    h("label", { for: "other" }, "Beside "),
    input,
    h("button", { type: "submit" }, "Show"),
    problem && h("p", { class: "wrong", role: "alert" }, problem),
  );
}

function side(word, id, timeline, turn, shown) {
  const row = timeline.turns.find((one) => one.turn === turn);
  return h(
    "section",
    { class: "side-run", "aria-label": word },
    h("h2", {}, `${word}: `, h("a", { href: to.run(id, `?turn=${turn}`) }, `run ${short(id)}, turn ${turn}`)),
    h("p", { class: "muted" }, state(standing(timeline, timeline.status)), ` ${timeline.engine ?? ""} · ${timeline.turns.at(-1)?.turn ?? 0} turns · `, cost(row?.cost_so_far_nusd ?? 0), " so far"),
    shown,
  );
}

/** How a turn compares with the other run's turn of the same number. */
function compared(mine, their) {
  if (!mine || !their) return ["alone", "only one of the runs has it"];
  if ((!mine.ended && !mine.last) || (!their.ended && !their.last)) return ["open", "not over yet"];
  if (mine.end_hash === their.end_hash) return ["shared", "the very same events"];
  if (mine.decided !== their.decided) return ["differs", "the model decided otherwise"];
  if (mine.results !== their.results) return ["differs", "the same decision, other results"];
  return ["same", "the same decision and results"];
}

const MARKS = { shared: "=", same: "≈", differs: "≠", alone: "+", open: "…" };

/** A turn, and whether it is the last of a run that is over: that one has no end to go on from. */
const row = (timeline, n) => {
  const turn = timeline.turns[n];
  return turn && { ...turn, last: ended(timeline) && n === timeline.turns.length - 1 };
};

function strips(view, other) {
  const most = Math.max(view.timeline.turns.length, other.turns.length);
  const rows = Array.from({ length: most }, (_, n) => {
    const [mine, their] = [row(view.timeline, n), row(other, n)];
    return { turn: (mine ?? their).turn, how: compared(mine, their), here: mine };
  });
  const part = rows.find(({ how }) => how[0] === "differs" || how[0] === "alone");
  return h(
    "section",
    { "aria-label": "Where they part" },
    h("p", {}, part ? `They part at turn ${part.turn}: ${part.how[1]}.` : "They do not differ."),
    h(
      "ol",
      { class: "marks" },
      rows.map(({ turn, how, here }) =>
        h(
          "li",
          {},
          h(
            "button",
            {
              type: "button",
              class: "quiet",
              title: `turn ${turn}: ${how[1]}`,
              "aria-label": `turn ${turn}: ${how[1]}`,
              "aria-current": view.at.turn === turn ? "true" : null,
              disabled: !here,
              data: { how: how[0] },
              on: { click: () => view.show({ turn }) },
            },
            `${MARKS[how[0]]}${turn}`,
          ),
        ),
      ),
    ),
  );
}
