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
};
