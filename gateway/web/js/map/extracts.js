// The extracts of OpenStreetMap that the platform has: their tiles, where they reach, whose they are.

import { SignInNeeded } from "../api.js";

const OSM = "© OpenStreetMap contributors (ODbL)";

/**
 * @typedef {object} Archive the tiles of an extract, as TileJSON describes them
 * @property {string} id of its source on the map
 * @property {string} tiles path of its tiles, with {z}, {x} and {y}
 * @property {number} minzoom
 * @property {number} maxzoom
 * @property {[number, number, number, number]} bounds west, south, east, north
 * @property {string} [attribution]
 * @property {string} [data_time] ISO 8601
 * @property {{id: string}[]} [vector_layers]
 * @property {import("geojson").Geometry} [outline]
 */

/**
 * Return the archives of tiles, none where the platform has no extract. Raises where it cannot tell.
 * @param {AbortSignal} [signal]
 * @param {Record<string, string>} [headers]
 * @param {(path: string, how?: RequestInit) => Promise<Response>} [load]
 * @returns {Promise<Archive[]>}
 */
export async function loadArchives(signal, headers = {}, load = fetch) {
  const answer = await load("/tiles.json", { signal: signal ?? null, headers });
  if (answer.status === 401) throw new SignInNeeded("/tiles.json");
  if (answer.status === 404) return []; // an older geocoder
  if (!answer.ok) throw new Error(`tiles: ${answer.status}`);
  const { archives } = await answer.json();
  return archives.map((/** @type {Archive} */ archive, /** @type {number} */ number) => ({ ...archive, id: `extract-${number}` }));
}

/**
 * The sources of an archive: its tiles, and the land of one that does not say where it has land.
 * @param {Archive} archive
 * @param {boolean} [kept] whether the page keeps the tiles that were loaded
 */
export function sourcesOf(archive, kept = false) {
  const { minzoom, maxzoom, bounds } = archive;
  const tiles = {
    type: "vector", tiles: [isElsewhere(archive) ? archive.tiles : (kept ? "kept://" : location.origin) + archive.tiles], minzoom, maxzoom, bounds, attribution: attributionOf(archive),
  };
  const ground = { type: "geojson", data: rectangle(bounds) };
  return { [archive.id]: tiles, ...(hasOutline(archive) ? {} : { [`${archive.id}-ground`]: ground }) };
}

/**
 * Whether the tiles are those of another server.
 * @param {Archive} archive
 */
function isElsewhere(archive) {
  return /^https?:/.test(archive.tiles);
}

/** @param {Archive} archive */
export function hasOutline(archive) {
  return archive.vector_layers?.some((layer) => layer.id === "extract") ?? false;
}

/**
 * Where an archive reaches, as GeoJSON.
 * @param {Archive} archive
 */
export function outlineOf(archive) {
  return archive.outline ?? rectangle(archive.bounds).geometry;
}

/**
 * Whose data these are, and of which day. What a file says is text, never markup.
 * @param {Archive} archive
 */
export function attributionOf(archive) {
  const said = (archive.attribution || OSM).replace(/<[^>]*>/g, "").replaceAll("&copy;", "©").replaceAll("&amp;", "&").trim();
  const day = /^\d{4}-\d\d-\d\d/.exec(archive.data_time ?? "");
  const box = document.createElement("span");
  box.textContent = day ? `${said} ${day[0]}` : said;
  return box.innerHTML;
}

/** @param {Archive["bounds"]} bounds */
function rectangle([west, south, east, north]) {
  const ring = [[west, south], [east, south], [east, north], [west, north], [west, south]];
  return { type: "Feature", properties: {}, geometry: { type: "Polygon", coordinates: [ring] } };
}
