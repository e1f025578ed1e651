// Says that the chosen base map cannot be loaded.

import { make, setText } from "../dom.js";
import { t } from "../i18n.js";

export class MapNotice extends HTMLElement {
  /** Events: `retry`. */
  text = make("span");
  button = make("button", { type: "button", className: "plain", text: t("base_map.retry") });

  connectedCallback() {
    if (!this.firstChild) {
      this.button.addEventListener("click", () => this.dispatchEvent(new Event("retry")));
      this.append(make("span", { role: "status" }, this.text), this.button);
    }
  }

  /** @param {string | null} server that fails; null where none does */
  show(server) {
    this.hidden = server === null;
    setText(this.text, server === null ? "" : t("base_map.failed", { server }));
  }
}
customElements.define("map-notice", MapNotice);
