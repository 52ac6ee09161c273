// Files tab: the workspace as it was after the selected turn.

import { can, get } from "../api.js";
import { h } from "../dom.js";
import { formatBytes, pluralize, showControlChars } from "../format.js";
import { emptyNote } from "../components.js";
import { formatPath } from "./diff.js";

/** Most lines of a file that are shown. */
const LINES_MAX = 4000;

export async function drawFiles(view) {
  if (!can.administer()) return emptyNote("File contents are visible to administrators only.");
  const { selection, signal } = view;
  const fetchPath = (path) => get(`${view.run}/files`, { turn: String(selection.turn), path: path || null }, { signal });
  const entry = await fetchPath(selection.path).catch((error) => {
    if (error.status !== 404 || !selection.path) throw error;
    return { missing: error.message };
  });
  if (entry.missing) return h("div", { class: "files" }, breadcrumbs(view), h("p", { class: "error" }, entry.missing));
  return h("div", { class: "files" }, breadcrumbs(view), entry.kind === "dir" ? folderListing(view, entry) : fileContent(entry));
}

function breadcrumbs(view) {
  const segments = view.selection.path.split("/").filter(Boolean);
  const crumb = (label, path, isCurrent) =>
    isCurrent ? h("span", { "aria-current": "location" }, showControlChars(label)) : h("button", { type: "button", class: "quiet", on: { click: () => view.select({ path }) } }, showControlChars(label));
  return h(
    "nav",
    { class: "crumbs mono", "aria-label": "Path" },
    crumb("files", "", segments.length === 0),
    segments.map((segment, n) => ["/", crumb(segment, segments.slice(0, n + 1).join("/"), n === segments.length - 1)]),
  );
}

function folderListing(view, entry) {
  const rank = (child) => (child.kind === "dir" ? 0 : 1);
  const children = [...(entry.children ?? [])].sort((a, b) => rank(a) - rank(b));
  if (children.length === 0) return emptyNote("This folder is empty.");
  const open = (child) => view.select({ path: view.selection.path ? `${view.selection.path}/${child.name}` : child.name });
  const suffix = { dir: "/", symlink: "@", file: "" };
  return h(
    "ul",
    { class: "listing mono" },
    children.map((child) =>
      h(
        "li",
        {},
        typeof child.name === "string"
          ? h("button", { type: "button", class: "quiet", on: { click: () => open(child) } }, formatPath(child.name), suffix[child.kind])
          : h("span", {}, formatPath(child.name)),
        h("span", { class: "muted" }, child.size === null ? "" : formatBytes(child.size)),
        h("span", { class: "muted" }, child.mode ?? ""),
      ),
    ),
  );
}

function fileContent(entry) {
  const { content, size, mode, hash } = entry;
  const summary = h("p", { class: "muted" }, [entry.kind === "symlink" ? "symlink" : null, formatBytes(size), mode, hash?.slice(0, 16)].filter(Boolean).join(" · "));
  if (content === null) return [summary, emptyNote("Too large to show here. Use docket cat to print it.")];
  if (typeof content.text !== "string") return [summary, emptyNote("Not a text file. Use docket cat to print it.")];
  const lines = content.text.replace(/\n$/, "").split("\n");
  return [
    summary,
    h(
      "div",
      { class: "source mono", tabindex: "0", role: "group", "aria-label": "File content" },
      h("pre", { class: "line-numbers", "aria-hidden": "true" }, lines.slice(0, LINES_MAX).map((_, n) => `${n + 1}\n`)),
      h("pre", { dir: "ltr" }, showControlChars(lines.slice(0, LINES_MAX).join("\n"))),
    ),
    lines.length > LINES_MAX && h("p", { class: "muted" }, `Showing the first ${LINES_MAX} of ${pluralize(lines.length, "line")}. Use docket cat to print all.`),
  ];
}
