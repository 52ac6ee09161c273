// The tree of runs that share history with this one.

import { get } from "../api.js";
import { h } from "../dom.js";
import { said, since } from "../format.js";
import { idOf, state } from "../parts.js";
import { to } from "../router.js";

const WHY = { fork: "forked", resume: "resumed", rejected: "rejected" };

export async function forks(view) {
  const { runs, more } = await get(`${view.run}/lineage`, null, { signal: view.signal });
  const children = new Map();
  for (const one of runs) {
    const parent = one.run.parent?.run ?? "";
    const known = runs.some((other) => other.run.id === parent) ? parent : "";
    children.set(known, [...(children.get(known) ?? []), one]);
  }
  const tree = (parent, seen) => {
    const below = (children.get(parent) ?? []).filter((one) => !seen.has(one.run.id));
    if (below.length === 0) return null;
    return h("ul", { class: "tree" }, below.map((one) => h("li", {}, runLine(view, one), tree(one.run.id, new Set([...seen, one.run.id])))));
  };
  return h(
    "div",
    { class: "turn" },
    runs.length === 1 && h("p", { class: "muted" }, "No other run shares its history. “Fork from here” above begins one."),
    tree("", new Set()),
    more && h("p", { class: "muted" }, "There are more; `docket show --lineage` tells all."),
  );
}

function runLine(view, { run, why, fork_turn, model, engine }) {
  const here = run.id === view.id;
  return h(
    "span",
    { class: ["tree-run", here && "here"] },
    here ? h("strong", { "aria-current": "true" }, "this run ", idOf(run.id)) : h("a", { href: to.run(run.id) }, "run ", idOf(run.id)),
    state(run.status),
    why && h("span", { class: "muted" }, `${WHY[why] ?? why} from turn ${fork_turn}`),
    h("span", { class: "muted" }, said([engine?.name, model && `${model.provider}:${model.name}`].filter(Boolean).join(", ") || "not begun")),
    h("span", { class: "muted" }, `turn ${run.turn}`, run.ended_at && [", ", since(run.ended_at)]),
    !here && h("button", { type: "button", class: "quiet", on: { click: () => view.show({ tab: "beside", with: run.id }) } }, "Beside"),
  );
}
