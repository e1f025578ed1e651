// @ts-nocheck: not typed yet, like the style that it is part of.
// What is written on the map of an extract: places, streets, water, stops, points of interest.

import { FONT, FONT_MEDIUM, halo, localName } from "./text.js";

const MAIN = ["motorway", "trunk", "primary"];
const INTERESTS = [
  ["food", "amenity", ["restaurant", "cafe", "bar", "pub", "fast_food", "biergarten", "ice_cream", "nightclub"]],
  ["health", "amenity", ["hospital", "clinic", "doctors", "dentist", "pharmacy", "veterinary"]],
  ["culture", "amenity", ["theatre", "cinema", "library", "arts_centre", "place_of_worship", "townhall", "community_centre"]],
  ["stay", "tourism", ["hotel", "hostel", "guest_house", "motel", "bed_and_breakfast", "chalet", "alpine_hut", "wilderness_hut", "camp_site"]],
  ["culture", "tourism", ["museum", "gallery", "attraction", "artwork", "zoo", "aquarium", "theme_park", "viewpoint", "information"]],
  ["outdoor", "leisure", ["park", "playground", "nature_reserve", "golf_course", "stadium", "sports_centre", "swimming_pool", "water_park", "marina", "ice_rink"]],
];
/** Interests of more than the street they are in. */
const LARGE = ["hospital", "museum", "castle", "stadium", "university", "zoo", "theme_park", "townhall", "alpine_hut"];

export function labelLayers(archive, c) {
  const name = localName();
  const of = (layer, extra) => ({ type: "symbol", source: archive.id, "source-layer": layer, ...extra });
  const written = (size, extra = {}) => ({ "text-field": name, "text-font": FONT, "text-size": size, "text-max-width": 8, "text-padding": 3, ...extra });
  const along = { "symbol-placement": "line", "text-rotation-alignment": "map", "text-pitch-alignment": "viewport", "text-max-angle": 35, "text-padding": 2 };
  const kindIs = (...kinds) => ["in", ["get", "kind"], ["literal", kinds]];
  const size = (...stops) => ["interpolate", ["linear"], ["zoom"], ...stops];
  const beside = { "text-variable-anchor": ["left", "right", "top", "bottom"], "text-radial-offset": 0.75, "text-justify": "auto", "text-optional": true };
  const interest = ["case", ...INTERESTS.flatMap(([group, key, values]) => [["in", ["to-string", ["get", key]], ["literal", values]], group]),
    ["==", ["get", "amenity"], "parking"], "parking", ["has", "shop"], "shop", ["has", "historic"], "culture", ["has", "natural"], "outdoor", "service"];
  const colourOf = ["match", interest, ...Object.entries(c.interest).flat(), c.transport];
  const large = ["any", ...["amenity", "tourism", "historic", "leisure"].map((key) => ["in", ["to-string", ["get", key]], ["literal", LARGE]])];
  // MapLibre places the layers above first: what matters most stands last.
  return [
    of("addresses", { id: "house-numbers", minzoom: 17, layout: written(size(17, 10, 19, 12.5), { "text-field": ["coalesce", ["get", "housenumber"], ["get", "housename"]], "text-padding": 2 }),
      paint: { "text-color": c.number, ...halo(c.halo, 1.1) } }),
    of("pois", { id: "interests", minzoom: 15, filter: ["all", ["!", ["has", "natural"]], ["any", large, [">=", ["zoom"], 16]], ["any", ["has", "name"], [">=", ["zoom"], 18]]],
      layout: written(size(15, 11, 18, 12.5), { ...beside, "icon-image": ["concat", "interest-", interest], "icon-padding": 1,
        "text-field": ["step", ["zoom"], ["case", large, name, ""], 16.5, name], "symbol-sort-key": ["case", large, 0, ["has", "shop"], 3, ["==", interest, "service"], 2, 1] }),
      paint: { "text-color": colourOf, ...halo(c.halo, 1.3) } }),
    of("pois", { id: "peaks", minzoom: 11, filter: ["has", "natural"],
      layout: written(size(11, 10.5, 16, 12.5), { ...beside, "icon-image": ["match", ["get", "natural"], ["peak", "volcano"], "peak", "interest-outdoor"], "icon-padding": 1,
        "text-field": ["case", ["has", "ele"], ["concat", name, "\n", ["to-string", ["get", "ele"]], " m"], name], "symbol-sort-key": ["-", 0, ["to-number", ["get", "ele"], 0]] }),
      paint: { "text-color": c.interest.outdoor, ...halo(c.halo, 1.3) } }),
    of("water_lines_labels", { id: "river-names", minzoom: 12, layout: written(size(12, 11, 17, 14), { ...along, "text-letter-spacing": 0.06, "symbol-spacing": 400 }),
      paint: { "text-color": c.waterText, ...halo(c.waterHalo) } }),
    of("water_polygons_labels", { id: "lake-names", minzoom: 9, layout: written(size(9, 11, 16, 14), { "text-letter-spacing": 0.04 }),
      paint: { "text-color": c.waterText, ...halo(c.waterHalo) } }),
    of("streets_polygons_labels", { id: "square-names", minzoom: 15, layout: written(size(15, 11, 18, 13)), paint: { "text-color": c.minorText, ...halo(c.halo) } }),
    of("ferries", { id: "ferry-names", minzoom: 13, filter: ["has", "name"], layout: written(11, along), paint: { "text-color": c.waterText, ...halo(c.waterHalo) } }),
    of("street_labels", { id: "path-names", minzoom: 15, filter: ["all", ["has", "name"], kindIs("path", "footway", "cycleway", "track", "steps", "bridleway", "service")],
      layout: written(size(15, 10, 18, 12), along), paint: { "text-color": c.minorText, ...halo(c.halo) } }),
    of("street_labels", { id: "street-names", minzoom: 13, filter: ["all", ["has", "name"], ["!", kindIs(...MAIN, "path", "footway", "cycleway", "track", "steps", "bridleway", "service")]],
      layout: written(size(13, ["match", ["get", "kind"], ["secondary", "tertiary"], 10.5, 9.5], 16, 12, 19, 15.5), { ...along, "symbol-spacing": 300 }),
      paint: { "text-color": c.text, ...halo(c.halo, 1.6) } }),
    of("street_labels", { id: "main-street-names", minzoom: 12, filter: ["all", ["has", "name"], kindIs(...MAIN)],
      layout: written(size(12, 10, 16, 13, 19, 16.5), { ...along, "symbol-spacing": 350 }), paint: { "text-color": c.text, ...halo(c.halo, 1.6) } }),
    of("street_labels", { id: "street-numbers", minzoom: 10, filter: ["all", ["has", "ref"], kindIs(...MAIN, "secondary"), ["<=", ["length", ["get", "ref"]], 8]],
      layout: { "symbol-placement": "line", "symbol-spacing": 420, "text-field": ["get", "ref"], "text-font": FONT_MEDIUM, "text-size": 10, "text-padding": 12,
        "text-rotation-alignment": "viewport", "icon-rotation-alignment": "viewport", "icon-image": ["match", ["get", "kind"], "motorway", "shield-motorway", "shield-other"],
        "icon-text-fit": "both", "icon-text-fit-padding": [2, 4, 2, 4] },
      paint: { "text-color": ["match", ["get", "kind"], "motorway", c.shield.motorwayText, c.shield.text] } }),
    of("public_transport", { id: "stops", minzoom: 12, filter: ["any", kindIs("station", "halt", "aerodrome", "ferry_terminal"), [">=", ["zoom"], 16]],
      layout: written(size(12, 11, 17, 13), { ...beside, "icon-image": ["case", kindIs("station", "halt", "aerodrome", "ferry_terminal", "bus_station"), "station", "stop"], "icon-padding": 1,
        "text-field": ["step", ["zoom"], ["case", kindIs("station", "aerodrome", "ferry_terminal"), name, ""], 14, ["case", kindIs("bus_stop", "tram_stop"), "", name], 17, name],
        "symbol-sort-key": ["match", ["get", "kind"], "station", 0, "aerodrome", 0, 1] }),
      paint: { "text-color": c.transport, ...halo(c.halo) } }),
    of("place_labels", { id: "small-places", minzoom: 11, filter: ["!", kindIs("capital", "state_capital", "city", "town", "village")],
      layout: written(size(11, ["match", ["get", "kind"], "suburb", 11.5, 10], 15, ["match", ["get", "kind"], ["suburb", "quarter"], 15, "hamlet", 13.5, 12]),
        { "text-letter-spacing": 0.05, "symbol-sort-key": ["-", 0, ["to-number", ["get", "population"], 0]] }),
      paint: { "text-color": c.placeSoft, ...halo(c.halo) } }),
    of("place_labels", { id: "settlements", maxzoom: 16, filter: kindIs("capital", "state_capital", "city", "town", "village"),
      layout: written(size(6, ["match", ["get", "kind"], ["capital", "city", "state_capital"], 13, 11], 10, ["match", ["get", "kind"], ["capital", "city", "state_capital"], 17, "town", 13.5, 11.5],
        15, ["match", ["get", "kind"], ["capital", "city", "state_capital"], 24, "town", 20, 16]),
      { "text-font": ["case", kindIs("village"), ["literal", FONT], ["literal", FONT_MEDIUM]], "symbol-sort-key": ["-", ["match", ["get", "kind"], "capital", -3e7, ["city", "state_capital"], -2e7, "town", -1e7, 0], ["to-number", ["get", "population"], 0]] }),
      paint: { "text-color": ["case", kindIs("village"), c.placeSoft, c.place], "text-opacity": size(15, 1, 16, 0), ...halo(c.halo, 1.6) } }),
  ];
}

/** Draw the icons of the labels, before the layers are there: what comes later is not always drawn. */
export function addLabelImages(map, c) {
  const add = (name, image, options) => { if (!map.hasImage(name)) map.addImage(name, image, options); };
  for (const [group, colour] of Object.entries(c.interest)) add(`interest-${group}`, disc(3, colour, c.halo), { pixelRatio: 2 });
  add("interest-parking", letter("P", c.transport, c.halo), { pixelRatio: 2 });
  add("stop", disc(2.6, c.transport, c.halo), { pixelRatio: 2 });
  add("station", disc(4.4, c.transport, c.halo, c.halo), { pixelRatio: 2 });
  add("peak", triangle(c.interest.outdoor, c.halo), { pixelRatio: 2 });
  const stretch = { stretchX: [[8, 24]], stretchY: [[8, 16]], content: [5, 4, 27, 20], pixelRatio: 2 };
  add("shield-motorway", plate(c.shield.motorway, c.shield.motorway), stretch);
  add("shield-other", plate(c.shield.other, c.shield.edge), stretch);
}

function painted(width, height, paint) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  paint(context);
  return context.getImageData(0, 0, width, height);
}

function disc(radius, colour, edge, middle = null) {
  const size = Math.ceil(radius * 4) + 6;
  return painted(size, size, (context) => {
    for (const [r, fill] of [[radius * 2 + 2, edge], [radius * 2, colour], [middle ? radius * 0.9 : 0, middle]]) {
      if (!r || !fill) continue;
      context.beginPath();
      context.arc(size / 2, size / 2, r, 0, 2 * Math.PI);
      context.fillStyle = fill;
      context.fill();
    }
  });
}

function letter(text, colour, edge) {
  return painted(30, 30, (context) => {
    context.beginPath();
    context.roundRect(3, 3, 24, 24, 6);
    context.fillStyle = colour;
    context.fill();
    context.fillStyle = edge;
    context.font = "bold 19px sans-serif";
    context.textAlign = "center";
    context.fillText(text, 15, 22);
  });
}

function triangle(colour, edge) {
  return painted(24, 22, (context) => {
    context.beginPath();
    context.moveTo(12, 3);
    context.lineTo(21, 19);
    context.lineTo(3, 19);
    context.closePath();
    context.strokeStyle = edge;
    context.lineWidth = 4;
    context.lineJoin = "round";
    context.stroke();
    context.fillStyle = colour;
    context.fill();
  });
}

function plate(fill, edge) {
  return painted(32, 24, (context) => {
    context.beginPath();
    context.roundRect(1.5, 1.5, 29, 21, 6);
    context.fillStyle = fill;
    context.fill();
    context.strokeStyle = edge;
    context.lineWidth = 2;
    context.stroke();
  });
}
