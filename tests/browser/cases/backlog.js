// Finding tasks among thousands, and doing things to many.

import assert from "node:assert/strict";
import { until } from "../stage.js";

const MANY = 3000;

/** A queue of this one visit, so that a house may be visited again. */
const of = (name) => `${name}-${process.pid}`;

async function backlog(stage, query = "", options = {}) {
  const page = await stage.page({ token: stage.tokens.admin, ...options });
  await page.goto(`${stage.url}/ui/backlog${query}`);
  await page.getByRole("heading", { name: "Backlog" }).waitFor();
  return page;
}

const rows = (page) => page.getByRole("grid").getByRole("row").filter({ has: page.getByRole("link") });
const titles = (page) => page.locator(".grid-body [data-part=title]").allTextContents();

export const cases = {
  async "filters, search and sort, kept in the address"(stage) {
    await stage.submitLike(stage.tasks.waits, [
      { title: "Zebra of the sort", queue: of("sorted"), priority: 5 },
      { title: "Apple of the sort", queue: of("sorted"), priority: -5 },
      { title: "Mango of the sort", queue: of("sorted"), priority: 0 },
    ]);
    const page = await backlog(stage);
    await page.getByLabel("Queue", { exact: true }).fill(of("sorted"));
    await page.waitForURL(/queue=sorted/);
    await until("three rows", async () => (await rows(page).count()) === 3);
    await page.getByRole("columnheader").getByRole("button", { name: "Title" }).click();
    assert.deepEqual((await titles(page)).map((title) => title[0]), ["A", "M", "Z"]);
    await page.getByRole("columnheader").getByRole("button", { name: "Title" }).click();
    assert.deepEqual((await titles(page)).map((title) => title[0]), ["Z", "M", "A"]);
    await page.getByLabel("Sort by").selectOption("priority");
    assert.deepEqual((await titles(page)).map((title) => title[0]), ["Z", "M", "A"]);
    await page.getByLabel("Title holds").fill("mango");
    await until("one row", async () => (await rows(page).count()) === 1);
    await page.reload();
    await until("one row after a reload", async () => (await rows(page).count()) === 1);
    await page.getByLabel("Title holds").fill("no such thing anywhere");
    await page.getByText("No task is like that.").waitFor();
    await page.goto(`${stage.url}/ui/backlog?state=discarded`);
    await rows(page).first().waitFor();
    const states = await page.locator(".grid-body .state").allTextContents();
    assert.ok(states.length > 0 && states.every((state) => state === "discarded"), states.join());
  },

  async "many are cancelled together once their number is confirmed"(stage) {
    const specs = Array.from({ length: 12 }, (_, n) => ({ title: `Bulk ${n}`, queue: of("bulk") }));
    const ids = await stage.submitLike(stage.tasks.waits, specs);
    const page = await backlog(stage, `?queue=${of("bulk")}`);
    await until("twelve rows", async () => (await rows(page).count()) === 12);
    await page.getByRole("checkbox", { name: "Select Bulk 3" }).check();
    await page.getByRole("checkbox", { name: "Select Bulk 7" }).check();
    await page.getByText("2 selected").waitFor();
    const bulk = page.locator(".bulk");
    await bulk.getByRole("button", { name: "Cancel" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("heading", { name: "Cancel 2 tasks?" }).waitFor();
    await stage.accessible(page, "bulk");
    await stage.picture("bulk");
    await dialog.getByRole("button", { name: "Leave them" }).click();
    assert.equal((await stage.api("GET", `/v1/tasks/${ids[3]}`)).task.state, "available");
    await bulk.getByRole("button", { name: "Cancel" }).click();
    await dialog.getByRole("button", { name: "Cancel 2 tasks" }).click();
    await page.getByText("2 tasks cancelled").waitFor();
    for (const [n, state] of [[3, "cancelled"], [7, "cancelled"], [1, "available"]]) {
      assert.equal((await stage.api("GET", `/v1/tasks/${ids[n]}`)).task.state, state, `Bulk ${n}`);
    }
    // And all that a filter lets through.
    await page.getByRole("checkbox", { name: "available" }).check();
    await until("ten rows", async () => (await rows(page).count()) === 10);
    await bulk.getByRole("button", { name: "Priority" }).click();
    await dialog.getByRole("heading", { name: "Another priority for 10 tasks?" }).waitFor();
    await dialog.getByLabel("Priority").fill("7");
    await dialog.getByRole("button", { name: "Set for 10 tasks" }).click();
    await page.getByText("10 tasks given another priority").waitFor();
    assert.equal((await stage.api("GET", `/v1/tasks/${ids[1]}`)).task.spec.priority, 7);
    await bulk.getByRole("button", { name: "Pause", exact: true }).click();
    await dialog.getByRole("button", { name: "Pause 10 tasks" }).click();
    await page.getByText("10 tasks paused").waitFor();
    assert.equal((await stage.api("GET", `/v1/tasks/${ids[1]}`)).task.blocked_why, "paused");
  },

  async "thousands of rows scroll, and few of them are drawn"(stage) {
    const specs = Array.from({ length: MANY }, (_, n) => ({ title: `Row ${n}`, queue: of("many") }));
    await stage.submitLike(stage.tasks.waits, specs);
    const page = await backlog(stage, `?queue=${of("many")}`);
    await page.getByRole("link", { name: `Row ${MANY - 1}`, exact: true }).waitFor();
    const grid = page.getByRole("grid");
    await until("the last row", async () => {
      await grid.evaluate((list) => (list.scrollTop = list.scrollHeight));
      return page.getByRole("link", { name: "Row 0", exact: true }).isVisible();
    });
    assert.ok((await rows(page).count()) < 60, `${await rows(page).count()} rows drawn`);
    await page.getByText("3,000 tasks").waitFor();
    await stage.picture("backlog-many");
    // Frames while it is scrolled through: no pause that one would feel.
    const longest = await grid.evaluate(async (list) => {
      let before = performance.now();
      let most = 0;
      for (let n = 0; n < 60; n += 1) {
        list.scrollTop = (list.scrollHeight * n) / 60;
        await new Promise(requestAnimationFrame);
        const now = performance.now();
        most = Math.max(most, now - before);
        before = now;
      }
      return most;
    });
    console.log(`   longest frame over ${MANY} rows: ${longest.toFixed(0)} ms`);
  },

  async "a task at the side: why, what it waits for, its runs, and a retry"(stage) {
    const [first] = await stage.submitLike(stage.tasks.waits, [{ title: "Comes first", queue: of("deps") }]);
    await stage.submitLike(stage.tasks.waits, [{ title: "Comes after", queue: of("deps"), conditions: { after: [first] } }]);
    const page = await backlog(stage, `?queue=${of("deps")}`);
    await page.getByRole("link", { name: "Comes after" }).click();
    const side = page.getByRole("complementary");
    await side.getByText("Comes after", { exact: true }).last().waitFor();
    await side.getByRole("heading", { name: "Why" }).waitFor();
    await side.getByRole("link", { name: first.replaceAll("-", "").slice(-8) }).first().waitFor();
    assert.match(page.url(), /task=/);
    await page.keyboard.press("Escape");
    await side.waitFor({ state: "hidden" });
    await page.goto(`${stage.url}/ui/backlog?state=discarded&title=Always`);
    await page.getByRole("link", { name: "Always fails" }).first().click();
    await side.getByText("Runs failed").waitFor();
    await side.getByRole("heading", { name: "Runs", exact: true }).waitFor();
    await stage.picture("backlog");
  },

  async "the keyboard is enough"(stage) {
    await stage.submitLike(stage.tasks.waits, [{ title: "Key one", queue: of("keys") }, { title: "Key two", queue: of("keys") }]);
    const page = await backlog(stage, `?queue=${of("keys")}`);
    await until("two rows", async () => (await rows(page).count()) === 2);
    await page.getByRole("main").focus();
    await page.keyboard.press("j");
    await page.keyboard.press("j");
    const [, second] = await titles(page);
    assert.equal(await page.evaluate(() => document.activeElement.textContent), second);
    await page.keyboard.press("x");
    await page.getByText("1 selected").waitFor();
    await page.keyboard.press("k");
    await page.keyboard.press("Enter");
    await page.getByRole("complementary").getByText("What was asked").or(page.getByRole("heading", { level: 1, name: /Key/ })).first().waitFor();
    await page.keyboard.press("g");
    await page.keyboard.press("m");
    await page.waitForURL("**/ui/metrics");
    await page.keyboard.press("g");
    await page.keyboard.press("o");
    await page.waitForURL(/\/ui\/$/);
    await page.keyboard.press("?");
    await page.getByRole("dialog").getByText("Backlog").waitFor();
    await page.keyboard.press("Escape");
    await page.keyboard.press("/");
    assert.equal(await page.evaluate(() => document.activeElement.id), "find-text");
    await page.keyboard.type("Key one");
    await page.keyboard.press("Enter");
    await page.waitForURL(/backlog\?title=Key(%20|\+)one/);
    await page.goto(`${stage.url}/ui/`);
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  },
};
