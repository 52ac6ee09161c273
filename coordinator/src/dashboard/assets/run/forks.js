// Forks tab: the tree of runs that share history with this one.

import { get } from "../api.js";
import { h } from "../dom.js";
import { isolatedText, timeAgo } from "../format.js";
import { idLabel, stateBadge } from "../components.js";
import { urlTo } from "../router.js";

const ORIGIN_LABELS = { fork: "forked", resume: "resumed", rejected: "rejected" };

export async function drawForks(view) {
  const { runs, more } = await get(`${view.run}/lineage`, null, { signal: view.signal });
  const children = new Map();
  for (const entry of runs) {
    const parent = entry.run.parent?.run ?? "";
    const parentInList = runs.some((other) => other.run.id === parent) ? parent : "";
    children.set(parentInList, [...(children.get(parentInList) ?? []), entry]);
  }
  const tree = (parent, seen) => {
    const descendants = (children.get(parent) ?? []).filter((entry) => !seen.has(entry.run.id));
    if (descendants.length === 0) return null;
    return h("ul", { class: "tree" }, descendants.map((entry) => h("li", {}, forkRow(view, entry), tree(entry.run.id, new Set([...seen, entry.run.id])))));
  };
  return h(
    "div",
    { class: "turn" },
    runs.length === 1 && h("p", { class: "muted" }, "No other run shares this history. Use “Fork from here” above to create one."),
    tree("", new Set()),
    more && h("p", { class: "muted" }, "More runs exist. Use docket show --lineage to list all."),
  );
}

function forkRow(view, { run, why, fork_turn, model, engine }) {
  const isThisRun = run.id === view.id;
  return h(
    "span",
    { class: ["tree-run", isThisRun && "current"] },
    isThisRun ? h("strong", { "aria-current": "true" }, "this run ", idLabel(run.id)) : h("a", { href: urlTo.run(run.id) }, "run ", idLabel(run.id)),
    stateBadge(run.status),
    why && h("span", { class: "muted" }, `${ORIGIN_LABELS[why] ?? why} from turn ${fork_turn}`),
    h("span", { class: "muted" }, isolatedText([engine?.name, model && `${model.provider}:${model.name}`].filter(Boolean).join(", ") || "not started")),
    h("span", { class: "muted" }, `turn ${run.turn}`, run.ended_at && [", ", timeAgo(run.ended_at)]),
    !isThisRun && h("button", { type: "button", class: "quiet", on: { click: () => view.select({ tab: "beside", with: run.id }) } }, "Compare"),
  );
}
