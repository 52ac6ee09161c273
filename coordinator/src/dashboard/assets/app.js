// Begins the dashboard: signs in, then shows the page of the address. Owns what stands around every page.

import { events, get, isAbort, me, signIn, signOut, whoAmI } from "./api.js";
import { alert, dialog } from "./dialogs.js";
import { byId, fill, h } from "./dom.js";
import { tick } from "./format.js";
import { bind, help } from "./keys.js";
import { link } from "./live.js";
import { go, show, start, to } from "./router.js";

/** Takes a token out of the address, before anything else sees it; it is neither kept nor sent anywhere but once. */
function tokenOfTheAddress() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given !== null) history.replaceState(null, "", location.pathname + location.search);
  return given;
}

function bar() {
  try {
    if (me.role === null) localStorage.removeItem(HERE);
    else localStorage.setItem(HERE, "1");
  } catch {
    // Then everybody is asked.
  }
  byId("top").hidden = me.role === null;
  fill(byId("who"), me.role === null ? null : h("span", { title: `token ${me.name}, role ${me.role}` }, me.name));
  document.body.dataset.role = me.role ?? "nobody";
}

const THEMES = { system: "Theme: system", light: "Theme: light", dark: "Theme: dark" };
const GLYPHS = { system: "◐", light: "☀", dark: "☾" };

function theme(next) {
  const root = document.documentElement;
  if (next === "system") delete root.dataset.theme;
  else root.dataset.theme = next;
  try {
    if (next === "system") localStorage.removeItem("docket-theme");
    else localStorage.setItem("docket-theme", next);
  } catch {
    // A browser that keeps nothing forgets it with the page.
  }
  const button = byId("theme");
  fill(button, h("span", { "aria-hidden": "true" }, GLYPHS[next]));
  button.setAttribute("aria-label", THEMES[next]);
  button.title = `${THEMES[next]} (t)`;
}

const present = () => document.documentElement.dataset.theme ?? "system";
const turn = () => theme({ system: "light", light: "dark", dark: "system" }[present()]);

/** Digits that may be the end of an id. */
const ID = /^[0-9a-f][0-9a-f-]{3,35}$/i;

/** Finds a task or run by its id, and by its title otherwise. */
async function find(text) {
  if (ID.test(text)) {
    try {
      const found = await get(`/v1/resolve/${encodeURIComponent(text)}`);
      if (found.tasks.length + found.runs.length === 1) {
        return go(found.runs.length ? to.run(found.runs[0]) : to.task(found.tasks[0]));
      }
    } catch (error) {
      if (isAbort(error)) return;
      if (error.status !== 404) return alert(error.message);
    }
  }
  return go(to.backlog(text ? `?title=${encodeURIComponent(text)}` : ""));
}

function around() {
  theme(present());
  byId("theme").addEventListener("click", turn);
  byId("help").addEventListener("click", help);
  byId("sign-out").addEventListener("click", async () => {
    try {
      await signOut();
    } catch (error) {
      // The cookie is still good: whoever leaves now must not believe that it is not. Who was not signed in any more is led away.
      return me.role === null ? undefined : alert(`You are still signed in: ${error.message}`);
    }
    bar();
    go(to.login());
  });
  byId("find").addEventListener("submit", (event) => {
    event.preventDefault();
    const input = byId("find-text");
    find(input.value.trim());
    input.blur();
  });
  link.addEventListener("change", (event) => (byId("link-state").hidden = event.detail));
  events.addEventListener("signed-out", () => {
    bar();
    if (location.pathname !== "/ui/login") go(to.login(location.pathname + location.search));
  });
  setInterval(tick, 1000);
  bind({
    "g o": { does: "Overview", run: () => go(to.overview()) },
    "g b": { does: "Backlog", run: () => go(to.backlog()) },
    "g m": { does: "Metrics", run: () => go(to.metrics()) },
    "/": { does: "Find", run: () => byId("find-text").focus() },
    t: { does: "Another theme", run: turn },
    "?": { does: "This help", run: help },
  });
}

const HERE = "docket-here";

/** Whether somebody signed in with this browser and did not sign out. */
function wasHere() {
  try {
    return localStorage.getItem(HERE) !== null;
  } catch {
    return true;
  }
}

/** Signs in with the token of an address. Somebody who is signed in already is asked: any page may lead here. */
async function signInWith(given) {
  if (me.role !== null) {
    const sure = await dialog({
      title: "Sign in anew",
      body: h("p", {}, `You are signed in as ${me.name}. The link that led here has another token.`),
      act: "Use the link's token",
      close: `Stay ${me.name}`,
    });
    if (sure === null) return null;
  }
  return signIn(given).then(() => null, (error) => error);
}

async function begin() {
  const given = tokenOfTheAddress();
  around();
  let refused = null;
  // Nobody who was never here is asked who they are.
  if (given === null || wasHere()) await whoAmI().catch((error) => (refused = error));
  if (given !== null) refused = await signInWith(given);
  bar();
  if (me.role === null && location.pathname !== "/ui/login") {
    history.replaceState(null, "", to.login(location.pathname + location.search));
  }
  await start();
  if (refused) alert(refused.message);
}

// An address with a token that is pasted into a tab which is here already loads nothing anew.
addEventListener("hashchange", async () => {
  const given = tokenOfTheAddress();
  if (given === null) return;
  const refused = await signInWith(given);
  bar();
  if (refused) return alert(refused.message);
  go(location.pathname === "/ui/login" ? "/ui/" : location.pathname + location.search, { replace: true });
});

addEventListener("docket:signed-in", (event) => {
  bar();
  go(event.detail, { replace: true });
});

// One who comes back to a page that a browser kept is shown it as it is now.
addEventListener("pageshow", (event) => event.persisted && show());

begin();
