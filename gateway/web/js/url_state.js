// The state of the page in the URL's fragment, so that a view can be kept and shared. No server or
// proxy is told a fragment: #5.20/47.1410/9.5209&view=diary&device=demo/phone&day=2026-05-31

import { isDate } from "./calendar.js";

/** Devices that are chosen at once, beside the selected one. */
export const ALSO_MAX = 20;

/**
 * @typedef {object} State
 * @property {string} page the name of the view
 * @property {{zoom: number, lat: number, lon: number} | null} view of the map
 * @property {string | null} device
 * @property {string | null} track how much of the device's way the live view shows
 * @property {string[]} also devices that are chosen beside it
 * @property {boolean} follow
 * @property {string} query what the list of devices is searched for
 * @property {string | null} day the first day of the diary
 * @property {string | null} until its last day; null for one day alone
 * @property {string | null} at what the view of operations shows: "topics/NAME/records"
 * @property {string | null} zone of the view of places: "all", "new" or an id; null for the places
 */

/** The code of a one-time link, #sign-in=CODE, which is taken out of the URL at once; null without. */
export function takeSignInCode() {
  const found = location.hash.match(/^#sign-in=([^&]+)&?/);
  if (!found) return null;
  const rest = location.hash.slice(found[0].length);
  history.replaceState(null, "", `${location.pathname}${location.search}${rest ? `#${rest}` : ""}`);
  return found[1] ?? null;
}

/** @param {string} text */
function decoded(text) {
  try { return decodeURIComponent(text); } catch { return ""; }
}

/** @returns {State} */
export function readState(fragment = location.hash) {
  /** @type {State} */
  const state = {
    page: "live", view: null, device: null, track: null, also: [], follow: false, query: "", day: null, until: null,
    zone: null, at: null,
  };
  for (const [index, part] of fragment.replace(/^#/, "").split("&").entries()) {
    if (index === 0 && part.split("/").length === 3 && !part.includes("=")) {
      const [zoom = NaN, lat = NaN, lon = NaN] = part.split("/").map(Number);
      if ([zoom, lat, lon].every(Number.isFinite)) state.view = { zoom, lat, lon };
      continue;
    }
    const [key, value = ""] = part.split("=");
    let text;
    try { text = decodeURIComponent(value); } catch { continue; }
    if (key === "view" && text) state.page = text;
    else if (key === "device") state.device = text || null;
    else if (key === "track") state.track = text || null;
    else if (key === "also") state.also = value.split(",").map(decoded).filter(Boolean).slice(0, ALSO_MAX);
    else if (key === "follow") state.follow = text === "1";
    else if (key === "q") state.query = text;
    else if (key === "day" && isDate(text)) state.day = text;
    else if (key === "until" && isDate(text)) state.until = text;
    else if (key === "zone") state.zone = text || null;
    else if (key === "at") state.at = text || null;
  }
  return state;
}

/**
 * @param {State} state
 * @returns {string} the fragment, with its #
 */
export function fragmentOf({ page, view, device, track, also, follow, query, day, until, zone, at }) {
  const text = (/** @type {string} */ value) => encodeURIComponent(value).replaceAll("%2F", "/");
  const live = page === "live";
  const parts = [];
  if (view) parts.push(`${view.zoom.toFixed(2)}/${view.lat.toFixed(4)}/${view.lon.toFixed(4)}`);
  if (!live) parts.push(`view=${text(page)}`);
  if (device) parts.push(`device=${text(device)}`);
  if (live && device && track) parts.push(`track=${text(track)}`);
  if (live && also.length) parts.push(`also=${also.map(text).join(",")}`);
  if (live && device && follow) parts.push("follow=1");
  if (live && query) parts.push(`q=${text(query)}`);
  if (!live && day) parts.push(`day=${day}`);
  if (!live && day && until && until !== day) parts.push(`until=${until}`);
  if (page === "operations" && at) parts.push(`at=${encodeURIComponent(at)}`);
  if (page === "places" && zone) parts.push(`zone=${text(zone)}`);
  return `#${parts.join("&")}`;
}

/**
 * @param {State} state
 * @param {boolean} [push] whether the browser's "back" returns to the state before
 */
export function writeState(state, push = false) {
  const url = `${location.pathname}${location.search}${fragmentOf(state)}`;
  if (push) history.pushState(null, "", url);
  else history.replaceState(null, "", url);
}
