// Where every device is now: the list, the drawer of the selected device, and the pipeline.

import * as api from "../api.js";
import { byId, make } from "../dom.js";
import { agePhrase } from "../format.js";
import { PipelineReader } from "../elements/pipeline_strip.js";
import { ALSO_MAX } from "../url_state.js";
import "../elements/chosen_devices.js";
import "../elements/device_list.js";
import "../elements/device_panel.js";
import "../live/person_list.js";

/** @import { App } from "../app.js" */
/** @import { DeviceRecord } from "../device_store.js" */
/** @import { View } from "../navigation.js" */
/** @import { State } from "../url_state.js" */

const PIPELINE_MS = 1000;
const DETAILS_MS = 3000;
const SEARCH_MS = 250;
const FOUND_MAX = 50;

/**
 * @param {App} app
 * @param {HTMLElement} room
 * @returns {View}
 */
export function open(app, room) {
  return new LiveView(app, room);
}

class LiveView {
  people = make("person-list", { id: "people-list" });
  list = make("device-list", { id: "list", tabindex: "-1" });
  chosen = make("chosen-devices", { id: "chosen" });
  panel = make("device-panel", { id: "device", role: "region", hidden: true });
  strip = make("pipeline-strip", { id: "pipeline", hidden: true });
  tooltip = byId("tooltip", "div");
  reader = new PipelineReader();
  /** @type {DeviceRecord | null} */
  selected = null;
  /** @type {string | null} */
  wanted = null; // named in the URL, but not yet heard of
  shown = false;
  listStale = true;
  listDrawn = 0;
  /** @type {number[]} */
  pushTimes = [];
  /** @type {Set<string>} devices that are chosen beside the selected one */
  also = new Set();
  /** @type {string[]} found by the gateway, where it has more devices than the page */
  found = [];
  /** @type {AbortController | undefined} */
  searching;
  /** @type {number | undefined} */
  searchTimer;

  /**
   * @param {App} app
   * @param {HTMLElement} room
   */
  constructor(app, room) {
    this.app = app;
    this.map = app.map;
    this.framed = Boolean(app.state.view);
    this.wanted = app.state.device;
    this.people.app = app;
    room.append(this.chosen, this.people, this.list);
    document.body.append(this.panel, this.strip);
    this.panel.setAttribute("aria-labelledby", "device-name");
    this.panel.name.id = "device-name";
    app.sheet.add(this.panel, this.panel.handle);
    this.list.setStore(app.store);
    if (app.state.query) this.list.setQuery(app.state.query);
    this.listenToApp();
    this.listenToElements();
    this.listenToMap();
    this.listenToArea();
    // This view may be loaded after the map by area has begun.
    if (app.area.active) this.areaChanged();
    setInterval(() => this.refreshDetails(), DETAILS_MS);
    setInterval(() => this.tick(), 250);
    this.pollPipeline();
  }

  /** @param {State} state */
  show(state) {
    this.shown = true;
    this.map.showDevices(this.list.filter());
    this.strip.hidden = !this.strip.dataset.behind;
    if (state.query !== this.list.query) this.list.setQuery(state.query);
    this.setAlso(state.also, false);
    this.map.clusters.show(this.app.area.cells, this.app.area.level);
    const record = this.app.store.get(state.device) ?? null;
    if (record) this.select(record, { fly: false });
    else if (state.device) {
      this.wanted = state.device;
      this.watch();
    } else this.select(null);
    this.panel.hidden = !this.selected;
    this.markSelection();
    this.panel.trackChanged();
  }

  hide() {
    this.shown = false;
    this.panel.hidden = true;
    this.strip.hidden = true;
    this.tooltip.hidden = true;
    this.map.setDetails({ track: [], gaps: [], accuracy: null, places: [], others: [] });
    this.map.points.select(null);
    this.map.points.pin(new Set());
    this.map.clusters.show(null, 0);
    delete document.body.dataset.device;
  }

  listenToApp() {
    const { app, list, panel } = this;
    const on = (/** @type {string} */ name, /** @type {(detail: any) => void} */ act) => (
      app.addEventListener(name, (event) => act(/** @type {CustomEvent} */ (event).detail)));
    on("fix", (record) => {
      this.listStale = true;
      if (record === this.selected) {
        panel.moved(record);
        if (app.state.follow && this.shown) this.map.follow(record);
      } else if (this.also.has(record.device)) this.drawOthers();
      else if (this.shown && record.device === this.wanted) this.select(record, { fly: !this.framed });
    });
    on("address", (record) => {
      this.listStale = true;
      if (record !== this.selected) return;
      panel.refresh();
      app.announce(`${record.name}: ${record.address.display_name}`);
    });
    on("known", () => {
      this.listStale = true;
      this.people.load(true);
    });
    on("resolved", (took) => this.pushTimes.push(took));
    on("theme", () => panel.drawChart());
    on("map", () => {
      const record = app.store.get(this.wanted);
      if (this.shown && record) this.select(record, { fly: !this.framed });
    });
    on("fit", () => {
      if (!this.shown) return;
      this.setFollowing(false);
      this.map.fit(list.shown);
    });
    on("escape", () => { if (this.shown && this.selected) this.select(null); });
    on("search", () => { if (this.shown) list.search.focus(); });
  }

  listenToElements() {
    const { app, list, panel } = this;
    const on = (/** @type {HTMLElement} */ element, /** @type {string} */ name, /** @type {(detail: any) => void} */ act) => (
      element.addEventListener(name, (event) => act(/** @type {CustomEvent} */ (event).detail)));
    const { chosen } = this;
    on(list, "pick", ({ record, also }) => (also ? this.choose(record, { fly: true }) : this.select(record)));
    on(this.people, "pick", (record) => {
      this.select(record, { fly: false });
      this.setFollowing(true);
    });
    on(this.people, "looked-up", () => this.watch());
    on(list, "ask", (query) => this.searchSoon(query));
    on(chosen, "pick", (device) => this.select(app.store.get(device) ?? null));
    on(chosen, "drop", (device) => this.setAlso([...this.also].filter((other) => other !== device)));
    on(list, "filter", (filter) => {
      if (this.shown) this.map.showDevices(filter);
      app.remember({ query: list.query });
    });
    on(list, "place", (place) => {
      this.setFollowing(false);
      this.map.show(place);
    });
    on(panel, "close", () => this.select(null));
    on(panel, "pin", (pin) => {
      const device = this.selected?.device;
      if (device) this.setAlso(pin ? [...this.also, device] : [...this.also].filter((other) => other !== device));
    });
    on(panel, "diary", () => app.go({ page: "diary", day: null, until: null }));
    on(panel, "follow", (follow) => this.setFollowing(follow));
    on(panel, "range", (range) => app.remember({ track: range }));
    on(panel, "details", (details) => { if (this.shown) this.map.setDetails(details); });
    on(panel, "focus-map", (place) => this.map.goTo(place));
  }

  listenToMap() {
    const on = (/** @type {string} */ name, /** @type {(detail: any) => void} */ act) => (
      this.map.addEventListener(name, (event) => { if (this.shown) act(/** @type {CustomEvent} */ (event).detail); }));
    on("pick", ({ record, also }) => {
      if (!also) this.select(record, { fly: false });
      else if (record) this.choose(record, { fly: false });
    });
    on("dragged", () => { if (this.app.state.follow) this.setFollowing(false); });
    on("hover", ({ record, point }) => {
      this.tooltip.hidden = !record;
      if (!record) return;
      this.tooltip.replaceChildren(make("b", { text: record.name }), ` ${agePhrase((Date.now() - record.heard) / 1000)}`);
      this.tooltip.style.transform = `translate(${Math.round(point.x + 14)}px, ${Math.round(point.y - 34)}px)`;
    });
  }

  listenToArea() {
    const { area } = this.app;
    area.addEventListener("begun", () => this.areaChanged());
    area.addEventListener("ended", () => this.areaChanged());
    area.addEventListener("seen", () => this.seen());
    area.addEventListener("lost", (event) => {
      const device = /** @type {CustomEvent<string>} */ (event).detail;
      if (this.selected?.device === device) this.select(null);
      if (this.also.has(device)) this.setAlso([...this.also].filter((other) => other !== device));
    });
  }

  /** All devices are on the page, or only those in sight. */
  areaChanged() {
    const { area } = this.app;
    if (this.selected) {
      // The record is another one from now on.
      const { device } = this.selected;
      const { follow } = this.app.state;
      this.select(null);
      this.wanted = device;
      this.app.remember({ device, follow });
    }
    this.map.trails.clear();
    this.found = [];
    this.list.setArea(area.active ? area : null);
    if (area.active && this.list.query) this.searchSoon(this.list.query);
    this.watch();
    this.seen();
  }

  /** What is in sight has changed. */
  seen() {
    const { area } = this.app;
    this.listStale = true;
    if (!this.shown) return;
    this.map.clusters.show(area.cells, area.level);
    if (this.framed || !area.active || !this.map.map) return;
    this.framed = true;
    const places = area.cells ? [...area.cells.values()] : this.app.store.records;
    if (!this.selected) this.map.fit(places, false);
  }

  /** Tell the gateway which devices are shown wherever they are. */
  watch() {
    const { area } = this.app;
    const selected = this.selected?.device ?? this.wanted;
    area.watch([...(selected ? [selected] : []), ...this.also, ...this.found, ...this.people.devices]);
  }

  /** @param {string} query */
  searchSoon(query) {
    clearTimeout(this.searchTimer);
    this.searching?.abort();
    if (!this.app.area.active) return;
    this.searchTimer = setTimeout(() => this.search(query), query ? SEARCH_MS : 0);
  }

  /** @param {string} query */
  async search(query) {
    this.searching = new AbortController();
    const { signal } = this.searching;
    /** @type {import("../types/api.js").DeviceRow[]} */
    let rows = [];
    try {
      if (query) rows = await api.devicesNamed(query, FOUND_MAX, signal);
    } catch { /* the connection dot says what there is to say */ }
    if (signal.aborted || !this.app.area.active) return;
    for (const row of rows) this.app.store.applyRow(row);
    this.found = rows.map((row) => row.device);
    this.list.setFound(query ? this.found : null);
    this.watch();
  }

  /** What frames do not tell: battery, app, address. */
  async refreshDetails() {
    const { selected } = this;
    if (!this.app.area.active || !selected || document.hidden || !this.shown) return;
    try {
      const row = await api.device(selected.device);
      if (row && selected === this.selected) this.app.store.applyRow(row);
    } catch { /* the next time */ }
  }

  /**
   * Choose a device beside those that are chosen; the first one, or let one go.
   * @param {DeviceRecord} record
   * @param {{fly: boolean}} how
   */
  choose(record, { fly }) {
    if (!this.selected) {
      this.select(record, { fly });
      return;
    }
    const { device } = record;
    if (this.also.has(device)) {
      this.setAlso([...this.also].filter((other) => other !== device));
      return;
    }
    this.setAlso([...this.also, this.selected.device, device]);
    if (fly) this.map.fit([...this.also].flatMap((each) => this.app.store.get(each) ?? []));
  }

  /**
   * @param {string[]} devices
   * @param {boolean} [remember]
   */
  setAlso(devices, remember = true) {
    this.also = new Set(devices.slice(0, ALSO_MAX));
    const names = [...this.also];
    this.chosen.show(names);
    this.map.points.pin(this.also);
    this.panel.setPin(Boolean(this.selected && this.also.has(this.selected.device)));
    this.drawOthers();
    this.watch();
    if (remember) this.app.remember({ also: names });
  }

  /** The circles of accuracy of those that are chosen beside the selected device. */
  drawOthers() {
    const others = [...this.also].flatMap((device) => {
      const record = device === this.selected?.device ? null : this.app.store.get(device);
      return record?.accuracy ? [{ lat: record.lat, lon: record.lon, radius: record.accuracy }] : [];
    });
    this.map.setDetails({ others });
  }

  /** @param {DeviceRecord | null} record */
  select(record, { fly = true } = {}) {
    if (record === this.selected) {
      if (record && fly) this.map.focus(record);
      return;
    }
    const { app } = this;
    this.selected = record;
    this.wanted = null;
    this.map.setDetails({ track: [], gaps: [], accuracy: null, places: [] });
    this.list.select(record);
    this.people.select(record);
    this.panel.show(record, app.state.track);
    app.remember({ device: record?.device ?? null });
    this.markSelection();
    this.panel.setPin(Boolean(record && this.also.has(record.device)));
    this.panel.setFollow(Boolean(record && app.state.follow));
    this.drawOthers();
    this.watch();
    this.refreshDetails();
    if (!record) this.setFollowing(false);
    else {
      if (fly) this.map.focus(record);
      app.announce([record.name, agePhrase((Date.now() - record.heard) / 1000), record.address?.display_name].filter(Boolean).join(", "), true);
    }
  }

  markSelection() {
    const { selected } = this;
    if (selected) document.body.dataset.device = selected.device;
    else delete document.body.dataset.device;
    this.map.points.select(selected);
  }

  /** @param {boolean} follow */
  setFollowing(follow) {
    this.app.remember({ follow });
    this.panel.setFollow(follow);
    if (follow && this.selected) this.map.focus(this.selected);
  }

  tick() {
    const { app, map, list } = this;
    if (document.hidden || !this.shown) return;
    if (!this.framed && map.map && app.snapshotTaken && app.store.size) {
      this.framed = true;
      if (!this.selected) map.fit(app.store.records, false);
    }
    const now = performance.now();
    // Thousands of rows are sorted once a second, a handful as soon as something changes.
    if ((this.listStale && (app.store.size < 500 || now - this.listDrawn > 1000)) || now - this.listDrawn > 1000) {
      list.refresh();
      this.people.refresh();
      this.people.load();
      this.panel.refresh();
      this.listStale = false;
      this.listDrawn = now;
    }
  }

  async pollPipeline() {
    try {
      await this.readPipeline();
    } catch { /* the connection dot says what there is to say */ }
    setTimeout(() => this.pollPipeline(), PIPELINE_MS);
  }

  async readPipeline() {
    const { app } = this;
    if (document.hidden || !this.shown || app.live.state !== "live" || !app.session?.oversees) return;
    const body = await api.pipeline();
    if (!body || !this.shown) return;
    const figures = this.reader.read(body);
    this.pushTimes.sort((a, b) => a - b);
    const push = this.pushTimes[this.pushTimes.length >> 1];
    this.pushTimes.length = 0;
    this.strip.show({ ...figures, push });
  }
}
