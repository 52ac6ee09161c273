// Ledger tab: the runtime's ledger after the selected turn, with the plan, unresolved failures, changed files, commands
// and messages from people.

import { h } from "../dom.js";
import { isolatedText, pluralize } from "../format.js";
import { emptyNote, panel, table } from "../components.js";
import { formatPath } from "./diff.js";
import { fetchTurn, longText } from "./turn.js";

export async function drawLedger(view) {
  const { ledger } = await fetchTurn(view, view.selection.turn);
  const { plan, files, commands, errors, words: messages } = ledger;
  if (!plan && [files, commands, errors, messages].every((list) => list.length === 0)) return emptyNote("The ledger is empty.");
  const outcomePanel = (name, head, rows) =>
    rows.length > 0 && panel(name, {}, table(name, [{ head, cell: (row) => isolatedText(row.tried) }, { head: "Outcome", cell: (row) => isolatedText(row.came_to) }], rows));
  return h(
    "div",
    { class: "ledger" },
    plan && panel("Plan", {}, h("div", { class: "panel-body" }, longText(plan))),
    outcomePanel("Unresolved failures", "Action", [...errors].reverse()),
    files.length > 0 &&
      panel(
        "Changed files",
        {},
        table(
          "Changed files",
          [
            { head: "Path", cell: (file) => h("bdi", { class: "mono" }, formatPath(file.path)) },
            { head: "Change", cell: (file) => `${file.created ? "created" : "edited"}${file.times > 1 ? `, ${pluralize(file.times, "time")}` : ""}` },
            { head: "Lines", className: "number", cell: (file) => `+${file.added} −${file.removed}` },
          ],
          files,
        ),
      ),
    outcomePanel("Commands, newest first", "Command", [...commands].reverse()),
    messages.length > 0 && panel("Messages from people", {}, h("ul", { class: "panel-body reasons" }, messages.map((message) => h("li", {}, isolatedText(message, 600))))),
  );
}
