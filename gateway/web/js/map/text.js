// Fonts and halos of everything that is written on the map.

export const FONT = ["Waylog", "system-ui", "Segoe UI", "Roboto", "Noto Sans", "Liberation Sans"];
export const FONT_MEDIUM = ["Waylog Medium", ...FONT.slice(1)]; // the first name only carries the weight

export function halo(colour, width = 1.4) {
  return { "text-halo-color": colour, "text-halo-width": width, "text-halo-blur": 0.3 };
}

/** The name in the browser's first language, or else as people call it there. */
export function localName(language = navigator.language) {
  const codes = [...new Set([language, language.split("-")[0]])].filter(Boolean);
  return ["coalesce", ...codes.map((code) => ["get", `name_${code}`]), ["get", "name"]];
}
