// Changes tab: file differences up to the selected turn, since the base, the previous turn or any earlier turn.

import { can, get } from "../api.js";
import { h } from "../dom.js";
import { emptyNote } from "../components.js";
import { diffList } from "./diff.js";

export async function drawChanges(view, tabState) {
  if (!can.administer()) return emptyNote("File contents are visible to administrators only. The Turn tab lists the paths that a turn changed.");
  const { selection, timeline, signal } = view;
  const earlierTurns = timeline.turns.filter((row) => row.turn < selection.turn).map((row) => String(row.turn));
  // The chosen turn may no longer be earlier than the selected one.
  const since = ["base", "before", ...earlierTurns].includes(tabState.since) ? tabState.since : "base";
  const from = since === "base" ? null : since === "before" ? Math.max(0, selection.turn - 1) : Number(since);
  const diff = await get(`${view.run}/diff`, { from: from === null ? null : String(from), to: String(selection.turn) }, { signal });
  const select = h(
    "select",
    {
      id: "since",
      on: {
        change: () => {
          tabState.since = select.value;
          view.select({ since: select.value });
        },
      },
    },
    optionElement("base", "the base", since),
    optionElement("before", "the previous turn", since),
    earlierTurns.map((turn) => optionElement(turn, `the end of turn ${turn}`, since)),
  );
  return h(
    "div",
    { class: "turn" },
    h("p", { class: "choice-row" }, h("label", { for: "since" }, "Since "), select, ` up to the end of turn ${selection.turn}`),
    diffList(diff.changes),
  );
}

const optionElement = (value, label, selected) => h("option", { value, selected: value === selected }, label);
