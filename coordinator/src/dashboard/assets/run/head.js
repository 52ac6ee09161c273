// The head of a run: its title, how it stands and why, what it cost, and what can be done to its task.

import { taskActs } from "../actions.js";
import { may } from "../api.js";
import { fill, h, refill } from "../dom.js";
import { about, cost, running, said, since, span, usd } from "../format.js";
import { fact, facts, idOf, standing, state, stateOf } from "../parts.js";
import { to } from "../router.js";

export function head(place, view) {
  const top = h("div", { class: "head" });
  const banner = h("div", {});
  const about = h("div", { class: "run-facts" });
  fill(place, top, banner, about);
  const drawn = new Map();
  let linked = "live";
  // Each part alone, where what it tells of is another: an open menu does not shut at every turn.
  const part = (place, of, make) => {
    const sign = JSON.stringify(of);
    if (drawn.get(place) === sign) return;
    drawn.set(place, sign);
    refill(place, make());
  };
  const draw = () => {
    const { timeline, task, at } = view;
    part(top, [timeline.standing, recordOf(view)?.status, task?.task, linked === "lost"], () => headOf(view, linked));
    part(banner, [timeline.standing, timeline.why, timeline.opens_at, timeline.opens_why, at.turn], () => bannerOf(view));
    part(about, [timeline, task, at.turn], () => factsOf(view));
  };
  return {
    draw,
    link(word) {
      linked = word;
      draw();
    },
  };
}

/** What the queue knows of the run. */
const recordOf = ({ id, task }) => task?.runs.find((one) => one.id === id);

function headOf(view, linked) {
  const { timeline, task } = view;
  return [
    h("h1", {}, task ? said(task.task.spec.title || "untitled", 400) : "Run"),
    state(standing(timeline, recordOf(view)?.status)),
    linked === "lost" && h("span", { class: "tag" }, "not connected; tried again"),
    h("div", { class: "acts" }, task && newest(view), task && taskActs(task.task, view.again, view.id), exports(view)),
  ];
}

/** The way from an older run to the one whose result is judged. */
function newest({ id, task: { task } }) {
  return task.last_run && task.last_run !== id && h("a", { class: "button", href: to.run(task.last_run) }, "Newest run");
}

function exports(view) {
  const link = (form, word, about) => h("a", { href: `${view.run}/export?form=${form}`, download: "", title: about }, word);
  return h(
    "details",
    { class: "menu" },
    h("summary", { class: "button" }, "Export"),
    h(
      "div",
      { class: "menu-items" },
      link("jsonl", "Events, JSON Lines", "an event a line, long texts in their place"),
      link("atif", "Trajectory, ATIF", "Agent Trajectory Interchange Format"),
      link("otlp", "Trace, OTLP", "OpenTelemetry spans"),
      may.admin() && link("docket", "Whole run", "for `docket import` elsewhere; files are in it"),
    ),
  );
}

/** Why it failed or what it asks, and where to look. */
function bannerOf(view) {
  const { timeline, at } = view;
  if (!timeline.why) return null;
  const tone = timeline.standing === "blocked" ? "warn" : "bad";
  return h(
    "div",
    { class: "banner", data: { tone } },
    h("p", { class: "banner-words", dir: "auto" }, timeline.why),
    at.turn !== timeline.opens_at &&
      h("button", { type: "button", on: { click: () => view.show({ turn: timeline.opens_at }) } }, `Go to turn ${timeline.opens_at}`),
    h("p", { class: "muted" }, timeline.opens_why),
  );
}

function factsOf(view) {
  const { timeline, task } = view;
  const now = timeline.turns.find((row) => row.turn === view.at.turn) ?? timeline.turns.at(-1);
  const all = timeline.turns.at(-1);
  const run = recordOf(view);
  const tokens = timeline.turns.reduce((sum, row) => sum + row.input_tokens + row.output_tokens, 0);
  const took = run?.started_at && run.ended_at && span(Date.parse(run.ended_at) - Date.parse(run.started_at));
  return facts(
    fact("Task", task && [h("a", { href: to.task(timeline.task) }, idOf(timeline.task)), " ", stateOf(task.task)]),
    fact("Run", idOf(timeline.run)),
    fact("Engine", timeline.engine),
    fact("Model", timeline.models && said(timeline.models)),
    fact("Commit", timeline.commit && h("code", { title: timeline.commit }, timeline.commit.slice(0, 10))),
    fact("Begun", run?.started_at && since(run.started_at)),
    fact(run?.ended_at ? "Took" : "For", took || (run?.started_at && running(run.started_at))),
    fact("Cost", all && (now === all || all.cost_so_far_nusd === 0 ? cost(all.cost_so_far_nusd) : `${usd(now.cost_so_far_nusd)} up to turn ${now.turn}, ${usd(all.cost_so_far_nusd)} in all`)),
    fact("Tokens", about(tokens)),
  );
}
