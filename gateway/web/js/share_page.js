// The page of a share: one map for somebody who has nothing but a link. The token is in the URL's
// fragment, which no server is told, and goes to the gateway in a header.

import { DeviceStore } from "./device_store.js";
import { byId, make, setText } from "./dom.js";
import { ageClass, agePhrase, coordinates, distance, duration, moment } from "./format.js";
import { locale, t, translate } from "./i18n.js";
import { LiveConnection } from "./live_connection.js";
import { MapView } from "./map_view.js";
import { Sheet } from "./sheet.js";
import "./elements/svg_icon.js";
import "./elements/connection_dot.js";

/** @import { DeviceRecord } from "./device_store.js" */
/** @import { Position } from "./tracks.js" */
/** @import { SharedView, Track } from "./types/api.js" */

const TICK_MS = 1000;
const AGAIN_MS = 5000;
const TRAIL_MAX = 2000;
const root = document.documentElement;

class SharePage {
  headers = { "waylog-share": location.hash.slice(1) };
  store = new DeviceStore();
  live = new LiveConnection(Math.random, { path: "/v1/shared/stream", headers: this.headers });
  map = new MapView(byId("map", "main"), this.store, { theme: root.dataset.theme ?? "light", view: null, headers: this.headers });
  room = byId("shared", "div");
  left = make("p", { className: "left" });
  list = make("ul", { className: "shared-devices" });
  /** @type {SharedView | null} */
  view = null;
  ended = false;
  framed = false;
  clockAheadMs = 0; // of this machine, before the platform's
  /** The ways since the page was opened, by device, or those of a period. @type {Map<string, Position[]>} */
  ways = new Map();

  constructor() {
    translate(document);
    root.lang = locale;
    document.title = t("page.title", { view: t("shared.page") });
    new Sheet().add(byId("panel", "section"), byId("handle", "div"));
    byId("zoom-in", "button").addEventListener("click", () => this.map.map?.zoomIn());
    byId("zoom-out", "button").addEventListener("click", () => this.map.map?.zoomOut());
    byId("fit", "button").addEventListener("click", () => this.fit());
    this.store.onFix = (record) => this.moved(record);
    const dot = byId("connection", "connection-dot");
    dot.hidden = true;
    this.live.addEventListener("state", () => dot.show(this.live.state, this.live.retryAt));
    dot.addEventListener("retry", () => this.live.retryNow());
    this.live.addEventListener("opened", () => { dot.hidden = false; this.load(); });
    this.live.addEventListener("refused", () => this.load());
    this.live.addEventListener("message", (event) => {
      const { kind, data } = /** @type {CustomEvent} */ (event).detail;
      if (kind === "fix") this.store.applyFix(data);
      else this.store.applyAddress(data);
      this.draw();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => location.reload());
    addEventListener("hashchange", () => location.reload());
  }

  async start() {
    setInterval(() => this.tick(), TICK_MS);
    await Promise.all([this.load(), this.map.ready]);
    if (this.ended) return;
    this.map.points.follow();
    this.drawWays();
    this.fit(false);
    root.dataset.ready = "true";
  }

  /** Ask who shares what. */
  async load() {
    if (this.ended) return;
    let answer;
    try {
      answer = await fetch("/v1/shared", { headers: this.headers, cache: "no-store" });
    } catch { /* as if it were away */ }
    if (answer?.status === 404 || answer?.status === 400) return this.end();
    if (!answer?.ok) {
      if (this.live.state !== "live" || !this.view) setTimeout(() => this.load(), AGAIN_MS);
      return;
    }
    const first = !this.view;
    /** @type {SharedView} */
    const view = this.view = await answer.json();
    this.clockAheadMs = Date.now() - view.now;
    for (const row of view.devices) if (row.fix ?? row.address) this.store.applyRow(row);
    if (first) {
      this.introduce(view);
      this.map.signedIn();
      if (view.live) this.live.start();
      else await Promise.all(view.devices.map(({ device }) => this.loadTrack(device)));
    }
    this.draw();
  }

  /** @param {string} device */
  async loadTrack(device) {
    const answer = await fetch(`/v1/shared/track?${new URLSearchParams({ device })}`, { headers: this.headers });
    if (!answer.ok) return;
    /** @type {Track} */
    const track = await answer.json();
    const [way] = track.features;
    const geometry = way?.geometry;
    if (!geometry) return;
    const found = geometry.type === "Point" ? [geometry.coordinates] : geometry.coordinates;
    this.ways.set(device, /** @type {Position[]} */ (found));
    this.drawWays();
  }

  /** @param {SharedView} view */
  introduce(view) {
    const facts = [
      view.live ? t("shared.live") : t("shared.period", { from: moment(view.from ?? 0), to: moment(view.to ?? 0) }),
      view.precision === "town" ? t("shared.town") : view.metres ? t("shared.metres", { length: distance(view.metres) }) : "",
      view.hides_home ? t("shared.home") : "",
    ];
    this.room.replaceChildren(
      make("h1", { text: view.name || t("shared.title", { user: view.by }) }),
      make("p", { className: "by", text: view.name ? t("shared.by", { user: view.by }) : "" }),
      this.left, this.list,
      make("ul", { className: "terms" }, ...facts.filter(Boolean).map((text) => make("li", { text }))));
    this.tick();
  }

  tick() {
    if (!this.view || this.ended) return;
    const leftMs = this.view.until - (Date.now() - this.clockAheadMs);
    if (leftMs <= 0) this.end();
    else setText(this.left, t("shared.until", { time: moment(this.view.until), left: duration(Math.max(60, leftMs / 1000)) }));
    this.draw();
  }

  draw() {
    if (!this.view || this.ended) return;
    const { view } = this;
    const now = Date.now() - this.clockAheadMs;
    while (this.list.children.length < view.devices.length) this.list.append(this.row(this.list.children.length));
    view.devices.forEach(({ device }, index) => {
      const record = this.store.get(device);
      const item = this.list.children[index];
      const [mark, name, age, place] = item?.querySelectorAll("span") ?? [];
      if (!mark || !name || !age || !place) return;
      setText(name, device.slice(device.indexOf("/") + 1));
      const way = this.ways.get(device);
      if (!view.live) {
        setText(place, way?.length ? t("shared.points", { count: way.length }) : t("shared.nothing"));
        return;
      }
      const ageS = record ? (now - record.heard) / 1000 : Infinity;
      mark.className = `mark ${record ? ageClass(ageS) : "quiet"}`;
      setText(age, record ? agePhrase(ageS) : "");
      setText(place, record ? record.address?.display_name ?? coordinates(record.lat, record.lon) : t("shared.waiting"));
    });
  }

  /** @param {number} index */
  row(index) {
    const button = make("button", { type: "button", className: "shared-device" },
      make("span", { className: "mark quiet" }), make("span", { className: "name" }), make("span", { className: "age" }), make("span", { className: "address" }));
    button.addEventListener("click", () => {
      const device = this.view?.devices[index]?.device ?? "";
      const record = this.store.get(device);
      if (record) this.map.focus(record);
      else this.fit(true, device);
    });
    return make("li", {}, button);
  }

  /** @param {DeviceRecord} record */
  moved(record) {
    const way = this.ways.get(record.device) ?? [];
    const [lon, lat] = way.at(-1) ?? [];
    if (lon !== record.lon || lat !== record.lat) way.push([record.lon, record.lat]);
    if (way.length > TRAIL_MAX) way.shift();
    this.ways.set(record.device, way);
    this.drawWays();
    if (!this.framed && this.map.map) this.fit(false);
  }

  drawWays() {
    const [only] = this.store.records;
    const accuracy = this.store.size === 1 && only?.accuracy ? { lat: only.lat, lon: only.lon, radius: only.accuracy } : null;
    this.map.setDetails({ track: [...this.ways.values()].filter((way) => way.length > 1), accuracy });
  }

  /**
   * @param {boolean} [animate]
   * @param {string} [device]
   */
  fit(animate = true, device) {
    const ways = device ? [this.ways.get(device) ?? []] : [...this.ways.values()];
    const points = ways.flat().map(([lon = 0, lat = 0]) => ({ lat, lon }));
    if (!points.length || !this.map.map) return;
    this.framed = true;
    this.map.fit(points, animate);
  }

  /** Nothing of it is left to be seen. */
  end() {
    if (this.ended) return;
    this.ended = true;
    this.live.stop();
    this.ways.clear();
    byId("connection", "connection-dot").hidden = true;
    this.room.replaceChildren(make("h1", { text: t("shared.ended") }), make("p", { className: "by", text: t("shared.ended_why") }));
    root.dataset.ended = "true";
    this.map.ready.then(() => this.map.map.remove()).catch(() => {});
  }
}

const page = new SharePage();
/** @type {Record<string, unknown>} */
const hooks = { page, store: page.store, positionOf: (/** @type {string} */ device) => page.map.positionOf(device) };
globalThis.waylog = hooks;
page.start().catch((error) => {
  root.dataset.failed = "true";
  byId("map", "main").textContent = t("map.failed", { reason: error.message });
  console.error(error);
});
