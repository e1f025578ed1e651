// Ways as points: read from GeoJSON, measured, and cut where nothing is known.

/** @import { Track } from "./types/api.js" */
/** @typedef {{lat: number, lon: number, time: number, speed: number | null}} TrackPoint */
/** @typedef {[number, number]} Position longitude and latitude */

/** A silence that is longer, and ends farther away, is a gap: nobody knows the way in between. */
const GAP_MS = 15 * 60e3;
const GAP_M = 200;

/**
 * Points of a GeoJSON track: a LineString with its times, or one Point feature a fix.
 * @param {Track | null} geojson
 * @returns {TrackPoint[]}
 */
export function readTrack(geojson) {
  /** @type {TrackPoint[]} */
  const points = [];
  for (const { geometry, properties } of geojson?.features ?? []) {
    const { times = [], speed = null, time } = properties ?? {};
    const lines = /** @type {number[][]} */ (geometry.type === "Point" ? [geometry.coordinates] : geometry.coordinates);
    lines.forEach(([lon, lat], index) => {
      const at = times[index] ?? time;
      const own = Array.isArray(speed) ? speed[index] ?? null : speed;
      if (lon !== undefined && lat !== undefined && at !== undefined) points.push({ lon, lat, time: at, speed: own });
    });
  }
  return points.sort((a, b) => a.time - b.time);
}

/**
 * Metres along the great circle.
 * @param {{lat: number, lon: number}} a
 * @param {{lat: number, lon: number}} b
 */
export function metresBetween(a, b) {
  const radians = Math.PI / 180;
  const h = Math.sin(((b.lat - a.lat) * radians) / 2) ** 2
    + Math.cos(a.lat * radians) * Math.cos(b.lat * radians) * Math.sin(((b.lon - a.lon) * radians) / 2) ** 2;
  return 2 * 6371008.8 * Math.asin(Math.min(1, Math.sqrt(h)));
}

/**
 * Degrees clockwise from north, from one place to another.
 * @param {{lat: number, lon: number}} a
 * @param {{lat: number, lon: number}} b
 */
export function bearing(a, b) {
  const radians = Math.PI / 180;
  const turn = (b.lon - a.lon) * radians;
  const y = Math.sin(turn) * Math.cos(b.lat * radians);
  const x = Math.cos(a.lat * radians) * Math.sin(b.lat * radians) - Math.sin(a.lat * radians) * Math.cos(b.lat * radians) * Math.cos(turn);
  return ((Math.atan2(y, x) / radians) + 360) % 360;
}

/**
 * The way as lines, with the gaps between them as lines of their own; and how long the lines are.
 * @param {TrackPoint[]} points by time
 * @returns {{lines: Position[][], gaps: Position[][], metres: number}}
 */
export function cutAtGaps(points) {
  const positions = unwrap(points);
  /** @type {Position[][]} */
  const lines = [];
  /** @type {Position[][]} */
  const gaps = [];
  let metres = 0;
  points.forEach((point, index) => {
    const position = /** @type {Position} */ (positions[index]);
    const before = points[index - 1];
    const line = lines.at(-1);
    if (!before || !line) { lines.push([position]); return; }
    const step = metresBetween(before, point);
    if (point.time - before.time > GAP_MS && step > GAP_M) {
      gaps.push([/** @type {Position} */ (positions[index - 1]), position]);
      lines.push([position]);
    } else {
      metres += step;
      line.push(position);
    }
  });
  return { lines: lines.filter((line) => line.length > 1), gaps, metres };
}

/**
 * Coordinates whose longitudes run on over the antimeridian instead of jumping back.
 * @param {{lat: number, lon: number}[]} points
 * @returns {Position[]}
 */
export function unwrap(points) {
  let shift = 0;
  return points.map((point, index) => {
    const before = points[index - 1];
    const step = before ? point.lon - before.lon : 0;
    if (step > 180) shift -= 360;
    else if (step < -180) shift += 360;
    return [point.lon + shift, point.lat];
  });
}
