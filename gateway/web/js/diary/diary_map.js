// The timeline on the map: trips as lines, gaps dashed, stays as circles, and a marker that moves.

import { colours } from "../map_style.js";
import { metresBetween, unwrap } from "../tracks.js";

/** @import { MapView } from "../map_view.js" */
/** @import { TimelineItem } from "../types/api.js" */
/** @import { Moment } from "./journey.js" */

const SOURCES = ["diary-ways", "diary-stays", "diary-marker"];
const SAME_M = 100;
const EMPTY = /** @type {GeoJSON.FeatureCollection} */ ({ type: "FeatureCollection", features: [] });

export class DiaryMap {
  /** @type {Map<string, GeoJSON.FeatureCollection>} */
  data = new Map(SOURCES.map((name) => [name, EMPTY]));
  shown = false;
  /** @type {TimelineItem | null} */
  chosen = null;

  /** @param {MapView} view */
  constructor(view) {
    this.view = view;
    view.addEventListener("dressed", () => this.dress());
    if (view.map?.isStyleLoaded()) this.dress();
  }

  dress() {
    const { map } = this.view;
    if (!this.shown || !map || map.getSource("diary-ways")) return;
    const c = colours(this.view.theme);
    for (const [name, data] of this.data) map.addSource(name, { type: "geojson", data });
    const top = map.getLayer("place-label") ? "place-label" : undefined;
    const isGap = /** @type {import("maplibre-gl").FilterSpecification} */ (["==", ["get", "kind"], "gap"]);
    const isTrip = /** @type {import("maplibre-gl").FilterSpecification} */ (["==", ["get", "kind"], "trip"]);
    const round = /** @type {const} */ ({ "line-cap": "round", "line-join": "round" });
    map.addLayer({ id: "diary-gap", type: "line", source: "diary-ways", filter: isGap,
      paint: { "line-color": c.track, "line-width": 2.2, "line-opacity": 0.75, "line-dasharray": [1.2, 2.4] } }, top);
    map.addLayer({ id: "diary-casing", type: "line", source: "diary-ways", filter: isTrip, layout: round,
      paint: { "line-color": c.trackCasing, "line-width": ["case", ["get", "chosen"], 10, 7], "line-opacity": 0.8 } }, top);
    map.addLayer({ id: "diary-trip", type: "line", source: "diary-ways", filter: isTrip, layout: round,
      paint: { "line-color": c.track, "line-width": ["case", ["get", "chosen"], 6, 3.6], "line-opacity": ["case", ["get", "chosen"], 1, 0.85] } }, top);
    map.addLayer({ id: "diary-stay", type: "circle", source: "diary-stays", paint: {
      "circle-radius": ["get", "radius"], "circle-color": c.place, "circle-opacity": ["case", ["get", "chosen"], 0.55, 0.28],
      "circle-stroke-color": c.place, "circle-stroke-width": ["case", ["get", "chosen"], 3.5, 2] } }, top);
    map.addLayer({ id: "diary-label", type: "symbol", source: "diary-stays", minzoom: 9, layout: {
      "text-field": ["get", "title"], "text-font": ["Waylog Medium", "system-ui", "Segoe UI", "Roboto", "Noto Sans", "Liberation Sans"],
      "text-size": 12.5, "text-variable-anchor": ["top", "bottom", "left", "right"], "text-max-width": 12,
      "text-radial-offset": ["+", 0.4, ["/", ["get", "radius"], 12.5]], "symbol-sort-key": ["-", 0, ["get", "radius"]] },
    paint: { "text-color": c.placeText, "text-halo-color": c.halo, "text-halo-width": 1.4 } });
    map.addLayer({ id: "diary-marker", type: "circle", source: "diary-marker", paint: {
      "circle-radius": 8, "circle-color": ["case", ["get", "known"], c.track, c.trackCasing],
      "circle-stroke-color": ["case", ["get", "known"], "#ffffff", c.track], "circle-stroke-width": 3 } });
  }

  undress() {
    const { map } = this.view;
    if (!map?.getSource("diary-ways")) return;
    for (const layer of ["diary-gap", "diary-casing", "diary-trip", "diary-stay", "diary-label", "diary-marker"]) map.removeLayer(layer);
    for (const name of SOURCES) map.removeSource(name);
  }

  /** @param {boolean} shown */
  setShown(shown) {
    if (shown === this.shown) return;
    this.shown = shown;
    if (shown && this.view.map?.getSource("track")) this.dress();
    else if (!shown) this.undress();
  }

  /**
   * @param {string} name
   * @param {GeoJSON.Feature[]} features
   */
  set(name, features) {
    const data = /** @type {GeoJSON.FeatureCollection} */ ({ type: "FeatureCollection", features });
    this.data.set(name, data);
    this.view.source(name)?.setData(data);
  }

  /**
   * @param {TimelineItem[]} items
   * @param {(item: TimelineItem) => string} titleOf
   */
  draw(items, titleOf) {
    this.set("diary-ways", items.flatMap((item) => (item.kind === "stay" || item.coordinates.length < 2 ? [] : [{
      type: "Feature", properties: { kind: item.kind, chosen: item === this.chosen },
      geometry: { type: "LineString", coordinates: unwrap(item.coordinates.map(([lon, lat]) => ({ lat, lon }))) },
    }])));
    /** @type {{lat: number, lon: number, ms: number, title: string, chosen: boolean}[]} several stays at one place are one */
    const spots = [];
    for (const item of items) {
      if (item.kind !== "stay") continue;
      const known = spots.find((spot) => metresBetween(spot, item) < SAME_M);
      const spot = known ?? { lat: item.lat, lon: item.lon, ms: 0, title: titleOf(item), chosen: false };
      if (!known) spots.push(spot);
      spot.ms += item.end - item.start;
      spot.chosen ||= item === this.chosen;
    }
    this.set("diary-stays", spots.map(({ lat, lon, ms, title, chosen }) => ({
      type: "Feature",
      properties: { title, chosen, radius: 6 + Math.min(12, 2.4 * Math.sqrt(ms / 3600e3)) },
      geometry: { type: "Point", coordinates: [lon, lat] },
    })));
  }

  /** @param {Moment | null} moment */
  mark(moment) {
    this.set("diary-marker", moment ? [{
      type: "Feature", properties: { known: moment.known }, geometry: { type: "Point", coordinates: [moment.lon, moment.lat] },
    }] : []);
  }
}
