// All pages: hostile texts, themes, a lost coordinator, keyboard and focus.

import assert from "node:assert/strict";
import { settled, until } from "../stage.js";

/** A queue name unique to this process, so that cases can run again on the same coordinator. */
const QUEUE = `hostile-${process.pid}`;

export const HOSTILE = [
  `<img src=x onerror="window.hit=1">`,
  `<script>window.hit=1</script>`,
  `"><svg/onload=window.hit=1>`,
  `javascript:window.hit=1`,
  `{{constructor.constructor('window.hit=1')()}}`,
  `\u202egnol ton si siht`,
  `\u2066\u2067\u202dmixed`,
  "W".repeat(200),
  "\u0639\u0631\u0628\u064a \u05e2\u05d1\u05e8\u05d9\u05ea",
];

export const cases = {
  async "hostile texts stay text"(stage) {
    const ids = await stage.submitLike(
      stage.tasks.waits,
      HOSTILE.map((title) => ({ title, queue: QUEUE, text: `${title}\n`.repeat(Math.ceil(10_000 / (title.length + 1))) })),
    );
    const page = await stage.page({ token: stage.tokens.admin });
    await page.goto(`${stage.url}/ui/backlog?queue=${QUEUE}`);
    await page.getByText(HOSTILE[0]).first().waitFor();
    for (const title of HOSTILE.slice(0, 5)) assert.equal(await page.getByText(title, { exact: true }).count(), 1, title);
    // Bidirectional overrides are shown as symbols and have no effect.
    assert.ok((await page.locator(".grid-body").innerText()).includes("⟨202e⟩"));
    for (const id of ids) {
      await page.goto(`${stage.url}/ui/task/${id}`);
      await page.getByRole("heading", { name: "Prompt" }).waitFor();
      await stage.fits(page, "a hostile task");
    }
    await page.goto(`${stage.url}/ui/`);
    await settled(page);
    await page.goto(`${stage.url}/ui/backlog?title=${encodeURIComponent(HOSTILE[0])}&queue=${encodeURIComponent("<b>x")}`);
    await page.getByRole("heading", { name: "Backlog" }).waitFor();
    stage.expect("400");
    await page.goto(`${stage.url}/ui/task/%3Cimg%20src=x%20onerror=window.hit=1%3E`);
    await page.getByRole("alert").filter({ hasText: "id" }).waitFor();
    assert.equal(await page.evaluate(() => window.hit), undefined);
    assert.equal(await page.locator("main img, main script, main iframe").count(), 0);
  },

  async "Trusted Types block markup and code from text"(stage) {
    // The browser logs each violation.
    stage.expect("TrustedHTML");
    stage.expect("TrustedScript");
    stage.expect("TrustedTypePolicy");
    stage.expect("require-trusted-types-for");
    stage.expect("trusted-types");
    const page = await stage.page({ token: stage.tokens.read });
    const refused = await page.evaluate(() => {
      const tried = {
        markup: () => (document.createElement("div").innerHTML = "<b>x</b>"),
        script: () => (document.createElement("script").text = "window.hit = 1"),
        policy: () => window.trustedTypes.createPolicy("any", { createHTML: (text) => text }),
      };
      return Object.entries(tried).filter(([, act]) => {
        try {
          act();
          return false;
        } catch (error) {
          return error instanceof TypeError;
        }
      }).map(([name]) => name);
    });
    assert.deepEqual(refused, ["markup", "script", "policy"]);
  },

  async "dialogs trap and return the focus; arrow keys move in menus and lists"(stage) {
    const page = await stage.page({ token: stage.tokens.admin });
    await page.goto(`${stage.url}/ui/task/${stage.tasks.slow}`);
    await page.getByRole("button", { name: "Send message" }).click();
    const dialog = page.getByRole("dialog");
    const within = () => page.evaluate(() => document.querySelector("dialog").contains(document.activeElement));
    const stops = await dialog.locator("button, input, textarea, select").count();
    const seen = new Set();
    for (const key of ["Tab", "Shift+Tab"]) {
      for (let n = 0; n < stops + 2; n += 1) {
        await page.keyboard.press(key);
        assert.ok(await within(), `${key} ${n}: the focus left the dialog`);
        seen.add(await page.evaluate(() => document.activeElement.textContent || document.activeElement.name));
      }
    }
    assert.equal(seen.size, stops, [...seen].join());
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    const focused = () => page.evaluate(() => document.activeElement.textContent);
    // A closed dialog loses its role before its close event restores the focus.
    const back = (to) => until(`the focus at ${to}`, async () => (await focused()) === to);
    await back("Send message");
    // The focus also returns if the opener was redrawn in the meantime.
    await page.keyboard.press("Enter");
    await dialog.waitFor();
    await page.evaluate(() => document.querySelector(".actions button").setAttribute("data-old", "1"));
    await stage.api("POST", "/v1/tasks/bulk", { act: { reprioritize: 3 }, tasks: [stage.tasks.slow] });
    await page.locator("[data-old]").waitFor({ state: "detached" });
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await back("Send message");

    // The header of a run is redrawn when its stream is lost and when it is back.
    stage.expect("net::ERR_FAILED");
    let lose;
    const lost = new Promise((resolve) => (lose = resolve));
    await page.route("**/follow?*", async (route) => {
      await lost;
      await route.abort();
    });
    await page.goto(`${stage.url}/ui/run/${stage.tasks.run}`);
    const menu = page.getByText("Export", { exact: true });
    await menu.focus();
    await page.keyboard.press("Enter");
    await page.keyboard.press("ArrowDown");
    assert.equal(await focused(), "Events, JSON Lines");
    await page.keyboard.press("ArrowDown");
    assert.equal(await focused(), "Trajectory, ATIF");
    await menu.evaluate((shown) => shown.setAttribute("data-old", "1"));
    lose();
    await page.getByText("not connected; retrying").waitFor();
    assert.equal(await page.locator("[data-old]").count(), 0);
    assert.equal(await focused(), "Trajectory, ATIF");
    await page.unroute("**/follow?*");
    await page.getByText("not connected; retrying").waitFor({ state: "detached" });
    assert.equal(await focused(), "Trajectory, ATIF");
    await page.keyboard.press("Escape");
    assert.equal(await focused(), "Export");
    assert.equal(await page.getByRole("link", { name: "Trajectory, ATIF" }).isVisible(), false);

    await page.goto(`${stage.url}/ui/`);
    const links = page.getByRole("table", { name: "Ended tasks" }).getByRole("link");
    await links.first().focus();
    const [first, second] = await links.allTextContents();
    await page.keyboard.press("ArrowDown");
    assert.equal(await focused(), second);
    await page.keyboard.press("ArrowUp");
    assert.equal(await focused(), first);
  },

  async "single-key shortcuts can be turned off permanently"(stage) {
    const page = await stage.page({ token: stage.tokens.read });
    const main = page.getByRole("main");
    await page.keyboard.press("?");
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Single-key shortcuts").uncheck();
    await stage.accessible(page, "keyboard help");
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await page.reload();
    await page.getByRole("heading", { name: "Running" }).waitFor();
    await main.focus();
    for (const key of ["/", "?", "g", "b"]) await page.keyboard.press(key);
    assert.equal(await dialog.count(), 0);
    assert.equal(await page.evaluate(() => document.activeElement.id), "main");
    assert.match(page.url(), /\/ui\/$/);
    await page.getByRole("button", { name: "Keyboard shortcuts" }).click();
    await dialog.getByLabel("Single-key shortcuts").check();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await main.focus();
    await page.keyboard.press("/");
    assert.equal(await page.evaluate(() => document.activeElement.id), "find-text");
  },

  async "an archived task says so and how to restore it"(stage) {
    stage.expect("404");
    const queue = `archived-${process.pid}`;
    const [id] = await stage.submitLike(stage.tasks.waits, [{ title: "Put away", queue }]);
    await stage.api("POST", `/v1/tasks/${id}/cancel`, {});
    await stage.api("POST", "/v1/archive", { older_than_ms: 0, queue });
    const page = await stage.page({ token: stage.tokens.read });
    await page.goto(`${stage.url}/ui/task/${id}`);
    await page.getByRole("heading", { level: 1, name: /is archived/ }).waitFor();
    await page.getByText(/docket archive restore/).waitFor();
    await stage.accessible(page, "an archived task");
  },

  async "a task archived while its page is open says so"(stage) {
    stage.expect("404");
    const queue = `put-away-${process.pid}`;
    const [id] = await stage.submitLike(stage.tasks.waits, [{ title: "Looked at", queue }]);
    const page = await stage.page({ token: stage.tokens.read });
    await page.goto(`${stage.url}/ui/task/${id}`);
    await page.getByRole("heading", { level: 1, name: "Looked at" }).waitFor();
    await stage.api("POST", `/v1/tasks/${id}/cancel`, {});
    await stage.api("POST", "/v1/archive", { older_than_ms: 0, queue });
    await page.getByRole("heading", { level: 1, name: /is archived/ }).waitFor();
  },

  async "the theme follows the system until the user chooses one"(stage) {
    const page = await stage.page({ token: stage.tokens.read, theme: "dark" });
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const dark = await ground();
    await page.getByRole("button", { name: "Theme: system" }).click();
    await page.getByRole("button", { name: "Theme: light" }).waitFor();
    assert.notEqual(await ground(), dark);
    await page.reload();
    await page.getByRole("button", { name: "Theme: light" }).waitFor();
    assert.notEqual(await ground(), dark);
  },

  async "a lost coordinator is shown, and the page recovers when it is back"(stage) {
    stage.expect("ERR_");
    const page = await stage.page({ token: stage.tokens.read });
    await page.getByRole("heading", { name: "Running" }).waitFor();
    await page.context().setOffline(true);
    await page.getByText("not connected").waitFor();
    await page.context().setOffline(false);
    await page.getByText("not connected").waitFor({ state: "hidden" });
  },

  async "a run is followed to its end, each event once, across a reconnect"(stage) {
    const page = await stage.page({ token: stage.tokens.read });
    const [id] = await stage.submitLike(stage.tasks.slow, [{ title: "Followed" }]);
    const run = await until("a run", async () => (await stage.api("GET", `/v1/tasks/${id}`)).task.run);
    await page.evaluate(async (run) => {
      const { followRun } = await import("/ui/assets/live.js");
      window.got = { seqs: [], ended: null };
      const handlers = { onEvent: ({ seq }) => window.got.seqs.push(seq), onEnd: (end) => (window.got.ended = end) };
      followRun(run, handlers, new AbortController().signal);
    }, run);
    const got = () => page.evaluate(() => window.got);
    const first = await until("some events", async () => ((await got()).seqs.length > 5 ? (await got()).seqs.length : 0));
    // As when the page becomes visible again: the stream reconnects after the last received event.
    await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
    await until("more events", async () => (await got()).seqs.length > first + 2);
    await stage.api("POST", `/v1/tasks/${id}/cancel`, {});
    const { ended, seqs } = await until("the end", async () => ((await got()).ended ? got() : null));
    assert.equal(ended.status, "cancelled");
    assert.deepEqual(seqs, Array.from({ length: ended.seq }, (_, n) => n + 1));
  },

  async "an unknown URL shows a not-found page"(stage) {
    const page = await stage.page({ token: stage.tokens.read });
    await page.goto(`${stage.url}/ui/nowhere/at/all`);
    await page.getByRole("heading", { name: "Page not found" }).waitFor();
  },
};
