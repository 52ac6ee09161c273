// Backlog: finding tasks among thousands, and bulk actions.

import assert from "node:assert/strict";
import { id, until } from "../stage.js";

const MANY = 3000;
/** Steps of the scroll through all rows. */
const STEPS = 60;
/** More tasks than two pages hold. */
const DEEP = 260;

/** A queue name unique to this process, so that cases can run again on the same coordinator. */
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
  async "filters, search and sort are kept in the URL"(stage) {
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
    await page.getByLabel("Title contains").fill("mango");
    await until("one row", async () => (await rows(page).count()) === 1);
    await page.reload();
    await until("one row after a reload", async () => (await rows(page).count()) === 1);
    await page.getByLabel("Title contains").fill("no such thing anywhere");
    await page.getByText("No matching tasks.").waitFor();
    await page.goto(`${stage.url}/ui/backlog?state=discarded`);
    await rows(page).first().waitFor();
    const states = await page.locator(".grid-body .state").allTextContents();
    assert.ok(states.length > 0 && states.every((state) => state === "discarded"), states.join());
  },

  async "sorting covers all tasks, not only those loaded"(stage) {
    const specs = Array.from({ length: DEEP }, (_, n) => ({ title: n === 0 ? "Oldest, and first of all" : `Younger ${n}`, queue: of("orders"), priority: n === 0 ? 900 : 0 }));
    await stage.submitLike(stage.tasks.waits, specs);
    const page = await backlog(stage, `?queue=${of("orders")}`);
    await page.getByRole("link", { name: `Younger ${DEEP - 1}`, exact: true }).waitFor();
    await page.getByLabel("Sort by").selectOption("priority");
    await until("the highest priority at the top", async () => (await titles(page))[0] === "Oldest, and first of all");
    await page.getByText(`${DEEP} tasks`, { exact: true }).waitFor();
  },

  async "an interrupted bulk action reports its progress and asks only once"(stage) {
    stage.expect("503");
    const specs = Array.from({ length: 600 }, (_, n) => ({ title: `Broken ${n}`, queue: of("broken") }));
    await stage.submitLike(stage.tasks.waits, specs);
    const page = await backlog(stage, `?queue=${of("broken")}&state=available`);
    let sent = 0;
    await page.route("**/v1/tasks/bulk", async (route) => {
      if (route.request().postDataJSON().dry_run) return route.fallback();
      sent += 1;
      if (sent === 1) return route.fallback();
      await route.fulfill({ status: 503, contentType: "application/problem+json", body: JSON.stringify({ title: "Unavailable", status: 503, detail: "the store is away" }) });
    });
    const cancel = page.locator(".bulk").getByRole("button", { name: "Cancel" });
    await cancel.evaluate((button) => (button.click(), button.click()));
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Cancel 600 tasks" }).click();
    await page.getByRole("alert").getByText("500 of 600 tasks cancelled, then failed: the store is away").waitFor();
    assert.equal(await dialog.count(), 0, "only one dialog opened");
    // The alert stays until it is dismissed.
    await page.getByRole("alert").getByRole("button", { name: "Dismiss" }).click();
    await page.getByRole("alert").getByText("the store is away").waitFor({ state: "detached" });
    await until("the next question", async () => {
      // A click during the dry run is ignored, and waiting for the button would block behind the dialog.
      await cancel.evaluate((button) => document.querySelector("dialog[open]") ?? button.click());
      return (await dialog.getByRole("heading", { name: "Cancel 100 tasks?" }).count()) === 1;
    });
  },

  async "selected tasks are cancelled together after confirmation"(stage) {
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
    await dialog.getByRole("button", { name: "Go back" }).click();
    assert.equal((await stage.api("GET", `/v1/tasks/${ids[3]}`)).task.state, "available");
    await bulk.getByRole("button", { name: "Cancel" }).click();
    await dialog.getByRole("button", { name: "Cancel 2 tasks" }).click();
    await page.getByText("2 tasks cancelled").waitFor();
    for (const [n, state] of [[3, "cancelled"], [7, "cancelled"], [1, "available"]]) {
      assert.equal((await stage.api("GET", `/v1/tasks/${ids[n]}`)).task.state, state, `Bulk ${n}`);
    }
    // A bulk action on everything that matches the filter.
    await page.getByRole("checkbox", { name: "available" }).check();
    await until("ten rows", async () => (await rows(page).count()) === 10);
    await bulk.getByRole("button", { name: "Priority" }).click();
    await dialog.getByRole("heading", { name: "Change priority of 10 tasks?" }).waitFor();
    await dialog.getByLabel("Priority").fill("7");
    await dialog.getByRole("button", { name: "Set for 10 tasks" }).click();
    await page.getByText("10 tasks reprioritized").waitFor();
    assert.equal((await stage.api("GET", `/v1/tasks/${ids[1]}`)).task.spec.priority, 7);
    await bulk.getByRole("button", { name: "Pause", exact: true }).click();
    await dialog.getByRole("button", { name: "Pause 10 tasks" }).click();
    await page.getByText("10 tasks paused").waitFor();
    assert.equal((await stage.api("GET", `/v1/tasks/${ids[1]}`)).task.blocked_why, "paused");
  },

  async "a batch is a filter; its tasks are retried, paused and unpaused together"(stage) {
    const batch = id();
    const of_batch = { queue: of("batches"), batch, batch_name: `Night ${process.pid}` };
    const ids = await stage.submitLike(stage.tasks.waits, [
      { title: "Of the night 1", ...of_batch },
      { title: "Of the night 2", ...of_batch },
      { title: "Of the day", queue: of("batches") },
    ]);
    const states = async () => Promise.all(ids.map(async (task) => (await stage.api("GET", `/v1/tasks/${task}`)).task.state));
    const page = await backlog(stage, `?queue=${of("batches")}`);
    await until("three rows", async () => (await rows(page).count()) === 3);
    await page.getByLabel("Batch").selectOption(batch);
    await page.waitForURL(new RegExp(`batch=${batch}`));
    await until("the two of the batch", async () => (await rows(page).count()) === 2);
    await page.reload();
    await until("the two after a reload", async () => (await rows(page).count()) === 2);
    assert.deepEqual((await titles(page)).sort(), ["Of the night 1", "Of the night 2"]);
    const bulk = page.locator(".bulk");
    const dialog = page.getByRole("dialog");
    for (const task of ids.slice(0, 2)) await stage.api("POST", `/v1/tasks/${task}/cancel`, {});
    await until("two cancelled rows", async () => (await page.locator(".grid-body .state").allTextContents()).every((state) => state === "cancelled"));
    await bulk.getByRole("button", { name: "Retry" }).click();
    await dialog.getByRole("button", { name: "Retry 2 tasks" }).click();
    await page.getByText("2 tasks retried").waitFor();
    assert.deepEqual(await states(), ["available", "available", "available"]);
    for (const [act, button, done, state] of [["Pause", "Pause 2 tasks", "2 tasks paused", "blocked"], ["Unpause", "Unpause 2 tasks", "2 tasks unpaused", "available"]]) {
      await bulk.getByRole("button", { name: act, exact: true }).click();
      await dialog.getByRole("button", { name: button }).click();
      await page.getByText(done, { exact: true }).waitFor();
      assert.deepEqual(await states(), [state, state, "available"], act);
    }
  },

  async "thousands of rows scroll while few are drawn"(stage) {
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
    // Work per scroll step: only rows that become visible are drawn, plus a few around them.
    const work = await grid.evaluate(async (list, steps) => {
      const body = list.querySelector(".grid-body");
      const done = { made: 0, drawn: 0, longest: 0 };
      const watch = new MutationObserver((changes) => changes.forEach((change) => (done.made += change.addedNodes.length)));
      watch.observe(body, { childList: true });
      let before = performance.now();
      for (let n = 0; n < steps; n += 1) {
        list.scrollTop = (list.scrollHeight * n) / steps;
        await new Promise(requestAnimationFrame);
        await new Promise(requestAnimationFrame);
        done.drawn = Math.max(done.drawn, body.childElementCount);
        done.longest = Math.max(done.longest, performance.now() - before);
        before = performance.now();
      }
      watch.disconnect();
      return { ...done, seen: Math.ceil(list.clientHeight / body.firstElementChild.offsetHeight) };
    }, STEPS);
    // Eight extra rows above the visible ones, and eight below.
    const most = work.seen + 2 * 8 + 2;
    assert.ok(work.drawn <= most, `${work.drawn} rows are drawn at once, of ${work.seen} that are seen`);
    assert.ok(work.made <= STEPS * most, `${work.made} rows are made in ${STEPS} steps`);
    console.log(`   ${STEPS} steps over ${MANY} rows: ${work.made} rows made, at most ${work.drawn} at once, longest step ${work.longest.toFixed(0)} ms`);
    // A refresh without changes recreates no rows, so that selection and focus are kept.
    const made = await grid.evaluate(async (list) => {
      const body = list.querySelector(".grid-body");
      let rounds = 0;
      let made = 0;
      const watch = new MutationObserver((changes) => changes.forEach((change) => (made += change.addedNodes.length)));
      watch.observe(body, { childList: true });
      const asked = new PerformanceObserver((seen) => (rounds += seen.getEntries().filter(({ name }) => name.includes("/v1/tasks?")).length));
      asked.observe({ type: "resource" });
      while (rounds < 3) await new Promise((resolve) => setTimeout(resolve, 50));
      watch.disconnect();
      asked.disconnect();
      return made;
    });
    assert.equal(made, 0, "rows recreated by refreshes without changes");
  },

  async "rows far down are refreshed in any sort order"(stage) {
    const specs = Array.from({ length: DEEP }, (_, n) => ({ title: `Deep ${String(n).padStart(3, "0")}`, queue: of("deep") }));
    const ids = await stage.submitLike(stage.tasks.waits, specs);
    const page = await backlog(stage, `?queue=${of("deep")}&state=available`);
    const grid = page.getByRole("grid");
    const told = (n) => page.getByText(`${n} tasks`, { exact: true });
    await until("all of it", async () => {
      await grid.evaluate((list) => (list.scrollTop = list.scrollHeight));
      return told(DEEP).isVisible();
    });
    // The oldest rows are visible. A task that no longer matches the filter disappears.
    await page.getByRole("link", { name: "Deep 001" }).waitFor();
    await stage.api("POST", `/v1/tasks/${ids[1]}/cancel`, {});
    await page.getByRole("link", { name: "Deep 001" }).waitFor({ state: "detached" });
    await told(DEEP - 1).waitFor();
    // Sorted by title it comes first, although it is among the last to be refreshed.
    await page.getByLabel("Sort by").selectOption("title");
    await grid.evaluate((list) => (list.scrollTop = 0));
    await page.getByRole("link", { name: "Deep 000" }).waitFor();
    await stage.api("POST", `/v1/tasks/${ids[0]}/cancel`, {});
    await page.getByRole("link", { name: "Deep 000" }).waitFor({ state: "detached" });
    await told(DEEP - 2).waitFor();
  },

  async "a response from before an action is discarded"(stage) {
    const [id] = await stage.submitLike(stage.tasks.waits, [{ title: "Goes at once", queue: of("order") }, { title: "Stays", queue: of("order") }]);
    const page = await backlog(stage, `?queue=${of("order")}&state=available`);
    await until("two rows", async () => (await rows(page).count()) === 2);
    // The next refresh is answered with data from before the cancel, but only after it.
    let held = null;
    let free = () => {};
    const freed = new Promise((resolve) => (free = resolve));
    await page.route("**/v1/tasks?*", async (route) => {
      if (held) return route.fallback();
      held = await route.fetch();
      await freed;
      // The page aborted this request.
      await route.fulfill({ response: held }).catch(() => {});
    });
    await until("a round under way", () => held);
    await page.getByRole("checkbox", { name: "Select Goes at once" }).check();
    await page.locator(".bulk").getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel 1 task" }).click();
    await page.getByText("1 task cancelled").waitFor();
    // The outdated response is still pending.
    await until("one row", async () => (await rows(page).count()) === 1);
    const seen = page.evaluate(async () => {
      let most = 0;
      const watch = new MutationObserver(() => (most = Math.max(most, document.querySelectorAll(".grid-body a").length)));
      watch.observe(document.querySelector(".grid-body"), { childList: true });
      let rounds = 0;
      const asked = new PerformanceObserver((list) => (rounds += list.getEntries().filter(({ name }) => name.includes("/v1/tasks?")).length));
      asked.observe({ type: "resource" });
      while (rounds < 2) await new Promise((resolve) => setTimeout(resolve, 50));
      return most;
    });
    free();
    assert.ok((await seen) <= 1, "the cancelled task came back");
    assert.equal((await stage.api("GET", `/v1/tasks/${id}`)).task.state, "cancelled");
  },

  async "the task panel refreshes while it is open"(stage) {
    const [id] = await stage.submitLike(stage.tasks.waits, [{ title: "Looked at", queue: of("side") }]);
    const page = await backlog(stage, `?queue=${of("side")}`);
    await page.getByRole("link", { name: "Looked at" }).click();
    const side = page.getByRole("complementary");
    await side.getByRole("button", { name: "Pause" }).waitFor();
    await stage.api("POST", `/v1/tasks/${id}/pause`, {});
    await side.getByRole("button", { name: "Unpause" }).waitFor();
    assert.equal(await side.getByRole("button", { name: "Pause", exact: true }).count(), 0);
  },

  async "the task panel shows the reason, dependencies and runs of a task"(stage) {
    const [first] = await stage.submitLike(stage.tasks.waits, [{ title: "Comes first", queue: of("deps") }]);
    await stage.submitLike(stage.tasks.waits, [{ title: "Comes after", queue: of("deps"), conditions: { after: [first] } }]);
    const page = await backlog(stage, `?queue=${of("deps")}`);
    await page.getByRole("link", { name: "Comes after" }).click();
    const side = page.getByRole("complementary");
    await side.getByText("Runs after", { exact: true }).waitFor();
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

  async "everything can be reached by keyboard"(stage) {
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
    await page.getByRole("complementary").getByRole("heading", { name: "Prompt" }).or(page.getByRole("heading", { level: 1, name: /Key/ })).first().waitFor();
    // Arrow keys move within the list as in any grid; the list has a single tab stop.
    await page.goto(`${stage.url}/ui/backlog?queue=${of("keys")}`);
    await until("two rows again", async () => (await rows(page).count()) === 2);
    await page.locator(".grid-body [data-part=title]").first().focus();
    const focused = () => page.evaluate(() => [document.activeElement.dataset.part, document.activeElement.closest(".grid-row")?.getAttribute("aria-rowindex")].join());
    const keys = [["ArrowDown", "title,2"], ["ArrowDown", "title,3"], ["ArrowLeft", "box,3"], ["ArrowUp", "box,2"], ["ArrowRight", "title,2"], ["End", "title,3"], ["Home", "title,2"]];
    for (const [key, there] of keys) {
      await page.keyboard.press(key);
      assert.equal(await focused(), there, key);
    }
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.press("Space");
    await page.getByText("1 selected").waitFor();
    assert.equal(await page.locator('.grid-body [tabindex="0"]').count(), 2, "one row is a tab stop");
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
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to content");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  },
};
