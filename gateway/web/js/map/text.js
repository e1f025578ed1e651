// @ts-nocheck: not typed yet, like the style that it is part of.
// Fonts, halos and language of everything that is written on the map.

import { settings } from "../settings.js";

export const FONT = ["Waylog", "system-ui", "Segoe UI", "Roboto", "Noto Sans", "Liberation Sans"];
export const FONT_MEDIUM = ["Waylog Medium", ...FONT.slice(1)]; // the first name only carries the weight

export function halo(colour, width = 1.4) {
  return { "text-halo-color": colour, "text-halo-width": width, "text-halo-blur": 0.3 };
}

/** The name in the language that was chosen, or else the browser's, or else as people call it there. */
export function localName({ language } = settings.current) {
  if (language === "auto") language = navigator.language;
  const codes = [...new Set([language, language.split("-")[0]])].filter(Boolean);
  return ["coalesce", ...codes.map((code) => ["get", `name_${code}`]), ["get", "name"]];
}
