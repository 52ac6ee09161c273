// What differs between two moments of a run: in the turn, since the beginning, or since another turn.

import { get, may } from "../api.js";
import { h } from "../dom.js";
import { empty } from "../parts.js";
import { changed } from "./diff.js";

export async function changes(view, keep) {
  if (!may.admin()) return empty("Contents of files are for administrators; the paths that a turn changed stand with the turn.");
  const { at, timeline, signal } = view;
  const before = timeline.turns.filter((row) => row.turn < at.turn).map((row) => String(row.turn));
  // A turn that was chosen at a later one may lie behind the one that is shown by now.
  const since = ["base", "before", ...before].includes(keep.since) ? keep.since : "base";
  const from = since === "base" ? null : since === "before" ? Math.max(0, at.turn - 1) : Number(since);
  const answer = await get(`${view.run}/diff`, { from: from === null ? null : String(from), to: String(at.turn) }, { signal });
  const choose = h(
    "select",
    {
      id: "since",
      on: {
        change: () => {
          keep.since = choose.value;
          view.show({ since: choose.value });
        },
      },
    },
    option("base", "what it began from", since),
    option("before", "the turn before", since),
    before.map((turn) => option(turn, `the end of turn ${turn}`, since)),
  );
  return h(
    "div",
    { class: "turn" },
    h("p", { class: "choose" }, h("label", { for: "since" }, "Since "), choose, ` up to the end of turn ${at.turn}`),
    changed(answer.changes),
  );
}

const option = (value, word, chosen) => h("option", { value, selected: value === chosen }, word);
