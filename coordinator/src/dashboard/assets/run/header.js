// Header of the run page: title, status and its reason, cost, and the actions on its task.

import { taskActionButtons } from "../task-actions.js";
import { can } from "../api.js";
import { h, setChildren, updateChildren } from "../dom.js";
import { elapsedTime, formatCompact, formatCost, formatDuration, formatUsd, isolatedText, timeAgo } from "../format.js";
import { currentRunStatus, fact, factList, idLabel, stateBadge, taskStateBadge } from "../components.js";
import { urlTo } from "../router.js";

export function runHeader(container, view) {
  const titleRow = h("div", { class: "head" });
  const banner = h("div", {});
  const factsRow = h("div", { class: "run-facts" });
  setChildren(container, titleRow, banner, factsRow);
  const drawn = new Map();
  let connection = "live";
  // Redraw a part only when its inputs change, so that an open menu does not close at every turn.
  const drawPart = (container, inputs, render) => {
    const signature = JSON.stringify(inputs);
    if (drawn.get(container) === signature) return;
    drawn.set(container, signature);
    updateChildren(container, render());
  };
  const draw = () => {
    const { timeline, task, selection } = view;
    drawPart(titleRow, [timeline.standing, runRecord(view)?.status, task?.task, connection === "lost"], () => renderTitleRow(view, connection));
    drawPart(banner, [timeline.standing, timeline.why, timeline.opens_at, timeline.opens_why, selection.turn], () => renderBanner(view));
    drawPart(factsRow, [timeline, task, selection.turn], () => renderFacts(view));
  };
  return {
    draw,
    setConnection(state) {
      connection = state;
      draw();
    },
  };
}

/** The task's record of this run. */
const runRecord = ({ id, task }) => task?.runs.find((one) => one.id === id);

function renderTitleRow(view, connection) {
  const { timeline, task } = view;
  return [
    h("h1", {}, task ? isolatedText(task.task.spec.title || "untitled", 400) : "Run"),
    stateBadge(currentRunStatus(timeline, runRecord(view)?.status)),
    connection === "lost" && h("span", { class: "tag" }, "not connected; retrying"),
    h("div", { class: "actions" }, task && newestRunLink(view), task && taskActionButtons(task.task, view.refreshTask, view.id), exportMenu(view)),
  ];
}

/** Link from an older run to the task's last run, whose result can be judged. */
function newestRunLink({ id, task: { task } }) {
  return task.last_run && task.last_run !== id && h("a", { class: "button", href: urlTo.run(task.last_run) }, "Newest run");
}

function exportMenu(view) {
  const link = (format, label, title) => h("a", { href: `${view.run}/export?form=${format}`, download: "", title }, label);
  return h(
    "details",
    { class: "menu" },
    h("summary", { class: "button" }, "Export"),
    h(
      "div",
      { class: "menu-items" },
      link("jsonl", "Events, JSON Lines", "One event per line, with long texts inline"),
      link("atif", "Trajectory, ATIF", "Agent Trajectory Interchange Format"),
      link("otlp", "Trace, OTLP", "OpenTelemetry spans"),
      can.administer() && link("docket", "Full run", "For docket import on another coordinator; includes files"),
    ),
  );
}

/** Why the run failed or what it asks, with a link to the turn in question. */
function renderBanner(view) {
  const { timeline, selection } = view;
  if (!timeline.why) return null;
  const tone = timeline.standing === "blocked" ? "warn" : "bad";
  return h(
    "div",
    { class: "banner", data: { tone } },
    h("p", { class: "banner-text", dir: "auto" }, timeline.why),
    selection.turn !== timeline.opens_at &&
      h("button", { type: "button", on: { click: () => view.select({ turn: timeline.opens_at }) } }, `Go to turn ${timeline.opens_at}`),
    h("p", { class: "muted" }, timeline.opens_why),
  );
}

function renderFacts(view) {
  const { timeline, task } = view;
  const current = timeline.turns.find((row) => row.turn === view.selection.turn) ?? timeline.turns.at(-1);
  const last = timeline.turns.at(-1);
  const run = runRecord(view);
  const tokens = timeline.turns.reduce((sum, row) => sum + row.input_tokens + row.output_tokens, 0);
  const took = run?.started_at && run.ended_at && formatDuration(Date.parse(run.ended_at) - Date.parse(run.started_at));
  return factList(
    fact("Task", task && [h("a", { href: urlTo.task(timeline.task) }, idLabel(timeline.task)), " ", taskStateBadge(task.task)]),
    fact("Run", idLabel(timeline.run)),
    fact("Engine", timeline.engine),
    fact("Model", timeline.models && isolatedText(timeline.models)),
    fact("Commit", timeline.commit && h("code", { title: timeline.commit }, timeline.commit.slice(0, 10))),
    fact("Started", run?.started_at && timeAgo(run.started_at)),
    fact(run?.ended_at ? "Duration" : "Running for", took || (run?.started_at && elapsedTime(run.started_at))),
    fact("Cost", last && (current === last || last.cost_so_far_nusd === 0 ? formatCost(last.cost_so_far_nusd) : `${formatUsd(current.cost_so_far_nusd)} up to turn ${current.turn}, ${formatUsd(last.cost_so_far_nusd)} in total`)),
    fact("Tokens", formatCompact(tokens)),
  );
}
