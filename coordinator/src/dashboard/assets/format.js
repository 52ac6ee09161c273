// How numbers, instants and texts are told. One way for each, everywhere.

import { h } from "./dom.js";

const COUNT = new Intl.NumberFormat("en");
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const WHOLE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** Longest text of a line, in characters: what is longer is cut, and whole where a person opens it. */
const LINE_CHARS_MAX = 300;

export const count = (n) => COUNT.format(n);

/** `1 task`, `2 tasks`. */
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** The last eight digits of an id, as the command line tells it. */
export const short = (id) => String(id).replaceAll("-", "").slice(-8);

/** Money, from nano-dollars. */
export function usd(nusd) {
  const dollars = nusd / 1e9;
  if (nusd === 0) return "$0";
  if (dollars < 0.01) return `$${dollars.toFixed(4)}`;
  return `$${dollars.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

/** What a run cost: of a model without a price nobody knows, and nothing is not told as if it were known. */
export const cost = (nusd) => (nusd > 0 ? usd(nusd) : h("span", { class: "muted", title: "Nothing was paid, or the model has no price" }, "–"));

/** Tokens and the like: `1.2k`, `3.4M`. */
export function about(n) {
  if (n < 1000) return String(n);
  if (n < 1e6) return `${(n / 1e3).toFixed(n < 1e4 ? 1 : 0)}k`;
  return `${(n / 1e6).toFixed(n < 1e7 ? 1 : 0)}M`;
}

export function bytes(n) {
  if (n < 1024) return `${n} B`;
  if (n < 1024 * 1024) return `${(n / 1024).toFixed(1)} KiB`;
  return `${(n / 1024 / 1024).toFixed(1)} MiB`;
}

/** A length of time: the two largest units of it. */
export function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 1) return `${Math.max(0, Math.round(ms))} ms`;
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min${s % 60 && s < 600 ? ` ${s % 60} s` : ""}`;
  if (s < 86400) return `${Math.floor(s / 3600)} h${s % 3600 >= 60 ? ` ${Math.floor((s % 3600) / 60)} min` : ""}`;
  return `${Math.floor(s / 86400)} d${s % 86400 >= 3600 ? ` ${Math.floor((s % 86400) / 3600)} h` : ""}`;
}

/** How long ago, in one unit. */
export function ago(ms) {
  const s = Math.floor(ms / 1000);
  if (s < -1) return `in ${span(-ms)}`;
  if (s < 5) return "just now";
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ago`;
  return `${Math.floor(s / 86400)} d ago`;
}

export const whole = (at) => WHOLE.format(new Date(at));
export const day = (at) => DAY.format(new Date(at));
export const clock = (at) => CLOCK.format(new Date(at));

/** An instant, as the time since; it is told anew as time goes by. */
export function since(at) {
  const text = ago(Date.now() - Date.parse(at));
  return h("time", { datetime: at, title: whole(at), data: { ago: at } }, text);
}

/** How long something takes that began then and goes on. */
export function running(at) {
  const text = span(Date.now() - Date.parse(at));
  return h("time", { datetime: at, title: `since ${whole(at)}`, data: { span: at } }, text);
}

/** Tells the instants on the page anew. */
export function tick(root = document) {
  const now = Date.now();
  for (const time of root.querySelectorAll("time[data-ago], time[data-span]")) {
    const { ago: past, span: from } = time.dataset;
    const text = past ? ago(now - Date.parse(past)) : span(now - Date.parse(from));
    if (time.textContent !== text) time.textContent = text;
  }
}

/** Control characters and those that turn the direction of text, as signs that can be seen; line breaks stay. */
export function visible(text) {
  return String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (c) => {
    const code = c.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : `\u27e8${code.toString(16)}\u27e9`;
  });
}

/** A line of a text: whatever a person or a model wrote, on one line and not endless. */
export function line(text, most = LINE_CHARS_MAX) {
  const flat = visible(String(text).slice(0, most * 2).replace(/\s+/g, " ").trim());
  return flat.length > most ? `${flat.slice(0, most)}…` : flat;
}

/** A sentence of docket's own: what stands between backquotes is a command. */
export function prose(text) {
  return visible(text)
    .split("`")
    .map((part, n) => (n % 2 ? h("code", {}, part) : part));
}

/** A text from elsewhere, in a direction of its own: it cannot turn what stands beside it. */
export function said(text, most) {
  const cut = line(text, most);
  return h("bdi", { title: cut.length > 60 ? line(text, 1000) : null }, cut || "—");
}
