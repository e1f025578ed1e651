// @ts-nocheck: not typed yet, like the style that it is part of.
// Fonts, halos and language of everything that is written on the map.

import { locale } from "../i18n.js";

export const FONT = ["Waylog", "system-ui", "Segoe UI", "Roboto", "Noto Sans", "Liberation Sans"];
export const FONT_MEDIUM = ["Waylog Medium", ...FONT.slice(1)]; // the first name only carries the weight

export function halo(colour, width = 1.4) {
  return { "text-halo-color": colour, "text-halo-width": width, "text-halo-blur": 0.3 };
}

/** The name in the language of the page, or else as people call it there. */
export function localName(language = locale) {
  const codes = [...new Set([language, language.split("-")[0]])].filter(Boolean);
  return ["coalesce", ...codes.map((code) => ["get", `name_${code}`]), ["get", "name"]];
}
