// The shapes of zones: how they are drawn, changed by their corners, and sent.

import { metresBetween } from "../tracks.js";

/** @import { Zone } from "../types/api.js" */
/** @typedef {"circle" | "polygon" | "corridor"} Kind */
/** @typedef {[lon: number, lat: number]} Corner */
/**
 * @typedef {object} Draft a shape that is being drawn
 * @property {Kind} kind
 * @property {Corner[]} corners the middle of a circle; the corners of a polygon, the first not repeated; a corridor's line
 * @property {number} metres radius of a circle, width of a corridor
 */

export const CORNERS_MAX = 200;
/** @type {Record<Kind, number>} corners without which there is no shape */
export const CORNERS_MIN = { circle: 1, polygon: 3, corridor: 2 };
const METRES_PER_DEGREE = 111195;
const LATITUDE_MAX = 85;

/**
 * A first shape around a place, of about the given size.
 * @param {Kind} kind
 * @param {{lat: number, lon: number}} middle
 * @param {number} radius m
 * @returns {Draft}
 */
export function around(kind, middle, radius) {
  if (kind === "circle") return { kind, corners: [[middle.lon, middle.lat]], metres: radius };
  const up = radius / METRES_PER_DEGREE;
  const across = up / Math.max(0.05, Math.cos((middle.lat * Math.PI) / 180));
  /** @type {(x: number, y: number) => Corner} */
  const at = (x, y) => placed(middle.lon + x * across, middle.lat + y * up);
  if (kind === "corridor") return { kind, corners: [at(-1, 0), at(1, 0)], metres: Math.max(20, Math.round(radius / 2)) };
  return { kind, corners: [at(-1, -0.7), at(1, -0.7), at(1, 0.7), at(-1, 0.7)], metres: 0 };
}

/**
 * A corner within the map.
 * @param {number} lon
 * @param {number} lat
 * @returns {Corner}
 */
export function placed(lon, lat) {
  const turned = ((((lon + 180) % 360) + 360) % 360) - 180;
  return [Number(turned.toFixed(6)), Number(Math.max(-LATITUDE_MAX, Math.min(LATITUDE_MAX, lat)).toFixed(6))];
}

/**
 * The members of a zone that are its shape.
 * @param {Draft} draft
 */
export function geometryOf({ kind, corners, metres }) {
  const [first = [0, 0]] = corners;
  if (kind === "circle") return { geometry: { type: "Point", coordinates: first }, radius: metres };
  if (kind === "corridor") return { geometry: { type: "LineString", coordinates: corners }, width: metres };
  return { geometry: { type: "Polygon", coordinates: [[...corners, first]] } };
}

/**
 * The shape of a zone to be changed; null of one that cannot be drawn here (with holes, or of many parts).
 * @param {Zone} zone
 * @returns {Draft | null}
 */
export function draftOf(zone) {
  const { type, coordinates } = zone.geometry;
  if (type === "Point") return { kind: "circle", corners: [/** @type {Corner} */ (coordinates)], metres: zone.radius ?? 100 };
  if (type === "LineString") return { kind: "corridor", corners: /** @type {Corner[]} */ (coordinates), metres: zone.width ?? 50 };
  const rings = /** @type {Corner[][]} */ (coordinates);
  if (type !== "Polygon" || rings.length !== 1 || (rings[0]?.length ?? 0) > CORNERS_MAX) return null;
  return { kind: "polygon", corners: (rings[0] ?? []).slice(0, -1), metres: 0 };
}

/**
 * All corners of a zone, to bring it into view.
 * @param {Zone} zone
 * @returns {{lat: number, lon: number}[]}
 */
export function cornersOf(zone) {
  const { type, coordinates } = zone.geometry;
  const draft = type === "Point" || type === "LineString" ? draftOf(zone) : null;
  const corners = draft ? draft.corners : /** @type {Corner[]} */ (type === "Polygon" ? coordinates.flat(1) : coordinates.flat(2));
  const more = (draft?.metres ?? 0) / METRES_PER_DEGREE;
  return corners.flatMap(([lon, lat]) => {
    const across = more / Math.max(0.05, Math.cos((lat * Math.PI) / 180));
    return more ? [{ lat: lat - more, lon: lon - across }, { lat: lat + more, lon: lon + across }] : [{ lat, lon }];
  });
}

/**
 * Where the middle of each side is, with the number of the corner that would follow it.
 * @param {Draft} draft
 * @returns {{corner: Corner, before: number}[]}
 */
export function middles({ kind, corners }) {
  if (kind === "circle" || corners.length >= CORNERS_MAX) return [];
  const sides = kind === "polygon" && corners.length > 2 ? corners.length : corners.length - 1;
  return Array.from({ length: sides }, (_, index) => {
    const [a = [0, 0], b = [0, 0]] = [corners[index], corners[(index + 1) % corners.length]];
    const eastward = ((((b[0] - a[0] + 180) % 360) + 360) % 360) - 180;
    return { corner: placed(a[0] + eastward / 2, (a[1] + b[1]) / 2), before: index + 1 };
  });
}

/**
 * The place on a circle's edge, east of its middle, by which it is made larger.
 * @param {Draft} draft
 * @returns {Corner}
 */
export function edgeOf({ corners, metres }) {
  const [[lon, lat] = [0, 0]] = corners;
  return placed(lon + metres / (METRES_PER_DEGREE * Math.max(0.05, Math.cos((lat * Math.PI) / 180))), lat);
}

/**
 * @param {Draft} draft
 * @param {Corner} corner on the edge of the circle from now on
 */
export function radiusTo({ corners }, [lon, lat]) {
  const [[middleLon, middleLat] = [0, 0]] = corners;
  return metresBetween({ lat: middleLat, lon: middleLon }, { lat, lon });
}
