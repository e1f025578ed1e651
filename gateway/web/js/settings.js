// What a viewer has chosen: language, units, times, colours. Kept in this browser.

/**
 * @typedef {object} Settings
 * @property {"auto" | string} language a language of the catalogues, or "auto" for the browser's
 * @property {"metric" | "imperial" | "nautical"} units
 * @property {"auto" | "12" | "24"} clock hours of a day; "auto" as the language's region has them
 * @property {"viewer" | "place" | string} zone the browser's time zone, that of the place, or a name such as Europe/Vaduz
 * @property {"auto" | "light" | "dark"} theme
 * @property {"embedded" | "map" | "satellite"} base_map
 */

/** @type {Settings} */
const DEFAULTS = { language: "auto", units: "metric", clock: "auto", zone: "viewer", theme: "auto", base_map: "embedded" };
const KEY = "waylog.settings";

/** @type {Record<keyof Settings, (value: string) => boolean>} */
const VALID = {
  language: (value) => value === "auto" || /^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$/.test(value),
  units: (value) => ["metric", "imperial", "nautical"].includes(value),
  clock: (value) => ["auto", "12", "24"].includes(value),
  zone: (value) => value === "viewer" || value === "place" || isZone(value),
  theme: (value) => ["auto", "light", "dark"].includes(value),
  base_map: (value) => ["embedded", "map", "satellite"].includes(value),
};

/** @param {string} name */
export function isZone(name) {
  try {
    new Intl.DateTimeFormat("en", { timeZone: name });
    return true;
  } catch {
    return false;
  }
}

/** @returns {Settings} */
function read() {
  const found = { ...DEFAULTS };
  let kept;
  try { kept = JSON.parse(localStorage.getItem(KEY) ?? "{}"); } catch { return found; } // switched off, or not ours
  for (const name of /** @type {(keyof Settings)[]} */ (Object.keys(DEFAULTS))) {
    const value = kept?.[name];
    if (typeof value === "string" && VALID[name](value)) Object.assign(found, { [name]: value });
  }
  return found;
}

class SettingsStore extends EventTarget {
  /** Events: `change` (detail: the names that changed). */
  current = read();

  /** @param {Partial<Settings>} chosen */
  set(chosen) {
    const names = /** @type {(keyof Settings)[]} */ (Object.keys(chosen)).filter((name) => chosen[name] !== this.current[name]);
    if (!names.length) return;
    this.current = { ...this.current, ...chosen };
    try { localStorage.setItem(KEY, JSON.stringify(this.current)); } catch { /* for this visit only */ }
    this.dispatchEvent(new CustomEvent("change", { detail: names }));
  }
}

export const settings = new SettingsStore();
