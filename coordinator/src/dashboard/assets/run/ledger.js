// The runtime's ledger after a turn: the plan, what was changed and run, what is still broken, what people said.

import { h } from "../dom.js";
import { plural, said } from "../format.js";
import { empty, panel, table } from "../parts.js";
import { pathOf } from "./diff.js";
import { turnOf, whole } from "./turn.js";

export async function ledger(view) {
  const { ledger } = await turnOf(view, view.at.turn);
  const { plan, files, commands, errors, words } = ledger;
  if (!plan && [files, commands, errors, words].every((list) => list.length === 0)) return empty("The ledger is still empty.");
  const pair = (name, head, rows) =>
    rows.length > 0 && panel(name, {}, table(name, [{ head, cell: (row) => said(row.tried) }, { head: "Came to", cell: (row) => said(row.came_to) }], rows));
  return h(
    "div",
    { class: "ledger" },
    plan && panel("Plan", {}, h("div", { class: "within" }, whole(plan))),
    pair("Still broken", "Tried", [...errors].reverse()),
    files.length > 0 &&
      panel(
        "Files it changed",
        {},
        table(
          "Files it changed",
          [
            { head: "Path", cell: (file) => h("bdi", { class: "mono" }, pathOf(file.path)) },
            { head: "How", cell: (file) => `${file.created ? "made" : "edited"}${file.times > 1 ? `, ${plural(file.times, "time")}` : ""}` },
            { head: "Lines", kind: "number", cell: (file) => `+${file.added} −${file.removed}` },
          ],
          files,
        ),
      ),
    pair("Commands, the last first", "Command", [...commands].reverse()),
    words.length > 0 && panel("What people said", {}, h("ul", { class: "within reasons" }, words.map((word) => h("li", {}, said(word, 600))))),
  );
}
