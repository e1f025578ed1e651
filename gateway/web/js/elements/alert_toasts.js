// What is told at once, in whatever view: a line for each alert, until it is closed or a while has gone.

import { iconButton, make } from "../dom.js";
import { moment } from "../format.js";
import { t } from "../i18n.js";
import { happening } from "../zones/zone_list.js";

/** @import { ZoneEvent } from "../types/api.js" */

const SHOWN_MS = 60e3;
const SHOWN_MAX = 4;

export class AlertToasts extends HTMLElement {
  /** Events: `show` (detail: an event). */
  connectedCallback() {
    this.setAttribute("role", "status");
    this.setAttribute("aria-label", t("alerts.label"));
  }

  /** @param {ZoneEvent} event */
  tell(event) {
    const show = make("button", { type: "button", className: "alert-text" }, make("svg-icon", { name: "bell" }),
      make("span", { text: happening(event) }), make("span", { className: "when", text: moment(event.time) }));
    const close = iconButton("close", t("close"));
    const toast = make("div", { className: "alert-toast" }, show, close);
    show.addEventListener("click", () => { toast.remove(); this.dispatchEvent(new CustomEvent("show", { detail: event })); });
    close.addEventListener("click", () => toast.remove());
    this.append(toast);
    while (this.children.length > SHOWN_MAX) this.firstElementChild?.remove();
    setTimeout(() => toast.remove(), SHOWN_MS);
    // A page that nobody looks at: the system says it, if the viewer has allowed that.
    if (document.hidden && globalThis.Notification?.permission === "granted") {
      new Notification("Waylog", { body: happening(event), tag: event.id });
    }
  }
}
customElements.define("alert-toasts", AlertToasts);
