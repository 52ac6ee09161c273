// Elements, made of text alone: nothing that comes from elsewhere is ever read as markup, for there is no way here
// to do so. A test refuses any other way in these files.

const SVG = "http://www.w3.org/2000/svg";

/** An element. `props`: `class`, `on` (events to handlers), `data`, and attributes; `false` and `null` are left out. */
export function h(tag, props, ...children) {
  return made(document.createElement(tag), props, children);
}

/** The same in SVG. */
export function svg(tag, props, ...children) {
  return made(document.createElementNS(SVG, tag), props, children);
}

function made(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    } else if (name === "data") {
      for (const [key, word] of Object.entries(value)) element.dataset[key] = String(word);
    } else if (name === "class") {
      element.setAttribute("class", Array.isArray(value) ? value.filter(Boolean).join(" ") : value);
    } else if (name === "value" || name === "checked" || name === "indeterminate") {
      element[name] = value;
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  add(element, children);
  return element;
}

/** Adds children: elements, texts, numbers, lists of them; nothing of what is none. */
export function add(element, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === true) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** Puts children in the place of those that are there. */
export function fill(element, ...children) {
  element.replaceChildren();
  return add(element, ...children);
}

/**
 * The same, and the focus stays at what says the same, and what was open stays open: for what is told anew while one
 * looks. Where that is there no more the focus goes to the page, and never to whatever took its place: nobody is to
 * press another act than they meant.
 */
export function refill(element, ...children) {
  refocused(element, folds(element), children);
}

/** The same for what tells of another thing: what was open says nothing of it. */
export function exchange(element, ...children) {
  refocused(element, new Map(), children);
}

function refocused(element, opened, children) {
  const back = holder(element);
  fill(element, children);
  // What is shut cannot have the focus.
  unfold(element, opened);
  back(element);
}

/** What tells something that can have the focus from all beside it, also once it was made anew. */
function nameOf(element) {
  if (element.id) return `#${element.id}`;
  if (element.hasAttribute("href")) return element.getAttribute("href");
  return `${element.tagName} ${element.getAttribute("aria-label") ?? (element.name || element.textContent)}`;
}

/** Remembers what within `element` has the focus; answers what gives it to the same thing in what stands there then. */
function holder(element) {
  const at = document.activeElement;
  if (at === element || !element.contains(at)) return () => {};
  const name = nameOf(at);
  const keyed = at.closest("[data-key]");
  const row = keyed && keyed !== element && element.contains(keyed) ? keyed.dataset.key : null;
  const same = (of) => focusables(of).filter((one) => nameOf(one) === name);
  const before = same(row === null ? element : keyed);
  const nth = before.indexOf(at);
  return (now) => {
    if (document.activeElement !== document.body) return;
    const within = row === null ? now : [...now.querySelectorAll("[data-key]")].find((one) => one.dataset.key === row);
    const found = within ? same(within) : [];
    const back = found.length === before.length ? found[nth] : found.length === 1 ? found[0] : null;
    back?.focus({ preventScroll: true });
    // What cannot be pressed now cannot hold it.
    if (document.activeElement === document.body) byId("main").focus({ preventScroll: true });
  };
}

/** What of an element is open and shut, by what stands in its line. */
const folds = (element) => new Map([...element.querySelectorAll("details")].map((fold) => [fold.querySelector("summary")?.textContent, fold.open]));

/** Opens and shuts what has the same lines as before. */
function unfold(element, opened) {
  for (const fold of element.querySelectorAll("details")) {
    const was = opened.get(fold.querySelector("summary")?.textContent);
    if (was !== undefined) fold.open = was;
  }
}

/**
 * Brings `parent` to one child per item, in order. A child whose `sign` did not change stays as it is, with focus,
 * selection and open details; so a list can be told anew each second. `update(child, item)` tells what alone changes
 * without being worth a new child.
 */
export function keep(parent, items, { key, sign = JSON.stringify, make, update = () => {} }) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    const mark = String(sign(item));
    let child = old.get(name);
    old.delete(name);
    if (!child || child.dataset.sign !== mark) {
      const fresh = make(item);
      fresh.dataset.key = name;
      fresh.dataset.sign = mark;
      if (child) {
        if (child === at) at = fresh;
        swap(child, fresh);
      }
      child = fresh;
    }
    update(child, item);
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
  }
  for (const gone of old.values()) {
    const held = gone.contains(document.activeElement);
    const beside = gone.nextElementSibling ?? gone.previousElementSibling;
    gone.remove();
    if (held) ((beside && focusables(beside)[0]) ?? byId("main")).focus({ preventScroll: true });
  }
}

/** Puts `fresh` in the place of `old`, and the focus where it was, as far as that is still there; what was open stays so. */
function swap(old, fresh) {
  const back = holder(old);
  const itself = document.activeElement === old;
  unfold(fresh, folds(old));
  old.replaceWith(fresh);
  if (itself) fresh.focus({ preventScroll: true });
  else back(fresh);
}

function focusables(element) {
  return [...element.querySelectorAll("a[href],button,summary,input,select,textarea,[tabindex]")];
}

/** An element by its id: one that the page always has. */
export const byId = (id) => document.getElementById(id);

/** Calls `handler` for an event until the signal aborts. */
export function listen(target, event, handler, signal) {
  target.addEventListener(event, handler, { signal });
}
