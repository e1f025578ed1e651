// Places by name, from the geocoder behind `/search`, while somebody types in the search box.

import * as api from "../api.js";
import { make } from "./svg_icon.js";

const PAUSE_MS = 350;
const SHORTEST = 3;

customElements.define("place-search", class extends HTMLElement {
  connectedCallback() {
    this.hidden = true;
    this.setAttribute("role", "group");
    this.setAttribute("aria-label", "Places with this name");
  }

  /** Look for places after a pause; nothing is said when there are none, or no geocoder. */
  ask(query) {
    clearTimeout(this.timer);
    this.asking?.abort();
    const text = query.trim();
    if (text.length < SHORTEST) { this.show([]); return; }
    this.timer = setTimeout(async () => {
      this.asking = new AbortController();
      try { this.show(await api.search(text, this.asking.signal)); } catch { this.show([]); }
    }, PAUSE_MS);
  }

  show(places) {
    this.replaceChildren(...places.map((place) => {
      const button = make("button", { type: "button", className: "place" },
        make("svg-icon", { name: "fit" }), make("span", { text: place.display_name }));
      button.addEventListener("click", () => this.dispatchEvent(new CustomEvent("place", { detail: place, bubbles: true })));
      return button;
    }));
    this.hidden = places.length === 0;
  }
});
