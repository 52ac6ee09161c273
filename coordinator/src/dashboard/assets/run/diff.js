// File differences as lines with +/− signs, so that color is never the only cue.

import { h } from "../dom.js";
import { pluralize, showControlChars } from "../format.js";
import { emptyNote } from "../components.js";

/** Lines of one file that are shown initially; a button shows the others. */
const LINES_MAX = 600;
/** Number of files that are expanded initially. */
const OPEN_MAX = 12;

const CHANGE_SIGNS = { added: "+", removed: "−", changed: "±" };

/** Formats a path; one that is not UTF-8 is shown as base64. */
export const formatPath = (path) => (typeof path === "string" ? showControlChars(path) : `(not UTF-8) ${path.b64 ?? JSON.stringify(path)}`);

/** The changed files, each with its diff. */
export function diffList(changes) {
  if (changes.length === 0) return emptyNote("No differences.");
  return h("div", { class: "diffs" }, changes.map((change, n) => fileDiff(change, n < OPEN_MAX)));
}

function fileDiff(change, open) {
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
      h("span", { class: "diff-sign", title: change.what }, CHANGE_SIGNS[change.what] ?? "?"),
      h("bdi", { class: "mono" }, formatPath(change.path)),
      h("span", { class: "muted" }, change.diff === null ? `${change.what}; diff not shown` : `${change.what}, +${plus} −${minus}`),
      change.by_hand && h("span", { class: "tag" }, `by hand: ${showControlChars(change.by_hand)}`),
    ),
    body.length > 0 && diffLines(body),
  );
}

function diffLines(lines) {
  const table = h("div", { class: "diff-lines mono", tabindex: "0", role: "group", "aria-label": "Changed lines" }, lines.slice(0, LINES_MAX).map(diffLine));
  if (lines.length <= LINES_MAX) return table;
  const more = h(
    "button",
    {
      type: "button",
      on: {
        click: () => {
          table.append(...lines.slice(LINES_MAX).map(diffLine));
          more.remove();
        },
      },
    },
    `Show ${pluralize(lines.length - LINES_MAX, "more line")}`,
  );
  return [table, more];
}

function diffLine(line) {
  const kind = { "+": "plus", "-": "minus", "@": "hunk", "\\": "hunk" }[line[0]] ?? "same";
  return h("div", { class: `line-${kind}` }, showControlChars(line) || " ");
}
