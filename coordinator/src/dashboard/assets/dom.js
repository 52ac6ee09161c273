// Element builders. They only create elements and text nodes, so untrusted text is never parsed as markup. A test
// rejects every other way to create markup in these files.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

/**
 * Creates an HTML element. `props` may contain `class`, `on` (event handlers by name), `data` and attributes; `false`
 * and `null` are skipped.
 */
export function h(tag, props, ...children) {
  return initElement(document.createElement(tag), props, children);
}

/** Creates an SVG element, with the same arguments as `h`. */
export function svg(tag, props, ...children) {
  return initElement(document.createElementNS(SVG_NAMESPACE, tag), props, children);
}

function initElement(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    } else if (name === "data") {
      for (const [key, text] of Object.entries(value)) element.dataset[key] = String(text);
    } else if (name === "class") {
      element.setAttribute("class", Array.isArray(value) ? value.filter(Boolean).join(" ") : value);
    } else if (name === "value" || name === "checked" || name === "indeterminate") {
      element[name] = value;
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  appendChildren(element, children);
  return element;
}

/** Appends elements, strings, numbers and nested lists of them. `null`, `undefined` and booleans are skipped. */
export function appendChildren(element, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === true) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** Replaces the children of an element. */
export function setChildren(element, ...children) {
  element.replaceChildren();
  return appendChildren(element, ...children);
}

/**
 * Replaces the children of an element that is redrawn in place: the equivalent control keeps the focus and open
 * `<details>` stay open. If that control is gone, the focus moves to the page and never to its replacement, so that a
 * key press cannot trigger a different action than intended.
 */
export function updateChildren(element, ...children) {
  replaceKeepingFocus(element, captureFolds(element), children);
}

/** Like `updateChildren`, for content about a different subject: open `<details>` are not carried over. */
export function replaceContent(element, ...children) {
  replaceKeepingFocus(element, new Map(), children);
}

function replaceKeepingFocus(element, foldStates, children) {
  const restoreFocus = captureFocus(element);
  setChildren(element, children);
  // Elements inside closed `<details>` cannot be focused, so open those first.
  restoreFolds(element, foldStates);
  restoreFocus(element);
}

/** Identifies a focusable element among its siblings, even after it was recreated. */
function focusKey(element) {
  if (element.id) return `#${element.id}`;
  if (element.hasAttribute("href")) return element.getAttribute("href");
  return `${element.tagName} ${element.getAttribute("aria-label") ?? (element.name || element.textContent)}`;
}

/**
 * Remembers which element within `element` has the focus. The returned function focuses its equivalent in the new
 * content.
 */
function captureFocus(element) {
  const active = document.activeElement;
  if (active === element || !element.contains(active)) return () => {};
  const wantedKey = focusKey(active);
  const keyed = active.closest("[data-key]");
  const rowKey = keyed && keyed !== element && element.contains(keyed) ? keyed.dataset.key : null;
  const withSameKey = (root) => focusableElements(root).filter((candidate) => focusKey(candidate) === wantedKey);
  const candidates = withSameKey(rowKey === null ? element : keyed);
  const index = candidates.indexOf(active);
  return (root) => {
    if (document.activeElement !== document.body) return;
    const scope = rowKey === null ? root : [...root.querySelectorAll("[data-key]")].find((candidate) => candidate.dataset.key === rowKey);
    const matches = scope ? withSameKey(scope) : [];
    const target = matches.length === candidates.length ? matches[index] : matches.length === 1 ? matches[0] : null;
    target?.focus({ preventScroll: true });
    // A disabled control cannot take the focus.
    if (document.activeElement === document.body) byId("main").focus({ preventScroll: true });
  };
}

/** The open state of each `<details>` within an element, by its summary text. */
const captureFolds = (element) => new Map([...element.querySelectorAll("details")].map((fold) => [fold.querySelector("summary")?.textContent, fold.open]));

/** Restores the open state of each `<details>` whose summary text is unchanged. */
function restoreFolds(element, foldStates) {
  for (const fold of element.querySelectorAll("details")) {
    const wasOpen = foldStates.get(fold.querySelector("summary")?.textContent);
    if (wasOpen !== undefined) fold.open = wasOpen;
  }
}

/**
 * Reconciles the children of `parent` with `items`: one child per item, in order. A child whose signature is unchanged
 * is kept together with its focus, selection and open `<details>`, so a list can be redrawn every second.
 * `update(child, item)` patches values that change often and need no new child.
 */
export function reconcileChildren(parent, items, { key, signatureOf = JSON.stringify, create, update = () => {} }) {
  const existing = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let cursor = parent.firstElementChild;
  for (const item of items) {
    const id = String(key(item));
    const signature = String(signatureOf(item));
    let child = existing.get(id);
    existing.delete(id);
    if (!child || child.dataset.signature !== signature) {
      const fresh = create(item);
      fresh.dataset.key = id;
      fresh.dataset.signature = signature;
      if (child) {
        if (child === cursor) cursor = fresh;
        swapElement(child, fresh);
      }
      child = fresh;
    }
    update(child, item);
    if (child === cursor) cursor = cursor.nextElementSibling;
    else parent.insertBefore(child, cursor);
  }
  for (const stale of existing.values()) {
    const hadFocus = stale.contains(document.activeElement);
    const sibling = stale.nextElementSibling ?? stale.previousElementSibling;
    stale.remove();
    if (hadFocus) ((sibling && focusableElements(sibling)[0]) ?? byId("main")).focus({ preventScroll: true });
  }
}

/** Replaces `old` with `fresh`; the focus and open `<details>` are carried over. */
function swapElement(old, fresh) {
  const restoreFocus = captureFocus(old);
  const wasActive = document.activeElement === old;
  restoreFolds(fresh, captureFolds(old));
  old.replaceWith(fresh);
  if (wasActive) fresh.focus({ preventScroll: true });
  else restoreFocus(fresh);
}

function focusableElements(element) {
  return [...element.querySelectorAll("a[href],button,summary,input,select,textarea,[tabindex]")];
}

/** An element that is always in the page, by its id. */
export const byId = (id) => document.getElementById(id);

/** Adds an event listener that is removed when the signal aborts. */
export function listen(target, event, handler, signal) {
  target.addEventListener(event, handler, { signal });
}
