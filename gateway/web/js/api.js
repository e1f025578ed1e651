// The gateway's HTTP interface. Credentials, if any were asked for, stay in this tab.

const KEY = "waylog.credentials";
const DEVICES_MAX = 200000;

export class SignInNeeded extends Error {}

export function credentials() {
  try { return sessionStorage.getItem(KEY); } catch { return null; }
}

/** `user` and `token` for later requests; null forgets them. */
export function signIn(user, token) {
  const bytes = new TextEncoder().encode(`${user}:${token}`);
  const value = user === null ? null : `Basic ${btoa(String.fromCharCode(...bytes))}`;
  try {
    if (value === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, value);
  } catch { /* storage is switched off: the browser's own prompt remains */ }
}

export function headers() {
  const value = credentials();
  return value ? { authorization: value } : {};
}

async function get(path, signal) {
  const answer = await fetch(path, { headers: { accept: "application/json", ...headers() }, signal });
  if (answer.status === 401 || answer.status === 403) throw new SignInNeeded(path);
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer;
}

async function getJson(path, signal) {
  const answer = await get(path, signal);
  return answer ? answer.json() : null;
}

/** Where a device's resources are. */
export function devicePath(device, resource = "") {
  return `/v1/devices/${encodeURIComponent(device)}${resource}`;
}

/** Every device the viewer may see, with its last position. */
export async function devices(signal) {
  const rows = [];
  for (let after = null; ;) {
    const answer = await get(after === null ? "/v1/devices" : `/v1/devices?${new URLSearchParams({ after })}`, signal);
    const body = answer ? await answer.json() : [];
    rows.push(...(Array.isArray(body) ? body : (body.devices ?? [])));
    const more = answer?.headers.get("waylog-more-after");
    if (!more || rows.length >= DEVICES_MAX) return rows;
    after = decodeURIComponent(more);
  }
}

/** The way from `fromMs` to `toMs` as GeoJSON. */
export function track(name, fromMs, toMs, signal) {
  const query = new URLSearchParams({ from: String(fromMs), to: String(toMs), format: "geojson" });
  return getJson(`${devicePath(name, "/track")}?${query}`, signal);
}

export async function places(name, signal) {
  const body = await getJson(devicePath(name, "/places"), signal);
  return Array.isArray(body) ? body : (body?.places ?? []);
}

/** Visits that touch a time from `fromMs` to `toMs`, by time: `arrival`, `departure`, `place_id`. */
export async function visits(name, fromMs, toMs, signal) {
  const query = new URLSearchParams({ from: String(fromMs), to: String(toMs) });
  return (await getJson(`${devicePath(name, "/visits")}?${query}`, signal)) ?? [];
}

export function pipeline(signal) {
  return getJson("/v1/pipeline", signal);
}

/** Places of this name, at most five: `lat`, `lon`, `display_name`, `boundingbox` (Nominatim's). */
export async function search(text, signal) {
  const found = await getJson(`/search?${new URLSearchParams({ q: text, format: "jsonv2", limit: "5" })}`, signal);
  return (Array.isArray(found) ? found : []).filter((place) => Number.isFinite(Number(place.lat)) && Number.isFinite(Number(place.lon)));
}
