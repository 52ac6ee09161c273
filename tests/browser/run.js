// Tests the dashboard of a running coordinator in headless Chromium and reports the outcome of each case.
//
// Input is one line of JSON on standard input: `{ url, tokens: { admin, read, submit }, tasks, only, chromium }`.
// DOCKET_SCREENSHOTS names a folder for screenshots. DOCKET_UI_ASSETS names a folder whose files replace those built
// into the binary, for trying changes without a build. DOCKET_UI_SLOW=N slows pages down by a factor of N. Exit code 3
// means that no browser is available.

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
  console.error("Chromium is not installed");
  process.exit(3);
}

const { Stage } = await import("./stage.js");
const browser = await playwright.chromium.launch({
  executablePath,
  // Chromium cannot use its sandbox as root; it only visits this coordinator on loopback.
  args: [...(process.getuid() === 0 ? ["--no-sandbox"] : []), "--disable-dev-shm-usage", "--force-color-profile=srgb"],
});

const folder = new URL("./cases/", import.meta.url);
const cases = [];
for (const name of ["signin", "overview", "backlog", "metrics", "run", "pages", "looks"]) {
  if (!existsSync(new URL(`${name}.js`, folder))) continue;
  const module = await import(new URL(`${name}.js`, folder));
  for (const [title, run] of Object.entries(module.cases)) cases.push([`${name}: ${title}`, run]);
}

/** The error message and the lines of the cases it came from, without Playwright's call log. */
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
