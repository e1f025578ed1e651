// The gateway's HTTP interface. Who is signed in has a session, whose cookie the browser keeps and
// no script can read.

/** @import * as types from "./types/api.js" */

const DEVICES_MAX = 200000;

export class SignInNeeded extends Error {}

/** A sign-in was refused; the message says why. */
export class SignInRefused extends Error {}

/** The password is right, and a code of the second factor is needed. */
export class SecondFactorNeeded extends Error {}

/** The gateway refuses a question, or cannot answer it now; the message says why, in English. */
export class Unanswered extends Error {
  /** of the answer; 0 if there was none */
  status = 0;
  /** what is the matter, where the gateway has a word for it */
  code = "";
  /** after how many seconds it may be tried again; 0 if that is not told */
  waitS = 0;
}

/**
 * Sign in by the code of a link, by user and token or password, or by a passkey's answer; the session
 * lasts over tabs and restarts.
 * @param {{code: string} | {user: string, token: string, second_factor?: string} | {passkey: unknown}} how
 * @returns {Promise<types.Session>}
 */
export async function signIn(how) {
  const answer = await fetch("/v1/session", {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(how),
  });
  if (answer.ok) return answer.json();
  const said = await answer.json().catch(() => ({}));
  const reason = typeof said.error === "string" ? said.error : `HTTP ${answer.status}`;
  throw said.second_factor ? new SecondFactorNeeded(reason) : new SignInRefused(reason);
}

/** @param {Response} answer a refusal; its reason is returned */
export async function errorOf(answer) {
  const { error } = await answer.json().catch(() => ({}));
  return typeof error === "string" ? error : `HTTP ${answer.status}`;
}

/** @param {Response} answer a refusal, told as an error */
export async function unanswered(answer) {
  const { error, code } = await answer.json().catch(() => ({}));
  const made = new Unanswered(typeof error === "string" ? error : `HTTP ${answer.status}`);
  made.status = answer.status;
  if (typeof code === "string") made.code = code;
  made.waitS = Number(answer.headers.get("retry-after")) || 0;
  return made;
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

/** @returns {Promise<types.BaseMap[]>} base maps that the operator offers */
export async function baseMaps() {
  return (await getJson("/v1/base-maps")) ?? [];
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
  return (await send("POST", "/v1/device-tokens", { name, app })).json();
}

/** @param {string} name of the viewer's device, without the user */
export async function revokeDeviceTokens(name) {
  await send("DELETE", `/v1/device-tokens/${encodeURIComponent(name)}`);
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
 * Of which events of a device the viewer is told.
 * @param {string} device
 * @returns {Promise<string[]>}
 */
export async function notices(device) {
  return (await getJson(devicePath(device, "/notices")))?.kinds ?? [];
}

/**
 * @param {string} device
 * @param {string[]} kinds
 * @returns {Promise<string[]>} what holds from now on
 */
export async function chooseNotices(device, kinds) {
  return (await sendJson("PUT", devicePath(device, "/notices"), { kinds })).kinds;
}

/** The viewer has no right to it, and will not get one by waiting. */
export class Forbidden extends Error {}

/** @returns {Promise<types.Zone[]>} */
export async function zones() {
  return (await getJson("/v1/geofences")) ?? [];
}

/**
 * Make a zone, or put another one in its place.
 * @param {string | null} id
 * @param {types.ZoneBody} zone
 * @returns {Promise<types.Zone>}
 */
export function saveZone(id, zone) {
  return id === null ? sendJson("POST", "/v1/geofences", zone) : sendJson("PUT", `/v1/geofences/${encodeURIComponent(id)}`, zone);
}

/** @param {string} id */
export function deleteZone(id) {
  return sendJson("DELETE", `/v1/geofences/${encodeURIComponent(id)}`);
}

/**
 * What has happened in zones behind a cursor, as soon as there is some.
 * @param {string} after
 * @param {number} waitS
 * @returns {Promise<{cursor: string, events: types.ZoneEvent[]} | null>}
 */
export async function events(after, waitS) {
  const answer = await fetch(`/v1/events?${new URLSearchParams({ after, wait: String(waitS) })}`);
  if (answer.status === 401) throw new SignInNeeded("/v1/events");
  if (answer.status === 403) throw new Forbidden(await errorOf(answer));
  if (answer.status === 404) return null;
  if (!answer.ok) throw await unanswered(answer);
  return answer.json();
}

/** @returns {Promise<types.AlertChannel[]>} */
export async function alertChannels() {
  return (await getJson("/v1/alert-channels")) ?? [];
}

/**
 * @param {Record<string, unknown>} channel
 * @returns {Promise<types.AlertChannel>}
 */
export function makeAlertChannel(channel) {
  return sendJson("POST", "/v1/alert-channels", channel);
}

/** @param {string} id */
export function deleteAlertChannel(id) {
  return sendJson("DELETE", `/v1/alert-channels/${encodeURIComponent(id)}`);
}

/** @returns {Promise<string[]>} the kinds of channels that the platform has */
export async function alertChannelKinds() {
  return (await getJson("/v1/alert-channels/kinds")) ?? [];
}

/**
 * Have another code sent to a mailbox.
 * @param {string} id
 * @returns {Promise<types.AlertChannel>}
 */
export function sendAlertCode(id) {
  return sendJson("POST", `/v1/alert-channels/${encodeURIComponent(id)}/confirmation`);
}

/**
 * Enter the code that was sent to a mailbox.
 * @param {string} id
 * @param {string} code
 * @returns {Promise<types.AlertChannel>}
 */
export function confirmAlertChannel(id, code) {
  return sendJson("PUT", `/v1/alert-channels/${encodeURIComponent(id)}/confirmation`, { code });
}

/**
 * @param {string} id
 * @returns {Promise<types.AlertChannel>}
 */
export function testAlertChannel(id) {
  return sendJson("POST", `/v1/alert-channels/${encodeURIComponent(id)}/test`);
}

/** @returns {Promise<types.AlertSettings>} */
export async function alertSettings() {
  return (await getJson("/v1/alert-settings")) ?? {};
}

/** @param {types.AlertSettings} settings */
export function setAlertSettings(settings) {
  return sendJson("PUT", "/v1/alert-settings", settings);
}

/** @returns {Promise<string | null>} the platform's key for Web Push; null where that is off */
export async function pushKey() {
  return (await getJson("/v1/push/key"))?.key ?? null;
}

/** @param {PushSubscription} subscription */
export function subscribeToPush(subscription) {
  return sendJson("POST", "/v1/push/subscriptions", subscription.toJSON());
}

/**
 * What the viewer has said of a device's places.
 * @param {string} device
 * @returns {Promise<types.PlaceEdit[]>}
 */
export async function placeEdits(device) {
  return (await getJson(devicePath(device, "/place-edits"))) ?? [];
}

/**
 * @param {string} device
 * @param {string} placeId
 * @param {Record<string, unknown>} changes
 */
export function editPlace(device, placeId, changes) {
  return sendJson("PATCH", devicePath(device, `/places/${encodeURIComponent(placeId)}`), changes);
}

/** What a browser asks a passkey with. @returns {Promise<any>} */
export async function passkeyRequest() {
  return (await send("POST", "/v1/session/passkey-options")).json();
}

/** @returns {Promise<types.OwnAccount | null>} */
export function account() {
  return getJson("/v1/account");
}

/**
 * @param {string} password the new one
 * @param {string} present
 */
export async function setPassword(password, present) {
  await send("PUT", "/v1/account/password", { new: password, password: present });
}

/** @param {string} [id] of a session; all but this browser's without */
export async function endSessions(id) {
  await send("DELETE", id ? `/v1/account/sessions/${encodeURIComponent(id)}` : "/v1/account/sessions");
}

/**
 * @param {string} password
 * @returns {Promise<types.NewSecondFactor>}
 */
export async function proposeSecondFactor(password) {
  return (await send("POST", "/v1/account/second-factor", { password })).json();
}

/**
 * @param {string} code
 * @returns {Promise<string[]>} recovery codes
 */
export async function confirmSecondFactor(code) {
  return (await (await send("PUT", "/v1/account/second-factor", { code })).json()).recovery_codes;
}

/** @param {string} password */
export async function endSecondFactor(password) {
  await send("DELETE", "/v1/account/second-factor", { password });
}

/**
 * What a browser makes a passkey of.
 * @param {string} password
 * @returns {Promise<any>}
 */
export async function passkeyCreation(password) {
  return (await send("POST", "/v1/account/passkeys/options", { password })).json();
}

/**
 * @param {string} name
 * @param {unknown} passkey the browser's answer
 */
export async function addPasskey(name, passkey) {
  await send("POST", "/v1/account/passkeys", { name, passkey });
}

/** @param {string} id */
export async function removePasskey(id) {
  await send("DELETE", `/v1/account/passkeys/${encodeURIComponent(id)}`);
}

/** @returns {Promise<types.KnownUser[]>} for administrators */
export async function users() {
  return (await getJson("/v1/admin/users")) ?? [];
}

/**
 * @param {string} name
 * @param {boolean} admin
 * @returns {Promise<types.Invitation>}
 */
export async function inviteUser(name, admin) {
  return (await send("POST", "/v1/admin/users", { name, admin })).json();
}

/**
 * @param {string} name
 * @returns {Promise<types.Invitation>}
 */
export async function inviteAgain(name) {
  return (await send("POST", `/v1/admin/users/${encodeURIComponent(name)}/invitation`)).json();
}

/**
 * @param {string} name
 * @param {Partial<types.KnownUser>} changes
 */
export async function changeUser(name, changes) {
  await send("PATCH", `/v1/admin/users/${encodeURIComponent(name)}`, changes);
}

/** @param {string} name */
export async function revokeUser(name) {
  await send("DELETE", `/v1/admin/users/${encodeURIComponent(name)}`);
}

/** @returns {Promise<types.Friends>} */
export async function friends() {
  return (await getJson("/v1/friends")) ?? { shown_to: [], seen: [] };
}

/**
 * Let a user see the viewer's devices from now on, or change how.
 * @param {string} user
 * @param {types.ShowingTerms} terms
 */
export async function showTo(user, terms) {
  await send("PUT", `/v1/friends/${encodeURIComponent(user)}`, terms);
}

/** @returns {Promise<types.FriendRequestLists>} */
export async function friendRequests() {
  return (await getJson("/v1/friends/requests")) ?? { received: [], sent: [], blocked: [] };
}

/** @param {string} user who is asked to show the viewer devices */
export async function askToSee(user) {
  await send("POST", `/v1/friends/${encodeURIComponent(user)}/request`);
}

/** @param {string} user who was asked */
export async function takeBack(user) {
  await send("DELETE", `/v1/friends/${encodeURIComponent(user)}/request`);
}

/** @param {string} user who asks */
export async function decline(user) {
  await send("POST", `/v1/friends/${encodeURIComponent(user)}/decline`);
}

/** @param {string} user */
export async function block(user) {
  await send("PUT", `/v1/friends/${encodeURIComponent(user)}/block`);
}

/** @param {string} user */
export async function unblock(user) {
  await send("DELETE", `/v1/friends/${encodeURIComponent(user)}/block`);
}

/** @param {string} user */
export async function hideFrom(user) {
  await send("DELETE", `/v1/friends/${encodeURIComponent(user)}`);
}

/** @param {string} user whose devices are no longer to be seen */
export async function lookAwayFrom(user) {
  await send("DELETE", `/v1/friends/${encodeURIComponent(user)}/sight`, undefined, true);
}

/** @returns {Promise<types.OwnShare[]>} the viewer's shares that are valid */
export async function shares() {
  return (await getJson("/v1/shares")) ?? [];
}

/**
 * A new share; the answer alone has its link.
 * @param {types.ShareOffer} offer
 * @returns {Promise<types.NewShare>}
 */
export async function makeShare(offer) {
  return (await send("POST", "/v1/shares", offer)).json();
}

/** @param {string} id */
export async function endShare(id) {
  await send("DELETE", `/v1/shares/${encodeURIComponent(id)}`);
}

/**
 * Change something. Throws what the gateway has against it.
 * @param {"POST" | "PUT" | "PATCH" | "DELETE"} method
 * @param {string} path
 * @param {unknown} [body]
 * @param {boolean} [keepalive] whether it is done even if the page is closed meanwhile
 * @returns {Promise<Response>}
 */
export async function send(method, path, body, keepalive = false) {
  const answer = await fetch(path, {
    method, keepalive, ...(body === undefined ? {} : { headers: { "content-type": "application/json" }, body: JSON.stringify(body) }),
  });
  if (!answer.ok) throw await unanswered(answer);
  return answer;
}

/**
 * The same, with the answer's content; null for none.
 * @param {"POST" | "PUT" | "PATCH" | "DELETE"} method
 * @param {string} path
 * @param {unknown} [body]
 */
export async function sendJson(method, path, body) {
  const answer = await send(method, path, body);
  return answer.status === 204 ? null : answer.json();
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
  if (!answer.ok) throw await unanswered(answer);
  return answer;
}

/**
 * @param {string} path
 * @param {AbortSignal} [signal]
 */
export async function getJson(path, signal) {
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
 * The course of a device's battery.
 * @param {string} device
 * @param {number} fromMs
 * @param {number} toMs
 * @returns {Promise<types.BatteryLevel[]>}
 */
export async function battery(device, fromMs, toMs) {
  return (await getJson(`${devicePath(device, "/battery")}?${period(fromMs, toMs)}`))?.levels ?? [];
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
