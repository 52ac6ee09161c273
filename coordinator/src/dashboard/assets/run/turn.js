// One turn: what the model was told, thought and said, what it called and what came back, the checks, what changed.

import { get } from "../api.js";
import { h } from "../dom.js";
import { about, bytes, line, plural, said, span, usd, visible } from "../format.js";
import { empty, text } from "../parts.js";
import { changed } from "./diff.js";

/** A text longer than this is shown from its beginning, and whole where a person asks. */
const SHOWN_CHARS_MAX = 20_000;

/** Fetches a turn. */
export const turnOf = (view, turn, signal = view.signal) => get(`${view.run}/turn`, { turn: String(turn) }, { signal });

export async function turn(view) {
  const answer = await turnOf(view, view.at.turn);
  return turnView(view, answer);
}

/** A turn as it was answered. */
export function turnView(view, { turn, thinking = [], diffs_withheld }) {
  const parts = [
    h("p", { class: "turn-sum muted" }, sums(turn)),
    turn.notes.length > 0 && h("ul", { class: "notes" }, turn.notes.map((note) => h("li", {}, said(note, 400)))),
    turn.told.length > 0 && folded(turn.turn === 0 ? "What was asked" : "The model was told", turn.told.map(whole), turn.turn === 0 || turn.told.length === 1),
    thinking.length > 0 && folded("What it thought", thinking.map(whole), false),
    turn.text && h("div", { class: "says" }, whole(turn.text)),
    turn.tools.map((call) => callView(view, call)),
    turn.gates.map((gate) => gateView(view, gate)),
    turn.changes.length > 0 && h("div", {}, h("h2", {}, "What changed"), diffs_withheld && h("p", { class: "muted" }, "Contents of files are for administrators."), changed(turn.changes)),
    turn.ended && h("p", { class: "ended", dir: "auto" }, `The run ${line(turn.ended, 600)}`),
  ];
  return parts.some(Boolean) ? h("div", { class: "turn" }, parts) : empty("Nothing yet.");
}

function sums(turn) {
  const asked = turn.attempts.at(-1);
  return [
    asked && asked.model,
    turn.attempts.length > 1 && plural(turn.attempts.length, "attempt"),
    turn.input_tokens + turn.output_tokens > 0 && `${about(turn.input_tokens)} tokens in, ${about(turn.output_tokens)} out`,
    turn.cost_nusd > 0 && usd(turn.cost_nusd),
    `events ${turn.first_seq} to ${turn.last_seq}`,
  ]
    .filter(Boolean)
    .join(" · ");
}

function folded(heading, body, open) {
  return h("details", { class: "fold", open }, h("summary", {}, heading), body);
}

/** A text of any length; the rest of a long one comes at a press. */
export function whole(words) {
  if (words.length <= SHOWN_CHARS_MAX) return text(visible(words));
  const place = h("div", {});
  const more = h(
    "button",
    { type: "button", on: { click: () => place.replaceChildren(text(visible(words))) } },
    `Show all of its ${plural(words.length, "character")}`,
  );
  place.append(text(visible(words.slice(0, SHOWN_CHARS_MAX))), more);
  return place;
}

/** Arguments in one line, the telling one first. */
function brief(args) {
  if (args === null || typeof args !== "object") return line(JSON.stringify(args), 160);
  const first = ["command", "path", "test_path", "regex", "pattern", "key", "task"].find((name) => typeof args[name] === "string");
  if (first) return line(args[first], 160);
  const words = Object.entries(args).map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`);
  return line(words.join(" "), 160);
}

/** Whether the one line of a call says all of its arguments. */
const isBrief = (args) =>
  args !== null && typeof args === "object" && Object.values(args).every((value) => typeof value === "string" && value.length < 100 && !value.includes("\n")) && Object.keys(args).length === 1;

function argsView(args) {
  if (args === null || typeof args !== "object" || Array.isArray(args)) return whole(JSON.stringify(args, null, 2));
  const long = (value) => typeof value === "string" && (value.includes("\n") || value.length > 80);
  return h(
    "dl",
    { class: "args" },
    Object.entries(args).map(([name, value]) => [
      h("dt", {}, name),
      h("dd", {}, long(value) ? whole(value) : h("code", {}, visible(typeof value === "string" ? value : JSON.stringify(value, null, 2)))),
    ]),
  );
}

function callView(view, call) {
  const open = call.failed || call.status === null;
  return h(
    "details",
    { class: "call", open, data: { failed: String(call.failed) } },
    h(
      "summary",
      {},
      h("span", { class: "call-name mono" }, line(call.name, 80)),
      h("bdi", { class: "call-args mono" }, brief(call.args)),
      h("span", { class: "call-word", data: { tone: call.failed ? "bad" : "good" } }, call.came_to ?? "no result yet"),
      h("span", { class: "muted" }, call.status && span(call.duration_ms)),
    ),
    !isBrief(call.args) && argsView(call.args),
    call.result && h("p", { class: "call-label" }, "Came back"),
    call.result && whole(call.result),
    output(view, call),
  );
}

function gateView(view, gate) {
  const tone = gate.passed === true ? "good" : gate.passed === false ? "bad" : "warn";
  return h(
    "details",
    { class: "call gate", open: gate.passed === false, data: { failed: String(gate.passed === false) } },
    h(
      "summary",
      {},
      h("span", { class: "call-name" }, `Final check ${line(gate.name, 80)}`),
      h("bdi", { class: "call-args mono" }, line(gate.command, 160)),
      h("span", { class: "call-word", data: { tone } }, gate.came_to),
      h("span", { class: "muted" }, span(gate.duration_ms)),
    ),
    gate.output ? whole(gate.output) : h("p", { class: "muted" }, "It put out nothing."),
    output(view, gate),
  );
}

/** The whole output, where the model read a part of it. */
function output(view, { call, output_bytes }) {
  if (!output_bytes) return null;
  const href = `${view.run}/output?call=${encodeURIComponent(call)}`;
  return h("p", {}, h("a", { href, target: "_blank", rel: "noopener" }, `The whole output, ${bytes(output_bytes)}`));
}
