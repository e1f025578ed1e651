// Places by name, from the geocoder behind `/search`, while somebody types in the search box.

import * as api from "../api.js";
import { make } from "../dom.js";
import { t } from "../i18n.js";

/** @import { GeocodedPlace } from "../types/api.js" */

const PAUSE_MS = 350;
const SHORTEST = 3;

export class PlaceSearch extends HTMLElement {
  /** @type {number | undefined} */
  timer;
  /** @type {AbortController | undefined} */
  asking;

  connectedCallback() {
    this.hidden = true;
    this.setAttribute("role", "group");
    this.setAttribute("aria-label", t("search.places"));
  }

  /**
   * Look for places after a pause; nothing is said when there are none, or no geocoder.
   * @param {string} query
   */
  ask(query) {
    clearTimeout(this.timer);
    this.asking?.abort();
    const text = query.trim();
    if (text.length < SHORTEST) { this.show([]); return; }
    this.timer = setTimeout(async () => {
      const asking = this.asking = new AbortController();
      try { this.show(await api.search(text, asking.signal)); } catch { this.show([]); }
    }, PAUSE_MS);
  }

  /** @param {GeocodedPlace[]} places */
  show(places) {
    this.replaceChildren(...places.map((place) => {
      const button = make("button", { type: "button", className: "place" },
        make("svg-icon", { name: "fit" }), make("span", { text: place.display_name }));
      button.addEventListener("click", () => this.dispatchEvent(new CustomEvent("place", { detail: place, bubbles: true })));
      return button;
    }));
    this.hidden = places.length === 0;
  }
}
customElements.define("place-search", PlaceSearch);
