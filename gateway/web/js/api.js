// The gateway's HTTP interface. Who is signed in has a session, whose cookie the browser keeps and
// no script can read.

const DEVICES_MAX = 200000;

export class SignInNeeded extends Error {}

/** A sign-in was refused; the message says why. */
export class SignInRefused extends Error {}

/** Sign in by `{code}` of a link, or by `{user, token}`; the session lasts over tabs and restarts. */
export async function signIn(how) {
  const answer = await fetch("/v1/session", {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(how),
  });
  if (answer.ok) return answer.json();
  const { error } = await answer.json().catch(() => ({}));
  throw new SignInRefused(error ?? `the gateway answers ${answer.status}`);
}

export function signOut() {
  return fetch("/v1/session", { method: "DELETE" });
}

/** Who is signed in: `user`, `device`, `admin`, `open`, `oversees`. */
export function session(signal) {
  return getJson("/v1/session", signal);
}

/** Where devices reach the platform. */
export function entrances(signal) {
  return getJson("/v1/entrances", signal);
}

async function get(path, signal) {
  const answer = await fetch(path, { headers: { accept: "application/json" }, signal });
  if (answer.status === 401) throw new SignInNeeded(path);
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
