// Client of the coordinator's API, authenticated by the session cookie. Every failure is an `ApiError` with the detail
// of the problem response. An expired session emits `signed-out` on `apiEvents`.

/** Time limit of a request, after which the page reports that the coordinator is unreachable. */
const RESPONSE_TIMEOUT_MS = 30_000;

/** A failed request with the coordinator's own message. A `status` of 0 means that there was no response. */
export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || "the coordinator did not respond");
    this.status = status;
    this.code = problem.code ?? "";
    this.field = problem.field ?? null;
  }
}

/** The signed-in user; both fields are null before sign-in. */
export const session = { name: null, role: null };

/** Permissions of the signed-in user: `submit` covers changes to tasks, `administer` changes to the installation. */
export const can = {
  submit: () => session.role === "submit" || session.role === "admin",
  administer: () => session.role === "admin",
};

export const apiEvents = new EventTarget();

/** Sends `GET path?query`. Parameters that are null, undefined, false or empty are skipped. */
export const get = (path, query, options) => request("GET", `${path}${buildQuery(query)}`, undefined, options);

/** Sends `POST path` with a JSON body. */
export const post = (path, body = {}, options) => request("POST", path, body, options);

export function buildQuery(query) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value === null || value === undefined || value === "" || value === false) continue;
    params.set(name, String(value));
  }
  const text = params.toString();
  return text ? `?${text}` : "";
}

async function request(method, path, body, { signal } = {}) {
  const timeout = AbortSignal.timeout(RESPONSE_TIMEOUT_MS);
  const headers = { accept: "application/json", "x-docket-ui": "1" };
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
      credentials: "same-origin",
      redirect: "error",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, { detail: "the coordinator cannot be reached" });
  }
  if (response.ok) {
    const data = response.status === 204 ? null : await response.json();
    // The caller may have aborted while the body was read and must not act on outdated data.
    signal?.throwIfAborted();
    return data;
  }
  const problem = await response.json().catch(() => ({}));
  if (response.status === 401 && path !== "/ui/login") {
    Object.assign(session, { name: null, role: null });
    apiEvents.dispatchEvent(new CustomEvent("signed-out", { detail: problem.detail ?? "" }));
  }
  throw new ApiError(response.status, problem);
}

/** Signs in with a token and returns the session. */
export async function signIn(token) {
  return Object.assign(session, await post("/ui/login", { token }));
}

/** Loads the session of the cookie; returns null without a valid one. */
export async function loadSession() {
  try {
    return Object.assign(session, await get("/v1/whoami"));
  } catch (error) {
    if (error.status === 401) return null;
    throw error;
  }
}

export async function signOut() {
  await post("/ui/logout");
  Object.assign(session, { name: null, role: null });
}

/** Whether an error was caused by an abort, for example because the user left the page. */
export const isAbortError = (error) => error?.name === "AbortError";
