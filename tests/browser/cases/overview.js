// Overview: live lists of tasks that need a person, running tasks and ended tasks.

import assert from "node:assert/strict";
import { id, short, until } from "../stage.js";

/** Titles unique to this process, so that cases can run again on the same coordinator. */
const TITLE = `Ask me now ${process.pid}`;
const SLOW = `Slow and live ${process.pid}`;

export const cases = {
  async "tasks that need a person come first and are answered in place"(stage) {
    const page = await stage.page({ token: stage.tokens.admin });
    const asks = page.locator("section").filter({ has: page.getByRole("heading", { name: "Needs you" }) });
    await asks.getByText("undelivered").or(asks.getByText("needs you", { exact: true })).first().waitFor();
    await asks.getByRole("link", { name: "Always fails" }).first().waitFor();
    const headings = await page.getByRole("main").getByRole("heading", { level: 2 }).allTextContents();
    assert.equal(headings[0], "Needs you", headings.join());
    assert.ok(headings.includes("Ended") && headings.includes("Workers"), headings.join());
    const [id] = await stage.submitLike(stage.tasks.asks, [{ title: TITLE }]);
    const item = asks.getByRole("listitem").filter({ hasText: TITLE });
    await item.waitFor();
    await stage.picture("overview");
    await item.getByRole("button", { name: "Answer" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("Which colour is the door?").waitFor();
    await stage.accessible(page, "answer");
    await dialog.getByLabel("Your answer").fill("Blue");
    await dialog.getByRole("button", { name: "Answer" }).click();
    await item.waitFor({ state: "detached" });
    await until("the end of the task", async () => (await stage.api("GET", `/v1/tasks/${id}`)).task.state === "completed");
    const ended = page.locator("section").filter({ has: page.getByRole("heading", { name: "Ended", exact: true }) });
    await ended.getByRole("link", { name: TITLE }).waitFor();
  },

  async "a running task appears and disappears without a reload"(stage) {
    const page = await stage.page({ token: stage.tokens.admin });
    await page.getByRole("heading", { name: "Running" }).waitFor();
    await page.evaluate(() => (window.kept = true));
    const [id] = await stage.submitLike(stage.tasks.slow, [{ title: SLOW }]);
    const running = page.locator("section").filter({ has: page.getByRole("heading", { name: "Running" }) });
    await running.getByRole("link", { name: SLOW }).waitFor();
    await stage.api("POST", `/v1/tasks/${id}/cancel`, {});
    await running.getByRole("link", { name: SLOW }).waitFor({ state: "detached" });
    assert.equal(await page.evaluate(() => window.kept), true);
  },

  async "a spent budget needs a person"(stage) {
    const batch = id();
    await stage.api("POST", `/v1/batches/${batch}/budget`, { budget: { tokens: 1 } });
    const [task] = await stage.submitLike(stage.tasks.done, [{ title: `Too dear ${process.pid}`, batch }]);
    const page = await stage.page({ token: stage.tokens.admin });
    const asks = page.locator("section").filter({ has: page.getByRole("heading", { name: "Needs you" }) });
    await asks.getByRole("listitem").filter({ hasText: short(batch) }).getByText("budget spent").waitFor();
    await stage.accessible(page, "a spent budget");
    await stage.api("POST", `/v1/tasks/${task}/cancel`, {});
    await asks.getByRole("listitem").filter({ hasText: short(batch) }).waitFor({ state: "detached" });
  },

  async "a nearly spent budget is shown in advance"(stage) {
    const batch = id();
    const budget = (tokens) => stage.api("POST", `/v1/batches/${batch}/budget`, { budget: { tokens } });
    await budget(1_000_000_000);
    const [task] = await stage.submitLike(stage.tasks.asks, [{ title: `Nearly dear ${process.pid}`, batch }]);
    await until("its question", async () => (await stage.api("GET", `/v1/tasks/${task}`)).task.state === "blocked");
    const used = await until("what it used", async () => (await stage.api("GET", `/v1/batches/${batch}`)).used.tokens);
    await budget(Math.floor(used * 1.1) + 1);
    const page = await stage.page({ token: stage.tokens.admin });
    const asks = page.locator("section").filter({ has: page.getByRole("heading", { name: "Needs you" }) });
    await asks.getByRole("listitem").filter({ hasText: short(batch) }).getByText("budget low").waitFor();
    await stage.api("POST", `/v1/tasks/${task}/cancel`, {});
  },

  async "open details keep their state and focus across heartbeats"(stage) {
    const page = await stage.page({ token: stage.tokens.read });
    const workers = page.getByRole("table", { name: "Workers" });
    const fold = workers.locator("details").first();
    await fold.locator("summary").click();
    const heard = () => workers.locator("time").first().getAttribute("datetime");
    const before = await heard();
    // Another task changes other panels and the worker's load.
    const [task] = await stage.submitLike(stage.tasks.slow, [{ title: `Meanwhile ${process.pid}` }]);
    await until("a further heartbeat", async () => (await heard()) !== before);
    await page.getByRole("table", { name: "Running tasks" }).getByRole("link", { name: `Meanwhile ${process.pid}` }).waitFor();
    assert.equal(await fold.evaluate((details) => details.open), true);
    assert.equal(await fold.evaluate((details) => document.activeElement === details.querySelector("summary")), true);
    await stage.api("POST", `/v1/tasks/${task}/cancel`, {});
  },

  async "a discarded fork is resumed, because it cannot be retried"(stage) {
    const { task: failed } = await stage.api("GET", `/v1/tasks/${stage.tasks.fails}`);
    const [task, run] = [id(), id()];
    await stage.api("POST", `/v1/runs/${failed.last_run}/fork`, { turn: 1, siblings: [{ task, run }] });
    await until("its end", async () => (await stage.api("GET", `/v1/tasks/${task}`)).task.state === "discarded");
    const page = await stage.page({ token: stage.tokens.admin });
    const item = page.locator(`ul.attention > [data-key="${task}"]`);
    await item.getByRole("button", { name: "Resume" }).click();
    assert.equal(await item.getByRole("button", { name: "Retry" }).count(), 0);
    await page.getByRole("dialog").getByRole("button", { name: "Resume" }).click();
    await page.getByText(/^Resumed as a new run: /).waitFor();
  },

  async "undelivered notifications need a person"(stage) {
    const page = await stage.page({ token: stage.tokens.read });
    const asks = page.locator("section").filter({ has: page.getByRole("heading", { name: "Needs you" }) });
    const letters = asks.getByRole("listitem").filter({ hasText: "docket notify" });
    await letters.getByText("not delivered").waitFor();
    await letters.getByText(/^\d+ notifications?/).waitFor();
  },

  async "the queue depth by hour ends at the current depth"(stage) {
    const page = await stage.page({ token: stage.tokens.read });
    const depth = page.getByRole("table", { name: /Open tasks by hour/ });
    await depth.waitFor({ state: "attached" });
    const cells = async () => (await depth.locator("tbody td").allTextContents()).map((text) => Number(text.replaceAll(",", "")));
    assert.equal((await cells()).length, 24);
    assert.equal((await cells())[0], 0, "the backlog was empty a day ago");
    const ends = ["completed", "cancelled", "discarded"];
    await until("the same number", async () => {
      const { tasks } = await stage.api("GET", "/v1/overview");
      const open = tasks.filter((one) => !ends.includes(one.state)).reduce((sum, one) => sum + one.count, 0);
      return (await cells()).at(-1) === open && open > 0;
    });
    await page.getByRole("group", { name: "Range" }).getByRole("button", { name: "7 days" }).click();
    await page.getByRole("table", { name: /Open tasks by six hours/ }).waitFor({ state: "attached" });
  },

  async "charts have data tables; workers show load and sandbox layers"(stage) {
    const page = await stage.page({ token: stage.tokens.read });
    const through = page.getByRole("table", { name: /Ended tasks by hour/ });
    await through.waitFor({ state: "attached" });
    assert.equal(await through.locator("tbody tr").count(), 24);
    // The data can be opened without a mouse.
    const figure = page.locator("figure").filter({ has: through });
    const height = () => figure.locator(".chart-numbers").evaluate((place) => place.offsetHeight);
    assert.ok((await height()) < 10, "the data is collapsed at first");
    await figure.locator("summary").press("Enter");
    await until("the numbers", async () => (await height()) > 100);
    await page.getByRole("group", { name: "Range" }).getByRole("button", { name: "7 days" }).click();
    await page.getByRole("table", { name: /Ended tasks by six hours/ }).waitFor({ state: "attached" });
    await page.getByRole("table", { name: /of model calls by day/ }).waitFor({ state: "attached" });
    const workers = page.getByRole("table", { name: "Workers" });
    await workers.getByText(/\d of \d/).first().waitFor();
    await workers.getByText(/\d+ layers?/).first().waitFor();
  },
};
