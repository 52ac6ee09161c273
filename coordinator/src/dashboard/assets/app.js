// Begins the dashboard: signs in, then shows the page of the address. Owns what stands around every page.

import { events, get, isAbort, me, signIn, signOut, whoAmI } from "./api.js";
import { alert } from "./dialogs.js";
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
    await signOut().catch((error) => alert(error.message));
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

async function begin() {
  const given = tokenOfTheAddress();
  around();
  let refused = null;
  if (given !== null) refused = await signIn(given).then(() => null, (error) => error);
  if (me.role === null) await whoAmI().catch((error) => (refused ??= error));
  bar();
  if (me.role === null && location.pathname !== "/ui/login") {
    history.replaceState(null, "", to.login(location.pathname + location.search));
  }
  await start();
  if (refused) alert(refused.message);
}

addEventListener("docket:signed-in", (event) => {
  bar();
  go(event.detail, { replace: true });
});

// One who comes back to a page that a browser kept is shown it as it is now.
addEventListener("pageshow", (event) => event.persisted && show());

begin();
