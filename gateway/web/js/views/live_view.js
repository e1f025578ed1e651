// Where every device is now: the list, the drawer of the selected device, and the pipeline.

import * as api from "../api.js";
import { byId, make } from "../dom.js";
import { agePhrase } from "../format.js";
import { PipelineReader } from "../elements/pipeline_strip.js";
import "../elements/device_list.js";
import "../elements/device_panel.js";

/** @import { App } from "../app.js" */
/** @import { DeviceRecord } from "../device_store.js" */
/** @import { View } from "../navigation.js" */
/** @import { State } from "../url_state.js" */

const PIPELINE_MS = 1000;

/**
 * @param {App} app
 * @param {HTMLElement} room
 * @returns {View}
 */
export function open(app, room) {
  return new LiveView(app, room);
}

class LiveView {
  list = make("device-list", { id: "list", tabindex: "-1" });
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

  /**
   * @param {App} app
   * @param {HTMLElement} room
   */
  constructor(app, room) {
    this.app = app;
    this.map = app.map;
    this.framed = Boolean(app.state.view);
    this.wanted = app.state.device;
    room.append(this.list);
    document.body.append(this.panel, this.strip);
    this.panel.setAttribute("aria-labelledby", "device-name");
    this.panel.name.id = "device-name";
    app.sheet.add(this.panel, this.panel.handle);
    this.list.setStore(app.store);
    if (app.state.query) this.list.setQuery(app.state.query);
    this.listenToApp();
    this.listenToElements();
    this.listenToMap();
    setInterval(() => this.tick(), 250);
    this.pollPipeline();
  }

  /** @param {State} state */
  show(state) {
    this.shown = true;
    this.map.showDevices(this.list.filter());
    this.strip.hidden = !this.strip.dataset.behind;
    if (state.query !== this.list.query) this.list.setQuery(state.query);
    const record = this.app.store.get(state.device) ?? null;
    if (record) this.select(record, { fly: false });
    else if (state.device) this.wanted = state.device;
    else this.select(null);
    this.panel.hidden = !this.selected;
    this.markSelection();
    this.panel.trackChanged();
  }

  hide() {
    this.shown = false;
    this.panel.hidden = true;
    this.strip.hidden = true;
    this.tooltip.hidden = true;
    this.map.setDetails({ track: [], gaps: [], accuracy: null, places: [] });
    this.map.points.select(null);
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
      } else if (this.shown && record.device === this.wanted) this.select(record, { fly: !this.framed });
    });
    on("address", (record) => {
      this.listStale = true;
      if (record !== this.selected) return;
      panel.refresh();
      app.announce(`${record.name}: ${record.address.display_name}`);
    });
    on("known", () => { this.listStale = true; });
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
    on(list, "pick", (record) => this.select(record));
    on(list, "filter", (filter) => {
      if (this.shown) this.map.showDevices(filter);
      app.remember({ query: list.query });
    });
    on(list, "place", (place) => {
      this.setFollowing(false);
      this.map.show(place);
    });
    on(panel, "close", () => this.select(null));
    on(panel, "diary", () => app.go({ page: "diary", day: null, until: null }));
    on(panel, "follow", (follow) => this.setFollowing(follow));
    on(panel, "range", (range) => app.remember({ track: range }));
    on(panel, "details", (details) => { if (this.shown) this.map.setDetails(details); });
    on(panel, "focus-map", (place) => this.map.goTo(place));
  }

  listenToMap() {
    const on = (/** @type {string} */ name, /** @type {(detail: any) => void} */ act) => (
      this.map.addEventListener(name, (event) => { if (this.shown) act(/** @type {CustomEvent} */ (event).detail); }));
    on("pick", (record) => this.select(record, { fly: false }));
    on("dragged", () => { if (this.app.state.follow) this.setFollowing(false); });
    on("hover", ({ record, point }) => {
      this.tooltip.hidden = !record;
      if (!record) return;
      this.tooltip.replaceChildren(make("b", { text: record.name }), ` ${agePhrase((Date.now() - record.heard) / 1000)}`);
      this.tooltip.style.transform = `translate(${Math.round(point.x + 14)}px, ${Math.round(point.y - 34)}px)`;
    });
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
    this.panel.show(record, app.state.track);
    app.remember({ device: record?.device ?? null });
    this.markSelection();
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
