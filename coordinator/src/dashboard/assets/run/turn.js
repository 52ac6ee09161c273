// Turn tab: messages to the model, its reasoning and reply, tool calls with their output, checks, and file changes.

import { get } from "../api.js";
import { h } from "../dom.js";
import { formatBytes, formatCompact, formatDuration, formatUsd, isolatedText, pluralize, showControlChars, singleLine } from "../format.js";
import { emptyNote, textBlock } from "../components.js";
import { diffList } from "./diff.js";

/** Longer texts are truncated to this length until the user expands them. */
const INITIAL_CHARS_MAX = 20_000;

export const fetchTurn = (view, turn, signal = view.signal) => get(`${view.run}/turn`, { turn: String(turn) }, { signal });

export async function drawTurn(view) {
  const data = await fetchTurn(view, view.selection.turn);
  return turnView(view, data);
}

/** Renders the API's view of a turn. */
export function turnView(view, { turn, thinking = [], diffs_withheld }) {
  const parts = [
    h("p", { class: "turn-summary muted" }, turnSummary(turn)),
    turn.notes.length > 0 && h("ul", { class: "notes" }, turn.notes.map((note) => h("li", {}, isolatedText(note, 400)))),
    turn.told.length > 0 && foldedSection(turn.turn === 0 ? "Prompt" : "Messages to the model", turn.told.map(longText), turn.turn === 0 || turn.told.length === 1),
    thinking.length > 0 && foldedSection("Reasoning", thinking.map(longText), false),
    turn.text && h("div", { class: "reply" }, longText(turn.text)),
    turn.tools.map((call) => callView(view, call)),
    turn.gates.map((gate) => gateView(view, gate)),
    turn.changes.length > 0 && h("div", {}, h("h2", {}, "File changes"), diffs_withheld && h("p", { class: "muted" }, "File contents are visible to administrators only."), diffList(turn.changes)),
    turn.ended && h("p", { class: "ended", dir: "auto" }, `The run ${singleLine(turn.ended, 600)}`),
  ];
  return parts.some(Boolean) ? h("div", { class: "turn" }, parts) : emptyNote("No activity yet.");
}

function turnSummary(turn) {
  const lastAttempt = turn.attempts.at(-1);
  return [
    lastAttempt && lastAttempt.model,
    turn.attempts.length > 1 && pluralize(turn.attempts.length, "attempt"),
    turn.input_tokens + turn.output_tokens > 0 && `${formatCompact(turn.input_tokens)} tokens in, ${formatCompact(turn.output_tokens)} out`,
    turn.cost_nusd > 0 && formatUsd(turn.cost_nusd),
    `events ${turn.first_seq} to ${turn.last_seq}`,
  ]
    .filter(Boolean)
    .join(" · ");
}

function foldedSection(heading, body, open) {
  return h("details", { class: "fold", open }, h("summary", {}, heading), body);
}

/** A text of any length; a long one is truncated until expanded. */
export function longText(content) {
  if (content.length <= INITIAL_CHARS_MAX) return textBlock(showControlChars(content));
  const container = h("div", {});
  const more = h(
    "button",
    { type: "button", on: { click: () => container.replaceChildren(textBlock(showControlChars(content))) } },
    `Show all ${pluralize(content.length, "character")}`,
  );
  container.append(textBlock(showControlChars(content.slice(0, INITIAL_CHARS_MAX))), more);
  return container;
}

/** Arguments on one line, or only the most significant one. */
function summarizeArgs(args) {
  if (args === null || typeof args !== "object") return singleLine(JSON.stringify(args), 160);
  const first = ["command", "path", "test_path", "regex", "pattern", "key", "task"].find((name) => typeof args[name] === "string");
  if (first) return singleLine(args[first], 160);
  const pairs = Object.entries(args).map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`);
  return singleLine(pairs.join(" "), 160);
}

/** Whether the summary line already shows all arguments. */
const summaryIsComplete = (args) =>
  args !== null && typeof args === "object" && Object.values(args).every((value) => typeof value === "string" && value.length < 100 && !value.includes("\n")) && Object.keys(args).length === 1;

function argsView(args) {
  if (args === null || typeof args !== "object" || Array.isArray(args)) return longText(JSON.stringify(args, null, 2));
  const isLong = (value) => typeof value === "string" && (value.includes("\n") || value.length > 80);
  return h(
    "dl",
    { class: "args" },
    Object.entries(args).map(([name, value]) => [
      h("dt", {}, name),
      h("dd", {}, isLong(value) ? longText(value) : h("code", {}, showControlChars(typeof value === "string" ? value : JSON.stringify(value, null, 2)))),
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
      h("span", { class: "call-name mono" }, singleLine(call.name, 80)),
      h("bdi", { class: "call-args mono" }, summarizeArgs(call.args)),
      h("span", { class: "call-outcome", data: { tone: call.failed ? "bad" : "good" } }, call.came_to ?? "no result yet"),
      h("span", { class: "muted" }, call.status && formatDuration(call.duration_ms)),
    ),
    !summaryIsComplete(call.args) && argsView(call.args),
    call.result && h("p", { class: "call-label" }, "Output"),
    call.result && longText(call.result),
    outputLink(view, call),
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
      h("span", { class: "call-name" }, `Final check ${singleLine(gate.name, 80)}`),
      h("bdi", { class: "call-args mono" }, singleLine(gate.command, 160)),
      h("span", { class: "call-outcome", data: { tone } }, gate.came_to),
      h("span", { class: "muted" }, formatDuration(gate.duration_ms)),
    ),
    gate.output ? longText(gate.output) : h("p", { class: "muted" }, "No output."),
    outputLink(view, gate),
  );
}

/** Link to the full output of a call if the model saw a truncated one. */
function outputLink(view, { call, output_bytes }) {
  if (!output_bytes) return null;
  const href = `${view.run}/output?call=${encodeURIComponent(call)}`;
  return h("p", {}, h("a", { href, target: "_blank", rel: "noopener" }, `Full output, ${formatBytes(output_bytes)}`));
}
