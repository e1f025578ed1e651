// Sizes of files.

import { locale } from "../i18n.js";

const UNITS = /** @type {const} */ (["byte", "kilobyte", "megabyte", "gigabyte", "terabyte"]);

/**
 * @param {number} size bytes
 * @returns {string}
 */
export function bytes(size) {
  const power = size < 1 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log10(size) / 3));
  const value = size / 1000 ** power;
  return value.toLocaleString(locale, { style: "unit", unit: UNITS[power] ?? "byte", unitDisplay: power ? "short" : "long", maximumFractionDigits: power && value < 100 ? 1 : 0 });
}
