// Turn selection: a slider with a strip of bars above it, buttons and keyboard shortcuts.

import { can, post } from "../api.js";
import { formField, openDialog, showAlert, showNotice } from "../dialogs.js";
import { h, setChildren, svg, updateChildren } from "../dom.js";
import { pluralize } from "../format.js";
import { findFailure } from "../pages/run.js";
import { navigate, urlTo } from "../router.js";

/** Height of the strip in SVG units. The height of a bar shows the cost of its turn. */
const STRIP_HEIGHT = 36;
/** Most forks per dialog. */
const SIBLINGS_MAX = 16;

export function turnSlider(container, view) {
  const strip = svg("svg", { class: "strip", preserveAspectRatio: "none", "aria-hidden": "true" });
  const input = h("input", { type: "range", id: "turn", min: 0, step: 1, "aria-label": "Turn", on: { input: () => view.select({ turn: Number(input.value) }) } });
  const caption = h("p", { class: "turn-caption" });
  const previousButton = navButton("‹", "Previous turn (←)", () => view.select({ turn: view.selection.turn - 1 }));
  const nextButton = navButton("›", "Next turn (→)", () => view.select({ turn: view.selection.turn + 1 }));
  const newestButton = navButton("Newest", "Newest turn (End)", () => view.select({ turn: view.timeline.turns.at(-1)?.turn ?? 0 }));
  const failureButton = navButton("Failure", "Next failure (n)", () => {
    const turn = findFailure(view.timeline, view.selection.turn, 1) ?? findFailure(view.timeline, -1, 1);
    if (turn !== null) view.select({ turn });
  });
  const actionRow = h("div", { class: "actions" });
  setChildren(container, h("section", { class: "turn-slider", "aria-label": "Turns" }, strip, input, h("div", { class: "turn-controls" }, previousButton, nextButton, failureButton, newestButton, caption, actionRow)));
  strip.addEventListener("click", (event) => {
    const box = strip.getBoundingClientRect();
    const n = Math.floor(((event.clientX - box.left) / box.width) * view.timeline.turns.length);
    const row = view.timeline.turns[Math.max(0, Math.min(n, view.timeline.turns.length - 1))];
    if (row) view.select({ turn: row.turn });
  });

  let stripSignature = "";
  let actionsSignature = "";
  const draw = () => {
    const { timeline, selection } = view;
    const { turns } = timeline;
    const newStripSignature = JSON.stringify([turns.map((row) => [row.fate, row.cost_nusd, row.output_tokens]), selection.turn]);
    if (newStripSignature !== stripSignature) {
      stripSignature = newStripSignature;
      drawStrip(strip, turns, selection.turn);
    }
    input.max = String(Math.max(0, turns.length - 1));
    const n = turns.findIndex((row) => row.turn === selection.turn);
    const row = turns[n];
    input.value = String(Math.max(0, n));
    const text = row ? [`Turn ${row.turn} of ${turns.at(-1).turn}`, row.role, row.phase, row.fate].filter(Boolean).join(", ") : "No turns yet";
    input.setAttribute("aria-valuetext", text);
    if (caption.textContent !== text) setChildren(caption, text);
    caption.dataset.failed = String(Boolean(row?.failed));
    previousButton.disabled = n <= 0;
    nextButton.disabled = n < 0 || n >= turns.length - 1;
    failureButton.disabled = !turns.some((candidate) => candidate.failed);
    newestButton.setAttribute("aria-pressed", String(selection.newest));
    const newActionsSignature = JSON.stringify([row?.turn, row?.ended, view.task?.task.state]);
    if (newActionsSignature !== actionsSignature) {
      actionsSignature = newActionsSignature;
      updateChildren(actionRow, row && can.submit() && turnActions(view, row));
    }
  };
  return { draw };
}

const navButton = (label, title, onClick) => h("button", { type: "button", title, "aria-label": title, on: { click: onClick } }, label);

function drawStrip(strip, turns, activeTurn) {
  // Without costs, bars show tokens.
  const hasCosts = turns.some((row) => row.cost_nusd > 0);
  const weight = (row) => (hasCosts ? row.cost_nusd : row.input_tokens + row.output_tokens);
  const maxWeight = Math.max(...turns.map(weight), 1);
  strip.setAttribute("viewBox", `0 0 ${Math.max(turns.length, 1) * 10} ${STRIP_HEIGHT}`);
  setChildren(
    strip,
    turns.map((row, n) => {
      const barHeight = 8 + (STRIP_HEIGHT - 10) * (weight(row) / maxWeight);
      const classes = ["bar-turn", row.failed && "failed", row.turn === activeTurn && "current", row.changed_files && "changed"];
      return svg("g", {}, svg("title", {}, `turn ${row.turn}: ${row.fate}`), svg("rect", { class: "hit-area", x: n * 10, y: 0, width: 10, height: STRIP_HEIGHT }), svg("rect", { class: classes, x: n * 10 + 1, y: STRIP_HEIGHT - barHeight, width: 8, height: barHeight }));
    }),
  );
}

/** Buttons that continue from the end of the selected turn. */
function turnActions(view, row) {
  if (!row.ended) return null;
  const actionButton = (label, onClick) => h("button", { type: "button", on: { click: onClick } }, label);
  return [actionButton("Fork from here", () => forkFromTurn(view, row)), actionButton("Resume from here", () => resumeFromTurn(view, row))];
}

async function forkFromTurn(view, row) {
  const fields = await openDialog({
    title: `Fork from turn ${row.turn}`,
    body: [
      h("p", {}, "New tasks continue from the end of this turn. This run does not change."),
      formField("Number of forks", "count", { type: "number", min: 1, max: SIBLINGS_MAX, step: 1, value: "1", required: true }),
      formField("Hint for the model", "hint", { rows: 4, hint: "Optional. To use another engine or model, run docket fork with --engine or --model." }),
    ],
    submitLabel: "Fork",
  });
  if (fields === null) return;
  const siblings = Array.from({ length: Number(fields.count) }, () => ({ task: newId(), run: newId() }));
  try {
    const created = await post(`${view.run}/fork`, { turn: row.turn, siblings, hint: fields.hint.trim() || undefined });
    showNotice(`${pluralize(created.siblings.length, "fork")} from turn ${created.turn}`);
    await navigate(urlTo.run(created.siblings[0].run));
  } catch (error) {
    showAlert(error.message);
  }
}

async function resumeFromTurn(view, row) {
  const fields = await openDialog({
    title: `Resume from turn ${row.turn}`,
    body: [
      h("p", {}, "The task continues from the end of this turn as a new run. If this run is still active, it ends as superseded; its log is kept."),
      formField("Hint for the model", "hint", { rows: 4, hint: "Optional." }),
    ],
    submitLabel: "Resume",
    danger: true,
  });
  if (fields === null) return;
  try {
    const created = await post(`${view.run}/resume`, { turn: row.turn, hint: fields.hint.trim() || undefined });
    showNotice(`A new run continues from turn ${created.turn}`);
    await navigate(urlTo.run(created.run));
  } catch (error) {
    showAlert(error.message);
  }
}

/** A UUIDv7, which sorts by time like all ids of docket. */
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  let time = BigInt(Date.now());
  for (let n = 5; n >= 0; n -= 1) {
    bytes[n] = Number(time & 0xffn);
    time >>= 8n;
  }
  bytes[6] = (bytes[6] & 0x0f) | 0x70;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}
