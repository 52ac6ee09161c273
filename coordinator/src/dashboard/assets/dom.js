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

/** The same, and the focus stays at what stands in the same place: for what is told anew while one looks. */
export function refill(element, ...children) {
  const at = element.contains(document.activeElement) ? focusables(element).indexOf(document.activeElement) : -1;
  fill(element, ...children);
  if (at >= 0) focusables(element)[at]?.focus({ preventScroll: true });
}

/**
 * Brings `parent` to one child per item, in order. A child whose `sign` did not change stays as it is, with focus,
 * selection and open details; so a list can be told anew each second.
 */
export function keep(parent, items, { key, sign = JSON.stringify, make }) {
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

/** Puts `fresh` in the place of `old`, and the focus where it was, as far as that is still there. */
function swap(old, fresh) {
  const within = old.contains(document.activeElement) ? focusables(old).indexOf(document.activeElement) : -1;
  const itself = document.activeElement === old;
  old.replaceWith(fresh);
  if (itself) fresh.focus({ preventScroll: true });
  else if (within >= 0) focusables(fresh)[within]?.focus({ preventScroll: true });
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
