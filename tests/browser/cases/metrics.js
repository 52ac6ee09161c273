// The twelve metrics against their targets, and the comparison of engines and models.

import assert from "node:assert/strict";

export const cases = {
  async "metrics by week; unmeasured values are not shown as zero"(stage) {
    const page = await stage.page({ token: stage.tokens.read });
    await page.goto(`${stage.url}/ui/metrics`);
    await page.getByText("All tasks of these weeks used scripted models").waitFor();
    await page.getByLabel("Include scripted models").check();
    const table = page.getByRole("table", { name: "Metrics by week" });
    await table.waitFor();
    assert.equal(await table.locator("tbody tr").count(), 12);
    const plans = table.locator("tbody tr").filter({ hasText: "Sandbox violations" });
    assert.doesNotMatch(await plans.innerText(), /NaN|null|undefined/);
    const cells = await table.locator("tbody td").allInnerTexts();
    assert.ok(cells.some((text) => text.includes("not measured")), "some metric is not measured");
    await page.getByRole("table", { name: "Engines and models compared" }).getByText("react").first().waitFor();
    await page.getByLabel("Chart metric").selectOption("time_to_complete_s");
    await page.getByRole("table", { name: "Time to completion, by week" }).waitFor({ state: "attached" });
    assert.match(page.url(), /scripted=1&metric=time_to_complete_s/);
    await stage.picture("metrics");
  },

  async "a week without tasks interrupts the line; engines are compared"(stage) {
    const page = await stage.page({ token: stage.tokens.read });
    const DAY_MS = 86_400_000;
    // The year of an ISO week is that of its Thursday, and its number counts the Thursdays of that year.
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
    const shown = page.getByRole("table", { name: "Tasks succeeded, by week" });
    await shown.waitFor({ state: "attached" });
    const rows = (await shown.locator("tbody tr").allTextContents()).map((text) => [text.slice(0, 8), text.includes("not measured")]);
    assert.deepEqual(rows, [[week(3), false], [week(2), true], [week(1), true], [week(0), false]]);
    const table = page.getByRole("table", { name: "Engines and models compared" });
    const engines = await table.locator("tbody tr").allInnerTexts();
    assert.ok(engines.some((row) => row.includes("plan")) && engines.some((row) => row.includes("react")), engines.join("\n"));
  },
};
