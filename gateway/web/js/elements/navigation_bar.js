// The views of the page as links; the one that is shown is marked.

import { make } from "../dom.js";

/** @import { ViewName } from "../navigation.js" */

export class NavigationBar extends HTMLElement {
  /** Events: `choose` (detail: a view's name). */
  /** @type {Map<ViewName, HTMLAnchorElement>} */
  links = new Map();

  /** @param {{name: ViewName, title: string, icon: string, href: string}[]} views */
  setViews(views) {
    this.links = new Map(views.map(({ name, title, icon, href }) => {
      const link = make("a", { href }, make("svg-icon", { name: icon }), make("span", { text: title }));
      link.addEventListener("click", (event) => {
        if (event.metaKey || event.ctrlKey || event.shiftKey) return; // a tab or window of its own
        event.preventDefault();
        this.dispatchEvent(new CustomEvent("choose", { detail: name }));
      });
      return [name, link];
    }));
    this.replaceChildren(...this.links.values());
  }

  /**
   * Offer a view, or not; links of those that are not for the viewer are hidden.
   * @param {ViewName} name
   * @param {boolean} offered
   */
  offer(name, offered) {
    const link = this.links.get(name);
    if (link) link.hidden = !offered;
  }

  /**
   * Show how many things of a view wait for the viewer.
   * @param {ViewName} name
   * @param {string} text that says so, and is empty for none
   * @param {number} number
   */
  count(name, text, number) {
    const link = this.links.get(name);
    const before = link?.querySelector(".waiting");
    if (!link || (before?.getAttribute("data-count") ?? "0") === String(number)) return;
    before?.remove();
    if (number) link.append(make("b", { className: "waiting", "data-count": number }, make("span", { "aria-hidden": "true", text: String(number) }), make("span", { className: "visually-hidden", text })));
  }

  /** @param {ViewName} chosen */
  mark(chosen) {
    for (const [name, link] of this.links) {
      if (name === chosen) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }
}
customElements.define("navigation-bar", NavigationBar);
