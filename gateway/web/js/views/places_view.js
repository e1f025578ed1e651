// The viewer's places and zones: what a place is, where one is alerted, and what happened there.

import * as api from "../api.js";
import { make, setText } from "../dom.js";
import { t } from "../i18n.js";
import { titled } from "../places.js";
import "../places/place_list.js";
import "../zones/alert_settings.js";
import { around, cornersOf, draftOf } from "../zones/shapes.js";
import "../zones/zone_editor.js";
import "../zones/zone_list.js";
import { rows } from "../zones/zone_list.js";
import { ZoneMap } from "../zones/zone_map.js";

/** @import { App } from "../app.js" */
/** @import { View } from "../navigation.js" */
/** @import { TitledPlace } from "../places.js" */
/** @import { AlertChannel, PlaceEdit, Zone, ZoneBody } from "../types/api.js" */
/** @import { Kind } from "../zones/shapes.js" */
/** @import { State } from "../url_state.js" */

const RADIUS_M = 150;
const PLACE_RADIUS_M = 120;

/**
 * @param {App} app
 * @param {HTMLElement} room
 * @returns {View}
 */
export function open(app, room) {
  return new PlacesView(app, room);
}

class PlacesView {
  shown = false;
  /** @type {Zone[]} */
  zones = [];
  zonesKnown = false;
  /** @type {AlertChannel[]} */
  channels = [];
  /** @type {string | null} what is edited: "new", or a zone's id */
  editing = null;
  /** @type {TitledPlace | null} the place around which a new zone lies */
  around = null;
  /** @type {string | null} */
  device = null;
  /** @type {TitledPlace[]} */
  places = [];
  tabs = new Map(/** @type {const} */ (["places", "zones"]).map((tab) => {
    const button = make("button", { type: "button", text: t(tab === "places" ? "places.tab" : "zone.tab"), "aria-pressed": "false" });
    button.addEventListener("click", () => this.app.go({ zone: tab === "places" ? null : "all" }));
    return [tab, button];
  }));
  devices = make("select", { "aria-label": t("diary.device") });
  placeList = make("place-list");
  placesBox = make("div", {}, make("div", { className: "diary-device" }, this.devices), this.placeList);
  zoneList = make("zone-list");
  settings = make("alert-settings");
  settingsBox = make("details", { className: "alert-box" }, make("summary", { text: t("alerts.title") }), this.settings);
  zonesBox = make("div", {}, this.zoneList, this.settingsBox);
  editor = make("zone-editor", { hidden: true });
  happened = make("ul", { className: "zone-events" });
  happenedBox = make("section", { hidden: true }, make("h3", { text: t("zone.latest") }), this.happened);
  note = make("p", { className: "none", hidden: true });
  error = make("p", { className: "refusal", role: "alert", hidden: true });

  /**
   * @param {App} app
   * @param {HTMLElement} room
   */
  constructor(app, room) {
    this.app = app;
    this.map = new ZoneMap(app.map);
    this.tabsBox = make("div", { className: "segmented", role: "group", "aria-label": t("view.places") }, ...this.tabs.values());
    room.append(make("div", { className: "places-body", tabindex: "-1" },
      this.tabsBox, this.note, this.error, this.placesBox, this.zonesBox, this.editor, this.happenedBox));
    this.listen();
  }

  listen() {
    const { app, map, editor, zoneList, placeList } = this;
    const on = (/** @type {EventTarget} */ target, /** @type {string} */ name, /** @type {(detail: any) => void} */ act) => (
      target.addEventListener(name, (event) => act(/** @type {CustomEvent} */ (event).detail)));
    on(app, "known", () => { if (this.shown) this.show(app.state); });
    on(app, "escape", () => { if (this.shown && this.editing) app.go({ zone: "all" }); });
    on(app, "fit", () => { if (this.shown) app.map.fit(app.state.zone ? this.zones.flatMap(cornersOf) : this.places); });
    on(app.alerts, "events", () => { if (this.shown) this.drawEvents(); });
    on(zoneList, "add", () => { this.around = null; app.go({ zone: "new" }); });
    on(zoneList, "pick", (zone) => app.go({ zone: zone.id }));
    on(map, "pick", (id) => { if (this.shown && !this.editing) app.go({ zone: id }); });
    on(map, "shape", () => editor.drawShape());
    on(editor, "kind", (kind) => this.changeKind(kind));
    on(editor, "size", (metres) => { if (map.draft) { map.draft.metres = metres; map.resized(); } });
    on(editor, "corner", () => map.addAtCentre());
    on(editor, "undo", () => map.removeLast());
    on(editor, "cancel", () => app.go({ zone: "all" }));
    on(editor, "save", (body) => this.save(body));
    on(editor, "delete", () => this.remove());
    on(this.settings, "channels", (channels) => { this.channels = channels; });
    this.settingsBox.addEventListener("toggle", () => { if (this.settingsBox.open) this.settings.load(); });
    this.devices.addEventListener("change", () => app.go({ device: this.devices.value }));
    on(placeList, "focus-map", (place) => app.map.goTo(place));
    on(placeList, "zone", (place) => { this.around = place; app.go({ zone: "new" }); });
    on(placeList, "edit", (edit) => this.editPlace(edit));
  }

  /** Whether the viewer has zones of its own: a user, and not one of its devices alone. */
  get manages() {
    const { session } = this.app;
    return Boolean(session?.user && !session.device && !session.open);
  }

  /** @param {State} state */
  show(state) {
    this.shown = true;
    this.map.setShown(true);
    const tab = state.zone ? "zones" : "places";
    for (const [name, button] of this.tabs) button.setAttribute("aria-pressed", String(name === tab));
    this.app.map.showDevices((record) => this.isOwn(record.device));
    const reason = this.app.session && !this.manages ? t(this.app.session.device ? "zone.of_one_device" : this.app.session.open ? "devices.open" : "devices.operator", { command: "waylog link" }) : "";
    this.note.hidden = !reason || tab === "places";
    setText(this.note, reason);
    this.placesBox.hidden = tab !== "places";
    const editing = state.zone && state.zone !== "all" ? state.zone : null;
    this.tabsBox.hidden = Boolean(editing);
    this.zonesBox.hidden = tab !== "zones" || Boolean(editing) || !this.manages;
    this.app.map.setDetails({ places: tab === "places" ? this.places : [] });
    if (!this.app.session) return;
    if (tab === "places") this.loadPlaces(state.device);
    this.loadZones().then(() => { if (this.app.state.zone === state.zone && this.shown) this.edit(editing); });
  }

  hide() {
    this.shown = false;
    this.edit(null);
    this.map.setShown(false);
    this.app.map.setDetails({ places: [] });
  }

  /** @param {string} device */
  isOwn(device) {
    const user = this.app.session?.user;
    return Boolean(user) && device.startsWith(`${user}/`);
  }

  /** @param {unknown} error */
  complain(error) {
    const reason = error instanceof Error ? error.message : "";
    this.error.hidden = !reason;
    setText(this.error, reason);
  }

  // ---- places ----

  /** @param {string | null} wanted */
  async loadPlaces(wanted) {
    const { store } = this.app;
    const seen = store.records.filter((record) => this.isOwn(record.device) || !this.manages).sort((a, b) => b.heard - a.heard).map((record) => record.device);
    const devices = [...new Set([...(wanted ? [wanted] : []), ...seen])];
    const device = wanted ?? devices[0] ?? null;
    this.devices.replaceChildren(...devices.slice(0, 300).map((each) => make("option", { value: each, text: this.isOwn(each) ? each.slice(each.indexOf("/") + 1) : each })));
    if (device) this.devices.value = device;
    this.devices.hidden = devices.length < 2;
    this.device = device;
    if (!device) {
      if (this.app.snapshotTaken) this.placeList.show("", [], [], false);
      return;
    }
    const mayEdit = this.manages && this.isOwn(device);
    try {
      const [found, edits] = await Promise.all([api.places(device), mayEdit ? api.placeEdits(device) : []]);
      if (device !== this.device || !this.shown) return;
      this.drawPlaces(device, found, edits, mayEdit);
      this.complain(null);
    } catch (error) {
      this.complain(error);
    }
  }

  /**
   * @param {string} device
   * @param {import("../types/api.js").Place[]} found
   * @param {PlaceEdit[]} edits
   * @param {boolean} mayEdit
   */
  drawPlaces(device, found, edits, mayEdit) {
    this.places = titled(found.filter((place) => Number.isFinite(place.lat) && Number.isFinite(place.lon)).sort((a, b) => b.dwell_s - a.dwell_s));
    this.placeList.show(device, this.places, edits, mayEdit);
    if (!this.app.state.zone) this.app.map.setDetails({ places: this.places });
  }

  /** @param {{place_id: string, changes: Record<string, unknown>, said: string}} edit */
  async editPlace({ place_id: placeId, changes, said }) {
    if (!this.device) return;
    try {
      await api.editPlace(this.device, placeId, changes);
      this.app.announce(said, true);
      await this.loadPlaces(this.device);
    } catch (error) {
      this.complain(error);
    }
  }

  // ---- zones ----

  async loadZones() {
    if (!this.manages) return;
    try {
      [this.zones, this.channels] = await Promise.all([api.zones(), api.alertChannels()]);
      this.zonesKnown = true;
      this.complain(null);
    } catch (error) {
      this.complain(error);
    }
    if (!this.shown) return;
    this.map.setZones(this.zones);
    this.drawEvents();
  }

  drawEvents() {
    const { events } = this.app.alerts;
    this.zoneList.show(this.zones, events);
    const own = events.filter((event) => event.zone === this.editing);
    this.happenedBox.hidden = !this.editing || !own.length;
    this.happened.replaceChildren(...rows(own));
  }

  /** @param {string | null} id of a zone, "new", or null to end */
  edit(id) {
    if (id === this.editing) return;
    const zone = this.zones.find((each) => each.id === id) ?? null;
    if (id && id !== "new" && !zone) { // it is gone
      if (this.zonesKnown) this.app.go({ zone: "all" });
      return;
    }
    if (id && !this.manages) return;
    this.editing = id;
    this.editor.hidden = !id;
    document.body.toggleAttribute("data-drawing", Boolean(id));
    this.drawEvents();
    if (!id) {
      this.map.edit(null);
      return;
    }
    const middle = this.middle();
    const draft = zone ? draftOf(zone) : around("circle", middle, this.around ? Math.max(PLACE_RADIUS_M, Math.round(this.around.radius_m ?? 0)) : RADIUS_M);
    this.map.edit(draft, zone?.id ?? null);
    this.editor.open(zone, draft, { devices: this.deviceNames(), channels: this.channels, name: zone ? "" : (this.around?.title ?? "") });
    this.app.map.fit(zone ? cornersOf(zone) : cornersOf({ id: "", name: "", alerts: [], geometry: { type: "Point", coordinates: [middle.lon, middle.lat] }, radius: 3 * RADIUS_M }));
    this.editor.name.focus({ preventScroll: true });
  }

  deviceNames() {
    return this.app.store.records.map((record) => record.device).filter((device) => this.isOwn(device)).map((device) => device.slice(device.indexOf("/") + 1)).sort();
  }

  /** Where a new zone lies: at the place it was asked for, where a device is, or in the middle of the map. */
  middle() {
    if (this.around) return this.around;
    const own = this.app.store.records.filter((record) => this.isOwn(record.device)).sort((a, b) => b.heard - a.heard);
    return own.find((record) => record.device === this.app.state.device) ?? own[0] ?? this.app.map.view();
  }

  /** @param {Kind} kind */
  changeKind(kind) {
    const before = this.map.draft;
    if (!before || before.kind === kind) return;
    const [[lon, lat] = [0, 0]] = before.corners;
    const centre = before.kind === "circle" ? { lat, lon } : centreOf(before.corners);
    const draft = around(kind, centre, before.kind === "circle" ? before.metres : RADIUS_M);
    this.map.edit(draft, this.map.hidden);
    this.editor.draft = draft;
    this.editor.drawShape();
  }

  /** @param {ZoneBody} body */
  async save(body) {
    try {
      const saved = await api.saveZone(this.editing === "new" ? null : this.editing, body);
      this.app.announce(t("zone.saved", { name: saved.name }), true);
      this.around = null;
      this.app.go({ zone: "all" });
    } catch (error) {
      this.editor.complain(error instanceof Error ? error.message : String(error));
    }
  }

  async remove() {
    const zone = this.zones.find((each) => each.id === this.editing);
    if (!zone) return;
    try {
      await api.deleteZone(zone.id);
      this.app.announce(t("zone.deleted", { name: zone.name }), true);
      this.app.go({ zone: "all" });
    } catch (error) {
      this.editor.complain(error instanceof Error ? error.message : String(error));
    }
  }
}

/** @param {[number, number][]} corners */
function centreOf(corners) {
  return {
    lat: corners.reduce((sum, [, lat]) => sum + lat, 0) / Math.max(1, corners.length),
    lon: corners.reduce((sum, [lon]) => sum + lon, 0) / Math.max(1, corners.length),
  };
}
