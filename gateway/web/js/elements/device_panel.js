// The drawer of the selected device: where it is, how it does, where it was.

import * as api from "../api.js";
import { ageClass, agePhrase, compass, coordinates, distance, duration, latency, moment, speed } from "../format.js";
import { make, setText } from "./svg_icon.js";
import "./place_details.js";

const RANGES = { "30m": ["30 min", 1800e3], "6h": ["6 h", 6 * 3600e3], "24h": ["24 h", 86400e3], "7d": ["7 days", 7 * 86400e3] };
const YEAR_MS = 371 * 86400e3;
const LABELS = { home: "Home", work: "Work" };

customElements.define("device-panel", class extends HTMLElement {
  /** Events: `close`, `focus-map`, `follow` (detail: on), `details` (for the map), `range`. */
  connectedCallback() {
    this.range = "30m";
    const close = make("button", { className: "icon-button", type: "button", "aria-label": "Close", title: "Close (Esc)" }, make("svg-icon", { name: "close" }));
    close.addEventListener("click", () => this.dispatchEvent(new Event("close")));
    this.followButton = make("button", { className: "icon-button", type: "button", "aria-pressed": "false", "aria-label": "Follow on the map", title: "Follow on the map" }, make("svg-icon", { name: "target" }));
    this.followButton.addEventListener("click", () => this.setFollow(this.followButton.getAttribute("aria-pressed") !== "true", true));
    this.mark = make("span", { className: "mark" });
    this.name = make("h2", { className: "name", tabindex: "-1" });
    this.user = make("span", { className: "user" });
    this.headline = make("p", { className: "headline" });
    this.rest = make("p", { className: "rest" });
    this.age = make("p", { className: "age" });
    this.facts = make("dl", { className: "facts" });
    this.cells = {};
    for (const [key, title] of [["speed", "Speed"], ["battery", "Battery"], ["accuracy", "Accuracy"], ["course", "Heading"], ["altitude", "Altitude"], ["delay", "Delay"]]) {
      const value = make("dd", {});
      this.cells[key] = { box: make("div", {}, make("dt", { text: title }), value), value };
      this.facts.append(this.cells[key].box);
    }
    this.where = make("p", { className: "where" });
    this.rangeButtons = {};
    const ranges = make("div", { className: "segmented", role: "group", "aria-label": "Track of the last" });
    for (const [key, [title]] of Object.entries(RANGES)) {
      const button = make("button", { type: "button", text: title, "aria-pressed": "false" });
      button.addEventListener("click", () => this.setRange(key));
      this.rangeButtons[key] = button;
      ranges.append(button);
    }
    this.trackFacts = make("p", { className: "track-facts" });
    this.chart = make("canvas", { className: "chart", role: "img", "aria-label": "Speed along the track" });
    this.places = make("ol", { className: "places" });
    this.placesBox = make("section", { hidden: true }, make("h3", { text: "Favourite places" }), this.places);
    this.handle = make("div", { className: "panel-handle", role: "slider", tabindex: "0", "aria-label": "Height of the panel", "aria-valuemin": "0", "aria-valuemax": "2" });
    this.replaceChildren(
      this.handle,
      make("div", { className: "device-head" }, this.mark, make("div", { className: "title" }, this.name, this.user), this.followButton, close),
      make("div", { className: "device-body" },
        make("div", { className: "address-box" }, this.headline, this.rest, this.age),
        this.facts,
        make("section", {}, make("h3", { text: "Track" }), ranges, this.chart, this.trackFacts),
        this.placesBox, this.where),
    );
    new ResizeObserver(() => this.drawChart()).observe(this.chart);
    this.setRange(this.range, false);
  }

  show(record, range) {
    if (range && RANGES[range]) this.setRange(range, false);
    const changed = record !== this.record;
    this.record = record;
    this.hidden = !record;
    if (!record) {
      this.control?.abort();
      this.track = null;
      return;
    }
    if (changed) {
      this.track = [];
      this.placesBox.hidden = true;
      this.querySelector(".device-body").scrollTop = 0;
      this.loadTrack();
      this.loadPlaces(record);
    }
    this.refresh();
  }

  setFollow(on, say = false) {
    this.followButton.setAttribute("aria-pressed", String(on));
    if (say) this.dispatchEvent(new CustomEvent("follow", { detail: on }));
  }

  setRange(key, load = true) {
    this.range = key;
    for (const [name, button] of Object.entries(this.rangeButtons)) button.setAttribute("aria-pressed", String(name === key));
    if (!load) return;
    this.loadTrack();
    this.dispatchEvent(new CustomEvent("range", { detail: key }));
  }

  /** Write the facts again; called with every fix of the device, and each second for the ages. */
  refresh() {
    const { record } = this;
    if (!record) return;
    const now = Date.now();
    const age = (now - record.time) / 1000;
    this.mark.className = `mark ${ageClass(age)}`;
    setText(this.name, record.name);
    setText(this.user, record.user);
    setText(this.headline, record.address ? record.lines[0] : age < 30 ? "Looking up the address …" : "No address yet");
    setText(this.rest, record.address ? record.lines[1] : "");
    const away = record.address?.distance;
    setText(this.age, `${agePhrase(age)}${Number.isFinite(away) && away >= 100 ? ` · ${distance(away)} away` : ""}`);
    this.age.className = `age ${ageClass(age)}`;
    this.age.title = moment(record.time);
    const { cells } = this;
    this.fact(cells.speed, record.speed === null ? null : speed(record.speed), "km/h");
    this.fact(cells.battery, record.battery === null ? null : String(Math.round(record.battery)), record.charging ? "% ⚡" : "%");
    cells.battery.value.classList.toggle("low", record.battery !== null && record.battery <= 20);
    this.fact(cells.accuracy, record.accuracy === null ? null : distance(record.accuracy).split(" ")[0], record.accuracy === null ? "" : distance(record.accuracy).split(" ")[1]);
    this.fact(cells.course, record.course === null ? null : compass(record.course), record.course === null ? "" : `${Math.round(record.course)}°`);
    this.fact(cells.altitude, record.altitude === null ? null : String(Math.round(record.altitude)), "m");
    const delay = record.received === null ? null : record.received - record.time;
    this.fact(cells.delay, ...(delay === null || delay < 0 ? [null] : delayText(delay)));
    setText(this.where, [coordinates(record.lat, record.lon), record.source && `via ${record.source}`].filter(Boolean).join(" · "));
  }

  fact({ box, value }, text, unit) {
    box.hidden = text === null || text === undefined;
    if (box.hidden) return;
    const key = `${text} ${unit}`;
    if (value.dataset.key === key) return;
    value.dataset.key = key;
    value.replaceChildren(text, make("small", { text: unit ? ` ${unit}` : "" }));
  }

  /** A new fix of the device that is shown. */
  moved(record) {
    if (this.track) {
      const last = this.track.at(-1);
      if (!last || record.time > last.time) this.track.push({ lat: record.lat, lon: record.lon, time: record.time, speed: record.speed });
      this.trackChanged();
    }
    this.refresh();
  }

  async loadTrack() {
    const { record } = this;
    if (!record) return;
    this.control?.abort();
    this.control = new AbortController();
    // Counted back from the last position: a replayed or silent device has a way to show as well.
    let points = [];
    try {
      const from = Math.max(0, record.time - RANGES[this.range][1]);
      points = readTrack(await api.track(record.device, from, record.time + 60000, this.control.signal));
    } catch (error) {
      if (error.name === "AbortError") return;
    }
    if (record !== this.record) return;
    const newest = points.at(-1)?.time ?? -Infinity;
    if (record.time > newest) points.push({ lat: record.lat, lon: record.lon, time: record.time, speed: record.speed });
    this.track = points;
    this.trackChanged();
  }

  trackChanged() {
    const since = this.record.time - RANGES[this.range][1];
    this.track = this.track.filter((point, index) => index === this.track.length - 1 || !(point.time < since));
    const { track, record } = this;
    const metres = track.reduce((sum, point, index) => (index ? sum + between(track[index - 1], point) : 0), 0);
    setText(this.trackFacts, track.length > 1
      ? `${distance(metres)} · ${track.length.toLocaleString("en")} positions`
      : "Only the last position is in this time.");
    this.drawChart();
    this.dispatchEvent(new CustomEvent("details", { detail: {
      track: unwrap(track), accuracy: record.accuracy ? { lat: record.lat, lon: record.lon, radius: record.accuracy } : null,
    } }));
  }

  async loadPlaces(record) {
    let found = [];
    try { found = await api.places(record.device); } catch { /* no history yet */ }
    if (record !== this.record) return;
    const places = found.filter((place) => Number.isFinite(place.lat) && Number.isFinite(place.lon))
      .sort((a, b) => (b.dwell_s ?? 0) - (a.dwell_s ?? 0)).slice(0, 10)
      .map((place) => ({ ...place, title: LABELS[place.label] ?? place.name ?? shortAddress(place.address) ?? "Place" }));
    this.placesBox.hidden = places.length === 0;
    this.places.replaceChildren(...places.map((place) => {
      const button = make("button", { type: "button" },
        make("svg-icon", { name: place.label === "home" ? "home" : place.label === "work" ? "work" : "pin" }),
        make("span", { className: "name", text: place.title }),
        make("span", { className: "dwell", text: [place.dwell_s && duration(place.dwell_s), place.visits && `${place.visits} ${place.visits === 1 ? "visit" : "visits"}`].filter(Boolean).join(" · ") }));
      const item = make("li", {}, button);
      button.setAttribute("aria-expanded", "false");
      button.addEventListener("click", () => {
        this.dispatchEvent(new CustomEvent("focus-map", { detail: place }));
        this.togglePlace(record, place, button, item);
      });
      return item;
    }));
    this.dispatchEvent(new CustomEvent("details", { detail: { places } }));
  }

  /** Open what is known of a place below its button, or close it. */
  async togglePlace(record, place, button, item) {
    const open = button.getAttribute("aria-expanded") !== "true";
    for (const other of this.places.querySelectorAll("[aria-expanded=true]")) other.setAttribute("aria-expanded", "false");
    this.places.querySelector("place-details")?.remove();
    button.setAttribute("aria-expanded", String(open));
    if (!open) return;
    const details = make("place-details", {});
    item.append(details);
    const now = Date.now();
    let visits = [];
    try { visits = await api.visits(record.device, now - YEAR_MS, now); } catch { /* no history */ }
    if (details.isConnected) details.show(visits.filter((visit) => visit.place_id === place.place_id), now);
  }

  drawChart() {
    const points = (this.track ?? []).filter((point) => Number.isFinite(point.speed) && Number.isFinite(point.time));
    this.chart.hidden = points.length < 3;
    if (this.chart.hidden) return;
    const ratio = devicePixelRatio || 1;
    const width = this.chart.clientWidth;
    const height = this.chart.clientHeight;
    if (!width) return;
    this.chart.width = width * ratio;
    this.chart.height = height * ratio;
    const context = this.chart.getContext("2d");
    context.scale(ratio, ratio);
    const from = points[0].time;
    const to = Math.max(from + 1, points.at(-1).time);
    const top = Math.max(3, ...points.map((point) => point.speed));
    const x = (point) => 1 + ((point.time - from) / (to - from)) * (width - 2);
    const y = (point) => height - 2 - (point.speed / top) * (height - 16);
    const colour = getComputedStyle(this).getPropertyValue("--accent");
    context.beginPath();
    points.forEach((point, index) => context[index ? "lineTo" : "moveTo"](x(point), y(point)));
    context.strokeStyle = colour;
    context.lineWidth = 1.6;
    context.lineJoin = "round";
    context.stroke();
    context.lineTo(x(points.at(-1)), height);
    context.lineTo(x(points[0]), height);
    context.globalAlpha = 0.13;
    context.fillStyle = colour;
    context.fill();
    context.globalAlpha = 1;
    context.fillStyle = getComputedStyle(this).getPropertyValue("--text-soft");
    context.font = `11px ${getComputedStyle(this).fontFamily}`;
    context.fillText(`max ${speed(top)} km/h`, 0, 10);
    this.chart.setAttribute("aria-label", `Speed along the track, at most ${speed(top)} km/h`);
  }
});

/** Points of a GeoJSON track: a LineString with its times, or one Point feature a fix. */
export function readTrack(geojson) {
  const features = geojson?.features ?? (geojson?.type === "Feature" ? [geojson] : []);
  const points = [];
  for (const { geometry, properties } of features) {
    const own = properties ?? {};
    if (geometry?.type === "Point") {
      points.push({ lon: geometry.coordinates[0], lat: geometry.coordinates[1], time: toMs(own.time ?? own.times?.[0] ?? own.coordTimes?.[0]), speed: own.speed ?? own.speeds?.[0] ?? null });
    } else if (geometry?.type === "LineString" || geometry?.type === "MultiLineString") {
      const lines = geometry.type === "LineString" ? [geometry.coordinates] : geometry.coordinates;
      const times = own.times ?? own.coordTimes ?? own.coordinateProperties?.times ?? [];
      const speeds = own.speeds ?? own.coordinateProperties?.speeds ?? [];
      lines.flat().forEach(([lon, lat], index) => points.push({ lon, lat, time: toMs(times.flat()[index]), speed: speeds.flat()[index] ?? null }));
    }
  }
  return points.sort((a, b) => (a.time ?? 0) - (b.time ?? 0));
}

function delayText(ms) {
  const [number, ...unit] = (ms < 60000 ? latency(ms) : duration(ms / 1000)).split(" ");
  return [number, unit.join(" ")];
}

function toMs(time) {
  return typeof time === "string" ? Date.parse(time) : time;
}

function shortAddress(address) {
  return typeof address === "string" ? address.split(",")[0] : address?.display_name?.split(",")[0];
}

function between(a, b) {
  const radians = Math.PI / 180;
  const h = Math.sin(((b.lat - a.lat) * radians) / 2) ** 2
    + Math.cos(a.lat * radians) * Math.cos(b.lat * radians) * Math.sin(((b.lon - a.lon) * radians) / 2) ** 2;
  return 2 * 6371008.8 * Math.asin(Math.sqrt(h));
}

/** Coordinates whose longitudes run on over the antimeridian instead of jumping back. */
function unwrap(track) {
  let shift = 0;
  return track.map((point, index) => {
    if (index) {
      const step = point.lon - track[index - 1].lon;
      if (step > 180) shift -= 360;
      else if (step < -180) shift += 360;
    }
    return [point.lon + shift, point.lat];
  });
}
