// The files as they were after a turn.

import { get, may } from "../api.js";
import { h } from "../dom.js";
import { bytes, plural, visible } from "../format.js";
import { empty } from "../parts.js";
import { pathOf } from "./diff.js";

/** Lines of a file that are drawn at once. */
const LINES_MAX = 4000;

export async function files(view) {
  if (!may.admin()) return empty("Contents of files are for administrators.");
  const { at, signal } = view;
  const ask = (path) => get(`${view.run}/files`, { turn: String(at.turn), path: path || null }, { signal });
  const answer = await ask(at.path).catch((error) => {
    if (error.status !== 404 || !at.path) throw error;
    return { missing: error.message };
  });
  if (answer.missing) return h("div", { class: "files" }, crumbs(view), h("p", { class: "wrong" }, answer.missing));
  return h("div", { class: "files" }, crumbs(view), answer.kind === "dir" ? folder(view, answer) : file(answer));
}

/** The way from the root to here. */
function crumbs(view) {
  const parts = view.at.path.split("/").filter(Boolean);
  const step = (word, path, here) =>
    here ? h("span", { "aria-current": "location" }, visible(word)) : h("button", { type: "button", class: "quiet", on: { click: () => view.show({ path }) } }, visible(word));
  return h(
    "nav",
    { class: "crumbs mono", "aria-label": "Path" },
    step("files", "", parts.length === 0),
    parts.map((part, n) => ["/", step(part, parts.slice(0, n + 1).join("/"), n === parts.length - 1)]),
  );
}

function folder(view, answer) {
  const rank = (child) => (child.kind === "dir" ? 0 : 1);
  const children = [...(answer.children ?? [])].sort((a, b) => rank(a) - rank(b));
  if (children.length === 0) return empty("An empty folder.");
  const open = (child) => view.show({ path: view.at.path ? `${view.at.path}/${child.name}` : child.name });
  const sign = { dir: "/", symlink: "@", file: "" };
  return h(
    "ul",
    { class: "listing mono" },
    children.map((child) =>
      h(
        "li",
        {},
        typeof child.name === "string"
          ? h("button", { type: "button", class: "quiet", on: { click: () => open(child) } }, pathOf(child.name), sign[child.kind])
          : h("span", {}, pathOf(child.name)),
        h("span", { class: "muted" }, child.size === null ? "" : bytes(child.size)),
        h("span", { class: "muted" }, child.mode ?? ""),
      ),
    ),
  );
}

function file(answer) {
  const { content, size, mode, hash } = answer;
  const about = h("p", { class: "muted" }, [answer.kind === "symlink" ? "a link to" : null, bytes(size), mode, hash?.slice(0, 16)].filter(Boolean).join(" · "));
  if (content === null) return [about, empty("Larger than is shown here; `docket cat` prints it.")];
  if (typeof content.text !== "string") return [about, empty("Not text; `docket cat` prints it.")];
  const lines = content.text.replace(/\n$/, "").split("\n");
  return [
    about,
    h(
      "div",
      { class: "source mono", tabindex: "0", role: "group", "aria-label": "Content" },
      h("pre", { class: "numbers", "aria-hidden": "true" }, lines.slice(0, LINES_MAX).map((_, n) => `${n + 1}\n`)),
      h("pre", { dir: "ltr" }, visible(lines.slice(0, LINES_MAX).join("\n"))),
    ),
    lines.length > LINES_MAX && h("p", { class: "muted" }, `The first ${LINES_MAX} of ${plural(lines.length, "line")}; \`docket cat\` prints all.`),
  ];
}
