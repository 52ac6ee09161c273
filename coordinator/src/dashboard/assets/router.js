// Maps URLs to pages. A page is a module that exports `open(main, { params, query, signal })`. The signal aborts when
// another page opens, and everything the page started stops with it.

import { byId, h, setChildren } from "./dom.js";
import { get, isAbortError } from "./api.js";
import { formatDateTime, renderProse, shortId } from "./format.js";

/** Routes of the dashboard; `:name` matches one path segment. */
const ROUTES = [
  { path: "", page: "overview", title: "Overview", load: () => import("./pages/overview.js") },
  { path: "backlog", page: "backlog", title: "Backlog", load: () => import("./pages/backlog.js") },
  { path: "metrics", page: "metrics", title: "Metrics", load: () => import("./pages/metrics.js") },
  { path: "task/:id", page: "task", title: "Task", load: () => import("./pages/task.js") },
  { path: "run/:id", page: "run", title: "Run", load: () => import("./pages/run.js") },
  { path: "login", page: "login", title: "Sign in", load: () => import("./pages/login.js") },
];

export const urlTo = {
  overview: () => "/ui/",
  backlog: (query = "") => `/ui/backlog${query}`,
  metrics: () => "/ui/metrics",
  task: (id) => `/ui/task/${encodeURIComponent(id)}`,
  run: (id, query = "") => `/ui/run/${encodeURIComponent(id)}${query}`,
  login: (next) => `/ui/login${next ? `?next=${encodeURIComponent(next)}` : ""}`,
};

/** Decodes a path segment; a segment with invalid encoding is returned unchanged. */
function decodeSegment(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

function matchRoute(pathname) {
  const segments = pathname.replace(/^\/ui\/?/, "").replace(/\/$/, "").split("/");
  for (const route of ROUTES) {
    const expected = route.path.split("/");
    if (expected.length !== segments.length) continue;
    const params = {};
    const matches = expected.every((segment, n) => {
      if (!segment.startsWith(":")) return segment === segments[n];
      params[segment.slice(1)] = decodeSegment(segments[n]);
      return segments[n] !== "";
    });
    if (matches) return { ...route, params };
  }
  return null;
}

let pageAbort = new AbortController();
let openedPath = "";

/** Delay before a page is reopened after the coordinator failed to respond. */
const RETRY_MS = 3000;

/** Sets the window title. */
export function setTitle(text) {
  document.title = text ? `${text} · docket` : "docket";
}

/** Opens the page of the current URL. */
export async function showPage() {
  pageAbort.abort();
  pageAbort = new AbortController();
  const { signal } = pageAbort;
  const main = byId("main");
  const route = matchRoute(location.pathname);
  const isSamePath = openedPath === location.pathname;
  openedPath = location.pathname;
  for (const link of document.querySelectorAll("[data-page]")) {
    if (link.dataset.page === route?.page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.body.dataset.at = route?.page ?? "none";
  setTitle(route?.title ?? "Page not found");
  if (!route) {
    setChildren(main, h("h1", {}, "Page not found"), h("p", {}, h("a", { href: "/ui/" }, "Back to the overview")));
    return;
  }
  main.setAttribute("aria-busy", "true");
  try {
    const page = await route.load();
    if (signal.aborted) return;
    if (!isSamePath) {
      setChildren(main);
      window.scrollTo(0, 0);
    }
    await page.open(main, { params: route.params, query: new URLSearchParams(location.search), signal });
  } catch (error) {
    if (isAbortError(error) || signal.aborted) return;
    const notice = error.status === 404 && route.params.id ? await archivedNotice(route, signal) : null;
    if (signal.aborted) return;
    if (notice) return void setChildren(main, notice);
    setChildren(main, h("h1", {}, "This page could not be loaded"), h("p", { class: "error", role: "alert" }, renderProse(error.message)));
    if (error.status === undefined) throw error;
    if (error.status === 0 || error.status >= 500) {
      const timer = setTimeout(showPage, RETRY_MS);
      signal.addEventListener("abort", () => clearTimeout(timer));
    }
  } finally {
    if (!signal.aborted) main.removeAttribute("aria-busy");
  }
}

/** The notice for an archived task or run; null if the id is not archived. */
async function archivedNotice({ params, title: kind }, signal) {
  const stub = await get(`/v1/archived/${encodeURIComponent(params.id)}`, null, { signal }).catch(() => null);
  if (!stub) return null;
  const id = shortId(params.id);
  return [
    h("h1", {}, `${kind} ${id} is archived`),
    h("p", {}, renderProse(`Archived on ${formatDateTime(stub.archived_at)}. \`docket show ${id}\` shows it from the archive; \`docket archive restore ${id}\` restores it.`)),
  ];
}

/** Opens a URL of the dashboard. */
export function navigate(url, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", url);
  return showPage();
}

/** Stores the state of the page in the query string without reopening the page. */
export function replaceQuery(query) {
  const text = query.toString();
  history.replaceState(null, "", `${location.pathname}${text ? `?${text}` : ""}`);
}

/** Opens the first page and starts handling links and history navigation. */
export function startRouter() {
  addEventListener("popstate", showPage);
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    if (!link || event.defaultPrevented || event.button !== 0) return;
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || link.target || link.hasAttribute("download")) return;
    const url = new URL(link.href);
    if (url.origin !== location.origin || !url.pathname.startsWith("/ui") || url.pathname.startsWith("/ui/assets/")) return;
    if (url.hash && url.pathname === location.pathname && url.search === location.search) return;
    event.preventDefault();
    navigate(url.pathname + url.search).then(() => byId("main").focus({ preventScroll: true }));
  });
  return showPage();
}
