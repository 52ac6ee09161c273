// Test fixture: browser pages monitored for errors, an API client with the administrator role, and checks.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";

/** Time limit for a page to show something, even on a busy machine. */
export const WAIT_MS = 60_000;

const TYPES = { css: "text/css", html: "text/html", js: "text/javascript", svg: "image/svg+xml" };

export class Stage {
  constructor(browser, { url, tokens, tasks }, axe) {
    Object.assign(this, { browser, url, tokens, tasks, axe });
    this.said = [];
    this.contexts = [];
    /** Substrings of console messages that a case expects. */
    this.expected = [];
  }

  /** Opens a page in a new browser context. */
  async page({ token = null, width = 1280, height = 900, theme = "light" } = {}) {
    const context = await this.browser.newContext({ viewport: { width, height }, colorScheme: theme, reducedMotion: "reduce", locale: "en-GB", timezoneId: "UTC" });
    this.contexts.push(context);
    const page = await context.newPage();
    page.setDefaultTimeout(WAIT_MS);
    page.on("console", (message) => {
      if (message.type() === "error" || message.type() === "warning") this.said.push(`${message.type()}: ${message.text()} ${message.location().url}`);
    });
    page.on("pageerror", (error) => this.said.push(`error: ${error.stack ?? error}`));
    await page.addInitScript(() => {
      document.addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
    });
    await this.fromDisk(page);
    await this.slowed(context, page);
    this.last = page;
    if (token) await this.signIn(page, token);
    return page;
  }

  /** Throttles the CPU to simulate a busy machine. */
  async slowed(context, page) {
    const rate = Number(process.env.DOCKET_UI_SLOW ?? 1);
    if (rate === 1) return;
    const session = await context.newCDPSession(page);
    await session.send("Emulation.setCPUThrottlingRate", { rate });
  }

  async fromDisk(page) {
    const folder = process.env.DOCKET_UI_ASSETS;
    if (!folder) return;
    await page.route("**/ui/**", async (route) => {
      const { pathname } = new URL(route.request().url());
      if (route.request().method() !== "GET") return route.fallback();
      const name = pathname.startsWith("/ui/assets/") ? pathname.slice("/ui/assets/".length) : "index.html";
      const file = join(folder, name);
      if (!existsSync(file)) return route.fallback();
      const real = await route.fetch({ url: `${this.url}/ui/`, maxRedirects: 0 });
      const headers = { "content-security-policy": real.headers()["content-security-policy"], "content-type": TYPES[name.split(".").at(-1)], "cache-control": "no-store" };
      await route.fulfill({ body: await readFile(file), headers });
    });
  }

  /** Signs in as `docket dashboard` does. */
  async signIn(page, token, path = "/ui/") {
    await page.goto(`${this.url}${path}#token=${token}`);
    await page.locator("#top").waitFor({ state: "visible" });
  }

  /** Calls the API as an administrator. */
  async api(method, path, body) {
    const response = await fetch(`${this.url}${path}`, {
      method,
      headers: { authorization: `Bearer ${this.tokens.admin}`, ...(body === undefined ? {} : { "content-type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const answer = await response.json();
    assert.ok(response.ok, `${method} ${path}: ${JSON.stringify(answer)}`);
    return answer;
  }

  /** Submits copies of a task with changes to its spec. */
  async submitLike(id, specs) {
    const { task } = await this.api("GET", `/v1/tasks/${id}`);
    const tasks = specs.map((spec) => ({ ...task.spec, ...spec }));
    const ids = [];
    for (let n = 0; n < tasks.length; n += 500) {
      const answer = await this.api("POST", "/v1/tasks", { tasks: tasks.slice(n, n + 500) });
      ids.push(...answer.tasks.map((one) => one.id));
    }
    return ids;
  }

  /** Fails if axe finds a violation of WCAG 2.2 A or AA. */
  async accessible(page, name) {
    await page.evaluate(this.axe);
    const result = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }));
    const told = result.violations.map((one) => `${one.id}: ${one.help}\n${one.nodes.slice(0, 5).map((node) => `    ${node.html.slice(0, 200)}\n    ${node.failureSummary}`).join("\n")}`);
    assert.deepEqual(told, [], `${name}: ${told.join("\n")}`);
    assert.ok(result.passes.length > 10, `${name}: axe looked at ${result.passes.length} rules`);
  }

  /** Fails if the page is wider than the window. */
  async fits(page, name) {
    const wide = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
    assert.ok(wide[0] <= wide[1], `${name}: ${wide[0]} px in ${wide[1]}`);
  }

  async picture(name, page = this.last) {
    const folder = process.env.DOCKET_SCREENSHOTS;
    if (!folder || !page) return;
    await mkdir(folder, { recursive: true });
    await page.screenshot({ path: join(folder, `${name}.png`) });
  }

  /** Allows console messages that contain this text. */
  expect(text) {
    this.expected.push(text);
  }

  /** Fails on unexpected console messages. */
  clean() {
    const others = this.said.filter((text) => !this.expected.some((known) => text.includes(known)));
    assert.deepEqual(others, []);
  }

  async close() {
    for (const context of this.contexts) {
      for (const page of context.pages()) await page.unrouteAll({ behavior: "ignoreErrors" });
      await context.close();
    }
  }
}

/** A UUIDv7. */
export function id() {
  const time = Date.now().toString(16).padStart(12, "0");
  const rest = randomUUID();
  return `${time.slice(0, 8)}-${time.slice(8)}-7${rest.slice(15)}`;
}

/** The last eight digits of an id, as pages show it. */
export const short = (whole) => whole.replaceAll("-", "").slice(-8);

/** Waits until `look()` returns a truthy value. */
export async function until(what, look) {
  const end = Date.now() + WAIT_MS;
  for (;;) {
    const found = await look();
    if (found) return found;
    assert.ok(Date.now() < end, `not within ${WAIT_MS} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Waits until a page has loaded its data. */
export async function settled(page) {
  await page.getByRole("heading", { level: 1 }).waitFor();
  await page.waitForFunction(() => !document.querySelector("[aria-busy]") && !/Loading…/.test(document.body.innerText));
}
