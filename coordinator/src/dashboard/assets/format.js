// Formatting of numbers, times and texts, the same on every page.

import { h } from "./dom.js";

const COUNT_FORMAT = new Intl.NumberFormat("en");
const DAY_FORMAT = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const TIME_FORMAT = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DATE_TIME_FORMAT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** Default length limit of single-line texts, in characters. */
const LINE_CHARS_MAX = 300;

export const formatCount = (n) => COUNT_FORMAT.format(n);

/** `1 task`, `2 tasks`. */
export const pluralize = (n, one, many = `${one}s`) => `${formatCount(n)} ${n === 1 ? one : many}`;

/** The last eight digits of an id, as the command line shows it. */
export const shortId = (id) => String(id).replaceAll("-", "").slice(-8);

/** Formats an amount given in nano-dollars. */
export function formatUsd(nusd) {
  const dollars = nusd / 1e9;
  if (nusd === 0) return "$0";
  if (dollars < 0.01) return `$${dollars.toFixed(4)}`;
  return `$${dollars.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

/** Formats the cost of a run. Zero is shown as unknown, because models without a price report no cost. */
export const formatCost = (nusd) => (nusd > 0 ? formatUsd(nusd) : h("span", { class: "muted", title: "No cost recorded, or the model has no price" }, "–"));

/** Formats large counts such as tokens: `1.2k`, `3.4M`. */
export function formatCompact(n) {
  if (n < 1000) return String(n);
  if (n < 1e6) return `${(n / 1e3).toFixed(n < 1e4 ? 1 : 0)}k`;
  return `${(n / 1e6).toFixed(n < 1e7 ? 1 : 0)}M`;
}

export function formatBytes(n) {
  if (n < 1024) return `${n} B`;
  if (n < 1024 * 1024) return `${(n / 1024).toFixed(1)} KiB`;
  return `${(n / 1024 / 1024).toFixed(1)} MiB`;
}

/** Formats a duration in its two largest units. */
export function formatDuration(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 1) return `${Math.max(0, Math.round(ms))} ms`;
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min${s % 60 && s < 600 ? ` ${s % 60} s` : ""}`;
  if (s < 86400) return `${Math.floor(s / 3600)} h${s % 3600 >= 60 ? ` ${Math.floor((s % 3600) / 60)} min` : ""}`;
  return `${Math.floor(s / 86400)} d${s % 86400 >= 3600 ? ` ${Math.floor((s % 86400) / 3600)} h` : ""}`;
}

/** Formats an age in one unit. */
export function formatTimeAgo(ms) {
  const s = Math.floor(ms / 1000);
  if (s < -1) return `in ${formatDuration(-ms)}`;
  if (s < 5) return "just now";
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ago`;
  return `${Math.floor(s / 86400)} d ago`;
}

export const formatDateTime = (at) => DATE_TIME_FORMAT.format(new Date(at));
export const formatDay = (at) => DAY_FORMAT.format(new Date(at));
export const formatTime = (at) => TIME_FORMAT.format(new Date(at));

/** A `<time>` element with the age of an instant; `updateTimes` keeps it current. */
export function timeAgo(at) {
  const text = formatTimeAgo(Date.now() - Date.parse(at));
  return h("time", { datetime: at, title: formatDateTime(at), data: { ago: at } }, text);
}

/** A `<time>` element with the duration of something still in progress; `updateTimes` keeps it current. */
export function elapsedTime(at) {
  const text = formatDuration(Date.now() - Date.parse(at));
  return h("time", { datetime: at, title: `since ${formatDateTime(at)}`, data: { span: at } }, text);
}

/** Updates every `<time>` element on the page. */
export function updateTimes(root = document) {
  const now = Date.now();
  for (const time of root.querySelectorAll("time[data-ago], time[data-span]")) {
    const { ago: agoFrom, span: elapsedFrom } = time.dataset;
    const text = agoFrom ? formatTimeAgo(now - Date.parse(agoFrom)) : formatDuration(now - Date.parse(elapsedFrom));
    if (time.textContent !== text) time.textContent = text;
  }
}

/** Replaces control characters and bidirectional overrides with visible symbols. Line breaks and tabs are kept. */
export function showControlChars(text) {
  return String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (c) => {
    const code = c.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : `\u27e8${code.toString(16)}\u27e9`;
  });
}

/** Collapses untrusted text to one line of limited length. */
export function singleLine(text, maxChars = LINE_CHARS_MAX) {
  const oneLine = showControlChars(String(text).slice(0, maxChars * 2).replace(/\s+/g, " ").trim());
  return oneLine.length > maxChars ? `${oneLine.slice(0, maxChars)}…` : oneLine;
}

/** Renders one of docket's own messages: text between backquotes becomes `<code>`. */
export function renderProse(text) {
  return showControlChars(text)
    .split("`")
    .map((part, n) => (n % 2 ? h("code", {}, part) : part));
}

/** Untrusted text on one line, isolated so that its direction does not affect the surrounding text. */
export function isolatedText(text, maxChars) {
  const shortened = singleLine(text, maxChars);
  return h("bdi", { title: shortened.length > 60 ? singleLine(text, 1000) : null }, shortened || "—");
}
