// Entry point: signs in, opens the page of the current URL and manages the top bar.

import { apiEvents, get, isAbortError, loadSession, session, signIn, signOut } from "./api.js";
import { openDialog, showAlert } from "./dialogs.js";
import { byId, h, setChildren } from "./dom.js";
import { updateTimes } from "./format.js";
import { bindKeys, showKeyboardHelp } from "./keyboard.js";
import { connection } from "./live.js";
import { navigate, showPage, startRouter, urlTo } from "./router.js";

/**
 * Removes the token from the URL before any other code can read it. It is used for one sign-in request and never
 * stored.
 */
function takeTokenFromUrl() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token !== null) history.replaceState(null, "", location.pathname + location.search);
  return token;
}

function updateTopBar() {
  try {
    if (session.role === null) localStorage.removeItem(SIGNED_IN_KEY);
    else localStorage.setItem(SIGNED_IN_KEY, "1");
  } catch {
    // Without storage, `hasSignedIn` always returns true.
  }
  byId("top").hidden = session.role === null;
  setChildren(byId("who"), session.role === null ? null : h("span", { title: `token ${session.name}, role ${session.role}` }, session.name));
  document.body.dataset.role = session.role ?? "none";
}

const THEME_LABELS = { system: "Theme: system", light: "Theme: light", dark: "Theme: dark" };
const THEME_ICONS = { system: "◐", light: "☀", dark: "☾" };

function applyTheme(theme) {
  const root = document.documentElement;
  if (theme === "system") delete root.dataset.theme;
  else root.dataset.theme = theme;
  try {
    if (theme === "system") localStorage.removeItem("docket-theme");
    else localStorage.setItem("docket-theme", theme);
  } catch {
    // Without storage the choice lasts until the page is closed.
  }
  const button = byId("theme");
  setChildren(button, h("span", { "aria-hidden": "true" }, THEME_ICONS[theme]));
  button.setAttribute("aria-label", THEME_LABELS[theme]);
  button.title = `${THEME_LABELS[theme]} (t)`;
}

const currentTheme = () => document.documentElement.dataset.theme ?? "system";
const cycleTheme = () => applyTheme({ system: "light", light: "dark", dark: "system" }[currentTheme()]);

/** Text that may be an abbreviated id. */
const ID_PATTERN = /^[0-9a-f][0-9a-f-]{3,35}$/i;

/** Opens the task or run with this id, or else searches the backlog by title. */
async function findTask(text) {
  if (ID_PATTERN.test(text)) {
    try {
      const matches = await get(`/v1/resolve/${encodeURIComponent(text)}`);
      if (matches.tasks.length + matches.runs.length === 1) {
        return navigate(matches.runs.length ? urlTo.run(matches.runs[0]) : urlTo.task(matches.tasks[0]));
      }
    } catch (error) {
      if (isAbortError(error)) return;
      if (error.status !== 404) return showAlert(error.message);
    }
  }
  return navigate(urlTo.backlog(text ? `?title=${encodeURIComponent(text)}` : ""));
}

function bindTopBar() {
  applyTheme(currentTheme());
  byId("theme").addEventListener("click", cycleTheme);
  byId("help").addEventListener("click", showKeyboardHelp);
  byId("sign-out").addEventListener("click", async () => {
    try {
      await signOut();
    } catch (error) {
      // The cookie is still valid, and the user must not leave believing otherwise. If the session had already expired,
      // the `signed-out` event has opened the sign-in page.
      return session.role === null ? undefined : showAlert(`You are still signed in: ${error.message}`);
    }
    updateTopBar();
    navigate(urlTo.login());
  });
  byId("find").addEventListener("submit", (event) => {
    event.preventDefault();
    const input = byId("find-text");
    findTask(input.value.trim());
    input.blur();
  });
  connection.addEventListener("change", (event) => (byId("link-state").hidden = event.detail));
  apiEvents.addEventListener("signed-out", () => {
    updateTopBar();
    if (location.pathname !== "/ui/login") navigate(urlTo.login(location.pathname + location.search));
  });
  setInterval(updateTimes, 1000);
  bindKeys({
    "g o": { label: "Go to overview", run: () => navigate(urlTo.overview()) },
    "g b": { label: "Go to backlog", run: () => navigate(urlTo.backlog()) },
    "g m": { label: "Go to metrics", run: () => navigate(urlTo.metrics()) },
    "/": { label: "Find", run: () => byId("find-text").focus() },
    t: { label: "Switch theme", run: cycleTheme },
    "?": { label: "Show this help", run: showKeyboardHelp },
  });
}

const SIGNED_IN_KEY = "docket-here";

/** Whether a user signed in with this browser and did not sign out. */
function hasSignedIn() {
  try {
    return localStorage.getItem(SIGNED_IN_KEY) !== null;
  } catch {
    return true;
  }
}

/**
 * Signs in with the token of a link. A user who is already signed in confirms first, because any website can link here.
 */
async function signInWithToken(token) {
  if (session.role !== null) {
    const confirmed = await openDialog({
      title: "Switch to another token?",
      body: h("p", {}, `You are signed in as ${session.name}. The link you followed contains a different token.`),
      submitLabel: "Use the new token",
      closeLabel: `Stay signed in as ${session.name}`,
    });
    if (confirmed === null) return null;
  }
  return signIn(token).then(() => null, (error) => error);
}

async function startApp() {
  const token = takeTokenFromUrl();
  bindTopBar();
  let signInError = null;
  // With a token from a link and no earlier sign-in in this browser there is no session to load.
  if (token === null || hasSignedIn()) await loadSession().catch((error) => (signInError = error));
  if (token !== null) signInError = await signInWithToken(token);
  updateTopBar();
  if (session.role === null && location.pathname !== "/ui/login") {
    history.replaceState(null, "", urlTo.login(location.pathname + location.search));
  }
  await startRouter();
  if (signInError) showAlert(signInError.message);
}

// Pasting a link with a token into an open dashboard tab changes only the fragment and does not reload the page.
addEventListener("hashchange", async () => {
  const token = takeTokenFromUrl();
  if (token === null) return;
  const signInError = await signInWithToken(token);
  updateTopBar();
  if (signInError) return showAlert(signInError.message);
  navigate(location.pathname === "/ui/login" ? "/ui/" : location.pathname + location.search, { replace: true });
});

addEventListener("docket:signed-in", (event) => {
  updateTopBar();
  navigate(event.detail, { replace: true });
});

// A page restored from the back/forward cache is outdated.
addEventListener("pageshow", (event) => event.persisted && showPage());

startApp();
