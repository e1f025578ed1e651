// Zones on the map, and the one that is being drawn with handles at its corners. A handle is a
// button: it is dragged, or moved by the arrow keys.

import { make } from "../dom.js";
import { t } from "../i18n.js";
import { colours, groundCircle } from "../map_style.js";
import { cornersOf, draftOf, edgeOf, middles, placed, radiusTo } from "./shapes.js";

/** @import { MapView } from "../map_view.js" */
/** @import { Zone } from "../types/api.js" */
/** @import { Corner, Draft } from "./shapes.js" */
/** @import { Marker } from "maplibre-gl" */

const SOURCES = ["zone-areas", "zone-lines", "zone-names"];
const LAYERS = ["zone-fill", "zone-edge", "zone-corridor", "zone-axis", "zone-name"];
const EQUATOR_PX = 512;
const EQUATOR_M = 40075016.686;
const STEP_PX = 12;
const EMPTY = /** @type {GeoJSON.FeatureCollection} */ ({ type: "FeatureCollection", features: [] });

export class ZoneMap extends EventTarget {
  /** Events: `shape` (the draft has changed), `pick` (detail: a zone's id). */
  /** @type {Zone[]} */
  zones = [];
  /** @type {Draft | null} */
  draft = null;
  /** @type {string | null} id of the zone that is not drawn, since its draft is */
  hidden = null;
  shown = false;
  /** @type {Marker[]} */
  handles = [];
  /** @type {Map<string, GeoJSON.FeatureCollection>} */
  data = new Map(SOURCES.map((name) => [name, EMPTY]));

  /** @param {MapView} view */
  constructor(view) {
    super();
    this.view = view;
    view.addEventListener("dressed", () => this.dress());
    view.ready.then(() => view.map.on("click", (event) => this.clicked(event)));
  }

  /** @param {boolean} shown */
  setShown(shown) {
    if (shown === this.shown) return;
    this.shown = shown;
    if (shown) { this.dress(); this.draw(); } else { this.edit(null); this.undress(); }
  }

  dress() {
    const { map } = this.view;
    if (!this.shown || !map?.getSource("track") || map.getSource("zone-areas")) return;
    const c = colours(this.view.theme);
    const top = map.getLayer("place-label") ? "place-label" : undefined;
    for (const [name, data] of this.data) map.addSource(name, { type: "geojson", data });
    /** @type {(quiet: number, drawn: number) => import("maplibre-gl").ExpressionSpecification} */
    const ifDrawn = (quiet, drawn) => ["case", ["get", "drawn"], drawn, quiet];
    const width = /** @type {import("maplibre-gl").ExpressionSpecification} */ (
      ["interpolate", ["exponential", 2], ["zoom"], 0, ["get", "width"], 22, ["*", ["get", "width"], 2 ** 22]]);
    const round = /** @type {const} */ ({ "line-cap": "round", "line-join": "round" });
    map.addLayer({ id: "zone-fill", type: "fill", source: "zone-areas", paint: { "fill-color": c.place, "fill-opacity": ifDrawn(0.14, 0.22) } }, top);
    map.addLayer({ id: "zone-edge", type: "line", source: "zone-areas", paint: { "line-color": c.place, "line-width": ifDrawn(1.8, 3) } }, top);
    map.addLayer({ id: "zone-corridor", type: "line", source: "zone-lines", layout: round, paint: { "line-color": c.place, "line-width": width, "line-opacity": ifDrawn(0.2, 0.3) } }, top);
    map.addLayer({ id: "zone-axis", type: "line", source: "zone-lines", layout: round, paint: { "line-color": c.place, "line-width": ifDrawn(1.8, 3) } }, top);
    map.addLayer({ id: "zone-name", type: "symbol", source: "zone-names", minzoom: 8, layout: {
      "text-field": ["get", "title"], "text-font": ["Waylog Medium", "system-ui", "Segoe UI", "Roboto", "Noto Sans", "Liberation Sans"],
      "text-size": 12.5, "text-max-width": 12 },
    paint: { "text-color": c.placeText, "text-halo-color": c.halo, "text-halo-width": 1.4 } });
  }

  undress() {
    const { map } = this.view;
    if (!map?.getSource("zone-areas")) return;
    for (const layer of LAYERS) map.removeLayer(layer);
    for (const name of SOURCES) map.removeSource(name);
  }

  /** @param {Zone[]} zones */
  setZones(zones) {
    this.zones = zones;
    this.draw();
  }

  /**
   * Begin to draw a shape, or end it.
   * @param {Draft | null} draft
   * @param {string | null} [id] of the zone that is changed
   */
  edit(draft, id = null) {
    this.draft = draft;
    this.hidden = draft ? id : null;
    this.draw();
    this.drawHandles();
  }

  draw() {
    /** @type {GeoJSON.Feature[]} */
    const areas = [];
    /** @type {GeoJSON.Feature[]} */
    const lines = [];
    /** @type {GeoJSON.Feature[]} */
    const names = [];
    /** @type {(shape: Draft, drawn: boolean, id: string | null) => void} */
    const add = (shape, drawn, id) => {
      const [[lon, lat] = [0, 0]] = shape.corners;
      const properties = { drawn, id };
      if (shape.kind === "circle") {
        areas.push({ .../** @type {GeoJSON.Feature} */ (groundCircle(lat, lon, shape.metres)), properties });
      } else if (shape.kind === "corridor") {
        const pixels = (shape.metres * EQUATOR_PX) / (EQUATOR_M * Math.max(0.05, Math.cos((lat * Math.PI) / 180)));
        lines.push({ type: "Feature", properties: { ...properties, width: pixels }, geometry: { type: "LineString", coordinates: straight(shape.corners) } });
      } else if (shape.corners.length > 1) {
        const ring = straight(shape.corners);
        areas.push({ type: "Feature", properties, geometry: { type: "Polygon", coordinates: [[...ring, ring[0] ?? [0, 0]]] } });
      }
    };
    for (const zone of this.zones) {
      if (zone.id === this.hidden) continue;
      const shape = draftOf(zone);
      if (shape) add(shape, false, zone.id);
      else areas.push({ type: "Feature", properties: { drawn: false, id: zone.id }, geometry: /** @type {GeoJSON.Geometry} */ (zone.geometry) });
      const corners = cornersOf(zone);
      const lat = corners.reduce((sum, corner) => sum + corner.lat, 0) / corners.length;
      const lon = corners.reduce((sum, corner) => sum + corner.lon, 0) / corners.length;
      names.push({ type: "Feature", properties: { title: zone.name }, geometry: { type: "Point", coordinates: [lon, lat] } });
    }
    if (this.draft) add(this.draft, true, null);
    this.set("zone-areas", areas);
    this.set("zone-lines", lines);
    this.set("zone-names", names);
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

  drawHandles() {
    for (const handle of this.handles) handle.remove();
    this.handles = [];
    const { draft } = this;
    if (!draft) return;
    draft.corners.forEach((corner, index) => this.handle(corner, "corner",
      draft.kind === "circle" ? t("zone.middle") : t("zone.corner", { number: index + 1 }),
      (moved) => { draft.corners[index] = moved; this.changed(); }));
    if (draft.kind === "circle") {
      this.handle(edgeOf(draft), "edge", t("zone.edge"), (moved) => { draft.metres = Math.max(10, Math.round(radiusTo(draft, moved))); this.changed(); });
    }
    for (const { corner, before } of middles(draft)) {
      let added = false;
      this.handle(corner, "between", t("zone.between"), (moved) => {
        if (!added) draft.corners.splice(before, 0, moved);
        draft.corners[before] = moved;
        added = true;
        this.changed();
      });
    }
  }

  /**
   * @param {Corner} corner
   * @param {string} className
   * @param {string} label
   * @param {(corner: Corner) => void} move
   */
  handle(corner, className, label, move) {
    const { map } = this.view;
    const element = make("button", { type: "button", className: `zone-handle ${className}` }, make("span"));
    const marker = new globalThis.maplibregl.Marker({ element, draggable: true }).setLngLat(corner).addTo(map);
    element.setAttribute("aria-label", label); // the library gives one of its own
    element.title = label;
    const place = () => { const { lng, lat } = marker.getLngLat(); move(placed(lng, lat)); };
    marker.on("drag", place);
    marker.on("dragend", () => this.drawHandles());
    element.addEventListener("click", (event) => event.stopPropagation());
    element.addEventListener("keydown", (event) => {
      const steps = /** @type {Record<string, [number, number]>} */ ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] });
      const step = steps[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      const at = map.project(marker.getLngLat());
      marker.setLngLat(map.unproject([at.x + step[0] * STEP_PX, at.y + step[1] * STEP_PX]));
      place();
    });
    element.addEventListener("focusout", () => setTimeout(() => this.redrawLater()));
    this.handles.push(marker);
  }

  /** What lies between two corners moves with them; handles stay while one of them has the focus. */
  redrawLater() {
    if (this.handles.some((each) => each.getElement() === document.activeElement)) return;
    this.drawHandles();
  }

  changed() {
    this.draw();
    this.dispatchEvent(new Event("shape"));
  }

  /** The number of the draft has been typed. */
  resized() {
    this.draw();
    this.drawHandles();
  }

  /** Add a corner in the middle of what is seen, or put the circle there. */
  addAtCentre() {
    const box = this.view.map.getContainer().getBoundingClientRect();
    const [x, y] = this.view.freeCentre();
    const { lng, lat } = this.view.map.unproject([box.width / 2 + x, box.height / 2 + y]);
    this.add(placed(lng, lat));
  }

  /** @param {Corner} corner */
  add(corner) {
    const { draft } = this;
    if (!draft) return;
    if (draft.kind === "circle") draft.corners = [corner];
    else draft.corners.push(corner);
    this.changed();
    this.drawHandles();
  }

  removeLast() {
    const { draft } = this;
    if (!draft || draft.kind === "circle" || !draft.corners.length) return;
    draft.corners.pop();
    this.changed();
    this.drawHandles();
  }

  /** @param {import("maplibre-gl").MapMouseEvent} event */
  clicked(event) {
    if (!this.shown) return;
    if (this.draft) {
      this.add(placed(event.lngLat.lng, event.lngLat.lat));
      return;
    }
    const layers = ["zone-fill", "zone-corridor"].filter((layer) => this.view.map.getLayer(layer));
    const id = layers.length ? this.view.map.queryRenderedFeatures(event.point, { layers })[0]?.properties?.id : undefined;
    if (id) this.dispatchEvent(new CustomEvent("pick", { detail: String(id) }));
  }
}

/**
 * Corners whose longitudes go on beyond 180 degrees, so that no side goes round the world.
 * @param {Corner[]} corners
 * @returns {Corner[]}
 */
function straight(corners) {
  let turn = 0;
  return corners.map(([lon, lat], index) => {
    const before = corners[index - 1];
    if (before && lon - before[0] > 180) turn -= 360;
    else if (before && lon - before[0] < -180) turn += 360;
    return [lon + turn, lat];
  });
}
