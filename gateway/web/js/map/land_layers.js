// @ts-nocheck: not typed yet, like the style that it is part of.
// What lies on the ground: land and sea, land use, water, sites, buildings.

import { hasOutline } from "./extracts.js";

const FIRST_ZOOM = 8;
const GROUND_ZOOM = 9; // below, the world's own coast and borders are exact enough

export function landLayers(archive, c, ground) {
  const of = (layer, extra) => ({ source: archive.id, "source-layer": layer, ...extra });
  const kind = (table, fallback) => ["match", ["get", "kind"], ...Object.entries(table).flat(), fallback];
  const isTunnel = ["to-boolean", ["get", "tunnel"]];
  const land = hasOutline(archive) ? of("extract") : { source: `${archive.id}-ground` };
  const soft = (zoom) => ["interpolate", ["linear"], ["zoom"], zoom, 0, zoom + 1, 1];
  return [
    { id: "ground", type: "fill", ...land, minzoom: GROUND_ZOOM, paint: { "fill-color": ground.land, "fill-antialias": false } },
    { id: "land-use", type: "fill", ...of("land"), minzoom: FIRST_ZOOM,
      filter: ["in", ["get", "kind"], ["literal", Object.keys(c.land)]],
      paint: { "fill-color": kind(c.land, ground.land), "fill-antialias": false,
        "fill-opacity": ["interpolate", ["linear"], ["zoom"], 8, 0.6, 11, 1] } },
    { id: "sites", type: "fill", ...of("sites"), minzoom: 13, filter: ["in", ["get", "kind"], ["literal", Object.keys(c.sites)]],
      paint: { "fill-color": kind(c.sites, ground.land), "fill-opacity": soft(13) } },
    { id: "ocean", type: "fill", ...of("ocean"), minzoom: GROUND_ZOOM, paint: { "fill-color": ground.water } },
    { id: "piers", type: "fill", ...of("pier_polygons"), minzoom: 12, paint: { "fill-color": c.pier } },
    { id: "pier-lines", type: "line", ...of("pier_lines"), minzoom: 13, paint: { "line-color": c.pier, "line-width": widths(13, 1, 16, 5, 19, 24) } },
    { id: "water", type: "fill", ...of("water_polygons"), minzoom: FIRST_ZOOM, filter: ["!=", ["get", "kind"], "glacier"],
      paint: { "fill-color": ["match", ["get", "kind"], "swimming_pool", c.pool, c.water] } },
    { id: "glacier", type: "fill", ...of("water_polygons"), minzoom: FIRST_ZOOM, filter: ["==", ["get", "kind"], "glacier"],
      paint: { "fill-color": c.glacier } },
    { id: "water-lines", type: "line", ...of("water_lines"), minzoom: FIRST_ZOOM, filter: ["!", isTunnel],
      layout: { "line-cap": "round", "line-join": "round" },
      paint: { "line-color": ["interpolate", ["linear"], ["zoom"], 12, c.waterLine, 15, c.water],
        "line-width": ["interpolate", ["exponential", 1.5], ["zoom"], 8, ["match", ["get", "kind"], "river", 0.7, 0.2],
          13, ["match", ["get", "kind"], "river", 2.6, "canal", 2, 0.9], 19, ["match", ["get", "kind"], "river", 50, "canal", 40, "stream", 12, 7]] } },
    { id: "dams", type: "line", ...of("dam_lines"), minzoom: 13, paint: { "line-color": c.buildingEdge, "line-width": widths(13, 1, 19, 10) } },
    { id: "squares", type: "fill", ...of("street_polygons"), minzoom: 12,
      paint: { "fill-color": ["match", ["get", "kind"], ["runway", "taxiway"], c.street.runway, c.street.pedestrian],
        "fill-outline-color": ["match", ["get", "kind"], ["runway", "taxiway"], c.casing.runway, c.casing.pedestrian] } },
  ];
}

export function buildingLayers(archive, c) {
  return [
    { id: "buildings", type: "fill", source: archive.id, "source-layer": "buildings", minzoom: 13,
      paint: { "fill-color": c.building, "fill-outline-color": ["interpolate", ["linear"], ["zoom"], 14, c.building, 16, c.buildingEdge],
        "fill-opacity": ["interpolate", ["linear"], ["zoom"], 13, 0, 14, 0.8, 15, 1] } },
  ];
}

/** A width that grows as what is drawn does: pairs of zoom level and pixels. */
export function widths(...stops) {
  return ["interpolate", ["exponential", 1.6], ["zoom"], ...stops];
}
