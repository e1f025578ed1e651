// Adding a phone: a name and an app become a token with what sets the app up, which is shown once;
// then the first position is waited for.

import * as api from "../api.js";
import { iconButton, make, setText } from "../dom.js";
import { copyable } from "../elements/copyable.js";
import { coordinates, moment } from "../format.js";
import { t } from "../i18n.js";

/** @import { DeviceRecord } from "../device_store.js" */
/** @import { AppName, NewDeviceToken, Refusal } from "../types/api.js" */

const ASK_REFUSALS_MS = 5000;

/** @type {Record<AppName, {title: string, how: string, open: string}>} */
const APPS = {
  owntracks_mqtt: { title: t("app.owntracks_mqtt"), how: t("app.owntracks_how"), open: t("app.owntracks_open") },
  owntracks_http: { title: t("app.owntracks_http"), how: t("app.owntracks_how"), open: t("app.owntracks_open") },
  overland: { title: t("app.overland"), how: t("app.overland_how"), open: t("app.overland_open") },
  traccar: { title: t("app.traccar"), how: t("app.traccar_how"), open: "" },
  gpslogger: { title: t("app.gpslogger"), how: t("app.gpslogger_how"), open: "" },
  colota: { title: t("app.colota"), how: t("app.colota_how"), open: t("app.colota_open") },
  home_assistant: { title: t("app.home_assistant"), how: t("app.home_assistant_how"), open: "" },
};

export class AppSetup extends HTMLElement {
  /** Events: `close`, `made` (a token was). */
  /** @type {NewDeviceToken | null} */
  made = null;
  /** @type {string[]} blob: URLs, released with what they show */
  urls = [];
  /** @type {Map<string, number>} */
  refusedBefore = new Map();
  /** @type {(device: string) => number} when a device was last heard of, ms by the platform's clock */
  lastHeard = () => -Infinity;
  heardBefore = -Infinity;
  /** @type {number | undefined} */
  timer;
  heading = make("h2", { tabindex: "-1", text: t("add.title") });
  name = make("input", { name: "device", required: true, maxlength: "128", autocomplete: "off", spellcheck: "false" });
  apps = make("select", { name: "app" });
  refusal = make("p", { className: "refusal", role: "alert", hidden: true });
  submit = make("button", { className: "primary", type: "submit", text: t("add.make") });
  /** @type {HTMLFormElement} */
  form = make("form", { className: "add-form" },
    make("label", {}, make("span", { text: t("add.name") }), this.name),
    make("label", {}, make("span", { text: t("add.app") }), this.apps), this.refusal, this.submit);
  setup = make("div", { className: "setup", hidden: true });
  status = make("div", { className: "setup-status", "aria-live": "polite", hidden: true });
  refused = make("ul", { className: "refused" });

  connectedCallback() {
    if (this.firstChild) return;
    const close = iconButton("close", t("close"));
    close.addEventListener("click", () => this.dispatchEvent(new Event("close")));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.make();
    });
    this.append(make("header", {}, this.heading, close), this.form, this.setup, this.status, this.refused);
  }

  /**
   * Ask for a name and an app.
   * @param {{hasMqtt: boolean, name?: string}} platform
   */
  ask({ hasMqtt, name = "" }) {
    this.forget();
    const offered = /** @type {AppName[]} */ (Object.keys(APPS)).filter((app) => hasMqtt || app !== "owntracks_mqtt");
    this.apps.replaceChildren(...offered.map((app) => make("option", { value: app, text: APPS[app].title })));
    this.name.value = name;
    this.form.hidden = false;
    this.refusal.hidden = true;
    (name ? this.apps : this.name).focus();
  }

  /** Forget the token: it is shown once. */
  forget() {
    clearTimeout(this.timer);
    this.made = null;
    this.setup.replaceChildren();
    this.refused.replaceChildren();
    this.setup.hidden = this.status.hidden = true;
    for (const url of this.urls.splice(0)) URL.revokeObjectURL(url);
  }

  async make() {
    this.submit.disabled = true;
    this.refusal.hidden = true;
    try {
      const made = await api.makeDeviceToken(this.name.value, /** @type {AppName} */ (this.apps.value));
      this.heardBefore = this.lastHeard(made.device);
      // Asked before the code is shown: whatever is refused from then on is news.
      this.refusedBefore = new Map((await this.refusals(made.device)).map(({ reason, count }) => [reason, count]));
      if (!this.hidden) this.show(made);
      this.dispatchEvent(new Event("made"));
      this.watch();
    } catch (error) {
      this.refusal.textContent = error instanceof Error ? error.message : String(error);
      this.refusal.hidden = false;
    } finally {
      this.submit.disabled = false;
    }
  }

  /** @param {NewDeviceToken} made */
  show(made) {
    const { setup } = made;
    const { title, how, open } = APPS[setup.app];
    this.made = made;
    this.form.hidden = true;
    /** @type {HTMLElement[]} */
    const parts = [make("h3", { text: `${made.device} · ${title}` }), make("p", { text: how })];
    if (isOfThisMachine(location.hostname)) parts.push(make("p", { className: "caution", text: t("add.local", { host: location.hostname }) }));
    if (setup.qr_code) {
      parts.push(make("img", { className: "qr", alt: t("add.qr", { device: made.device }), src: this.urlOf(setup.qr_code, "image/svg+xml") }));
    }
    if (setup.link && open) parts.push(make("a", { className: "primary setup-link", href: setup.link, text: open }));
    if (setup.file && setup.file_name) {
      parts.push(make("a", { className: "primary setup-link", href: this.urlOf(setup.file, "application/octet-stream"), download: setup.file_name, text: t("add.download", { file: setup.file_name }) }));
    }
    const copied = [copyable(t("add.token"), made.token)];
    if (setup.address) copied.unshift(copyable(t("add.address"), setup.address));
    parts.push(make("details", {}, make("summary", { text: t("add.by_hand") }), ...copied), make("p", { className: "caution", text: t("add.once") }));
    this.setup.replaceChildren(...parts);
    this.setup.hidden = this.status.hidden = false;
    this.status.replaceChildren(make("p", { className: "wait" }, make("span", { className: "beacon" }), t("add.waiting")));
    this.heading.focus();
  }

  /**
   * @param {string} text
   * @param {string} type
   */
  urlOf(text, type) {
    const url = URL.createObjectURL(new Blob([text], { type }));
    this.urls.push(url);
    return url;
  }

  /**
   * A device was heard of.
   * @param {DeviceRecord} record
   */
  heard(record) {
    if (record.device !== this.made?.device || record.heard <= this.heardBefore) return;
    const where = record.address?.display_name ?? coordinates(record.lat, record.lon);
    const told = this.status.querySelector(".received .place");
    if (told) setText(told, where);
    else {
      this.status.replaceChildren(make("p", { className: "received" }, make("svg-icon", { name: "check" }),
        make("span", {}, make("b", { text: t("add.received") }), " ", moment(record.time), make("br"), make("span", { className: "place", text: where }))));
    }
  }

  async watch() {
    const { made } = this;
    if (!made) return;
    const news = (await this.refusals(made.device)).filter(({ reason, count }) => count > (this.refusedBefore.get(reason) ?? 0));
    if (this.made !== made) return;
    this.refused.replaceChildren(...news.map(({ reason, count }) => (
      make("li", { text: t("add.refused", { count: count - (this.refusedBefore.get(reason) ?? 0), reason }) }))));
    this.timer = setTimeout(() => this.watch(), ASK_REFUSALS_MS);
  }

  /**
   * @param {string} device
   * @returns {Promise<Refusal[]>}
   */
  async refusals(device) {
    try {
      return await api.refusals(device);
    } catch {
      return []; // whether a position came is known without them
    }
  }
}
customElements.define("app-setup", AppSetup);

/** @param {string} host */
function isOfThisMachine(host) {
  return host === "localhost" || host === "[::1]" || host.startsWith("127.");
}
