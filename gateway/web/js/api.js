// The gateway's HTTP interface. Who is signed in has a session, whose cookie the browser keeps and
// no script can read.

/** @import * as types from "./types/api.js" */

const DEVICES_MAX = 200000;

export class SignInNeeded extends Error {}

/** A sign-in was refused; the message says why. */
export class SignInRefused extends Error {}

/** The gateway refuses a question, or cannot answer it now; the message says why. */
export class Unanswered extends Error {}

/**
 * Sign in by the code of a link, or by user and token; the session lasts over tabs and restarts.
 * @param {{code: string} | {user: string, token: string}} how
 * @returns {Promise<types.Session>}
 */
export async function signIn(how) {
  const answer = await fetch("/v1/session", {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(how),
  });
  if (answer.ok) return answer.json();
  throw new SignInRefused(await errorOf(answer));
}

/** @param {Response} answer */
async function errorOf(answer) {
  const { error } = await answer.json().catch(() => ({}));
  return typeof error === "string" ? error : `HTTP ${answer.status}`;
}

export function signOut() {
  return fetch("/v1/session", { method: "DELETE" });
}

/** @returns {Promise<types.Session>} who is signed in */
export async function session() {
  const found = await getJson("/v1/session");
  if (!found) throw new Unanswered("/v1/session");
  return found;
}

/** @returns {Promise<types.Entrances | null>} where devices reach the platform */
export function entrances() {
  return getJson("/v1/entrances");
}

/** @returns {Promise<types.DeviceTokens[]>} the viewer's devices that have tokens */
export async function deviceTokens() {
  return (await getJson("/v1/device-tokens")) ?? [];
}

/**
 * A new token of a device, and what sets up the app.
 * @param {string} name
 * @param {types.AppName} app
 * @returns {Promise<types.NewDeviceToken>}
 */
export async function makeDeviceToken(name, app) {
  const answer = await fetch("/v1/device-tokens", {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ name, app }),
  });
  if (answer.ok) return answer.json();
  throw new Unanswered(await errorOf(answer));
}

/** @param {string} name of the viewer's device, without the user */
export async function revokeDeviceTokens(name) {
  const answer = await fetch(`/v1/device-tokens/${encodeURIComponent(name)}`, { method: "DELETE" });
  if (!answer.ok) throw new Unanswered(await errorOf(answer));
}

/**
 * What the platform has refused of a device today.
 * @param {string} device
 * @returns {Promise<types.Refusal[]>}
 */
export async function refusals(device) {
  return (await getJson(devicePath(device, "/receipts")))?.refused ?? [];
}

/**
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<Response | null>} null where there is nothing
 */
async function get(path, signal) {
  const answer = await fetch(path, { headers: { accept: "application/json" }, signal: signal ?? null });
  if (answer.status === 401) throw new SignInNeeded(path);
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Unanswered(await errorOf(answer));
  return answer;
}

/**
 * @param {string} path
 * @param {AbortSignal} [signal]
 */
async function getJson(path, signal) {
  const answer = await get(path, signal);
  return answer ? answer.json() : null;
}

/**
 * Where a device's resources are.
 * @param {string} device
 * @param {string} [resource]
 */
export function devicePath(device, resource = "") {
  return `/v1/devices/${encodeURIComponent(device)}${resource}`;
}

/**
 * Every device the viewer may see, with its last position; none, but `more`, where there are more than `limit`.
 * @param {number} [limit]
 * @returns {Promise<{rows: types.DeviceRow[], more: boolean}>}
 */
export async function devices(limit) {
  /** @type {types.DeviceRow[]} */
  const rows = [];
  for (let after = ""; ;) {
    const query = new URLSearchParams({ ...(after && { after }), ...(limit && { limit: String(limit) }) }).toString();
    const answer = await get(query ? `/v1/devices?${query}` : "/v1/devices");
    const body = answer ? await answer.json() : [];
    rows.push(...(Array.isArray(body) ? body : (body.devices ?? [])));
    const more = answer?.headers.get("waylog-more-after");
    if (more && limit) return { rows: [], more: true };
    if (!more || rows.length >= DEVICES_MAX) return { rows, more: false };
    after = decodeURIComponent(more);
  }
}

/**
 * Devices whose names contain a text, with their last positions.
 * @param {string} text
 * @param {number} limit
 * @param {AbortSignal} [signal]
 * @returns {Promise<types.DeviceRow[]>}
 */
export async function devicesNamed(text, limit, signal) {
  return (await getJson(`/v1/devices?${new URLSearchParams({ q: text, limit: String(limit) })}`, signal)) ?? [];
}

/**
 * @param {string} device
 * @returns {Promise<types.DeviceRow | null>}
 */
export function device(device) {
  return getJson(devicePath(device));
}

/**
 * @param {string} device
 * @param {number} fromMs
 * @param {number} toMs
 * @param {AbortSignal} [signal]
 * @returns {Promise<types.Track | null>}
 */
export function track(device, fromMs, toMs, signal) {
  return getJson(`${devicePath(device, "/track")}?${period(fromMs, toMs)}&format=geojson`, signal);
}

/**
 * @param {string} device
 * @returns {Promise<types.Place[]>}
 */
export async function places(device) {
  const body = await getJson(devicePath(device, "/places"));
  return Array.isArray(body) ? body : (body?.places ?? []);
}

/**
 * Visits that touch a time from `fromMs` to `toMs`, by time.
 * @param {string} device
 * @param {number} fromMs
 * @param {number} toMs
 * @returns {Promise<types.Visit[]>}
 */
export async function visits(device, fromMs, toMs) {
  return (await getJson(`${devicePath(device, "/visits")}?${period(fromMs, toMs)}`)) ?? [];
}

/**
 * @param {number} fromMs
 * @param {number} toMs
 */
function period(fromMs, toMs) {
  return new URLSearchParams({ from: String(Math.round(fromMs)), to: String(Math.round(toMs)) });
}

/** @returns {Promise<types.Pipeline | null>} */
export function pipeline() {
  return getJson("/v1/pipeline");
}

/**
 * Places of this name, at most five.
 * @param {string} text
 * @param {AbortSignal} signal
 * @returns {Promise<types.GeocodedPlace[]>}
 */
export async function search(text, signal) {
  const found = await getJson(`/search?${new URLSearchParams({ q: text, format: "jsonv2", limit: "5" })}`, signal);
  return (Array.isArray(found) ? found : []).filter((place) => Number.isFinite(Number(place.lat)) && Number.isFinite(Number(place.lon)));
}

/**
 * What a device did: stays, trips and gaps that touch a time.
 * @param {string} device
 * @param {number} fromMs
 * @param {number} toMs
 * @param {AbortSignal} signal
 * @returns {Promise<types.TimelineItem[]>}
 */
export async function timeline(device, fromMs, toMs, signal) {
  const found = await getJson(`${devicePath(device, "/timeline")}?${period(fromMs, toMs)}`, signal);
  return found?.items ?? [];
}

/**
 * The days with fixes, and how many each has.
 * @param {string} device
 * @param {number} fromMs
 * @param {number} toMs
 * @param {string} zone
 * @returns {Promise<types.Days["days"]>}
 */
export async function days(device, fromMs, toMs, zone) {
  const found = await getJson(`${devicePath(device, "/days")}?${period(fromMs, toMs)}&${new URLSearchParams({ tz: zone })}`);
  return found?.days ?? [];
}

/**
 * @param {string} device
 * @param {number} fromMs
 * @param {number} toMs
 * @param {string} zone
 * @param {types.Span} by
 * @param {AbortSignal} signal
 * @returns {Promise<types.Total[]>}
 */
export async function statistics(device, fromMs, toMs, zone, by, signal) {
  const found = await getJson(`${devicePath(device, "/statistics")}?${period(fromMs, toMs)}&${new URLSearchParams({ tz: zone, by })}`, signal);
  return found?.totals ?? [];
}

/**
 * The addresses of some points, in their order; empty where there is no geocoder.
 * @param {[lat: number, lon: number][]} points
 * @param {AbortSignal} [signal]
 * @returns {Promise<types.GeocodedPlace[]>}
 */
export async function addresses(points, signal) {
  if (!points.length) return [];
  const answer = await fetch("/reverse/batch", {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(points), signal: signal ?? null,
  });
  return answer.ok ? answer.json() : [];
}
