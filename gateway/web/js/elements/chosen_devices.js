// The devices that are kept in sight beside the selected one: a press goes to a device, a second
// button lets it go.

import { make } from "../dom.js";
import { t } from "../i18n.js";

export class ChosenDevices extends HTMLElement {
  /** Events: `pick` and `drop` (detail: the device's name). */
  shown = "";

  connectedCallback() {
    this.setAttribute("role", "group");
    this.setAttribute("aria-label", t("chosen.label"));
    this.hidden = true;
  }

  /** @param {string[]} devices */
  show(devices) {
    const key = devices.join("\n");
    if (key === this.shown) return;
    this.shown = key;
    this.hidden = devices.length === 0;
    this.replaceChildren(...devices.map((device) => this.chip(device)));
  }

  /** @param {string} device */
  chip(device) {
    const name = device.split("/").slice(1).join("/") || device;
    const pick = make("button", { type: "button", className: "pick", title: device, text: name });
    const drop = make("button", { type: "button", className: "drop", "aria-label": t("chosen.drop", { name }), title: t("chosen.drop", { name }) },
      make("svg-icon", { name: "close" }));
    const tell = (/** @type {string} */ what) => this.dispatchEvent(new CustomEvent(what, { detail: device }));
    pick.addEventListener("click", () => tell("pick"));
    drop.addEventListener("click", () => tell("drop"));
    return make("span", { className: "chosen" }, pick, drop);
  }
}
customElements.define("chosen-devices", ChosenDevices);
