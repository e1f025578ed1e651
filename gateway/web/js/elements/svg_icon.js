// <svg-icon name="plus">: drawn with DOM calls, so that no markup is ever parsed from text.

const PATHS = {
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  close: "M6 6l12 12M18 6L6 18",
  search: "M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM15.5 15.5L20 20",
  fit: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
  leave: "M10 4H5v16h5M14 8l4 4-4 4M18 12H9",
  theme: "M12 3.5a8.5 8.5 0 1 0 0 17zM12 3.5a8.5 8.5 0 0 1 0 17",
  target: "M12 8.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7zM12 2.5v4M12 17.5v4M2.5 12h4M17.5 12h4",
  copy: "M9 9h10v11H9zM5 15V4h10",
  check: "M5 12.5l4.5 4.5L19 7.5",
  home: "M4 11.5L12 5l8 6.5M6 10v9h12v-9M10 19v-5h4v5",
  work: "M4 8.5h16V19H4zM9 8.5V5.5h6v3M4 13h16",
  pin: "M12 21s-6.5-6.2-6.5-11a6.5 6.5 0 0 1 13 0c0 4.8-6.5 11-6.5 11zM12 7.8a2.2 2.2 0 1 0 0 4.4 2.2 2.2 0 0 0 0-4.4z",
  battery: "M3 8h15v8H3zM18 10.5h2.5v3H18",
  bolt: "M13 3L6 13.5h5L10.5 21 18 10.5h-5.5z",
  phone: "M8 3h8v18H8zM11 18h2",
};

customElements.define("svg-icon", class extends HTMLElement {
  static observedAttributes = ["name"];

  connectedCallback() { this.draw(); }

  attributeChangedCallback() { if (this.isConnected) this.draw(); }

  draw() {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 24 24");
    svg.setAttribute("aria-hidden", "true");
    const path = document.createElementNS(svg.namespaceURI, "path");
    path.setAttribute("d", PATHS[this.getAttribute("name")] ?? "");
    svg.append(path);
    this.replaceChildren(svg);
  }
});

/** An element with text, class and children in one call. */
export function make(tag, { text, className, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter(Boolean));
  return element;
}

/** Set text only where it changed: a screen reader and a selection are left in peace. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
