// <svg-icon name="plus">: drawn with DOM calls, so that no markup is ever parsed from text.

/** @type {Record<string, string>} */
const PATHS = {
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  close: "M6 6l12 12M18 6L6 18",
  search: "M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM15.5 15.5L20 20",
  fit: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
  leave: "M10 4H5v16h5M14 8l4 4-4 4M18 12H9",
  settings: "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.7v4.6M9 14.7v4.6",
  live: "M12 14.2a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4zM7.4 16.6a6.5 6.5 0 0 1 0-9.2M16.6 7.4a6.5 6.5 0 0 1 0 9.2M4.6 19.4a10.5 10.5 0 0 1 0-14.8M19.4 4.6a10.5 10.5 0 0 1 0 14.8",
  diary: "M5 5.5h14V20H5zM5 10h14M9 3v4M15 3v4M9 14h2M13 14h2",
  devices: "M7 3h10v18H7zM10.5 18h3",
  data: "M8 4v15M4.5 15.5L8 19l3.5-3.5M16 20V5M12.5 8.5L16 5l3.5 3.5",
  people: "M9 11.5a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM2.5 20c.4-3.6 3-5.5 6.5-5.5s6.1 1.9 6.5 5.5M16 5a3.2 3.2 0 0 1 0 6M18 14.8c2 .7 3.2 2.4 3.5 5.2",
  operations: "M4 6.5h16M4 12h16M4 17.5h16M8 4.5v4M15 10v4M10.5 15.5v4",
  target: "M12 8.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7zM12 2.5v4M12 17.5v4M2.5 12h4M17.5 12h4",
  copy: "M9 9h10v11H9zM5 15V4h10",
  check: "M5 12.5l4.5 4.5L19 7.5",
  home: "M4 11.5L12 5l8 6.5M6 10v9h12v-9M10 19v-5h4v5",
  work: "M4 8.5h16V19H4zM9 8.5V5.5h6v3M4 13h16",
  pin: "M12 21s-6.5-6.2-6.5-11a6.5 6.5 0 0 1 13 0c0 4.8-6.5 11-6.5 11zM12 7.8a2.2 2.2 0 1 0 0 4.4 2.2 2.2 0 0 0 0-4.4z",
  zone: "M5 8l7-4 7 4v8l-7 4-7-4zM12 10.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6z",
  bell: "M6 16.5V11a6 6 0 0 1 12 0v5.5l1.5 1.5h-15zM10 20.5h4",
  trip: "M6 19a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM18 9a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM8 17h6.5a3.2 3.2 0 0 0 0-6.4h-5a3.2 3.2 0 0 1 0-6.4H16",
  gap: "M4 12h2.5M10.8 12h2.4M17.5 12H20",
  play: "M8 5.5l10 6.5-10 6.5z",
  pause: "M8.5 6v12M15.5 6v12",
  previous_year: "M18 6l-6 6 6 6M11 6l-6 6 6 6",
  next_year: "M6 6l6 6-6 6M13 6l6 6-6 6",
  previous: "M14.5 6l-6 6 6 6",
  next: "M9.5 6l6 6-6 6",
};

export class SvgIcon extends HTMLElement {
  static observedAttributes = ["name"];

  connectedCallback() { this.draw(); }

  attributeChangedCallback() { if (this.isConnected) this.draw(); }

  draw() {
    const namespace = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(namespace, "svg");
    svg.setAttribute("viewBox", "0 0 24 24");
    svg.setAttribute("aria-hidden", "true");
    const path = document.createElementNS(namespace, "path");
    path.setAttribute("d", PATHS[this.getAttribute("name") ?? ""] ?? "");
    svg.append(path);
    this.replaceChildren(svg);
  }
}
customElements.define("svg-icon", SvgIcon);
