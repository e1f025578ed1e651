// @ts-nocheck: not typed yet, like the style that it is part of.
// Streets, paths and railways: below ground, on it, and on bridges, each with its casing.

import { widths } from "./land_layers.js";

/** Kinds by how they are drawn: pixels at these zoom levels, and the width of the casing at 16. */
const ZOOMS = [6, 9, 12, 14, 16, 19];
const CLASSES = [
  { name: "motorway", kinds: ["motorway"], pixels: [0.9, 1.9, 3.6, 6.5, 15, 88], rank: 9 },
  { name: "trunk", kinds: ["trunk"], pixels: [0.8, 1.6, 3.2, 6, 14, 80], rank: 8 },
  { name: "primary", kinds: ["primary"], pixels: [0, 1.1, 2.8, 5.4, 13.5, 76], rank: 7 },
  { name: "secondary", kinds: ["secondary"], pixels: [0, 0.8, 2.3, 4.8, 12.5, 72], rank: 6 },
  { name: "tertiary", kinds: ["tertiary"], pixels: [0, 0, 1.7, 4.2, 11.5, 66], rank: 5 },
  { name: "minor", kinds: ["unclassified", "residential", "living_street", "busway", "bus_guideway"], pixels: [0, 0, 0.8, 2.8, 9, 54], rank: 4 },
  { name: "pedestrian", kinds: ["pedestrian"], pixels: [0, 0, 0.6, 2.2, 8, 48], rank: 3 },
  { name: "service", kinds: ["service"], pixels: [0, 0, 0, 1.3, 5, 30], rank: 2 },
  { name: "runway", kinds: ["runway", "taxiway"], pixels: [0, 0, 2, 8, 24, 160], rank: 1 },
];
const PATHS = ["path", "footway", "bridleway", "steps"];
const RAILS = ["rail", "narrow_gauge", "light_rail", "subway", "monorail", "funicular"];
const NO_CASING = [0, 0, 0, 0, 0, 0];
const NARROW = 0.62; // a link, and a service way of a car park

export function streetLayers(archive, c) {
  const of = (id, extra) => ({ id, type: "line", source: archive.id, "source-layer": "streets", ...extra });
  const is = (name) => ["to-boolean", ["get", name]];
  const among = (kinds) => ["in", ["get", "kind"], ["literal", kinds]];
  const byClass = (value) => ["match", ["get", "kind"], ...CLASSES.flatMap((each) => [each.kinds, value(each)]), value(CLASSES[5])];
  const carriage = among(CLASSES.flatMap((each) => each.kinds));
  const narrow = ["case", ["any", is("link"), ["has", "service"]], NARROW, 1];
  const width = (wider) => widths(...ZOOMS.flatMap((zoom, at) => [
    zoom, ["+", ["*", byClass((each) => each.pixels[at]), narrow], ["case", [">", byClass((each) => each.pixels[at]), 0], wider[at], 0]],
  ]));
  const casing = [0.6, 0.9, 1.4, 1.6, 2.2, 5];
  const sort = { "line-join": "round", "line-sort-key": byClass((each) => each.rank) };
  const levels = [
    ["tunnel", is("tunnel"), "butt"], ["street", ["all", ["!", is("tunnel")], ["!", is("bridge")]], "round"], ["bridge", ["all", is("bridge"), ["!", is("tunnel")]], "butt"],
  ];
  const layers = [];
  for (const [level, filter, cap] of levels) {
    const below = level === "tunnel";
    layers.push(
      of(`${level}-casing`, { minzoom: 8, filter: ["all", carriage, filter], layout: { ...sort, "line-cap": cap },
        paint: { "line-color": byClass((each) => c.casing[each.name]), "line-opacity": ["interpolate", ["linear"], ["zoom"], 8, below ? 0 : 0.5, 11, below ? 0.7 : 1],
          ...(below ? { "line-width": 1, "line-gap-width": width(NO_CASING), "line-dasharray": [4, 3] } : { "line-width": width(casing) }) } }),
      of(`${level}-path-casing`, { minzoom: 15, filter: ["all", among([...PATHS, "cycleway", "track"]), filter],
        paint: { "line-color": level === "bridge" ? c.casing.minor : c.pathCasing, "line-width": widths(15, 2.4, 19, 11) } }),
      of(`${level}-path`, { minzoom: 13.4, filter: ["all", among(PATHS), filter], layout: { "line-join": "round" },
        paint: { "line-color": c.path, "line-width": widths(13, 0.7, 16, 1.3, 19, 5), "line-opacity": below ? 0.4 : 0.85,
          "line-dasharray": ["step", ["zoom"], ["literal", [2, 1.6]], 16, ["literal", [2.6, 1.4]]] } }),
      of(`${level}-track`, { minzoom: 13, filter: ["all", among(["track"]), filter], layout: { "line-join": "round" },
        paint: { "line-color": c.track, "line-width": widths(13, 0.7, 16, 1.8, 19, 9), "line-opacity": below ? 0.4 : 0.9, "line-dasharray": [5, 1.6] } }),
      of(`${level}-cycleway`, { minzoom: 13.4, filter: ["all", among(["cycleway"]), filter], layout: { "line-join": "round" },
        paint: { "line-color": c.cycleway, "line-width": widths(13, 0.7, 16, 1.5, 19, 6), "line-opacity": below ? 0.4 : 0.85, "line-dasharray": [3, 1.2] } }),
      of(level, { filter: ["all", carriage, filter], layout: { ...sort, "line-cap": cap },
        paint: { "line-color": byClass((each) => c.street[each.name]), "line-width": width(NO_CASING), "line-opacity": below ? 0.35 : 1 } }),
      of(`${level}-rail`, { minzoom: 8, filter: ["all", among(RAILS), filter],
        paint: { "line-color": c.rail, "line-opacity": below ? 0.4 : ["case", ["has", "service"], 0.6, 1],
          "line-width": widths(8, 0.6, 13, 1.4, 16, 3.2, 19, 12) } }),
      of(`${level}-rail-dash`, { minzoom: 13, filter: ["all", among(RAILS), ["!", ["has", "service"]], filter],
        paint: { "line-color": c.railDash, "line-opacity": below ? 0.4 : 1, "line-width": widths(13, 0.6, 16, 1.8, 19, 8), "line-dasharray": [5, 5] } }),
      of(`${level}-tram`, { minzoom: 13, filter: ["all", among(["tram"]), filter],
        paint: { "line-color": c.tram, "line-opacity": below ? 0.4 : 0.9, "line-width": widths(13, 0.6, 16, 1.4, 19, 5) } }),
    );
  }
  return layers;
}

/** What hangs above the streets, and the borders. */
export function overheadLayers(archive, c) {
  const of = (layer, extra) => ({ type: "line", source: archive.id, "source-layer": layer, ...extra });
  return [
    of("ferries", { id: "ferries", minzoom: 10, paint: { "line-color": c.ferry, "line-width": widths(10, 0.8, 16, 1.8), "line-dasharray": [4, 3] } }),
    of("aerialways", { id: "aerialways", minzoom: 12, paint: { "line-color": c.aerialway, "line-width": widths(12, 0.8, 19, 4), "line-dasharray": [6, 1.5] } }),
    of("boundaries", { id: "state-border", minzoom: 9, filter: ["all", ["==", ["get", "admin_level"], 4], ["!", ["to-boolean", ["get", "maritime"]]]],
      layout: { "line-join": "round" }, paint: { "line-color": c.border, "line-opacity": 0.5, "line-width": widths(8, 0.7, 16, 2.4), "line-dasharray": [3, 2] } }),
    of("boundaries", { id: "country-border", minzoom: 9, filter: ["all", ["==", ["get", "admin_level"], 2], ["!", ["to-boolean", ["get", "maritime"]]]],
      layout: { "line-join": "round", "line-cap": "round" }, paint: { "line-color": c.border, "line-opacity": 0.75, "line-width": widths(8, 1.2, 16, 4), "line-dasharray": [5, 2, 1, 2] } }),
  ];
}
