// Run page: turn slider, turns, files and diffs, forks, comparison of two runs, live updates.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { settled, until } from "../stage.js";

const runOf = async (stage, task) => (await stage.api("GET", `/v1/tasks/${task}`)).task.last_run;

async function at(stage, page, run, query = "") {
  await page.goto(`${stage.url}/ui/run/${run}${query}`);
  await settled(page);
  return page.getByRole("slider", { name: "Turn" });
}

const is = (stage, task, state) => until(`${state}`, async () => (await stage.api("GET", `/v1/tasks/${task}`)).task.state === state);

const pane = (page) => page.getByRole("tabpanel");
const tab = (page, name) => page.getByRole("tab", { name });

export const cases = {
  async "the slider moves through turns that show messages, calls and changes"(stage) {
    const page = await stage.page({ token: stage.tokens.admin });
    const slider = await at(stage, page, stage.tasks.run);
    await page.getByRole("heading", { level: 1, name: "Paint the door" }).waitFor();
    assert.equal(await slider.getAttribute("max"), "3");
    // The scripted model has no price, so its cost is unknown rather than zero.
    await page.getByTitle("No cost recorded, or the model has no price").waitFor();
    await slider.focus();
    await page.keyboard.press("Home");
    await pane(page).getByText("Prompt", { exact: true }).waitFor();
    await page.keyboard.press("ArrowRight");
    await pane(page).getByText("I look around first.").waitFor();
    assert.match(await slider.getAttribute("aria-valuetext"), /^Turn 1 of 3/);
    const call = pane(page).locator("details.call").filter({ hasText: "create_file" });
    await call.locator("summary").click();
    await call.getByText("door.txt").first().waitFor();
    await pane(page).locator(".line-plus", { hasText: "+blue" }).waitFor();
    await stage.picture("run-turn");
    await page.getByRole("button", { name: "Next turn (→)" }).click();
    await pane(page).getByText("cat door.txt").first().waitFor();
    await until("the turn in the address", () => new URL(page.url()).searchParams.get("turn") === "2");
    await page.reload();
    await pane(page).getByText("cat door.txt").first().waitFor();
    await page.keyboard.press("End");
    await pane(page).getByText("The run succeeded").waitFor();
  },

  async "a truncated output links to the full output"(stage) {
    const page = await stage.page({ token: stage.tokens.read });
    await at(stage, page, await runOf(stage, stage.tasks.long), "?turn=1");
    const call = pane(page).locator("details.call").filter({ hasText: "seq 1 9000" });
    await call.locator("summary").click();
    const link = call.getByRole("link", { name: /^Full output, / });
    const told = page.context().waitForEvent("page");
    await link.click();
    const whole = await told;
    await whole.waitForLoadState();
    const lines = (await whole.locator("body").innerText()).split("\n");
    for (const line of ["1", "4500", "9000"]) assert.ok(lines.includes(line), `${line} of ${lines.length} lines`);
  },

  async "files are shown as of a turn, with the diff since another turn"(stage) {
    const page = await stage.page({ token: stage.tokens.admin });
    await at(stage, page, stage.tasks.run, "?turn=0&tab=files");
    await pane(page).getByRole("button", { name: "README.md" }).waitFor();
    assert.equal(await pane(page).getByRole("button", { name: "door.txt" }).count(), 0);
    await page.keyboard.press("ArrowRight");
    await pane(page).getByRole("button", { name: "door.txt" }).click();
    await pane(page).getByText("blue").waitFor();
    await stage.accessible(page, "a file");
    // The browser logs every failed request.
    stage.expect("/files?turn=0&path=door.txt");
    await page.keyboard.press("ArrowLeft");
    await pane(page).getByText("does not exist after turn 0").waitFor();
    await tab(page, "Changes").click();
    await pane(page).getByText("No differences.").waitFor();
    await page.keyboard.press("End");
    await pane(page).locator(".line-plus", { hasText: "+blue" }).waitFor();
    await pane(page).getByLabel("Since").selectOption("before");
    await pane(page).getByText("No differences.").waitFor();
    // The choice is reset when the chosen turn is no longer an earlier one.
    await pane(page).getByLabel("Since").selectOption("2");
    await until("the choice", async () => (await pane(page).getByLabel("Since").inputValue()) === "2");
    await page.getByRole("button", { name: "Previous turn (←)" }).click();
    await until("the beginning", async () => (await pane(page).getByLabel("Since").inputValue()) === "base");
    await pane(page).locator(".line-plus", { hasText: "+blue" }).waitFor();
    await tab(page, "Ledger").click();
    await pane(page).getByRole("table", { name: "Changed files" }).getByText("door.txt").waitFor();
    await stage.accessible(page, "the ledger");
  },

  async "a failed run opens at the failure and shows the reason"(stage) {
    const page = await stage.page({ token: stage.tokens.admin });
    const run = await runOf(stage, stage.tasks.fails);
    await at(stage, page, run);
    await page.locator(".banner").getByText(/turn/).first().waitFor();
    assert.ok(await page.locator(".bar-turn.failed").count(), "failed turns are marked");
    await page.keyboard.press("Home");
    await page.getByRole("button", { name: "Next failure (n)" }).click();
    await pane(page).getByText("exit 1").first().waitFor();
    await stage.accessible(page, "a failed run");
    await stage.picture("run-failed");
  },

  async "forks from the selected turn; forks form a tree and can be compared"(stage) {
    const page = await stage.page({ token: stage.tokens.admin });
    await at(stage, page, stage.tasks.run, "?turn=1");
    await page.getByRole("button", { name: "Fork from here" }).click();
    const dialog = page.getByRole("dialog");
    await stage.accessible(page, "fork");
    await dialog.getByLabel("Hint for the model").fill("Use <b>green</b>");
    await dialog.getByRole("button", { name: "Fork" }).click();
    await page.waitForURL((url) => !url.pathname.includes(stage.tasks.run));
    const fork = new URL(page.url()).pathname.split("/").at(-1);
    await until("the fork's end", async () => (await stage.api("GET", `/v1/runs/${fork}`)).status === "succeeded");
    await until("its end on the page", async () => (await page.locator(".head .state").textContent()).includes("succeeded"));
    await page.getByRole("slider", { name: "Turn" }).focus();
    for (const key of ["Home", "ArrowRight"]) await page.keyboard.press(key);
    await pane(page).getByText("Use <b>green</b>").waitFor();
    await tab(page, "Forks").click();
    await pane(page).locator("[aria-current=true]").getByText("this run").waitFor();
    await pane(page).getByText("forked from turn 1").first().waitFor();
    // The fork is a child of its original, not a sibling.
    await pane(page).locator(`ul.tree > li:has(> .tree-run a[href="/ui/run/${stage.tasks.run}"]) > ul.tree > li > .tree-run [aria-current=true]`).waitFor();
    await stage.accessible(page, "forks");
    await pane(page).getByRole("button", { name: "Compare" }).first().click();
    await pane(page).getByText(/Runs (diverge at turn|do not differ)/).waitFor();
    await pane(page).getByRole("region", { name: "Other run" }).getByRole("link", { name: /^run / }).waitFor();
    assert.ok((await pane(page).locator('[data-how="shared"]').count()) >= 1, "shared turns are marked");
    assert.equal(await pane(page).getByRole("button", { name: /^turn 1:/ }).getAttribute("data-how"), "same", "the fork starts after turn 1");
    await stage.accessible(page, "beside");
    await stage.picture("run-beside");
  },

  async "a run is resumed from the selected turn as a new run of the task"(stage) {
    const [task] = await stage.submitLike(stage.tasks.done, [{ title: `Taken up again ${process.pid}` }]);
    await is(stage, task, "completed");
    const run = await runOf(stage, task);
    const page = await stage.page({ token: stage.tokens.admin });
    await at(stage, page, run, "?turn=1");
    await page.getByRole("button", { name: "Resume from here" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Hint for the model").fill("Mind the hinges");
    await dialog.getByRole("button", { name: "Resume" }).click();
    await page.waitForURL((url) => url.pathname.startsWith("/ui/run/") && !url.pathname.includes(run));
    await is(stage, task, "completed");
    const next = await runOf(stage, task);
    assert.notEqual(next, run);
    assert.equal(new URL(page.url()).pathname.split("/").at(-1), next);
    await tab(page, "Forks").click();
    await pane(page).getByText("resumed from turn 1").waitFor();
  },

  async "a result is rejected with feedback, and the next one accepted with a comment"(stage) {
    const [task] = await stage.submitLike(stage.tasks.done, [{ title: `Judged ${process.pid}` }]);
    await is(stage, task, "completed");
    const run = await runOf(stage, task);
    const page = await stage.page({ token: stage.tokens.admin });
    await at(stage, page, run);
    await page.getByRole("button", { name: "Reject" }).click();
    const dialog = page.getByRole("dialog");
    await stage.accessible(page, "reject");
    await dialog.getByLabel("Feedback").fill("The door is <i>green</i>");
    await dialog.getByRole("button", { name: "Reject" }).click();
    const next = await until("another run", async () => {
      const found = await runOf(stage, task);
      return found !== run && found;
    });
    await is(stage, task, "completed");
    await at(stage, page, next, "?turn=0");
    for (const key of ["Home", "ArrowRight"]) await page.keyboard.press(key);
    await until("the words in a turn", async () => {
      for (const turn of await page.getByRole("slider", { name: "Turn" }).getAttribute("max").then((max) => Array.from({ length: Number(max) + 1 }, (_, n) => n))) {
        const { turn: told } = await stage.api("GET", `/v1/runs/${next}/turn?turn=${turn}`);
        if (JSON.stringify(told.told).includes("The door is <i>green</i>")) return true;
      }
      return false;
    });
    await page.getByRole("button", { name: "Accept" }).click();
    await dialog.getByLabel("Comment").fill("Well done");
    await dialog.getByRole("button", { name: "Accept" }).click();
    await page.getByText(/^Accepted: /).waitFor();
    const { events } = await stage.api("GET", `/v1/events?stream=task/${task}`);
    const judged = events.filter((event) => ["TaskAccepted", "TaskRejected"].includes(event.kind)).map((event) => [event.kind, event.payload.run, event.payload.comment]);
    assert.deepEqual(judged.map(([kind, of]) => [kind, of]), [["TaskRejected", run], ["TaskAccepted", next]]);
    assert.equal(judged[1][2], "Well done");
    // The page of the older run offers no judgement of the newer one.
    await at(stage, page, run);
    await page.getByRole("link", { name: "Newest run" }).waitFor();
    for (const name of ["Accept", "Reject"]) assert.equal(await page.getByRole("button", { name, exact: true }).count(), 0, name);
    await page.getByRole("link", { name: "Newest run" }).click();
    await page.getByRole("button", { name: "Accept", exact: true }).waitFor();
  },

  async "an active run is also followed in a comparison"(stage) {
    const page = await stage.page({ token: stage.tokens.admin });
    const slow = await runOf(stage, stage.tasks.slow);
    await at(stage, page, stage.tasks.run, `?turn=1&tab=beside&with=${slow}`);
    const other = pane(page).getByRole("region", { name: "Other run" });
    const turns = async () => Number((await other.innerText()).match(/(\d+) turns?/)[1]);
    const before = await turns();
    await until("a turn more", async () => (await turns()) > before);
  },

  async "cost up to a turn and in total, in the header and in a comparison"(stage) {
    const page = await stage.page({ token: stage.tokens.admin });
    // The scripted model has no price.
    await page.route("**/timeline*", async (route) => {
      const response = await route.fetch();
      const json = await response.json();
      for (const row of json.turns) row.cost_so_far_nusd = row.turn * 1_250_000_000;
      await route.fulfill({ response, json });
    });
    await at(stage, page, stage.tasks.run, "?turn=1");
    await page.locator(".run-facts").getByText("$1.25 up to turn 1, $3.75 in total").waitFor();
    await page.keyboard.press("End");
    await page.locator(".run-facts").getByText("$3.75", { exact: true }).waitFor();
    const slow = await runOf(stage, stage.tasks.slow);
    await at(stage, page, stage.tasks.run, `?turn=1&tab=beside&with=${slow}`);
    await pane(page).getByRole("region", { name: "Other run" }).getByText("$1.25 so far").waitFor();
  },

  async "a run whose worker died is shown as waiting"(stage) {
    const page = await stage.page({ token: stage.tokens.admin });
    const slow = await runOf(stage, stage.tasks.slow);
    const standing = (place) => place.locator(".state").first().textContent();
    await at(stage, page, slow);
    await until("it runs", async () => (await standing(page.locator(".head"))).includes("running"));
    // As the queue reports it after its lease expired and before another worker leases it.
    const waits = (run) => run.id === slow && (run.status = "waiting");
    await page.route(`**/v1/tasks/${stage.tasks.slow}`, async (route) => {
      const response = await route.fetch();
      const json = await response.json();
      json.runs.forEach(waits);
      await route.fulfill({ response, json });
    });
    await page.route(`**/v1/runs/${slow}`, async (route) => {
      const response = await route.fetch();
      const json = await response.json();
      waits(json);
      await route.fulfill({ response, json });
    });
    await until("it waits", async () => (await standing(page.locator(".head"))).includes("waiting"));
    await at(stage, page, stage.tasks.run, `?turn=1&tab=beside&with=${slow}`);
    const other = pane(page).getByRole("region", { name: "Other run" });
    await until("it waits there too", async () => (await standing(other)).includes("waiting"));
  },

  async "failed requests are retried, also for ended runs"(stage) {
    const page = await stage.page({ token: stage.tokens.admin });
    await at(stage, page, stage.tasks.run, "?turn=1");
    stage.expect("503");
    let away = true;
    await page.route("**/turn?turn=2", (route) => (away ? route.fulfill({ status: 503, json: { title: "away", detail: "not now" } }) : route.fallback()));
    await page.keyboard.press("ArrowRight");
    await pane(page).getByRole("alert").waitFor();
    away = false;
    await pane(page).getByText("cat door.txt").first().waitFor();
  },

  async "a question is answered on the run page, and the run continues"(stage) {
    const [task] = await stage.submitLike(stage.tasks.asks, [{ title: `Asked here ${process.pid}` }]);
    await is(stage, task, "blocked");
    const page = await stage.page({ token: stage.tokens.submit });
    await at(stage, page, await runOf(stage, task));
    await page.locator(".head").getByRole("button", { name: "Answer" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("Which colour is the door?").waitFor();
    await dialog.getByLabel("Your answer").fill("Green");
    await dialog.getByRole("button", { name: "Answer" }).click();
    await is(stage, task, "completed");
    await pane(page).getByText("Done, as you said.").waitFor();
  },

  async "the submit role has actions but no file contents"(stage) {
    const page = await stage.page({ token: stage.tokens.submit });
    await at(stage, page, stage.tasks.run, "?turn=1");
    await page.getByRole("button", { name: /^Fork/ }).first().waitFor();
    await page.locator(".head").getByRole("button", { name: "Reject" }).waitFor();
    for (const name of ["Changes", "Files"]) {
      await tab(page, name).click();
      await pane(page).getByText(/File contents are visible to administrators only/).waitFor();
      await stage.accessible(page, `${name}, of a submitter`);
    }
    await page.goto(`${stage.url}/ui/backlog?queue=default`);
    await page.locator(".bulk").getByRole("button", { name: "Cancel" }).waitFor();
  },

  async "a run is paused, unpaused and cancelled from its page"(stage) {
    const [task] = await stage.submitLike(stage.tasks.slow, [{ title: `Rests ${process.pid}` }]);
    await is(stage, task, "running");
    const page = await stage.page({ token: stage.tokens.admin });
    await at(stage, page, await until("a run", () => runOf(stage, task)));
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByRole("button", { name: "Unpause" }).click();
    await is(stage, task, "running");
    await page.getByRole("button", { name: "Cancel", exact: true }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Reason").fill("Enough");
    await dialog.getByRole("button", { name: "Keep task" }).click();
    await dialog.waitFor({ state: "detached" });
    assert.notEqual((await stage.api("GET", `/v1/tasks/${task}`)).task.state, "cancelled");
    await page.getByRole("button", { name: "Cancel", exact: true }).click();
    await dialog.getByRole("button", { name: "Cancel task" }).click();
    await is(stage, task, "cancelled");
    await until("its end on the page", async () => (await page.locator(".head .state").textContent()).includes("cancelled"));
    assert.equal(await page.getByRole("button", { name: "Pause" }).count(), 0);
  },

  async "new turns appear without a reload"(stage) {
    const page = await stage.page({ token: stage.tokens.admin });
    const run = await runOf(stage, stage.tasks.slow);
    const asked = [];
    page.on("request", (request) => {
      const url = new URL(request.url());
      if (url.pathname === `/v1/runs/${run}/timeline`) asked.push(Number(url.searchParams.get("after") ?? "0"));
    });
    const slider = await at(stage, page, run);
    await page.evaluate(() => (window.kept = true));
    const last = async () => Number(await slider.getAttribute("max"));
    const seen = await last();
    await until("two more turns", async () => (await last()) >= seen + 2);
    assert.equal(await slider.inputValue(), await slider.getAttribute("max"), "it stays at the newest");
    await page.keyboard.press("Home");
    const then = await last();
    await until("another turn", async () => (await last()) > then);
    assert.equal(await slider.inputValue(), "0", "the selection stays at an old turn");
    assert.equal(await page.evaluate(() => window.kept), true);
    await page.getByRole("button", { name: "Send message" }).click();
    await page.getByRole("dialog").getByLabel("Message").fill("Mind the gap");
    await page.getByRole("dialog").getByRole("button", { name: "Send" }).click();
    const heard = async () => (await stage.api("GET", `/v1/runs/${run}/events`)).events.some((event) => event.kind === "Told");
    await until("the words in the log", heard);
    assert.equal(asked.filter((after) => after === 0).length, 1, "the full timeline is fetched once");
    assert.ok(asked.length > 3 && asked.every((after, n) => n === 0 || after >= asked[n - 1]), `later requests only fetch changes: ${asked}`);
  },

  async "an incrementally refreshed timeline equals the full one"(stage) {
    const page = await stage.page({ token: stage.tokens.admin });
    const run = await runOf(stage, stage.tasks.slow);
    await at(stage, page, run);
    const differs = await page.evaluate(async (path) => {
      const { refreshTimeline } = await import("/ui/assets/live.js");
      const { signal } = new AbortController();
      let known = await refreshTimeline(path, null, signal);
      for (let turns = known.turns.length; known.turns.length < turns + 2; ) {
        await new Promise((resolve) => setTimeout(resolve, 200));
        known = await refreshTimeline(path, known, signal);
        const whole = await refreshTimeline(path, null, signal);
        if (whole.head === known.head && JSON.stringify(whole) !== JSON.stringify(known)) return [known, whole];
      }
      return null;
    }, `/v1/runs/${run}`);
    assert.equal(differs, null, JSON.stringify(differs));
  },

  async "exports are downloads; the read role sees no file contents"(stage) {
    const page = await stage.page({ token: stage.tokens.read });
    await at(stage, page, stage.tasks.run, "?turn=1");
    await pane(page).getByText("File contents are visible to administrators only.").waitFor();
    assert.equal(await page.getByRole("button", { name: "Fork from here" }).count(), 0);
    await page.getByText("Export").click();
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Trajectory, ATIF" }).click()]);
    assert.match(download.suggestedFilename(), /^docket-[0-9a-f]+\.atif\.json$/);
    assert.ok(JSON.parse(await readFile(await download.path(), "utf8")).steps.length >= 3, "its turns are steps");
    await page.getByRole("link", { name: "Events, JSON Lines" }).focus();
    const [lines] = await Promise.all([page.waitForEvent("download"), page.keyboard.press("Enter")]);
    assert.match(lines.suggestedFilename(), /^docket-[0-9a-f]+\.jsonl$/);
    const kinds = (await readFile(await lines.path(), "utf8")).trim().split("\n").map((text) => JSON.parse(text).kind);
    assert.ok(kinds.includes("RunStarted") && kinds.includes("RunEnded"), kinds.join());
    assert.equal(await page.getByRole("link", { name: "Full run" }).count(), 0);
    await tab(page, "Files").click();
    await pane(page).getByText("File contents are visible to administrators only.").waitFor();
  },

  async "model output stays text"(stage) {
    const page = await stage.page({ token: stage.tokens.admin });
    const run = await runOf(stage, stage.tasks.hostile);
    await at(stage, page, run, "?turn=1");
    await pane(page).getByText("<img src=x onerror=alert(1)>").first().waitFor();
    const call = pane(page).locator("details.call").first();
    if (!(await call.getAttribute("open"))) await call.locator("summary").click();
    await pane(page).getByText("<script>alert(2)</script>").first().waitFor();
    assert.equal(await page.locator("main img, main script").count(), 0);
    await tab(page, "Files").click();
    await pane(page).getByRole("button", { name: "<b>bold.html" }).click();
    await pane(page).getByText("<script>alert(2)</script>").first().waitFor();
    await stage.fits(page, "a hostile run");
  },
};
