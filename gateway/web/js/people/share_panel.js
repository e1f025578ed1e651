// Links that show some devices to people without an account: made, handed on once, and ended.

import { attempt, complain } from "../complaints.js";
import * as api from "../api.js";
import { iconButton, make, setText } from "../dom.js";
import { copyable } from "../elements/copyable.js";
import { moment } from "../format.js";
import { t } from "../i18n.js";
import { PRECISIONS, precisionOf, precisionText } from "./showing_terms.js";

/** @import { NewShare, OwnShare, ShareOffer } from "../types/api.js" */

const HOUR_MS = 3600e3;
/** @type {[hours: number, text: string][]} */
const LIFETIMES = [[1, t("share.hour")], [8, t("share.hours_8")], [24, t("share.day")], [7 * 24, t("share.week")], [30 * 24, t("share.month")]];

export class SharePanel extends HTMLElement {
  /** Events: `announce` (detail: a text for screen readers). */
  /** @type {() => string[]} the viewer's devices */
  ownDevices = () => [];
  /** @type {OwnShare[]} */
  shares = [];
  /** @type {string | null} a blob: URL, released with what it shows */
  picture = null;
  add = make("button", { type: "button", className: "primary add", "aria-expanded": "false" }, make("svg-icon", { name: "plus" }), t("share.new"));
  lead = make("p", { className: "lead", text: t("share.lead") });
  error = make("p", { className: "refusal", role: "alert", hidden: true });
  list = make("ul", { className: "cards" });
  devices = make("fieldset", { className: "checks" });
  name = make("input", { name: "name", maxlength: "100", autocomplete: "off" });
  lifetime = make("select", { name: "lifetime" }, ...LIFETIMES.map(([hours, text]) => make("option", { value: String(hours), text })));
  kind = make("select", { name: "kind" }, make("option", { value: "live", text: t("share.live") }), make("option", { value: "period", text: t("share.period") }));
  from = make("input", { type: "datetime-local", name: "from" });
  to = make("input", { type: "datetime-local", name: "to" });
  period = make("div", { className: "pair", hidden: true },
    make("label", {}, make("span", { text: t("share.from") }), this.from), make("label", {}, make("span", { text: t("share.to") }), this.to));
  precision = make("select", { name: "precision" }, ...PRECISIONS.map(([value, text]) => make("option", { value, text })));
  home = make("input", { type: "checkbox", name: "home", checked: true });
  submit = make("button", { className: "primary", type: "submit", text: t("share.make") });
  /** @type {HTMLFormElement} */
  form = make("form", { className: "add-form" }, this.devices,
    make("label", {}, make("span", { text: t("share.name") }), this.name),
    make("label", {}, make("span", { text: t("share.kind") }), this.kind), this.period,
    make("label", {}, make("span", { text: t("share.lifetime") }), this.lifetime),
    make("label", {}, make("span", { text: t("share.precision") }), this.precision),
    make("label", { className: "check" }, this.home, make("span", { text: t("share.home") })),
    this.submit);
  made = make("div", { className: "setup", hidden: true });
  heading = make("h2", { tabindex: "-1", text: t("share.new") });
  box = make("section", { className: "box", hidden: true });

  connectedCallback() {
    if (this.firstChild) return;
    const close = iconButton("close", t("close"));
    close.addEventListener("click", () => { this.forget(); this.add.focus(); });
    this.box.append(make("header", {}, this.heading, close), this.form, this.made);
    this.append(this.add, this.box, this.error, this.lead, this.list);
    this.add.addEventListener("click", () => this.ask());
    this.kind.addEventListener("change", () => this.kindChanged());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.make();
    });
  }

  async load() {
    await attempt(this.error, async () => { this.shares = await api.shares(); });
    this.draw();
  }

  /** Forget the link: it is shown once. */
  forget() {
    if (this.picture) URL.revokeObjectURL(this.picture);
    this.picture = null;
    this.made.replaceChildren();
    this.box.hidden = true;
    this.add.hidden = false;
    this.add.setAttribute("aria-expanded", "false");
  }

  ask() {
    this.forget();
    const devices = this.ownDevices();
    this.devices.replaceChildren(make("legend", { text: t("share.devices") }), ...devices.map((device) => (
      make("label", { className: "check" }, make("input", { type: "checkbox", name: "device", value: device, checked: devices.length === 1 }),
        make("span", { text: device.slice(device.indexOf("/") + 1) })))));
    if (!devices.length) this.devices.append(make("p", { className: "none", text: t("share.no_device") }));
    this.name.value = "";
    this.kind.value = "live";
    this.lifetime.value = "8";
    this.precision.value = "exact";
    this.home.checked = true;
    const now = Date.now();
    this.from.value = localTime(now - 24 * HOUR_MS);
    this.to.value = localTime(now);
    this.kindChanged();
    this.form.hidden = false;
    this.made.hidden = true;
    this.add.hidden = true;
    this.add.setAttribute("aria-expanded", "true");
    this.box.hidden = false;
    this.heading.focus();
  }

  kindChanged() {
    this.period.hidden = this.kind.value !== "period";
    this.from.required = this.to.required = !this.period.hidden;
  }

  async make() {
    const chosen = [...this.devices.querySelectorAll("input")].filter((input) => input.checked).map((input) => input.value);
    if (!chosen.length) {
      complain(this.error, new Error(t("share.choose_device")));
      return;
    }
    /** @type {ShareOffer} */
    const offer = {
      devices: chosen, until: Date.now() + Number(this.lifetime.value) * HOUR_MS, name: this.name.value, hides_home: this.home.checked,
      ...precisionOf(this.precision.value),
      ...(this.kind.value === "period" ? { from: new Date(this.from.value).getTime(), to: Math.min(Date.now() - 1000, new Date(this.to.value).getTime()) } : {}),
    };
    this.submit.disabled = true;
    const made = await attempt(this.error, () => api.makeShare(offer));
    this.submit.disabled = false;
    if (!made) return;
    this.show(made);
    await this.load();
  }

  /** @param {NewShare} made */
  show(made) {
    this.picture = URL.createObjectURL(new Blob([made.qr_code], { type: "image/svg+xml" }));
    /** @type {HTMLElement[]} */
    const parts = [make("p", { text: t("share.hand_on") }), make("img", { className: "qr", alt: t("share.qr"), src: this.picture }), copyable(t("share.link"), made.url)];
    if ("share" in navigator) {
      const send = make("button", { type: "button", className: "primary", text: t("share.send") });
      send.addEventListener("click", () => navigator.share({ url: made.url }).catch(() => {}));
      parts.push(send);
    }
    this.made.replaceChildren(...parts, make("p", { className: "caution", text: t("share.once") }));
    this.form.hidden = true;
    this.made.hidden = false;
    this.heading.focus();
    this.announce(t("share.hand_on"));
  }

  draw() {
    this.list.replaceChildren(...this.shares.map((share) => this.card(share)));
    setText(this.lead, this.shares.length ? t("share.lead") : [t("share.lead"), t("share.none")].join(" "));
  }

  /** @param {OwnShare} share */
  card(share) {
    const names = share.devices.map((device) => device.slice(device.indexOf("/") + 1)).join(", ");
    const title = share.name || names;
    const end = make("button", { type: "button", className: "plain danger", text: t("share.end"), "aria-label": t("share.end_of", { name: title }) });
    end.addEventListener("click", async () => {
      end.disabled = true;
      await attempt(this.error, () => api.endShare(share.id));
      this.announce(t("share.ended", { name: title }));
      await this.load();
    });
    const facts = [
      share.name ? names : "",
      share.live ? t("share.live") : t("shared.period", { from: moment(share.from ?? 0), to: moment(share.to ?? 0) }),
      precisionText(share),
      share.hides_home ? "" : t("share.home_shown"),
      t("share.until", { time: moment(share.until) }),
    ];
    return make("li", {}, make("div", {}, make("h3", { text: title }), make("p", { text: facts.filter(Boolean).join(" · ") })), end);
  }

  /** @param {string} text */
  announce(text) {
    this.dispatchEvent(new CustomEvent("announce", { detail: text }));
  }
}
customElements.define("share-panel", SharePanel);

/**
 * A time as an input of the browser has it, in the browser's own zone.
 * @param {number} ms
 */
function localTime(ms) {
  return new Date(ms - new Date(ms).getTimezoneOffset() * 60e3).toISOString().slice(0, 16);
}
