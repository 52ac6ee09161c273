// Which page an address means. A page is a module with `open(main, {params, query, signal})`; what it began ends when
// its signal aborts, which is when another page opens.

import { byId, fill, h } from "./dom.js";
import { get, isAbort } from "./api.js";
import { prose, short, whole } from "./format.js";

/** `:name` is one part of a path. Links within the dashboard are of these forms alone. */
const PAGES = [
  { path: "", page: "overview", title: "Overview", load: () => import("./pages/overview.js") },
  { path: "backlog", page: "backlog", title: "Backlog", load: () => import("./pages/backlog.js") },
  { path: "metrics", page: "metrics", title: "Metrics", load: () => import("./pages/metrics.js") },
  { path: "task/:id", page: "task", title: "Task", load: () => import("./pages/task.js") },
  { path: "run/:id", page: "run", title: "Run", load: () => import("./pages/run.js") },
  { path: "login", page: "login", title: "Sign in", load: () => import("./pages/login.js") },
];

export const to = {
  overview: () => "/ui/",
  backlog: (query = "") => `/ui/backlog${query}`,
  metrics: () => "/ui/metrics",
  task: (id) => `/ui/task/${encodeURIComponent(id)}`,
  run: (id, query = "") => `/ui/run/${encodeURIComponent(id)}${query}`,
  login: (next) => `/ui/login${next ? `?next=${encodeURIComponent(next)}` : ""}`,
};

/** A part of a path; one that is not encoded as parts are is taken as it stands. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function match(pathname) {
  const parts = pathname.replace(/^\/ui\/?/, "").replace(/\/$/, "").split("/");
  for (const known of PAGES) {
    const wanted = known.path.split("/");
    if (wanted.length !== parts.length) continue;
    const params = {};
    const fits = wanted.every((part, n) => {
      if (!part.startsWith(":")) return part === parts[n];
      params[part.slice(1)] = decoded(parts[n]);
      return parts[n] !== "";
    });
    if (fits) return { ...known, params };
  }
  return null;
}

let leave = new AbortController();
let opened = "";

/** How long until a page that could not be opened, for the coordinator did not answer, is opened again. */
const AGAIN_MS = 3000;

/** Sets the title of the window: what a person looks for among twenty tabs. */
export function title(text) {
  document.title = text ? `${text} · docket` : "docket";
}

/** Opens the page of the present address. */
export async function show() {
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const main = byId("main");
  const found = match(location.pathname);
  const again = opened === location.pathname;
  opened = location.pathname;
  for (const link of document.querySelectorAll("[data-page]")) {
    if (link.dataset.page === found?.page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.body.dataset.at = found?.page ?? "nowhere";
  title(found?.title ?? "No such page");
  if (!found) {
    fill(main, h("h1", {}, "No such page"), h("p", {}, h("a", { href: "/ui/" }, "Back to the overview")));
    return;
  }
  main.setAttribute("aria-busy", "true");
  try {
    const page = await found.load();
    if (signal.aborted) return;
    if (!again) {
      fill(main);
      window.scrollTo(0, 0);
    }
    await page.open(main, { params: found.params, query: new URLSearchParams(location.search), signal });
  } catch (error) {
    if (isAbort(error) || signal.aborted) return;
    const gone = error.status === 404 && found.params.id ? await archived(found, signal) : null;
    if (signal.aborted) return;
    if (gone) return void fill(main, gone);
    fill(main, h("h1", {}, "This page cannot be shown"), h("p", { class: "wrong", role: "alert" }, prose(error.message)));
    if (error.status === undefined) throw error;
    if (error.status === 0 || error.status >= 500) {
      const timer = setTimeout(show, AGAIN_MS);
      signal.addEventListener("abort", () => clearTimeout(timer));
    }
  } finally {
    if (!signal.aborted) main.removeAttribute("aria-busy");
  }
}

/** What to say of a task or run that went to the archive; null where it did not. */
async function archived({ params, title: kind }, signal) {
  const stub = await get(`/v1/archived/${encodeURIComponent(params.id)}`, null, { signal }).catch(() => null);
  if (!stub) return null;
  const id = short(params.id);
  return [
    h("h1", {}, `${kind} ${id} is archived`),
    h("p", {}, prose(`It was archived on ${whole(stub.archived_at)}. \`docket show ${id}\` shows it from there, and \`docket archive restore ${id}\` brings it back.`)),
  ];
}

/** Goes to an address of the dashboard. */
export function go(address, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", address);
  return show();
}

/** Keeps what the page shows in its address, without opening it anew. */
export function remember(query) {
  const text = query.toString();
  history.replaceState(null, "", `${location.pathname}${text ? `?${text}` : ""}`);
}

/** Follows links and the browser's arrows from now on. */
export function start() {
  addEventListener("popstate", show);
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    if (!link || event.defaultPrevented || event.button !== 0) return;
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || link.target || link.hasAttribute("download")) return;
    const url = new URL(link.href);
    if (url.origin !== location.origin || !url.pathname.startsWith("/ui") || url.pathname.startsWith("/ui/assets/")) return;
    if (url.hash && url.pathname === location.pathname && url.search === location.search) return;
    event.preventDefault();
    go(url.pathname + url.search).then(() => byId("main").focus({ preventScroll: true }));
  });
  return show();
}
