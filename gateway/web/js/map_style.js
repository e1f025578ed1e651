// @ts-nocheck: not typed yet; map_view.js says what it returns.
// The base map: our own vector tiles of the world in a light and a dark dress, and over them the
// streets of the extracts that the platform has.

import { BASE } from "./map/base_map.js";
import { outlineOf, sourcesOf } from "./map/extracts.js";
import { addLabelImages, labelLayers } from "./map/label_layers.js";
import { buildingLayers, landLayers } from "./map/land_layers.js";
import { overheadLayers, streetLayers } from "./map/street_layers.js";
import { streetPalette } from "./map/street_palette.js";
import { FONT, FONT_MEDIUM, halo as haloAround } from "./map/text.js";

const COLOURS = {
  light: {
    water: "#c3d8e5", land: "#f5f3ed", coast: "#9fbccd", river: "#b3cfdf", border: "#b9b4c4",
    country: "#6a6478", town: "#39404b", townSoft: "#5d6673", dot: "#8a93a0", halo: "rgba(250,250,247,.92)",
    grid: "rgba(40,60,90,.09)",
    track: "#3b5bfd", trackCasing: "rgba(255,255,255,.9)", place: "#7a3ff2", placeText: "#4f1fb8",
  },
  dark: {
    water: "#10151c", land: "#232a34", coast: "#3b4757", river: "#1e3244", border: "#465062",
    country: "#98a2b3", town: "#dde2ea", townSoft: "#aab4c2", dot: "#6e7a8b", halo: "rgba(24,29,37,.92)",
    grid: "rgba(180,200,230,.07)",
    track: "#7d94ff", trackCasing: "rgba(12,15,20,.85)", place: "#b58bff", placeText: "#d3bcff",
  },
};

export function colours(theme) {
  return COLOURS[theme] ?? COLOURS.light;
}

const FILE_ZOOM_MAX = 6; // deeper tiles of towns come in packs, see base_map.py
const PACKS_KEPT = 24;
const present = {};
const packs = new Map();

/** Read which tiles exist and teach MapLibre the address world://land/{z}/{x}/{y}. */
/** `load` fetches files where something else than the browser alone does; then kept:///path is an address as well. */
export async function installWorld(maplibregl, load) {
  maplibregl.addProtocol("world", async (request, control) => {
    const [set, ...numbers] = request.url.slice("world://".length).split("/");
    const [z, x, y] = numbers.map(Number);
    if (set === "towns" && z > FILE_ZOOM_MAX) return { data: await packedTile(load, z, x, y) };
    if (!exists(set, z, x, y)) return { data: new ArrayBuffer(0) };
    const answer = await load(`/static/world/${set}/${z}/${x}/${y}.mvt`, { signal: control.signal });
    return { data: answer.ok ? await answer.arrayBuffer() : new ArrayBuffer(0) };
  });
  maplibregl.addProtocol("kept", async (request, control) => {
    const answer = await load(request.url.slice("kept://".length), { signal: control.signal });
    if (!answer.ok) throw new Error(`${request.url}: ${answer.status}`);
    return { data: await answer.arrayBuffer() };
  });
  const answer = await fetch(new URL("../world/index.json", import.meta.url));
  if (!answer.ok) throw new Error("the base map is not built: python -m gateway.web.base_map");
  const index = await answer.json();
  for (const [set, levels] of Object.entries(index.sets)) {
    present[set] = levels.map((text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)));
  }
  return index;
}

/** A tile out of the pack of its ancestor. */
async function packedTile(load, z, x, y) {
  const depth = z - FILE_ZOOM_MAX;
  const across = 2 ** depth;
  const [column, row] = [x >> depth, y >> depth];
  if (!exists("town_packs", 0, column, row, FILE_ZOOM_MAX)) return new ArrayBuffer(0);
  const name = `${column}/${row}`;
  if (!packs.has(name)) {
    const loading = load(`/static/world/towns/pack/${name}.pbf`).then((answer) => {
      if (!answer.ok) throw new Error(`pack ${name}: ${answer.status}`);
      return answer.arrayBuffer();
    });
    loading.catch(() => packs.delete(name)); // asked for again with the next tile
    packs.set(name, loading);
    if (packs.size > PACKS_KEPT) packs.delete(packs.keys().next().value);
  }
  const pack = await packs.get(name);
  const place = (4 ** depth - 4) / 3 + (y % across) * across + (x % across);
  const offsets = new DataView(pack);
  return pack.slice(offsets.getUint32(4 * place, true), offsets.getUint32(4 * place + 4, true));
}

function exists(set, level, x, y, zoom = level) {
  const bits = present[set]?.[level];
  const position = y * 2 ** zoom + x;
  return bits !== undefined && (bits[position >> 3] & (1 << (position & 7))) !== 0;
}

/**
 * The style of a theme, with the archives that `loadArchives` has found; `kept` says that their tiles are.
 * @param {import("./map/base_map.js").Drawn | null} base
 */
export function mapStyle(theme, attribution, archives = [], kept = false, base = null) {
  const c = colours(theme);
  const halo = haloOf(c);
  const streets = streetPalette(theme);
  const picture = base?.raster ? [{ id: BASE, type: "raster", source: BASE, paint: { "raster-fade-duration": 0 } }] : [];
  const named = !base?.raster || base.from.name === "satellite"; // other maps have names of their own
  const drawn = (layersOf) => archives.flatMap((archive) => layersOf(archive, streets, c)
    .map((layer) => layerOf(archive, layer)));
  return {
    version: 8,
    sources: {
      land: { type: "vector", tiles: ["world://land/{z}/{x}/{y}"], maxzoom: 5, attribution },
      towns: { type: "vector", tiles: ["world://towns/{z}/{x}/{y}"], maxzoom: 9 },
      grid: { type: "geojson", data: empty() },
      track: { type: "geojson", data: empty(), lineMetrics: true },
      gaps: { type: "geojson", data: empty() },
      accuracy: { type: "geojson", data: empty() },
      places: { type: "geojson", data: empty() },
      ...(base?.raster ? { [BASE]: base.raster } : {}),
      ...Object.assign({}, ...archives.map((archive) => sourcesOf(archive, kept))),
    },
    layers: [
      { id: "water", type: "background", paint: { "background-color": c.water } },
      { id: "land", type: "fill", source: "land", "source-layer": "land", paint: { "fill-color": c.land, "fill-antialias": false } },
      { id: "lake", type: "fill", source: "land", "source-layer": "lake", paint: { "fill-color": c.water, "fill-outline-color": c.coast } },
      { id: "lake-island", type: "fill", source: "land", "source-layer": "lake_island", paint: { "fill-color": c.land } },
      { id: "river", type: "line", source: "land", "source-layer": "river", minzoom: 2, layout: { "line-join": "round", "line-cap": "round" },
        paint: { "line-color": c.river, "line-width": ["interpolate", ["linear"], ["zoom"], 2, 0.4, 6, 1.2, 12, 2.4] } },
      { id: "grid", type: "line", source: "grid", paint: { "line-color": c.grid, "line-width": ["case", ["get", "major"], 1.6, 0.8] } },
      { id: "coast", type: "line", source: "land", "source-layer": "coast", layout: { "line-join": "round" },
        paint: { "line-color": c.coast, "line-width": ["interpolate", ["linear"], ["zoom"], 0, 0.4, 6, 1.1, 12, 2] } },
      { id: "border", type: "line", source: "land", "source-layer": "border", layout: { "line-join": "round" },
        paint: { "line-color": c.border, "line-width": ["interpolate", ["linear"], ["zoom"], 0, 0.5, 6, 1.4, 12, 2.6] } },
      ...drawn(landLayers),
      ...drawn(buildingLayers),
      ...drawn(streetLayers),
      ...drawn(overheadLayers),
      ...picture,
      { id: "accuracy", type: "fill", source: "accuracy", paint: { "fill-color": c.track, "fill-opacity": 0.13, "fill-outline-color": c.track } },
      { id: "places", type: "circle", source: "places", paint: {
        "circle-radius": ["interpolate", ["linear"], ["zoom"], 7, 0, 11, ["get", "radius"]], "circle-color": c.place, "circle-opacity": 0.22,
        "circle-stroke-color": c.place, "circle-stroke-width": ["interpolate", ["linear"], ["zoom"], 8, 0, 11, 2] } },
      { id: "gaps", type: "line", source: "gaps", paint: {
        "line-color": c.track, "line-width": 2, "line-opacity": 0.7, "line-dasharray": [1.5, 2.5] } },
      { id: "track-casing", type: "line", source: "track", layout: { "line-cap": "round", "line-join": "round" },
        paint: { "line-color": c.trackCasing, "line-width": 7, "line-opacity": 0.75 } },
      { id: "track", type: "line", source: "track", layout: { "line-cap": "round", "line-join": "round" }, paint: {
        "line-width": 3.6, "line-gradient": ["interpolate", ["linear"], ["line-progress"], 0, fade(c.track, 0.25), 1, c.track] } },
      { id: "country", type: "symbol", source: "land", "source-layer": "country", maxzoom: 8,
        filter: ["<=", ["get", "zoom"], ["zoom"]],
        layout: label(["interpolate", ["linear"], ["zoom"], 1, ["case", ["<=", ["get", "rank"], 2], 11.5, 10], 6, ["case", ["<=", ["get", "rank"], 2], 20, 14]],
          { visibility: named ? "visible" : "none", "text-font": FONT_MEDIUM, "text-transform": "uppercase", "text-letter-spacing": 0.14, "text-max-width": 7, "symbol-sort-key": ["get", "rank"] }),
        paint: { "text-color": c.country, "text-opacity": ["interpolate", ["linear"], ["zoom"], 6, 0.95, 8, 0], ...halo } },
      { id: "place-label", type: "symbol", source: "places", minzoom: 10, layout: {
        "text-field": ["get", "title"], "text-font": FONT_MEDIUM, "text-size": 13, "text-offset": [0, 0.1],
        "text-variable-anchor": ["top", "bottom", "left", "right"], "text-radial-offset": ["+", 0.35, ["/", ["get", "radius"], 13]], "text-max-width": 12 },
      paint: { "text-color": c.placeText, ...halo } },
    ],
  };
}

function label(size, extra = {}) {
  return { "text-field": ["get", "name"], "text-font": FONT, "text-size": size, "text-max-width": 8, "text-padding": 4, ...extra };
}

function haloOf(c) {
  return haloAround(c.halo);
}

/** What is written on the extracts, below the names of countries. Images come before their layers. */
export function addStreetLabels(map, theme, archives) {
  const streets = streetPalette(theme);
  addLabelImages(map, streets);
  for (const archive of archives) {
    for (const layer of labelLayers(archive, streets)) map.addLayer(layerOf(archive, layer), "country");
  }
}

/** A layer of its own for each archive, from the level on that the archive has. */
function layerOf(archive, layer) {
  return { ...layer, id: `${archive.id}-${layer.id}`, minzoom: Math.max(layer.minzoom ?? 0, archive.minzoom) };
}

/** Where no extract has labels of its own, from `minzoom` on. */
function beyond(archives) {
  return archives.map((archive) => ["any", ["<", ["zoom"], archive.minzoom], ["!", ["within", outlineOf(archive)]]]);
}

/** Towns: dot and name in one symbol, so that no dot stays behind where its name found no room.
 * The images have to be there before the layer: what comes later is not always drawn. */
export function addTowns(map, theme, archives = []) {
  const c = colours(theme);
  for (const [name, radius] of [["town", 2], ["city", 2.6], ["capital", 3.2]]) {
    if (!map.hasImage(name)) map.addImage(name, dot(radius, c), { pixelRatio: 2 });
  }
  const large = ["<=", ["get", "rank"], 1];
  const icon = ["case", ["has", "capital"], "capital", large, "city", "town"];
  map.addLayer({ id: "town", type: "symbol", source: "towns", "source-layer": "town",
    filter: ["all", ["<=", ["get", "zoom"], ["zoom"]], ...beyond(archives)],
    layout: label(
      ["interpolate", ["linear"], ["zoom"],
        2, ["match", ["get", "rank"], 0, 12, 1, 11, 10],
        8, ["match", ["get", "rank"], 0, 18, 1, 15.5, 2, 14, 3, 12.5, 11.5],
        13, ["match", ["get", "rank"], 0, 24, 1, 21, 2, 18, 3, 15, 13]],
      { "icon-image": ["step", ["zoom"], icon, 10, ""], "icon-padding": 1,
        "text-variable-anchor": ["left", "right", "top", "bottom"], "text-radial-offset": 0.45,
        "text-justify": "auto", "symbol-sort-key": ["+", ["get", "zoom"], ["case", ["has", "capital"], -2, 0]] }),
    paint: { "text-color": ["case", ["any", large, ["has", "capital"]], c.town, c.townSoft], ...haloOf(c) } }, "country");
}

function dot(radius, c) {
  const size = Math.ceil(radius * 4) + 6;
  const canvas = document.createElement("canvas");
  canvas.width = size;
  canvas.height = size;
  const context = canvas.getContext("2d");
  for (const [r, colour] of [[radius * 2 + 2, c.halo], [radius * 2, c.dot]]) {
    context.beginPath();
    context.arc(size / 2, size / 2, r, 0, 2 * Math.PI);
    context.fillStyle = colour;
    context.fill();
  }
  return context.getImageData(0, 0, size, size);
}

function fade(hex, alpha) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
}

export function empty() {
  return { type: "FeatureCollection", features: [] };
}

/** Meridians and parallels around `bounds`, a few on the screen: where no street is drawn, they
 * are what a movement is seen against. */
export function graticule(bounds, zoom) {
  if (zoom < 9) return empty();
  const step = 360 / 2 ** (Math.floor(zoom) + 2);
  const [west, south, east, north] = bounds;
  const features = [];
  const line = (coordinates, index) => features.push({
    type: "Feature", properties: { major: index % 4 === 0 }, geometry: { type: "LineString", coordinates },
  });
  for (let i = Math.floor(west / step); i <= Math.ceil(east / step); i += 1) line([[i * step, south], [i * step, north]], i);
  const latStep = step * Math.max(0.2, Math.cos(((Math.round(south) * Math.PI) / 180)));
  for (let i = Math.floor(south / latStep); i <= Math.ceil(north / latStep); i += 1) line([[west, i * latStep], [east, i * latStep]], i);
  return { type: "FeatureCollection", features };
}

/** A circle of `radiusM` metres on the ground as a polygon. */
export function groundCircle(lat, lon, radiusM, corners = 72) {
  const ring = [];
  const dLat = (radiusM / 6371008.8) * (180 / Math.PI);
  const dLon = dLat / Math.max(0.01, Math.cos((lat * Math.PI) / 180));
  for (let i = 0; i <= corners; i += 1) {
    const angle = (i / corners) * 2 * Math.PI;
    ring.push([lon + dLon * Math.cos(angle), lat + dLat * Math.sin(angle)]);
  }
  return { type: "Feature", properties: {}, geometry: { type: "Polygon", coordinates: [ring] } };
}
