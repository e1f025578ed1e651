// @ts-nocheck: not typed yet, like the style that it is part of.
// Colours of streets, land and water of extracts, each theme chosen for itself.

const LIGHT = {
  land: {
    residential: "#efece3", commercial: "#f1ebe6", retail: "#f5e9e3", industrial: "#ebe9ec",
    railway: "#eae8e9", landfill: "#e8e3d8", brownfield: "#e8e3d8", greenfield: "#eeeede",
    farmyard: "#efe8d5", farmland: "#f3f1df", greenhouse_horticulture: "#eceee2", plant_nursery: "#e3ebd0",
    grass: "#dfebcb", meadow: "#e3edcf", grassland: "#e1ebcd", village_green: "#d9eac7", recreation_ground: "#d9eac7",
    allotments: "#e1e7cf", orchard: "#dde9c4", vineyard: "#e0e7c6", garden: "#d9e9c9",
    park: "#cfe6bd", golf_course: "#d3e8c0", miniature_golf: "#d3e8c0", playground: "#dcebc8", pitch: "#c6e2bd",
    cemetery: "#d6e3cb", grave_yard: "#d6e3cb", forest: "#c9deb9", scrub: "#d6e3bf", heath: "#e2e4c4", fell: "#e8e8d2",
    swamp: "#cfdfcb", bog: "#d9dfca", string_bog: "#d9dfca", wet_meadow: "#d8e8cf", marsh: "#d3e5d3",
    sand: "#f4ecd2", beach: "#f6edcd", bare_rock: "#e6e3de", scree: "#e9e6e1", shingle: "#e9e5db", quarry: "#e0dcd6",
  },
  sites: {
    hospital: "#f7e3e1", school: "#f4eddb", kindergarten: "#f4eddb", university: "#f4eddb", college: "#f4eddb",
    sports_center: "#dcead0", parking: "#eae8e4", bicycle_parking: "#eae8e4", prison: "#e6e2df",
    construction: "#ebe5d9", danger_area: "#f3dfdc",
  },
  water: "#b5d2e4", waterLine: "#9dc3da", glacier: "#eef6fa", pool: "#a7d6ea",
  building: "#e2dbd0", buildingEdge: "#cfc6b8", pier: "#f2efe8", platform: "#eceae6",
  street: {
    motorway: "#f4b872", trunk: "#f8cc8d", primary: "#fce2a6", secondary: "#fff1c4", tertiary: "#ffffff", minor: "#ffffff",
    service: "#ffffff", pedestrian: "#f4f1ee", runway: "#dcdde4",
  },
  casing: {
    motorway: "#d28a3f", trunk: "#d79f57", primary: "#d5b56b", secondary: "#cfbf8b", tertiary: "#c5c0b4", minor: "#cfcabe",
    service: "#d8d4ca", pedestrian: "#d0cac4", runway: "#c3c5d0",
  },
  path: "#b08a63", cycleway: "#6f94c4", track: "#b49a6b", pathCasing: "rgba(255,255,255,.75)",
  rail: "#8f93a1", railDash: "#f4f3f1", tram: "#a3a0ad", aerialway: "#7d8290", ferry: "#7fa6c4", border: "#a396b8",
  text: "#4b5058", minorText: "#636972", waterText: "#4478a0", number: "#87806f", park: "#4f7a45", transport: "#2f69b3",
  place: "#333a45", placeSoft: "#57606d", halo: "rgba(255,255,253,.92)", waterHalo: "rgba(225,238,246,.85)",
  shield: { motorway: "#3f6fb5", other: "#ffffff", edge: "#b9a15e", text: "#4b4433", motorwayText: "#ffffff" },
  interest: { food: "#b0642a", shop: "#8a5aa8", stay: "#3b77b8", health: "#c23f4f", culture: "#7d6240", outdoor: "#56793c", service: "#6d727b" },
};

const DARK = {
  land: {
    residential: "#272e38", commercial: "#292e38", retail: "#2d2f39", industrial: "#262b37",
    railway: "#262b35", landfill: "#2b2d33", brownfield: "#2b2d33", greenfield: "#262f33",
    farmyard: "#2b2e33", farmland: "#262d33", greenhouse_horticulture: "#272f35", plant_nursery: "#243134",
    grass: "#243234", meadow: "#243133", grassland: "#243133", village_green: "#233434", recreation_ground: "#233434",
    allotments: "#263133", orchard: "#253232", vineyard: "#273132", garden: "#243434",
    park: "#213630", golf_course: "#223531", miniature_golf: "#223531", playground: "#243432", pitch: "#203a33",
    cemetery: "#253230", grave_yard: "#253230", forest: "#1f312b", scrub: "#223130", heath: "#282f30", fell: "#292f33",
    swamp: "#203131", bog: "#253032", string_bog: "#253032", wet_meadow: "#213333", marsh: "#213334",
    sand: "#33332f", beach: "#36352f", bare_rock: "#2c323b", scree: "#2b313a", shingle: "#2d3239", quarry: "#2b2f36",
  },
  sites: {
    hospital: "#35292f", school: "#2f2e33", kindergarten: "#2f2e33", university: "#2f2e33", college: "#2f2e33",
    sports_center: "#24343a", parking: "#2a313b", bicycle_parking: "#2a313b", prison: "#2a2d34",
    construction: "#2d2e33", danger_area: "#35292c",
  },
  water: "#15293c", waterLine: "#274766", glacier: "#33404d", pool: "#17364a",
  building: "#323a46", buildingEdge: "#3d4653", pier: "#2b323d", platform: "#2f3742",
  street: {
    motorway: "#a97f45", trunk: "#8f7145", primary: "#746544", secondary: "#5f5b4c", tertiary: "#4d545f", minor: "#434b57",
    service: "#3c4450", pedestrian: "#3a424e", runway: "#3c4350",
  },
  casing: {
    motorway: "#191b1f", trunk: "#191b1f", primary: "#191c21", secondary: "#191d23", tertiary: "#1a1f27", minor: "#1b2029",
    service: "#1d232c", pedestrian: "#1f252e", runway: "#1d232c",
  },
  path: "#7c6b57", cycleway: "#5877a3", track: "#7a6c52", pathCasing: "rgba(20,24,31,.6)",
  rail: "#636c7b", railDash: "#232a34", tram: "#59616f", aerialway: "#79818f", ferry: "#40617d", border: "#6d6485",
  text: "#c3cad5", minorText: "#a3adba", waterText: "#78a9cf", number: "#7f8895", park: "#8bb583", transport: "#7fb2f2",
  place: "#e3e8ef", placeSoft: "#b3bdca", halo: "rgba(24,29,37,.92)", waterHalo: "rgba(14,24,34,.85)",
  shield: { motorway: "#34578c", other: "#39414d", edge: "#7b6c47", text: "#e6dcc2", motorwayText: "#f2f6fb" },
  interest: { food: "#dd9a63", shop: "#b791d1", stay: "#82b1e8", health: "#ee8590", culture: "#c2a67e", outdoor: "#97ba7e", service: "#9aa3b0" },
};

export function streetPalette(theme) {
  return theme === "dark" ? DARK : LIGHT;
}
