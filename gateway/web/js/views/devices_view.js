// The viewer's own devices: how each does, adding a phone, and taking its token away.

import { complain } from "../complaints.js";
import * as api from "../api.js";
import "../devices/app_setup.js";
import "../devices/battery_course.js";
import "../devices/device_notices.js";
import { drawAnew, make, setText } from "../dom.js";
import { ageClass, agePhrase, coordinates, moment, percent } from "../format.js";
import { t } from "../i18n.js";

/** @import { App } from "../app.js" */
/** @import { DeviceRecord } from "../device_store.js" */
/** @import { View } from "../navigation.js" */
/** @import { DeviceTokens, Refusal } from "../types/api.js" */
/** @import { State } from "../url_state.js" */

const REFRESH_MS = 1000;
const BATTERY_LOW = 20;
/** An administrator may have any number; the live view's list finds the others. */
const ROWS_MAX = 300;

/**
 * @param {App} app
 * @param {HTMLElement} room
 * @returns {View}
 */
export function open(app, room) {
  return new DevicesView(app, room);
}

class DevicesView {
  shown = false;
  hasMqtt = false;
  /** @type {Map<string, DeviceTokens>} */
  tokens = new Map();
  tokensKnown = false;
  /** @type {string | null} */
  opened = null;
  /** @type {Refusal[]} */
  refused = [];
  /** @type {string | null} the device that they are of */
  refusedOf = null;
  drawn = "";
  add = make("button", { type: "button", className: "primary add", "aria-expanded": "false" }, make("svg-icon", { name: "plus" }), t("add.title"));
  note = make("p", { className: "none", hidden: true });
  list = make("ul", { className: "own-devices" });
  setup = make("app-setup", { hidden: true });
  error = make("p", { className: "refusal", role: "alert", hidden: true });
  /** One for all devices, of which one at a time is open. */
  notices = make("device-notices");
  battery = make("battery-course");
  confirmation = make("dialog", { className: "guide confirm", "aria-labelledby": "confirm-title" });

  /**
   * @param {App} app
   * @param {HTMLElement} room
   */
  constructor(app, room) {
    this.app = app;
    room.append(make("div", { className: "devices-body", tabindex: "-1" }, this.add, this.setup, this.note, this.error, this.list));
    document.body.append(this.confirmation);
    this.setup.lastHeard = (device) => app.store.get(device)?.heard ?? -Infinity;
    this.add.addEventListener("click", () => this.askForPhone());
    this.setup.addEventListener("close", () => this.closeSetup());
    this.setup.addEventListener("made", () => this.loadTokens());
    app.addEventListener("known", () => { if (this.shown) this.load(); });
    for (const news of ["fix", "address"]) {
      app.addEventListener(news, (event) => this.setup.heard(/** @type {CustomEvent<DeviceRecord>} */ (event).detail));
    }
    setInterval(() => { if (this.shown && !document.hidden) this.draw(); }, REFRESH_MS);
  }

  /** @param {State} state */
  show(state) {
    this.shown = true;
    this.app.map.showDevices((record) => this.isOwn(record.device));
    this.opened = state.device;
    this.load();
    this.draw();
  }

  hide() {
    this.shown = false;
    this.closeSetup();
  }

  /** Whether the viewer may make and revoke tokens: a user, and not one of its devices alone. */
  get manages() {
    const { session } = this.app;
    return Boolean(session?.user && !session.device && !session.open);
  }

  /** @param {string} device */
  isOwn(device) {
    const user = this.app.session?.user;
    return Boolean(user) && device.startsWith(`${user}/`);
  }

  async load() {
    const { session } = this.app;
    if (!session) return;
    this.add.hidden = !this.manages;
    const reason = session.device ? t("devices.of_one_device") : session.open ? t("devices.open") : session.user ? "" : t("devices.operator", { command: "waylog link" });
    this.note.hidden = !reason;
    setText(this.note, reason);
    if (this.opened !== this.refusedOf) this.loadRefusals();
    if (this.manages) await this.loadTokens();
  }

  async loadTokens() {
    try {
      const [tokens, entrances] = await Promise.all([api.deviceTokens(), api.entrances()]);
      this.tokens = new Map(tokens.map((each) => [each.device, each]));
      this.tokensKnown = true;
      this.hasMqtt = Boolean(entrances?.mqtts_port ?? entrances?.mqtt_port);
      this.error.hidden = true;
    } catch (error) {
      complain(this.error, error);
    }
    this.draw();
  }

  async loadRefusals() {
    const device = this.opened;
    this.refusedOf = device;
    this.refused = [];
    if (!device || !this.isOwn(device)) return;
    try {
      const refused = await api.refusals(device);
      if (device === this.opened) this.refused = refused;
    } catch { /* the rest is known */ }
    this.draw();
  }

  /** @param {string} [name] of a device that is set up anew */
  async askForPhone(name) {
    if (!this.tokensKnown) await this.loadTokens(); // which apps can be offered
    if (!this.tokensKnown) return;
    this.setup.hidden = false;
    this.add.hidden = true;
    this.setup.ask({ hasMqtt: this.hasMqtt, name });
  }

  closeSetup() {
    if (this.setup.hidden) return;
    this.setup.hidden = true;
    this.setup.forget();
    this.add.hidden = !this.manages;
    if (this.shown) this.add.focus();
  }

  draw() {
    const { store } = this.app;
    const records = store.records.filter((record) => this.isOwn(record.device)).sort((a, b) => b.heard - a.heard);
    const silent = [...this.tokens.keys()].filter((device) => !store.get(device));
    const devices = [...records.map((record) => record.device), ...silent];
    const rows = devices.slice(0, ROWS_MAX).map((device) => this.wordsOf(device, store.get(device) ?? null));
    const more = devices.length - rows.length;
    if (!this.app.snapshotTaken && !rows.length) return;
    // Built anew only where more than an age changed: focus, clicks and screen readers are left in peace.
    const lasting = rows.map((row) => ({ ...row, state: "", heard: "", position: "" }));
    const drawn = JSON.stringify([lasting, more, this.opened, this.refused, this.tokensKnown, this.manages]);
    if (drawn === this.drawn) {
      for (const row of rows) this.writeAges(row);
      return;
    }
    this.drawn = drawn;
    drawAnew(this.list, () => {
      this.list.replaceChildren(...rows.map((row) => this.row(row)));
      if (!rows.length && this.manages) this.list.append(make("li", { className: "none", text: t("devices.none") }));
      if (more) this.list.append(make("li", { className: "none", text: t("devices.more", { count: more }) }));
    });
  }

  /** @param {ReturnType<DevicesView["wordsOf"]>} words */
  writeAges({ device, state, heard, position }) {
    const item = this.list.querySelector(`[data-device="${CSS.escape(device)}"]`);
    if (!item) return;
    item.className = state;
    for (const [name, text] of Object.entries({ heard, position })) {
      for (const element of item.querySelectorAll(`[data-age="${name}"]`)) setText(element, text);
    }
  }

  /**
   * @param {string} device
   * @param {DeviceRecord | null} record
   */
  wordsOf(device, record) {
    const tokens = this.tokens.get(device);
    const now = Date.now();
    const ageS = record ? (now - record.heard) / 1000 : Infinity;
    return {
      device,
      name: device.slice(device.indexOf("/") + 1),
      state: record ? ageClass(ageS) : "quiet",
      heard: record ? agePhrase(ageS) : t("devices.never"),
      position: record ? agePhrase((now - record.time) / 1000) : "",
      battery: record?.battery ?? null,
      charging: record?.charging ?? false,
      source: record?.source ?? "",
      place: record ? (record.address?.display_name ?? coordinates(record.lat, record.lon)) : "",
      hasPosition: Boolean(record),
      tokens: tokens?.tokens ?? 0,
      newest: tokens ? moment(tokens.newest) : "",
    };
  }

  /** @param {ReturnType<DevicesView["wordsOf"]>} words */
  row(words) {
    const { device, name, state, heard, battery, place, tokens } = words;
    const open = device === this.opened;
    const button = make("button", { type: "button", className: "own-device", "aria-expanded": open, "data-key": `open ${device}` },
      make("span", { className: "mark" }), make("span", { className: "name", text: name }), make("span", { className: "age", text: heard, "data-age": "heard" }),
      make("span", { className: "address", text: place || t("devices.waiting") }),
      make("span", { className: "chips-of" }, battery !== null && this.batteryOf(battery, words.charging),
        tokens > 0 && make("span", { className: "badge", text: t("devices.tokens", { count: tokens }) })));
    button.addEventListener("click", () => this.app.go({ device: open ? null : device }));
    return make("li", { className: state, "data-device": device }, button, open && this.details(words));
  }

  /**
   * @param {number} battery
   * @param {boolean} charging
   */
  batteryOf(battery, charging) {
    const text = charging ? t("devices.charging", { percent: percent(battery) }) : percent(battery);
    const badge = make("span", { className: "badge battery", text });
    badge.classList.toggle("low", battery <= BATTERY_LOW);
    return badge;
  }

  /** @param {ReturnType<DevicesView["wordsOf"]>} words */
  details({ device, name, heard, position, battery, source, place, hasPosition, tokens, newest }) {
    /** @type {[title: string, value: string, age?: string][]} */
    const facts = [
      [t("devices.heard"), heard, "heard"], [t("devices.position"), position, "position"], [t("devices.place"), place], [t("device.battery"), battery === null ? "" : percent(battery)],
      [t("devices.source"), source], [t("devices.access"), this.tokensKnown ? (tokens ? t("devices.token_of", { count: tokens, time: newest }) : t("devices.no_token")) : ""],
    ];
    const actions = make("div", { className: "actions" });
    const act = (/** @type {string} */ key, /** @type {string} */ text, /** @type {() => void} */ does) => {
      const button = make("button", { type: "button", className: "plain", text, "data-key": `${key} ${device}` });
      button.classList.toggle("danger", key === "revoke");
      button.addEventListener("click", does);
      actions.append(button);
    };
    if (hasPosition) {
      act("map", t("devices.show"), () => this.app.go({ page: "live", device }));
      act("diary", t("devices.diary"), () => this.app.go({ page: "diary", device, day: null, until: null }));
    }
    if (this.manages) act("setup", t("devices.set_up"), () => this.askForPhone(name));
    if (tokens) act("revoke", t("devices.revoke"), () => this.confirmRevoke(device, name));
    if (this.manages) this.notices.show(device);
    if (hasPosition) this.battery.show(device);
    return make("div", { className: "own-details" },
      make("dl", {}, ...facts.filter(([, value]) => value).map(([title, value, age]) => make("div", {}, make("dt", { text: title }), make("dd", { text: value, "data-age": age })))),
      hasPosition && this.battery,
      this.refused.length > 0 && make("div", { className: "refused-today" }, make("h3", { text: t("devices.refused_today") }),
        make("ul", { className: "refused" }, ...this.refused.map(({ reason, count }) => make("li", { text: t("add.refused", { count, reason }) })))),
      this.manages && this.notices, actions);
  }

  /**
   * @param {string} device
   * @param {string} name
   */
  confirmRevoke(device, name) {
    const cancel = make("button", { type: "button", className: "plain", text: t("devices.keep") });
    const revoke = make("button", { type: "button", className: "primary danger", text: t("devices.revoke") });
    cancel.addEventListener("click", () => this.confirmation.close());
    revoke.addEventListener("click", async () => {
      this.confirmation.close();
      try {
        await api.revokeDeviceTokens(name);
        this.app.announce(t("devices.revoked", { device }), true);
      } catch (error) {
        complain(this.error, error);
        return;
      }
      await this.loadTokens();
    });
    this.confirmation.replaceChildren(
      make("h2", { id: "confirm-title", text: t("devices.revoke_title", { device }) }),
      make("p", { className: "lead", text: t("devices.revoke_lead") }),
      make("footer", {}, cancel, revoke));
    this.confirmation.showModal();
  }
}
