// Sign-in, sign-out and sessions.

import assert from "node:assert/strict";

export const cases = {
  async "an invalid token is rejected; a valid one signs in and opens the requested page"(stage) {
    stage.expect("401");
    const page = await stage.page();
    await page.goto(`${stage.url}/ui/backlog?queue=default`);
    await page.waitForURL("**/ui/login?next=*");
    assert.equal(await page.locator("#top").isVisible(), false);
    await page.getByLabel("Token").fill("nobody's");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("alert").filter({ hasText: "invalid or revoked token" }).waitFor();
    await stage.accessible(page, "sign in");
    await stage.picture("login");
    await page.getByLabel("Token").fill(stage.tokens.admin);
    await page.getByLabel("Token").press("Enter");
    await page.waitForURL("**/ui/backlog?queue=default");
    await page.getByRole("heading", { name: "Backlog" }).waitFor();
  },

  async "a token in the URL is removed, and scripts cannot read the cookie"(stage) {
    const page = await stage.page();
    await page.goto(`${stage.url}/ui/#token=${stage.tokens.read}`);
    await page.getByRole("heading", { name: "Overview" }).waitFor();
    assert.equal(new URL(page.url()).hash, "");
    const kept = await page.evaluate(() => [document.cookie, JSON.stringify({ ...localStorage }), JSON.stringify({ ...sessionStorage })].join());
    assert.ok(!kept.includes(stage.tokens.read), kept);
    const [cookie] = await page.context().cookies();
    assert.deepEqual([cookie.httpOnly, cookie.sameSite, cookie.value.slice(0, 4)], [true, "Strict", "dks_"]);
    assert.ok(!cookie.value.includes(stage.tokens.read), "the cookie does not contain the token");
  },

  async "the read role is offered no actions"(stage) {
    const page = await stage.page({ token: stage.tokens.read });
    await page.getByRole("link", { name: "Which colour" }).first().waitFor();
    assert.equal(await page.getByRole("button", { name: "Answer" }).count(), 0);
    await page.goto(`${stage.url}/ui/backlog?title=Which%20colour`);
    await page.getByRole("link", { name: "Which colour" }).first().click();
    await page.getByRole("complementary").getByRole("heading", { name: "Prompt" }).waitFor();
    for (const name of ["Answer", "Cancel", "Retry", "Pause", "Priority"]) assert.equal(await page.locator(".actions, .bulk").getByRole("button", { name }).count(), 0, name);
    assert.equal(await page.getByRole("main").getByRole("checkbox", { name: /^Select/ }).count(), 0);
  },

  async "a revoked token ends the session at once"(stage) {
    stage.expect("401");
    const made = await stage.api("POST", "/v1/tokens", { name: "leaver", role: "read" });
    const page = await stage.page({ token: made.secret });
    await page.getByRole("heading", { name: "Overview" }).waitFor();
    await stage.api("POST", "/v1/tokens/leaver/revoke", {});
    await page.waitForURL("**/ui/login*");
    assert.equal(await page.locator("#top").isVisible(), false);
    await page.reload();
    await page.getByLabel("Token").waitFor();
  },

  async "a failed sign-out says so and keeps the session"(stage) {
    stage.expect("ERR_FAILED");
    const page = await stage.page({ token: stage.tokens.read });
    await page.route("**/ui/logout", (route) => route.abort());
    await page.getByRole("button", { name: "Sign out" }).click();
    const said = page.getByRole("alert").getByText("You are still signed in");
    await said.waitFor();
    assert.match(page.url(), /\/ui\/$/);
    await page.keyboard.press("Escape");
    await said.waitFor({ state: "detached" });
    assert.equal(await page.locator("#top").isVisible(), true);
  },

  async "signing out removes the cookie, and a copy of it is invalid"(stage) {
    stage.expect("401");
    const page = await stage.page({ token: stage.tokens.read });
    const copies = await page.context().cookies();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("Token").waitFor();
    assert.deepEqual(await page.context().cookies(), []);
    await page.context().addCookies(copies);
    await page.goto(`${stage.url}/ui/`);
    await page.getByLabel("Token").waitFor();
  },
};
