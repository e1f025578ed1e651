// Of which events of a device, beside those of zones, its user is told.

import * as api from "../api.js";
import { attempt } from "../complaints.js";
import { make } from "../dom.js";
import { t } from "../i18n.js";

/** What no zone decides about. @type {Record<string, string>} */
const KINDS = { silence: t("notices.silence"), speeding: t("notices.speeding"), meeting: t("notices.meeting") };

export class DeviceNotices extends HTMLElement {
  /** @type {string | null} */
  device = null;
  /** @type {string[]} of which the user is told */
  chosen = [];
  /** @type {Map<string, HTMLInputElement>} */
  boxes = new Map();
  error = make("p", { className: "refusal", role: "alert", hidden: true });

  connectedCallback() {
    if (this.firstChild) return;
    const fields = make("fieldset", { className: "checks" }, make("legend", { text: t("notices.title") }));
    for (const [kind, text] of Object.entries(KINDS)) {
      const box = make("input", { type: "checkbox", name: kind, disabled: true, "data-key": `notice ${kind}` });
      box.addEventListener("change", () => this.choose());
      this.boxes.set(kind, box);
      fields.append(make("label", { className: "check" }, box, make("span", { text })));
    }
    this.append(fields, make("p", { className: "hint", text: t("notices.how") }), this.error);
  }

  /**
   * Show what is chosen of a device.
   * @param {string} device
   */
  async show(device) {
    if (device === this.device) return;
    this.device = device;
    for (const box of this.boxes.values()) box.disabled = true;
    await this.take(device, () => api.notices(device));
  }

  async choose() {
    const { device } = this;
    if (device === null) return;
    const others = this.chosen.filter((kind) => !(kind in KINDS));
    const own = [...this.boxes].filter(([, box]) => box.checked).map(([kind]) => kind);
    await this.take(device, () => api.chooseNotices(device, [...others, ...own]));
  }

  /**
   * @param {string} device
   * @param {() => Promise<string[]>} asks returns what is chosen
   */
  async take(device, asks) {
    const chosen = await attempt(this.error, asks);
    if (device !== this.device) return; // another one is shown meanwhile
    if (chosen) this.chosen = chosen;
    // What could not be stored is not shown as if it were.
    for (const [kind, box] of this.boxes) {
      box.checked = this.chosen.includes(kind);
      box.disabled = !chosen && box.disabled;
    }
  }
}
customElements.define("device-notices", DeviceNotices);
