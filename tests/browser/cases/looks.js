// Every page in both themes, at desktop and phone width, passes axe and fits the window.

import { settled } from "../stage.js";

const AT = [
  ["overview", () => "/ui/", "Overview"],
  ["backlog", () => "/ui/backlog", "Backlog"],
  ["task", (stage) => `/ui/task/${stage.tasks.done}`, null],
  ["run", (stage) => `/ui/run/${stage.tasks.run}`, null],
  ["turn", (stage) => `/ui/run/${stage.tasks.run}?turn=1`, null],
  ...["changes", "files", "ledger", "forks", "beside"].map((tab) => [tab, (stage) => `/ui/run/${stage.tasks.run}?turn=2&tab=${tab}`, null]),
  ["failed", async (stage) => `/ui/run/${(await stage.api("GET", `/v1/tasks/${stage.tasks.fails}`)).task.last_run}`, null],
  ["side", (stage) => `/ui/backlog?task=${stage.tasks.done}`, "Backlog"],
  ["metrics", () => "/ui/metrics?scripted=1", "Metrics"],
];

const axe = (theme, width) => async (stage) => {
  const page = await stage.page({ token: stage.tokens.admin, theme, width, height: width < 500 ? 844 : 900 });
  for (const [name, path] of AT) {
    await page.goto(`${stage.url}${await path(stage)}`);
    await settled(page);
    await stage.accessible(page, `${name}, ${theme}, ${width} px`);
    await stage.fits(page, `${name}, ${width} px`);
    await stage.picture(`${name}-${theme}-${width}`);
  }
};

export const cases = {
  "accessible, light": axe("light", 1280),
  "accessible, dark": axe("dark", 1280),
  "accessible, light, on a phone": axe("light", 390),
  "accessible, dark, on a phone": axe("dark", 390),
};
