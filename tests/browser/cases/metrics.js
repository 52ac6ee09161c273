// The twelve against their targets, and engines and models compared.

import assert from "node:assert/strict";

export const cases = {
  async "the twelve by week, and what was not measured is no zero"(stage) {
    const page = await stage.page({ token: stage.tokens.read });
    await page.goto(`${stage.url}/ui/metrics`);
    await page.getByText("All tasks of these weeks follow a script").waitFor();
    await page.getByLabel("with models that follow a script").check();
    const table = page.getByRole("table", { name: "Metrics by week" });
    await table.waitFor();
    assert.equal(await table.locator("tbody tr").count(), 12);
    const plans = table.locator("tbody tr").filter({ hasText: "Walls hit" });
    assert.doesNotMatch(await plans.innerText(), /NaN|null|undefined/);
    const cells = await table.locator("tbody td").allInnerTexts();
    assert.ok(cells.some((text) => text.includes("not measured")), "something was not measured");
    await page.getByRole("table", { name: "Engines and models compared" }).getByText("react").first().waitFor();
    await page.getByLabel("Metric of the chart").selectOption("time_to_complete_s");
    await page.getByRole("table", { name: "Time to completion, by week" }).waitFor({ state: "attached" });
    assert.match(page.url(), /scripted=1&metric=time_to_complete_s/);
    await stage.picture("metrics");
  },

  async "a week without a task breaks the line, and engines stand beside each other"(stage) {
    const page = await stage.page({ token: stage.tokens.read });
    const DAY_MS = 86_400_000;
    // A week is called after its Thursday's year, and by how many Thursdays of that year were before.
    const week = (before) => {
      const now = new Date(Date.now() - before * 7 * DAY_MS);
      const thursday = Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate() - ((now.getUTCDay() + 6) % 7) + 3);
      const year = new Date(thursday).getUTCFullYear();
      let nth = 0;
      for (let day = thursday; new Date(day).getUTCFullYear() === year; day -= 7 * DAY_MS) nth += 1;
      return `${year}-W${String(nth).padStart(2, "0")}`;
    };
    await page.route("**/v1/metrics?*", async (route) => {
      const response = await route.fetch();
      const json = await response.json();
      const now = json.weeks.find((one) => one.week === week(0));
      if (now) json.weeks.unshift({ ...now, week: week(3) });
      await route.fulfill({ response, json });
    });
    await page.route("**/v1/tasks?*", async (route) => {
      const response = await route.fetch();
      const json = await response.json();
      json.tasks.slice(0, 1).forEach((task) => (task.spec.engine = "plan"));
      await route.fulfill({ response, json });
    });
    await page.goto(`${stage.url}/ui/metrics?scripted=1`);
    const shown = page.getByRole("table", { name: "Tasks that succeeded, by week" });
    await shown.waitFor({ state: "attached" });
    const rows = (await shown.locator("tbody tr").allTextContents()).map((text) => [text.slice(0, 8), text.includes("not measured")]);
    assert.deepEqual(rows, [[week(3), false], [week(2), true], [week(1), true], [week(0), false]]);
    const table = page.getByRole("table", { name: "Engines and models compared" });
    const engines = await table.locator("tbody tr").allInnerTexts();
    assert.ok(engines.some((row) => row.includes("plan")) && engines.some((row) => row.includes("react")), engines.join("\n"));
  },
};
