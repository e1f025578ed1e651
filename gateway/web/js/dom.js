// Elements made by DOM calls alone, so that no markup is ever parsed from text.

/**
 * An element with text, class, attributes and children in one call.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {{text?: string, className?: string} & Record<string, unknown>} [attributes] true sets an empty attribute;
 *   false, null and undefined set none
 * @param {...(Node | string | null | undefined | false)} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function make(tag, { text, className, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  for (const child of children) if (child) element.append(child);
  return element;
}

/**
 * Set text only where it changed: a screen reader and a selection are left in peace.
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Draw a part of the page anew. What had the focus in it has it afterwards, if it is still there by its `data-key`, or by
 * what screen readers call it: a key that is pressed meanwhile must not go nowhere.
 * @param {Element} part
 * @param {() => void} draw
 */
export function drawAnew(part, draw) {
  const { activeElement } = document;
  const focused = activeElement && part.contains(activeElement) ? selectorOf(activeElement) : "";
  draw();
  if (focused && !part.contains(document.activeElement)) /** @type {HTMLElement | null} */ (part.querySelector(focused))?.focus({ preventScroll: true });
}

/** @param {Element} element */
function selectorOf(element) {
  const key = element.closest("[data-key]")?.getAttribute("data-key");
  if (key) return `[data-key="${CSS.escape(key)}"]`;
  const label = element.getAttribute("aria-label");
  return label ? `${element.localName}[aria-label="${CSS.escape(label)}"]` : "";
}

/**
 * The element of the page with this id. Throws an Error where there is none.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {string} id
 * @param {Tag} tag what it has to be
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function byId(id, tag) {
  const found = document.getElementById(id);
  if (found?.localName !== tag) throw new Error(`the page has no <${tag} id="${id}">`);
  return /** @type {HTMLElementTagNameMap[Tag]} */ (found);
}

/**
 * A button that shows an icon alone.
 * @param {string} icon
 * @param {string} label what it does, for screen readers and as its tooltip
 * @param {Record<string, unknown>} [attributes]
 */
export function iconButton(icon, label, attributes = {}) {
  return make("button", { className: "icon-button", type: "button", "aria-label": label, title: label, ...attributes },
    make("svg-icon", { name: icon }));
}
