// The viewer's data: files brought in, positions taken out, and positions sent on to other servers.

import "../data/export_panel.js";
import "../data/forwarding_panel.js";
import "../data/import_panel.js";
import { dateOf } from "../calendar.js";
import { make } from "../dom.js";
import { TabBar } from "../elements/tab_bar.js";
import { zoneOf } from "../format.js";
import { t } from "../i18n.js";

/** @import { App } from "../app.js" */
/** @import { DeviceRecord } from "../device_store.js" */
/** @import { View } from "../navigation.js" */

/** @typedef {"imports" | "exports" | "forwardings"} TabName */

/**
 * @param {App} app
 * @param {HTMLElement} room
 * @returns {View}
 */
export function open(app, room) {
  return new DataView(app, room);
}

class DataView {
  shown = false;
  /** @type {Set<string>} the viewer's devices that the panels offer */
  offered = new Set();
  imports = make("import-panel");
  exports = make("export-panel");
  forwardings = make("forwarding-panel");
  note = make("p", { className: "none", hidden: true });
  /** @type {TabBar<TabName>} */
  tabs = new TabBar("data", t("view.data"), {
    imports: { panel: this.imports, text: t("data.imports") },
    exports: { panel: this.exports, text: t("data.exports") },
    forwardings: { panel: this.forwardings, text: t("data.forwardings") },
  }, () => this.load());

  /**
   * @param {App} app
   * @param {HTMLElement} room
   */
  constructor(app, room) {
    this.app = app;
    room.append(make("div", { className: "people-head" }, this.tabs.element),
      make("div", { className: "people-body", tabindex: "-1" }, this.note, this.imports, this.exports, this.forwardings));
    this.exports.ownDevices = this.forwardings.ownDevices = () => app.store.ownDevices(app.session?.user);
    for (const panel of [this.imports, this.forwardings]) {
      panel.addEventListener("announce", (event) => app.announce(/** @type {CustomEvent<string>} */ (event).detail, true));
    }
    this.imports.addEventListener("diary", (event) => {
      const { device, from } = /** @type {CustomEvent<{device: string, from: number}>} */ (event).detail;
      app.go({ page: "diary", device, day: dateOf(from, zoneOf()), until: null });
    });
    app.addEventListener("known", () => { if (this.shown) this.load(); });
    app.addEventListener("fix", (event) => {
      const { device } = /** @type {CustomEvent<DeviceRecord>} */ (event).detail;
      if (this.shown && !this.offered.has(device) && device.startsWith(`${app.session?.user}/`)) this.devicesChanged();
    });
  }

  /** The viewer has devices that the panels do not offer yet. */
  devicesChanged() {
    const { app, exports, forwardings } = this;
    this.offered = new Set(app.store.ownDevices(app.session?.user));
    exports.load();
    forwardings.devicesChanged();
  }

  show() {
    this.shown = true;
    this.app.map.showDevices(null);
    this.load();
  }

  hide() {
    this.shown = false;
    this.imports.rest();
    this.forwardings.rest();
  }

  load() {
    const { session } = this.app;
    if (!session) return;
    const reason = session.device ? t("data.of_one_device") : session.open ? t("people.open") : session.user ? "" : t("people.operator", { command: "waylog link" });
    this.note.textContent = reason;
    this.note.hidden = !reason;
    if (reason) {
      this.tabs.hide();
      return;
    }
    this.tabs.element.hidden = false;
    this.tabs.choose(this.tabs.chosen);
    for (const panel of [this.imports, this.forwardings]) if (panel.hidden) panel.rest();
    this.devicesChanged();
    this[this.tabs.chosen].load();
  }
}
