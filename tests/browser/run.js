// Drives the dashboard of a running coordinator in a headless Chromium, case by case, and says what each came to.
//
// Told by one line of JSON on standard input: `{ url, tokens: { admin, read, submit }, tasks, only, chromium }`. With
// DOCKET_SCREENSHOTS, pictures go into that folder. With DOCKET_UI_ASSETS, the files of that folder take the place of
// those in the binary, so that they can be tried without a build. With DOCKET_UI_SLOW=N, pages run N times slower. Exit
// code 3 = no browser is here.

import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { stdin } from "node:process";

let playwright;
try {
  playwright = await import("playwright-core");
  await import("axe-core");
} catch (error) {
  console.error(`the packages are missing (npm ci in tests/browser): ${error.message}`);
  process.exit(3);
}

const CHROMIUM = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

let text = "";
for await (const chunk of stdin) text += chunk;
const stage = JSON.parse(text);

const executablePath = [stage.chromium, ...CHROMIUM].find((path) => path && existsSync(path));
if (!executablePath) {
  console.error("there is no chromium here");
  process.exit(3);
}

const { Stage } = await import("./stage.js");
const browser = await playwright.chromium.launch({
  executablePath,
  // As root Chromium has no sandbox of its own; it visits this one coordinator on loopback.
  args: [...(process.getuid() === 0 ? ["--no-sandbox"] : []), "--disable-dev-shm-usage", "--force-color-profile=srgb"],
});

const folder = new URL("./cases/", import.meta.url);
const cases = [];
for (const name of ["signin", "overview", "backlog", "metrics", "run", "pages", "looks"]) {
  if (!existsSync(new URL(`${name}.js`, folder))) continue;
  const module = await import(new URL(`${name}.js`, folder));
  for (const [title, run] of Object.entries(module.cases)) cases.push([`${name}: ${title}`, run]);
}

/** What went wrong and where in the cases; without the browser's own list of each thing that it tried. */
function short(error) {
  const lines = (error.stack ?? String(error)).split("\n");
  const told = lines.findIndex((line) => /^\s+at |^Call log:/.test(line));
  const where = lines.filter((line) => line.includes("/cases/") || line.includes("/stage.js"));
  return [...(told < 0 ? lines : lines.slice(0, Math.max(told, 1))), ...where].join("\n");
}

const axe = await readFile(new URL(import.meta.resolve("axe-core")), "utf8");
let failed = 0;
let ran = 0;
for (const [name, run] of cases) {
  if (stage.only && !name.startsWith(stage.only)) continue;
  ran += 1;
  const began = performance.now();
  const of = new Stage(browser, stage, axe);
  try {
    await run(of);
    of.clean();
    console.log(`ok ${name} (${Math.round(performance.now() - began)} ms)`);
  } catch (error) {
    failed += 1;
    await of.picture(`failed-${name.replace(/[^a-z]+/gi, "-")}`).catch(() => {});
    console.log(`FAILED ${name}\n${short(error)}\n${of.said.join("\n")}`);
  } finally {
    await of.close();
  }
}
await browser.close();
console.log(`${ran - failed} of ${ran} cases hold`);
process.exit(failed === 0 && ran > 0 ? 0 : 1);
