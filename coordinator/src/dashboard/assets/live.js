// Live updates: the event stream of a run, and polling. Both pause while the page is hidden, because browsers allow few
// connections per host.

import { get, isAbortError } from "./api.js";

/** First and longest delay before a lost stream or a failed request is retried. */
const RETRY_MS = [500, 15_000];

const isPageVisible = () => document.visibilityState === "visible";

/** Emits `change` when the coordinator becomes reachable (detail `true`) or unreachable (`false`). */
export const connection = new EventTarget();
let isConnected = true;
export function setConnected(connected) {
  if (connected === isConnected) return;
  isConnected = connected;
  connection.dispatchEvent(new CustomEvent("change", { detail: connected }));
}

/**
 * Follows the events of a run after seq `after`, each exactly once and in order across reconnects, until the run ends
 * or `signal` aborts. Handlers: `onEvent(envelope)`, `onEnd({ run, status, seq })` and `onState("live" | "lost" |
 * "paused" | "ended")`.
 */
export function followRun(run, { after = 0, onEvent, onEnd, onState = () => {} }, signal) {
  let source = null;
  let lastSeq = after;
  let delay = RETRY_MS[0];
  let timer = null;
  let hasEnded = false;

  const close = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };
  const connect = () => {
    close();
    if (hasEnded || signal.aborted) return;
    if (!isPageVisible()) return onState("paused");
    source = new EventSource(`/v1/runs/${encodeURIComponent(run)}/follow?after=${lastSeq}`);
    source.onopen = () => {
      delay = RETRY_MS[0];
      setConnected(true);
      onState("live");
    };
    source.onmessage = (message) => {
      const envelope = JSON.parse(message.data);
      // After a reconnect the stream may repeat events.
      if (!envelope || envelope.seq <= lastSeq) return;
      lastSeq = envelope.seq;
      onEvent(envelope);
    };
    source.addEventListener("end", (message) => {
      hasEnded = true;
      close();
      onState("ended");
      onEnd?.(JSON.parse(message.data));
    });
    source.onerror = () => {
      close();
      onState("lost");
      timer = setTimeout(connect, delay);
      delay = Math.min(delay * 2, RETRY_MS[1]);
    };
  };
  document.addEventListener("visibilitychange", connect, { signal });
  signal.addEventListener("abort", close);
  connect();
  return { lastSeq: () => lastSeq };
}

/**
 * Fetches the current timeline of the run at `path`. With a `known` timeline, only its newest turn and later ones are
 * fetched, because no earlier turn can change.
 */
export async function refreshTimeline(path, known, signal) {
  const update = await get(`${path}/timeline`, { after: known?.head }, { signal });
  if (!known) return update;
  const firstTurn = update.turns[0]?.turn ?? Infinity;
  return { ...update, turns: [...known.turns.filter((row) => row.turn < firstTurn), ...update.turns] };
}

/**
 * Calls `load(signal)` immediately (unless `skipFirst`) and then every `intervalMs` while the page is visible, one
 * round at a time, until `signal` aborts. Returns a function that starts a round at once and resolves when it is done.
 * It aborts a round in progress, whose response may predate the change that caused the call; `load` must therefore have
 * no effect after its signal aborted. API errors go to `onError` and increase the delay.
 */
export function poll(load, { intervalMs, onError = () => {}, skipFirst = false }, signal) {
  let timer = null;
  let activeRound = null;
  let delay = intervalMs;

  const runRound = async (roundSignal) => {
    try {
      await load(roundSignal);
      delay = intervalMs;
      setConnected(true);
    } catch (error) {
      if (isAbortError(error) || roundSignal.aborted) return;
      if (error.status === undefined) throw error;
      delay = Math.min(Math.max(delay, RETRY_MS[0]) * 2, RETRY_MS[1]);
      if (error.status === 0) setConnected(false);
      onError(error);
    }
  };
  const startRound = () => {
    clearTimeout(timer);
    activeRound?.abort();
    if (signal.aborted) return Promise.resolve();
    const round = new AbortController();
    activeRound = round;
    return runRound(AbortSignal.any([signal, round.signal])).finally(() => {
      // An aborted round was already replaced by another.
      if (activeRound !== round) return;
      activeRound = null;
      if (!signal.aborted && isPageVisible()) timer = setTimeout(startRound, delay);
    });
  };
  // A round in progress may finish: becoming visible does not make its response outdated.
  document.addEventListener("visibilitychange", () => isPageVisible() && activeRound === null && startRound(), { signal });
  signal.addEventListener("abort", () => clearTimeout(timer));
  if (skipFirst) timer = setTimeout(startRound, intervalMs);
  else startRound();
  return startRound;
}
