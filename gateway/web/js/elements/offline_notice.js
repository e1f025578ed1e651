// Says that the gateway cannot be reached, and of when what is shown is.

import { make, setText } from "../dom.js";
import { moment } from "../format.js";
import { t } from "../i18n.js";

export class OfflineNotice extends HTMLElement {
  heading = make("b");
  text = make("span");

  connectedCallback() {
    this.setAttribute("role", "status");
    this.replaceChildren(this.heading, this.text);
    this.show(null);
  }

  /** @param {number | null} since ms; null while the gateway is there */
  show(since) {
    this.hidden = since === null;
    // A status is read when its text changes, so there is none while nothing is to be said.
    setText(this.heading, since === null ? "" : t("offline.since", { time: moment(since) }));
    setText(this.text, since === null ? "" : t("offline.shown"));
  }
}
customElements.define("offline-notice", OfflineNotice);
