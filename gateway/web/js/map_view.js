// The map: base map, all devices, and what belongs to the selected one.

import { SignInNeeded } from "./api.js";
import { BASE, drawn, TileHealth } from "./map/base_map.js";
import { loadArchives } from "./map/extracts.js";
import { ClusterLayer } from "./live/cluster_layer.js";
import { TrailsLayer } from "./live/trails_layer.js";
import * as style from "./map_style.js";
import { mercator, PointsLayer } from "./points_layer.js";
import { settings } from "./settings.js";

/** @import { DeviceRecord, DeviceStore } from "./device_store.js" */
/** @import { Position } from "./tracks.js" */
/** @import { BaseMap, GeocodedPlace } from "./types/api.js" */
/** @import { Map as LibraryMap, CameraOptions, Point } from "maplibre-gl" */
/**
 * @typedef {(path: string, how?: RequestInit) => Promise<Response>} Load
 * @typedef {object} Details what surrounds the selected device
 * @property {Position[][]} track
 * @property {Position[][]} gaps in the track, where nothing is known
 * @property {{lat: number, lon: number, radius: number} | null} accuracy
 * @property {{lat: number, lon: number, title: string, dwell_s?: number}[]} places
 * @property {{lat: number, lon: number, radius: number}[]} others accuracies of devices chosen beside it
 */

/** @type {{center: [number, number], zoom: number}} */
const WORLD = { center: [12, 28], zoom: 1.35 };
const ARCHIVES_AGAIN_MS = 5_000; // a geocoder that starts has no answer yet
const ARCHIVES_AGAIN_MAX_MS = 120_000;
const BASE_AGAIN_MS = 60_000;

export class MapView extends EventTarget {
  /** Events: `pick` (record: a device or null; also: whether beside others), `hover` (record, point), `moving`, `moved` (view),
   * `dragged`, `dressed`, `base` (whether the base map of another server does has changed). */
  /**
   * @param {HTMLElement} container
   * @param {DeviceStore} store
   * @param {{theme: string, view: {zoom: number, lat: number, lon: number} | null, headers?: Record<string, string>, load?: Load}} options
   *   `headers` go with requests for tiles of extracts; `load` fetches the map's files
   */
  constructor(container, store, { theme, view, headers = {}, load }) {
    super();
    this.headers = headers;
    this.load = load;
    this.reducedMotion = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.store = store;
    this.theme = theme;
    /** @type {Details} */
    this.details = { track: [], gaps: [], accuracy: null, places: [], others: [] };
    /** @type {LibraryMap} there once `open` has made it */
    this.map = /** @type {any} */ (undefined);
    this.gridDrawn = false;
    this.attribution = "";
    /** @type {import("./map/extracts.js").Archive[]} of extracts */
    this.archives = [];
    this.archivesKnown = false;
    /** Base maps of other servers. @type {BaseMap[]} */
    this.bases = [];
    /** @type {import("./map/base_map.js").Drawn | null} the one that is shown in place of the embedded map */
    this.base = null;
    this.baseHealth = new TileHealth();
    /** The server of the base map that was chosen and cannot be loaded. @type {string | null} */
    this.baseFailed = null;
    /** @type {number | undefined} */
    this.baseTimer = undefined;
    this.points = new PointsLayer(store, { reducedMotion: this.reducedMotion });
    this.trails = new TrailsLayer();
    this.points.onMove = (...movement) => this.trails.add(...movement);
    this.points.setTheme(theme);
    this.trails.colour = this.points.colours[0] ?? this.trails.colour;
    this.clusters = new ClusterLayer(this);
    this.ready = this.open(container, view);
  }

  /**
   * @param {HTMLElement} container
   * @param {{zoom: number, lat: number, lon: number} | null} view
   */
  async open(container, view) {
    const { maplibregl } = globalThis;
    const index = await style.installWorld(maplibregl, this.load ?? fetch);
    this.attribution = index.attribution;
    this.map = new maplibregl.Map({
      container,
      style: this.style(),
      transformRequest: (url) => ({ url, headers: new URL(url, location.href).origin === location.origin ? this.headers : {} }),
      ...(view ? { center: [view.lon, view.lat], zoom: view.zoom } : WORLD),
      minZoom: 0.6,
      maxZoom: 19,
      attributionControl: false,
      dragRotate: false,
      pitchWithRotate: false,
      touchPitch: false,
      fadeDuration: this.reducedMotion ? 0 : 150,
    });
    const { map } = this;
    map.touchZoomRotate.disableRotation();
    map.keyboard.disableRotation();
    map.addControl(new maplibregl.AttributionControl({ compact: innerWidth <= 720 }), "bottom-right");
    map.addControl(new maplibregl.ScaleControl({ maxWidth: 110 }), "bottom-right");
    map.on("style.load", () => this.dress());
    map.on("sourcedata", (event) => { if (event.sourceId === BASE && event.tile?.state === "loaded") this.baseHealth.succeeded(); });
    map.on("error", (event) => {
      // A tile that fails is one less to wait for, but the map tells `load` with a frame, and asks for none.
      map.triggerRepaint();
      if (/** @type {{sourceId?: string}} */ (event).sourceId !== BASE) console.error(event.error);
      else if (this.base && this.baseHealth.failed()) this.giveUpBase();
    });
    map.on("moveend", () => { this.drawGrid(); this.dispatchEvent(new CustomEvent("moved", { detail: this.view() })); });
    map.on("move", () => this.dispatchEvent(new Event("moving")));
    map.on("click", (event) => {
      const { ctrlKey, metaKey, shiftKey } = event.originalEvent;
      const detail = { record: this.points.pick(event.point, 18), also: ctrlKey || metaKey || shiftKey };
      this.dispatchEvent(new CustomEvent("pick", { detail }));
    });
    map.on("mousemove", (event) => this.hover(event.point));
    map.on("mouseout", () => this.hover(null));
    map.on("dragstart", () => this.dispatchEvent(new Event("dragged")));
    await new Promise((resolve) => { map.once("load", () => resolve(null)); });
    // The layer repaints for motion only; colours that change by age alone need one frame a while.
    setInterval(() => { if (!document.hidden) map.triggerRepaint(); }, 5000);
  }

  /** Add what the style does not know, after it was set. */
  dress() {
    const { map } = this;
    if (!map.getLayer("town")) {
      const archives = this.shownArchives();
      if (!this.base?.raster || this.base.from.name === "satellite") {
        style.addTowns(map, this.theme, archives);
        style.addStreetLabels(map, this.theme, archives);
      }
    }
    if (!map.getLayer(this.trails.id)) map.addLayer(this.trails);
    if (!map.getLayer(this.points.id)) map.addLayer(this.points);
    this.drawDetails();
    this.drawGrid();
    this.dispatchEvent(new Event("dressed"));
  }

  /** @param {string} theme */
  setTheme(theme) {
    if (theme === this.theme) return;
    this.theme = theme;
    this.points.setTheme(theme);
    this.trails.colour = this.points.colours[0] ?? this.trails.colour;
    this.map?.setStyle(this.style(), { diff: false });
  }

  style() {
    const made = /** @type {unknown} */ (style.mapStyle(this.theme, this.attribution, this.shownArchives(), Boolean(this.load), this.base));
    return /** @type {import("maplibre-gl").StyleSpecification} */ (made);
  }

  /** Ask for what only users may see. */
  signedIn() {
    if (!this.archivesKnown) this.findArchives();
  }

  /** Ask which extracts there are; where there is no answer, again later. */
  async findArchives(againMs = ARCHIVES_AGAIN_MS) {
    try {
      this.archives = await loadArchives(AbortSignal.timeout(ARCHIVES_AGAIN_MS), this.headers, this.load);
    } catch (error) {
      if (error instanceof SignInNeeded) return; // the page asks for it, and `signedIn` asks again
      setTimeout(() => this.findArchives(Math.min(2 * againMs, ARCHIVES_AGAIN_MAX_MS)), againMs);
      return;
    }
    this.archivesKnown = true;
    if (this.archives.length) this.map?.setStyle(this.style(), { diff: false });
  }

  /** Vector tiles of another server are drawn in place of the extracts. */
  shownArchives() {
    return this.base?.archive ? [this.base.archive] : this.archives;
  }

  /** @param {BaseMap[]} bases */
  offerBases(bases) {
    this.bases = bases;
    this.showBase();
  }

  /** Show the base map that was chosen; the embedded one where it is not offered, or cannot be loaded. */
  async showBase() {
    clearTimeout(this.baseTimer);
    const wanted = this.bases.find(({ name }) => name === settings.current.base_map);
    if (!wanted && !this.base && this.baseFailed === null) return;
    this.baseHealth = new TileHealth();
    try {
      this.setBase(wanted ? await drawn(wanted) : null, null);
    } catch {
      this.giveUpBase(wanted);
    }
  }

  giveUpBase(failed = this.base?.from) {
    if (!failed) return;
    clearTimeout(this.baseTimer);
    this.baseTimer = setTimeout(() => this.showBase(), BASE_AGAIN_MS);
    this.setBase(null, new URL(failed.url).host);
  }

  /**
   * @param {import("./map/base_map.js").Drawn | null} base
   * @param {string | null} failed
   */
  setBase(base, failed) {
    if (base === null && this.base === null && failed === this.baseFailed) return;
    const changes = base !== this.base;
    this.base = base;
    this.baseFailed = failed;
    if (changes) this.map?.setStyle(this.style(), { diff: false });
    this.dispatchEvent(new Event("base"));
  }

  view() {
    const centre = this.map.getCenter().wrap();
    return { zoom: this.map.getZoom(), lat: centre.lat, lon: centre.lng };
  }

  /** @param {Point | null} point */
  hover(point) {
    const record = point ? this.points.pick(point) : null;
    this.points.hover(record);
    this.map.getCanvas().style.cursor = record ? "pointer" : "";
    this.dispatchEvent(new CustomEvent("hover", { detail: { record, point } }));
  }

  /** @param {string} name */
  source(name) {
    return /** @type {import("maplibre-gl").GeoJSONSource | undefined} */ (this.map?.getSource(name));
  }

  drawGrid() {
    const source = this.source("grid");
    if (!source) return;
    const zoom = this.map.getZoom();
    if (zoom < 9 && !this.gridDrawn) return;
    this.gridDrawn = zoom >= 9;
    const b = this.map.getBounds();
    const dx = b.getEast() - b.getWest();
    const dy = b.getNorth() - b.getSouth();
    source.setData(/** @type {GeoJSON.FeatureCollection} */ (style.graticule([b.getWest() - dx, b.getSouth() - dy, b.getEast() + dx, b.getNorth() + dy], zoom)));
  }

  /**
   * Which devices are drawn; null for all.
   * @param {((record: DeviceRecord) => boolean) | null} filter
   */
  showDevices(filter) {
    this.points.setFilter(filter);
  }

  /**
   * What surrounds the selected device; members that are not given stay.
   * @param {Partial<Details>} details
   */
  setDetails(details) {
    Object.assign(this.details, details);
    this.drawDetails();
  }

  drawDetails() {
    if (!this.source("track")) return;
    const { track, gaps, accuracy, places, others } = this.details;
    /** @type {(features: GeoJSON.Feature[]) => GeoJSON.FeatureCollection} */
    const collection = (features) => ({ type: "FeatureCollection", features });
    /** @type {(coordinates: Position[]) => GeoJSON.Feature} */
    const line = (coordinates) => ({ type: "Feature", properties: {}, geometry: { type: "LineString", coordinates } });
    this.source("track")?.setData(collection(track.map(line)));
    this.source("gaps")?.setData(collection(gaps.map(line)));
    const circles = [...(accuracy ? [accuracy] : []), ...others].filter(({ radius }) => radius > 0);
    this.source("accuracy")?.setData(collection(circles.map(({ lat, lon, radius }) => (
      /** @type {GeoJSON.Feature} */ (style.groundCircle(lat, lon, radius))))));
    const longest = Math.max(1, ...places.map((place) => place.dwell_s ?? 0));
    this.source("places")?.setData(collection(places.map((place) => ({
      type: "Feature",
      properties: { title: place.title, radius: 9 + 21 * Math.sqrt((place.dwell_s ?? 0) / longest) },
      geometry: { type: "Point", coordinates: [place.lon, place.lat] },
    }))));
  }

  /** Room that the panels leave, so that what is shown is not under them. */
  padding() {
    const box = this.map.getContainer().getBoundingClientRect();
    const wide = box.width > 720;
    const edges = { top: 40, bottom: wide ? 110 : 40, left: 40, right: 70 };
    for (const element of document.querySelectorAll(".panel, device-panel, pipeline-strip, day-player")) {
      const own = element.getBoundingClientRect();
      if (!own.width || !own.height || getComputedStyle(element).visibility === "hidden") continue;
      if (!wide) {
        if (own.top > 60) edges.bottom = Math.max(edges.bottom, box.bottom - own.top + 24);
        else edges.top = Math.max(edges.top, own.bottom + 24);
      } else if (element.localName === "pipeline-strip" || element.localName === "day-player") {
        edges.bottom = Math.max(edges.bottom, box.bottom - own.top + 24);
      } else if (own.left < box.width / 2) edges.left = Math.max(edges.left, own.right + 32);
      else edges.right = Math.max(edges.right, box.right - own.left + 32);
    }
    edges.bottom = Math.min(edges.bottom, box.height * 0.7);
    return edges;
  }

  /** From the middle of the map to the middle of what the panels leave, in pixels. An offset and
   * not a padding, because a map keeps the padding of a camera for all that follow.
   * @returns {[number, number]} */
  freeCentre() {
    const edges = this.padding();
    return [(edges.left - edges.right) / 2, (edges.top - edges.bottom) / 2];
  }

  /** @param {CameraOptions & {offset?: [number, number]}} camera */
  fly(camera) {
    const still = this.points.reducedMotion;
    this.map.easeTo({ ...camera, duration: still ? 0 : 700, essential: false });
  }

  /**
   * Bring every given place into view.
   * @param {{lat: number, lon: number}[]} records
   * @param {boolean} [animate]
   */
  fit(records, animate = true) {
    const bounds = shortestBounds(records);
    if (!bounds) return;
    this.map.fitBounds(bounds, { padding: this.padding(), maxZoom: 14, duration: animate && !this.points.reducedMotion ? 700 : 0 });
  }

  /** @param {{lat: number, lon: number}} place */
  goTo(place) {
    this.fly({ center: [place.lon, place.lat], zoom: Math.max(this.map.getZoom(), 14), offset: this.freeCentre() });
  }

  /**
   * Bring a place of a search into view: its box, or the point where it has none.
   * @param {GeocodedPlace} place
   */
  show(place) {
    const [south = NaN, north = NaN, west = NaN, east = NaN] = (place.boundingbox ?? []).map(Number);
    if ([south, north, west, east].every(Number.isFinite) && west <= east) {
      this.map.fitBounds([[west, south], [east, north]], { padding: this.padding(), maxZoom: 16, duration: this.points.reducedMotion ? 0 : 700 });
    } else this.fly({ center: [Number(place.lon), Number(place.lat)], zoom: 13, offset: this.freeCentre() });
  }

  /**
   * @param {DeviceRecord} record
   * @param {number} [zoom]
   */
  focus(record, zoom = Math.max(this.map.getZoom(), 12)) {
    this.fly({ center: [record.lon, record.lat], zoom, offset: this.freeCentre() });
  }

  /**
   * Keep a place in the middle of the free room, without changing the zoom.
   * @param {{lat: number, lon: number}} record
   */
  follow(record) {
    if (this.map.isZooming()) return;
    this.map.easeTo({ center: [record.lon, record.lat], offset: this.freeCentre(), duration: this.points.reducedMotion ? 0 : 900, easing: (t) => t });
  }

  /**
   * Where a device is drawn, in pixels of the page; null when it is not known.
   * @param {string} device
   */
  positionOf(device) {
    const record = this.store.get(device);
    if (!record || record.slot >= this.points.count) return null;
    const [x = 0, y = 0] = this.points.current(record.slot);
    const lat = (Math.atan(Math.sinh(Math.PI * (1 - 2 * y))) * 180) / Math.PI;
    const { x: left, y: top } = this.map.project([(x - 0.5) * 360, lat]);
    return { x: left, y: top };
  }
}

/**
 * The smallest box around places, which may cross the antimeridian.
 * @param {{lat: number, lon: number}[]} records
 * @returns {[[number, number], [number, number]] | null}
 */
export function shortestBounds(records) {
  if (!records.length) return null;
  const lons = records.map((record) => record.lon).sort((a, b) => a - b);
  let west = lons[0] ?? 0;
  let east = lons.at(-1) ?? 0;
  let widestGap = 360 - (east - west);
  for (let i = 1; i < lons.length; i += 1) {
    const [before, after] = [lons[i - 1] ?? 0, lons[i] ?? 0];
    if (after - before > widestGap) {
      widestGap = after - before;
      west = after;
      east = before + 360;
    }
  }
  let south = 90;
  let north = -90;
  for (const { lat } of records) {
    south = Math.min(south, lat);
    north = Math.max(north, lat);
  }
  return [[west, south], [east, north]];
}

export { mercator };
