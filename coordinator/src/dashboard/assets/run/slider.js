// Travel in time: a turn is chosen by a slider, by the strip of turns above it, by buttons or keys.

import { may, post } from "../api.js";
import { dialog, field, news, alert } from "../dialogs.js";
import { fill, h, refill, svg } from "../dom.js";
import { plural } from "../format.js";
import { failure } from "../pages/run.js";
import { go, to } from "../router.js";

/** The strip's height, in its own units; a bar is as high as its turn was dear. */
const HIGH = 36;
/** Forks that one dialog makes at most. */
const SIBLINGS_MAX = 16;

export function slider(place, view) {
  const strip = svg("svg", { class: "strip", preserveAspectRatio: "none", "aria-hidden": "true" });
  const input = h("input", { type: "range", id: "turn", min: 0, step: 1, "aria-label": "Turn", on: { input: () => view.show({ turn: Number(input.value) }) } });
  const words = h("p", { class: "turn-words" });
  const back = button("‹", "The turn before (←)", () => view.show({ turn: view.at.turn - 1 }));
  const next = button("›", "The next turn (→)", () => view.show({ turn: view.at.turn + 1 }));
  const newest = button("Newest", "The newest turn (End)", () => view.show({ turn: view.timeline.turns.at(-1)?.turn ?? 0 }));
  const wrong = button("Failure", "The next failure (n)", () => {
    const turn = failure(view.timeline, view.at.turn, 1) ?? failure(view.timeline, -1, 1);
    if (turn !== null) view.show({ turn });
  });
  const acts = h("div", { class: "acts" });
  fill(place, h("section", { class: "time", "aria-label": "Turns" }, strip, input, h("div", { class: "time-row" }, back, next, wrong, newest, words, acts)));
  strip.addEventListener("click", (event) => {
    const box = strip.getBoundingClientRect();
    const n = Math.floor(((event.clientX - box.left) / box.width) * view.timeline.turns.length);
    const row = view.timeline.turns[Math.max(0, Math.min(n, view.timeline.turns.length - 1))];
    if (row) view.show({ turn: row.turn });
  });

  let strips = "";
  let buttons = "";
  const draw = () => {
    const { timeline, at } = view;
    const { turns } = timeline;
    const sign = JSON.stringify([turns.map((row) => [row.fate, row.cost_nusd, row.output_tokens]), at.turn]);
    if (sign !== strips) {
      strips = sign;
      bars(strip, turns, at.turn);
    }
    input.max = String(Math.max(0, turns.length - 1));
    const n = turns.findIndex((row) => row.turn === at.turn);
    const row = turns[n];
    input.value = String(Math.max(0, n));
    const text = row ? [`Turn ${row.turn} of ${turns.at(-1).turn}`, row.role, row.phase, row.fate].filter(Boolean).join(", ") : "No turn yet";
    input.setAttribute("aria-valuetext", text);
    if (words.textContent !== text) fill(words, text);
    words.dataset.failed = String(Boolean(row?.failed));
    back.disabled = n <= 0;
    next.disabled = n < 0 || n >= turns.length - 1;
    wrong.disabled = !turns.some((one) => one.failed);
    newest.setAttribute("aria-pressed", String(at.newest));
    const wanted = JSON.stringify([row?.turn, row?.ended, view.task?.task.state]);
    if (wanted !== buttons) {
      buttons = wanted;
      refill(acts, row && may.submit() && fromHere(view, row));
    }
  };
  return { draw };
}

const button = (word, about, act) => h("button", { type: "button", title: about, "aria-label": about, on: { click: act } }, word);

function bars(strip, turns, at) {
  // Of models that cost nothing, tokens are what a turn takes.
  const paid = turns.some((row) => row.cost_nusd > 0);
  const weight = (row) => (paid ? row.cost_nusd : row.input_tokens + row.output_tokens);
  const dear = Math.max(...turns.map(weight), 1);
  strip.setAttribute("viewBox", `0 0 ${Math.max(turns.length, 1) * 10} ${HIGH}`);
  fill(
    strip,
    turns.map((row, n) => {
      const high = 8 + (HIGH - 10) * (weight(row) / dear);
      const kind = ["bar-turn", row.failed && "failed", row.turn === at && "here", row.changed_files && "changed"];
      return svg("g", {}, svg("title", {}, `turn ${row.turn}: ${row.fate}`), svg("rect", { class: "catch", x: n * 10, y: 0, width: 10, height: HIGH }), svg("rect", { class: kind, x: n * 10 + 1, y: HIGH - high, width: 8, height: high }));
    }),
  );
}

/** What goes on from the end of the turn that is shown. */
function fromHere(view, row) {
  if (!row.ended) return null;
  const one = (name, act) => h("button", { type: "button", on: { click: act } }, name);
  return [one("Fork from here", () => fork(view, row)), one("Resume from here", () => resume(view, row))];
}

async function fork(view, row) {
  const fields = await dialog({
    title: `Fork from turn ${row.turn}`,
    body: [
      h("p", {}, "New tasks go on from the end of this turn. This run is not touched."),
      field("How many", "count", { type: "number", min: 1, max: SIBLINGS_MAX, step: 1, value: "1", required: true }),
      field("Hint for the model", "hint", { rows: 4, hint: "Optional. Another engine or model: docket fork --engine, --model." }),
    ],
    act: "Fork",
  });
  if (fields === null) return;
  const siblings = Array.from({ length: Number(fields.count) }, () => ({ task: id(), run: id() }));
  try {
    const made = await post(`${view.run}/fork`, { turn: row.turn, siblings, hint: fields.hint.trim() || undefined });
    news(`${plural(made.siblings.length, "fork")} from turn ${made.turn}`);
    await go(to.run(made.siblings[0].run));
  } catch (error) {
    alert(error.message);
  }
}

async function resume(view, row) {
  const fields = await dialog({
    title: `Resume from turn ${row.turn}`,
    body: [
      h("p", {}, "The task goes on from the end of this turn as a new run. This run, if it still works, ends as superseded; its log stays."),
      field("Hint for the model", "hint", { rows: 4, hint: "Optional." }),
    ],
    act: "Resume",
    danger: true,
  });
  if (fields === null) return;
  try {
    const made = await post(`${view.run}/resume`, { turn: row.turn, hint: fields.hint.trim() || undefined });
    news(`A new run goes on from turn ${made.turn}`);
    await go(to.run(made.run));
  } catch (error) {
    alert(error.message);
  }
}

/** A UUID of version 7, as all of docket's ids are: in order of time. */
function id() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  let at = BigInt(Date.now());
  for (let n = 5; n >= 0; n -= 1) {
    bytes[n] = Number(at & 0xffn);
    at >>= 8n;
  }
  bytes[6] = (bytes[6] & 0x0f) | 0x70;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}
