// The base maps that the operator offers beside the embedded one: tiles of another server.

/** @import { BaseMap } from "../types/api.js" */

/** Of its source and layer on the map. */
export const BASE = "operator";
const MAXZOOM = 19;
const VECTOR_MAXZOOM = 14;
/** Farther away the embedded map is drawn: the styles of streets begin here. */
const VECTOR_MINZOOM = 6;
const TILEJSON_MS = 10_000;
/** Tiles that fail one after the other, once some have come. */
const FAILURES_MAX = 3;

/**
 * @typedef {object} Drawn a base map as the style needs it
 * @property {BaseMap} from
 * @property {Record<string, unknown> | null} raster the source of its images
 * @property {import("./extracts.js").Archive | null} archive its vector tiles
 */

/**
 * What the style needs to draw a base map. Raises where its TileJSON cannot be had.
 * @param {BaseMap} from
 * @returns {Promise<Drawn>}
 */
export async function drawn(from) {
  if (from.kind !== "tilejson") return drawnFrom(from, { tiles: [from.url] }, from.kind === "vector");
  const answer = await fetch(from.url, { signal: AbortSignal.timeout(TILEJSON_MS) });
  if (!answer.ok) throw new Error(`${from.url}: ${answer.status}`);
  const said = await answer.json();
  const tiles = said?.tiles;
  if (!Array.isArray(tiles) || typeof tiles[0] !== "string") throw new Error(`${from.url}: no TileJSON`);
  const url = new URL(tiles[0], from.url).href.replaceAll("%7B", "{").replaceAll("%7D", "}");
  const level = (/** @type {unknown} */ value) => (Number.isInteger(value) && Number(value) >= 0 && Number(value) <= 24 ? Number(value) : undefined);
  const bounds = Array.isArray(said.bounds) && said.bounds.length === 4 && said.bounds.every(Number.isFinite) ? said.bounds : undefined;
  return drawnFrom(from, { tiles: [url], minzoom: level(said.minzoom), maxzoom: level(said.maxzoom), bounds }, Array.isArray(said.vector_layers) || /\.(pbf|mvt)(\?|$)/.test(url));
}

/**
 * @param {BaseMap} from
 * @param {{tiles: string[], minzoom?: number | undefined, maxzoom?: number | undefined, bounds?: [number, number, number, number] | undefined}} tilejson
 * @param {boolean} isVector
 * @returns {Drawn}
 */
function drawnFrom(from, { tiles, minzoom, maxzoom, bounds }, isVector) {
  if (isVector) {
    const archive = {
      id: BASE, tiles: tiles[0] ?? "", minzoom: Math.max(minzoom ?? 0, VECTOR_MINZOOM), maxzoom: maxzoom ?? VECTOR_MAXZOOM,
      bounds: bounds ?? /** @type {[number, number, number, number]} */ ([-180, -85, 180, 85]), attribution: from.attribution,
    };
    return { from, raster: null, archive };
  }
  const box = document.createElement("span");
  box.textContent = from.attribution; // it becomes markup on the map
  const raster = {
    type: "raster", tiles, tileSize: 256, minzoom: minzoom ?? 0, maxzoom: maxzoom ?? MAXZOOM, attribution: box.innerHTML, ...(bounds ? { bounds } : {}),
  };
  return { from, raster, archive: null };
}

/** Judges by its tiles whether a server does. */
export class TileHealth {
  failures = 0;
  loaded = false;

  succeeded() {
    this.failures = 0;
    this.loaded = true;
  }

  /** @returns {boolean} whether the server is given up */
  failed() {
    this.failures += 1;
    return !this.loaded || this.failures >= FAILURES_MAX;
  }
}
