// What changes while one looks: a run's events as they are appended, and questions that are asked again and again.
// Both rest while nobody sees the page: a browser has few connections to one host, and a page in the back none to
// spare.

import { get, isAbort } from "./api.js";

/** How long until a lost stream, or a question without an answer, is tried again: at first and at most. */
const RETRY_MS = [500, 15_000];

const seen = () => document.visibilityState === "visible";

/** Told whether the coordinator answers: `ok` or `lost`. */
export const link = new EventTarget();
let linked = true;
export function linkIs(ok) {
  if (ok === linked) return;
  linked = ok;
  link.dispatchEvent(new CustomEvent("change", { detail: ok }));
}

/**
 * Follows a run's events behind seq `after`, each once and in order, over any loss of the connection, until its end
 * or until `signal` aborts. Handlers: `event(envelope)`, `end({run, status, seq})`, `state("live"|"lost"|"resting"|"ended")`.
 */
export function follow(run, { after = 0, event, end, state = () => {} }, signal) {
  let source = null;
  let last = after;
  let wait = RETRY_MS[0];
  let timer = null;
  let over = false;

  const close = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };
  const open = () => {
    close();
    if (over || signal.aborted) return;
    if (!seen()) return state("resting");
    source = new EventSource(`/v1/runs/${encodeURIComponent(run)}/follow?after=${last}`);
    source.onopen = () => {
      wait = RETRY_MS[0];
      linkIs(true);
      state("live");
    };
    source.onmessage = (message) => {
      const envelope = JSON.parse(message.data);
      // After a loss the stream may begin with what was here already.
      if (!envelope || envelope.seq <= last) return;
      last = envelope.seq;
      event(envelope);
    };
    source.addEventListener("end", (message) => {
      over = true;
      close();
      state("ended");
      end?.(JSON.parse(message.data));
    });
    source.onerror = () => {
      close();
      state("lost");
      timer = setTimeout(open, wait);
      wait = Math.min(wait * 2, RETRY_MS[1]);
    };
  };
  document.addEventListener("visibilitychange", open, { signal });
  signal.addEventListener("abort", close);
  open();
  return { last: () => last };
}

/**
 * The timeline of the run at `path`, as it is now. Where it is `known` already, only its turns from the newest known one on
 * are fetched: no other can have changed.
 */
export async function freshTimeline(path, known, signal) {
  const news = await get(`${path}/timeline`, { after: known?.head }, { signal });
  if (!known) return news;
  const first = news.turns[0]?.turn ?? Infinity;
  return { ...news, turns: [...known.turns.filter((row) => row.turn < first), ...news.turns] };
}

/**
 * Asks `ask(signal)` now and then every `every` milliseconds while the page is seen, never twice at once, until
 * `signal` aborts. Answers a function that asks anew at once, and resolves when that is done: a round that was under
 * way is given up, for its answer is older than what made somebody ask. So `ask` tells nothing once its signal has
 * aborted. What it throws is told to `failed`, and asked again later and later. `later` = the caller asks first.
 */
export function poll(ask, { every, failed = () => {}, later = false }, signal) {
  let timer = null;
  let under = null;
  let wait = every;

  const round = async (of) => {
    try {
      await ask(of);
      wait = every;
      linkIs(true);
    } catch (error) {
      if (isAbort(error) || of.aborted) return;
      if (error.status === undefined) throw error;
      wait = Math.min(Math.max(wait, RETRY_MS[0]) * 2, RETRY_MS[1]);
      if (error.status === 0) linkIs(false);
      failed(error);
    }
  };
  const run = () => {
    clearTimeout(timer);
    under?.abort();
    if (signal.aborted) return Promise.resolve();
    const mine = new AbortController();
    under = mine;
    return round(AbortSignal.any([signal, mine.signal])).finally(() => {
      // A round that was given up has another behind it already.
      if (under !== mine) return;
      under = null;
      if (!signal.aborted && seen()) timer = setTimeout(run, wait);
    });
  };
  // One that is under way goes on: nobody did anything that it might not know of.
  document.addEventListener("visibilitychange", () => seen() && under === null && run(), { signal });
  signal.addEventListener("abort", () => clearTimeout(timer));
  if (later) timer = setTimeout(run, every);
  else run();
  return run;
}
