// The drawer of the selected device: where it is, how it does, where it was.

import * as api from "../api.js";
import { iconButton, make, setText } from "../dom.js";
import { ageClass, agePhrase, compass, coordinates, count, distance, duration, elevation, latencyOf, LATE_MS, length, moment, number, speed, speedOf } from "../format.js";
import { t } from "../i18n.js";
import { iconOf, titled } from "../places.js";
import { drawSpeedChart } from "../speed_chart.js";
import { cutAtGaps, readTrack } from "../tracks.js";
import "./place_details.js";

/** @import { DeviceRecord } from "../device_store.js" */
/** @import { TitledPlace } from "../places.js" */
/** @import { TrackPoint } from "../tracks.js" */

/** @typedef {"30m" | "6h" | "24h" | "7d"} Range */
/** @typedef {"speed" | "battery" | "accuracy" | "course" | "altitude" | "delay"} FactName */

/** @type {Record<Range, {title: string, ms: number}>} */
const RANGES = {
  "30m": { title: t("device.range_30m"), ms: 1800e3 },
  "6h": { title: t("device.range_6h"), ms: 6 * 3600e3 },
  "24h": { title: t("device.range_24h"), ms: 86400e3 },
  "7d": { title: t("device.range_7d"), ms: 7 * 86400e3 },
};
/** @type {Record<FactName, string>} */
const FACTS = {
  speed: t("device.speed"), battery: t("device.battery"), accuracy: t("device.accuracy"),
  course: t("device.course"), altitude: t("device.altitude"), delay: t("device.delay"),
};
const YEAR_MS = 371 * 86400e3;
const PLACES_SHOWN = 10;

export class DevicePanel extends HTMLElement {
  /** Events: `close`, `focus-map`, `follow` and `pin` (detail: on), `details` (for the map), `range`, `diary`. */
  /** @type {Range} */
  range = "30m";
  /** @type {DeviceRecord | null} */
  record = null;
  /** @type {TrackPoint[]} */
  track = [];
  /** @type {AbortController | undefined} */
  control;
  followButton = iconButton("target", t("device.follow"), { "aria-pressed": "false" });
  pinButton = iconButton("pin", t("device.pin"), { "aria-pressed": "false" });
  diaryButton = iconButton("diary", t("device.diary"));
  closeButton = iconButton("close", t("close"));
  mark = make("span", { className: "mark" });
  name = make("h2", { className: "name", tabindex: "-1" });
  user = make("span", { className: "user" });
  headline = make("p", { className: "headline" });
  rest = make("p", { className: "rest" });
  age = make("p", { className: "age" });
  cells = new Map(/** @type {FactName[]} */ (Object.keys(FACTS)).map((key) => {
    const value = make("dd");
    return [key, { value, box: make("div", {}, make("dt", { text: FACTS[key] }), value) }];
  }));
  where = make("p", { className: "where" });
  ranges = new Map(/** @type {Range[]} */ (Object.keys(RANGES)).map((key) => {
    const button = make("button", { type: "button", text: RANGES[key].title, "aria-pressed": "false" });
    button.addEventListener("click", () => this.setRange(key));
    return [key, button];
  }));
  trackFacts = make("p", { className: "track-facts" });
  chart = make("canvas", { className: "chart", role: "img", "aria-label": t("device.speed_chart") });
  places = make("ol", { className: "places" });
  placesBox = make("section", { hidden: true }, make("h3", { text: t("device.places") }), this.places);
  handle = make("div", { className: "panel-handle", role: "slider", tabindex: "0", "aria-label": t("sheet.height"), "aria-valuemin": "0", "aria-valuemax": "2" });
  body = make("div", { className: "device-body", tabindex: "-1" },
    make("div", { className: "address-box" }, this.headline, this.rest, this.age),
    make("dl", { className: "facts" }, ...[...this.cells.values()].map(({ box }) => box)),
    make("section", {}, make("h3", { text: t("device.track") }),
      make("div", { className: "segmented", role: "group", "aria-label": t("device.track_of") }, ...this.ranges.values()),
      this.chart, this.trackFacts),
    this.placesBox, this.where);

  connectedCallback() {
    this.closeButton.addEventListener("click", () => this.dispatchEvent(new Event("close")));
    this.diaryButton.addEventListener("click", () => this.dispatchEvent(new Event("diary")));
    this.followButton.addEventListener("click", () => {
      const on = this.followButton.getAttribute("aria-pressed") !== "true";
      this.setFollow(on);
      this.dispatchEvent(new CustomEvent("follow", { detail: on }));
    });
    this.pinButton.addEventListener("click", () => {
      this.dispatchEvent(new CustomEvent("pin", { detail: this.pinButton.getAttribute("aria-pressed") !== "true" }));
    });
    this.replaceChildren(
      this.handle,
      make("div", { className: "device-head" }, this.mark, make("div", { className: "title" }, this.name, this.user), this.pinButton, this.diaryButton, this.followButton, this.closeButton),
      this.body,
    );
    new ResizeObserver(() => this.drawChart()).observe(this.chart);
    this.setRange(this.range, false);
  }

  /**
   * @param {DeviceRecord | null} record
   * @param {string | null} range
   */
  show(record, range) {
    const known = [...this.ranges.keys()].find((key) => key === range);
    if (known) this.setRange(known, false);
    const changed = record !== this.record;
    this.record = record;
    this.hidden = !record;
    if (!record) {
      this.control?.abort();
      this.track = [];
      return;
    }
    if (changed) {
      this.track = [];
      this.placesBox.hidden = true;
      this.body.scrollTop = 0;
      this.loadTrack();
      this.loadPlaces(record);
    }
    this.refresh();
  }

  /** @param {boolean} on */
  setFollow(on) {
    this.followButton.setAttribute("aria-pressed", String(on));
  }

  /** @param {boolean} on */
  setPin(on) {
    this.pinButton.setAttribute("aria-pressed", String(on));
  }

  /** @param {Range} key */
  setRange(key, load = true) {
    this.range = key;
    for (const [name, button] of this.ranges) button.setAttribute("aria-pressed", String(name === key));
    if (!load) return;
    this.loadTrack();
    this.dispatchEvent(new CustomEvent("range", { detail: key }));
  }

  /** Write the facts again; called with every fix of the device, and each second for the ages. */
  refresh() {
    const { record } = this;
    if (!record) return;
    const now = Date.now();
    const age = (now - record.heard) / 1000;
    this.mark.className = `mark ${ageClass(age)}`;
    setText(this.name, record.name);
    setText(this.user, record.user);
    setText(this.headline, record.address ? record.lines[0] : t(age < 30 ? "device.looking_up" : "device.no_address"));
    setText(this.rest, record.address ? record.lines[1] : "");
    const away = record.address?.distance ?? 0;
    const phrase = record.heard - record.time > LATE_MS
      ? t("age.replayed", { received: agePhrase(age), time: moment(record.time), age: agePhrase((now - record.time) / 1000) })
      : agePhrase(age);
    setText(this.age, away >= 100 ? t("device.away", { age: phrase, distance: distance(away) }) : phrase);
    this.age.className = `age ${ageClass(age)}`;
    this.age.title = moment(record.time);
    this.fact("speed", record.speed === null ? null : speedOf(record.speed));
    this.fact("battery", record.battery === null ? null : { value: number(record.battery), unit: record.charging ? t("device.charging") : t("device.percent") });
    this.cells.get("battery")?.value.classList.toggle("low", record.battery !== null && record.battery <= 20);
    this.fact("accuracy", record.accuracy === null ? null : length(record.accuracy));
    this.fact("course", record.course === null ? null : { value: compass(record.course), unit: t("unit.degrees", { value: number(record.course) }) });
    this.fact("altitude", record.altitude === null ? null : elevation(record.altitude));
    const delay = record.received === null ? -1 : record.received - record.time;
    this.fact("delay", delay < 0 || delay > LATE_MS ? null : delay < 60000 ? latencyOf(delay) : { value: duration(delay / 1000), unit: "" });
    const source = record.source ? t("device.source", { source: record.source }) : null;
    setText(this.where, [coordinates(record.lat, record.lon), source].filter(Boolean).join(" · "));
  }

  /**
   * @param {FactName} name
   * @param {import("../format.js").Quantity | null} quantity
   */
  fact(name, quantity) {
    const cell = this.cells.get(name);
    if (!cell) return;
    cell.box.hidden = quantity === null;
    if (!quantity) return;
    const key = `${quantity.value} ${quantity.unit}`;
    if (cell.value.dataset.key === key) return;
    cell.value.dataset.key = key;
    cell.value.replaceChildren(quantity.value, make("small", { text: quantity.unit ? ` ${quantity.unit}` : "" }));
  }

  /**
   * A new fix of the device that is shown.
   * @param {DeviceRecord} record
   */
  moved(record) {
    const last = this.track.at(-1);
    if (!last || record.time > last.time) this.track.push({ lat: record.lat, lon: record.lon, time: record.time, speed: record.speed });
    this.trackChanged();
    this.refresh();
  }

  async loadTrack() {
    const { record } = this;
    if (!record) return;
    this.control?.abort();
    this.control = new AbortController();
    const { signal } = this.control;
    // Counted back from the last position: a replayed or silent device has a way to show as well.
    /** @type {TrackPoint[]} */
    let points = [];
    try {
      const from = Math.max(0, record.time - RANGES[this.range].ms);
      points = readTrack(await api.track(record.device, from, record.time + 60000, signal));
    } catch { /* the last position is known all the same */ }
    if (signal.aborted || record !== this.record) return;
    const newest = points.at(-1)?.time ?? -Infinity;
    if (record.time > newest) points.push({ lat: record.lat, lon: record.lon, time: record.time, speed: record.speed });
    this.track = points;
    this.trackChanged();
  }

  trackChanged() {
    const { record } = this;
    if (!record) return;
    const since = record.time - RANGES[this.range].ms;
    this.track = this.track.filter((point, index) => index === this.track.length - 1 || !(point.time < since));
    const { lines, gaps, metres } = cutAtGaps(this.track);
    setText(this.trackFacts, this.track.length > 1
      ? t("device.track_facts", { distance: distance(metres), count: this.track.length, shown: count(this.track.length) })
      : t("device.track_empty"));
    this.drawChart();
    this.dispatchEvent(new CustomEvent("details", { detail: {
      track: lines, gaps, accuracy: record.accuracy ? { lat: record.lat, lon: record.lon, radius: record.accuracy } : null,
    } }));
  }

  /** @param {DeviceRecord} record */
  async loadPlaces(record) {
    /** @type {import("../types/api.js").Place[]} */
    let found = [];
    try { found = await api.places(record.device); } catch { /* no history yet */ }
    if (record !== this.record) return;
    const places = titled(found.filter((place) => Number.isFinite(place.lat) && Number.isFinite(place.lon))
      .sort((a, b) => (b.dwell_s ?? 0) - (a.dwell_s ?? 0)).slice(0, PLACES_SHOWN));
    this.placesBox.hidden = places.length === 0;
    this.places.replaceChildren(...places.map((place) => this.placeItem(record, place)));
    this.dispatchEvent(new CustomEvent("details", { detail: { places } }));
  }

  /**
   * @param {DeviceRecord} record
   * @param {TitledPlace} place
   */
  placeItem(record, place) {
    const figures = [place.dwell_s && duration(place.dwell_s), place.visits && t("place.visits", { count: place.visits })];
    const button = make("button", { type: "button", "aria-expanded": "false" },
      make("svg-icon", { name: iconOf(place) }),
      make("span", { className: "name", text: place.title, title: place.address ?? place.title }),
      make("span", { className: "dwell", text: figures.filter(Boolean).join(" · ") }));
    const item = make("li", {}, button);
    button.addEventListener("click", () => {
      this.dispatchEvent(new CustomEvent("focus-map", { detail: place }));
      this.togglePlace(record, place, button, item);
    });
    return item;
  }

  /**
   * Open what is known of a place below its button, or close it.
   * @param {DeviceRecord} record
   * @param {TitledPlace} place
   * @param {HTMLElement} button
   * @param {HTMLElement} item
   */
  async togglePlace(record, place, button, item) {
    const open = button.getAttribute("aria-expanded") !== "true";
    for (const other of this.places.querySelectorAll("[aria-expanded=true]")) other.setAttribute("aria-expanded", "false");
    this.places.querySelector("place-details")?.remove();
    button.setAttribute("aria-expanded", String(open));
    if (!open) return;
    const details = make("place-details");
    item.append(details);
    // The year that ends with the last visit: imported years are shown like this one.
    const end = place.last ?? Date.now();
    /** @type {import("../types/api.js").Visit[]} */
    let visits = [];
    try { visits = await api.visits(record.device, end - YEAR_MS, end); } catch { /* no history */ }
    if (details.isConnected) details.show(visits.filter((visit) => visit.place_id === place.place_id), end);
  }

  drawChart() {
    const top = drawSpeedChart(this.chart, this.track);
    if (top !== null) this.chart.setAttribute("aria-label", t("device.speed_chart_top", { speed: speed(top) }));
  }
}
customElements.define("device-panel", DevicePanel);
