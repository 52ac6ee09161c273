// Differences of files, as lines with signs: nothing is told by colour alone.

import { h } from "../dom.js";
import { plural, visible } from "../format.js";
import { empty } from "../parts.js";

/** Lines of one file that are drawn at once; the rest comes at a press. */
const LINES_MAX = 600;
/** Files that are open at once. */
const OPEN_MAX = 12;

const SIGNS = { added: "+", removed: "−", changed: "±" };

/** A path: what is no UTF-8 is told by its bytes. */
export const pathOf = (path) => (typeof path === "string" ? visible(path) : `(not UTF-8) ${path.b64 ?? JSON.stringify(path)}`);

/** Paths that changed, each with its difference. */
export function changed(changes) {
  if (changes.length === 0) return empty("No file differs.");
  return h("div", { class: "diffs" }, changes.map((change, n) => fileView(change, n < OPEN_MAX)));
}

function fileView(change, open) {
  const lines = change.diff ? change.diff.replace(/\n$/, "").split("\n") : [];
  const body = lines.slice(2);
  const plus = body.filter((line) => line.startsWith("+")).length;
  const minus = body.filter((line) => line.startsWith("-")).length;
  return h(
    "details",
    { class: "diff", open: open && body.length > 0 },
    h(
      "summary",
      {},
      h("span", { class: "diff-sign", title: change.what }, SIGNS[change.what] ?? "?"),
      h("bdi", { class: "mono" }, pathOf(change.path)),
      h("span", { class: "muted" }, change.diff === null ? `${change.what}; not shown line by line` : `${change.what}, +${plus} −${minus}`),
      change.by_hand && h("span", { class: "tag" }, `by hand: ${visible(change.by_hand)}`),
    ),
    body.length > 0 && linesView(body),
  );
}

function linesView(lines) {
  const table = h("div", { class: "diff-lines mono", tabindex: "0", role: "group", "aria-label": "Lines that differ" }, lines.slice(0, LINES_MAX).map(lineView));
  if (lines.length <= LINES_MAX) return table;
  const more = h(
    "button",
    {
      type: "button",
      on: {
        click: () => {
          table.append(...lines.slice(LINES_MAX).map(lineView));
          more.remove();
        },
      },
    },
    `Show ${plural(lines.length - LINES_MAX, "more line")}`,
  );
  return [table, more];
}

function lineView(line) {
  const kind = { "+": "plus", "-": "minus", "@": "hunk", "\\": "hunk" }[line[0]] ?? "same";
  return h("div", { class: `line-${kind}` }, visible(line) || " ");
}
