// Where a device was at any moment of a timeline. Pure functions of what the server has found.

import { unwrap } from "../tracks.js";

/** @import { TimelineItem } from "../types/api.js" */
/** @typedef {{lat: number, lon: number, known: boolean, item: TimelineItem | null}} Moment */

/**
 * The item that a time is in, the nearest one where it is in none; null for an empty timeline.
 * @param {TimelineItem[]} items by time
 * @param {number} time
 * @returns {TimelineItem | null}
 */
export function itemAt(items, time) {
  let low = 0;
  let high = items.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((items[middle]?.start ?? 0) <= time) low = middle;
    else high = middle - 1;
  }
  return items[low] ?? null;
}

/**
 * Where the device was: on a trip between the points that are known, in a gap where it was last seen.
 * @param {TimelineItem[]} items
 * @param {number} time
 * @returns {Moment | null}
 */
export function momentAt(items, time) {
  const item = itemAt(items, time);
  if (!item) return null;
  if (item.kind === "stay") return { lat: item.lat, lon: item.lon, known: true, item };
  if (item.kind === "gap") {
    const [lon = 0, lat = 0] = item.coordinates[0] ?? [];
    return { lat, lon, known: false, item };
  }
  const { times, coordinates } = item;
  let after = times.findIndex((own) => own >= time);
  if (after < 0) after = times.length - 1;
  const before = Math.max(0, after - 1);
  const [fromMs = 0, toMs = 0] = [times[before], times[after]];
  const share = toMs > fromMs ? Math.min(1, Math.max(0, (time - fromMs) / (toMs - fromMs))) : 1;
  const line = unwrap([coordinates[before], coordinates[after]].map((pair) => ({ lon: pair?.[0] ?? 0, lat: pair?.[1] ?? 0 })));
  const [[fromLon, fromLat] = [0, 0], [toLon, toLat] = [0, 0]] = line;
  return { lon: fromLon + (toLon - fromLon) * share, lat: fromLat + (toLat - fromLat) * share, known: true, item };
}

/**
 * Every place of an item, to bring it into view.
 * @param {TimelineItem} item
 * @returns {{lat: number, lon: number}[]}
 */
export function placesOf(item) {
  return item.kind === "stay" ? [item] : item.coordinates.map(([lon, lat]) => ({ lat, lon }));
}

/**
 * The sums of what lies within a period; a trip over its edge counts by the part of its time.
 * @param {TimelineItem[]} items
 * @param {number} fromMs
 * @param {number} toMs
 */
export function sums(items, fromMs, toMs) {
  const total = { distance_m: 0, moving_s: 0, trips: 0, unknown_s: 0 };
  for (const item of items) {
    const within = Math.min(item.end, toMs) - Math.max(item.start, fromMs);
    if (within <= 0) continue;
    if (item.kind === "gap") total.unknown_s += within / 1000;
    if (item.kind !== "trip") continue;
    const share = within / (item.end - item.start);
    total.trips += 1;
    total.distance_m += item.distance_m * share;
    total.moving_s += item.moving_s * share;
  }
  return total;
}
