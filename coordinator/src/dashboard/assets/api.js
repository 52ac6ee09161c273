// The coordinator's API, as the browser's cookie lets it be called. Every error is an `ApiError` with the words of
// the problem; who is no longer signed in is told so once, by the event `signed-out`.

/** Longest wait for an answer: whoever looks at the page wants to know that there is none. */
const ANSWER_MS_MAX = 30_000;

/** What the coordinator refused, in its own words. `status` 0 = there was no answer. */
export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || "the coordinator did not answer");
    this.status = status;
    this.code = problem.code ?? "";
    this.field = problem.field ?? null;
  }
}

/** Who is signed in: `{name, role}`; none before. */
export const me = { name: null, role: null };

/** Whether the signed-in person may change tasks; `admin`: whether they may change the installation. */
export const may = {
  submit: () => me.role === "submit" || me.role === "admin",
  admin: () => me.role === "admin",
};

export const events = new EventTarget();

/** `GET path?query`. Parameters that are null, empty or undefined are left out. */
export const get = (path, query, options) => call("GET", `${path}${queryOf(query)}`, undefined, options);

/** `POST path` with a JSON body. */
export const post = (path, body = {}, options) => call("POST", path, body, options);

export function queryOf(query) {
  const of = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value === null || value === undefined || value === "" || value === false) continue;
    of.set(name, String(value));
  }
  const text = of.toString();
  return text ? `?${text}` : "";
}

async function call(method, path, body, { signal } = {}) {
  const within = AbortSignal.timeout(ANSWER_MS_MAX);
  const headers = { accept: "application/json", "x-docket-ui": "1" };
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, within]) : within,
      credentials: "same-origin",
      redirect: "error",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, { detail: "the coordinator cannot be reached" });
  }
  if (response.ok) {
    const answer = response.status === 204 ? null : await response.json();
    // Whoever gave the question up meanwhile must not act on what was true before.
    signal?.throwIfAborted();
    return answer;
  }
  const problem = await response.json().catch(() => ({}));
  if (response.status === 401 && path !== "/ui/login") {
    Object.assign(me, { name: null, role: null });
    events.dispatchEvent(new CustomEvent("signed-out", { detail: problem.detail ?? "" }));
  }
  throw new ApiError(response.status, problem);
}

/** Signs in with a token; answers who that is. */
export async function signIn(token) {
  return Object.assign(me, await post("/ui/login", { token }));
}

/** Who the cookie says that this is; null of nobody. */
export async function whoAmI() {
  try {
    return Object.assign(me, await get("/v1/whoami"));
  } catch (error) {
    if (error.status === 401) return null;
    throw error;
  }
}

export async function signOut() {
  await post("/ui/logout");
  Object.assign(me, { name: null, role: null });
}

/** Whether an error only says that the page was left. */
export const isAbort = (error) => error?.name === "AbortError";
