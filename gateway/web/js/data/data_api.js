// The requests of imports, exports and forwardings.

import { getJson, send, sendJson, SignInNeeded, unanswered } from "../api.js";

/** @import { OwnForwarding, OwnImport } from "../types/api.js" */

const IMPORTS = "/v1/imports";
const FORWARDINGS = "/v1/forwardings";

/** @param {string} id */
function importPath(id) {
  return `${IMPORTS}/${encodeURIComponent(id)}`;
}

/** @returns {Promise<OwnImport[] | null>} the newest first; null where the platform takes none */
export function imports() {
  return getJson(IMPORTS);
}

/**
 * @param {{name: string, bytes: number}[]} files
 * @param {string} [device] by default one named after the files
 * @returns {Promise<OwnImport>}
 */
export function announceImport(files, device) {
  return sendJson("POST", IMPORTS, { files, ...(device ? { device } : {}) });
}

/**
 * Add a part to a file.
 * @param {string} id
 * @param {number} number of the file
 * @param {number} offset where in the file the part begins
 * @param {Blob} part
 * @param {AbortSignal} signal
 * @returns {Promise<number>} how much of the file is there now, whatever was there before
 */
export async function uploadPart(id, number, offset, part, signal) {
  const answer = await fetch(`${importPath(id)}/files/${number}`, {
    method: "PATCH", headers: { "upload-offset": String(offset) }, body: part, signal,
  });
  const received = Number(answer.headers.get("upload-offset") ?? NaN);
  if (answer.ok || (answer.status === 409 && Number.isFinite(received))) return received;
  if (answer.status === 401) throw new SignInNeeded(IMPORTS);
  const refusal = await unanswered(answer);
  // What comes again later, and what never will be taken.
  throw answer.status >= 500 && answer.status !== 507 || [408, 429].includes(answer.status) ? new TypeError(refusal.message) : refusal;
}

/**
 * Read what has been uploaded.
 * @param {string} id
 * @returns {Promise<OwnImport>}
 */
export function runImport(id) {
  return sendJson("POST", `${importPath(id)}/run`);
}

/**
 * Erase what an import has brought.
 * @param {string} id
 */
export function undoImport(id) {
  return send("DELETE", importPath(id));
}

/**
 * Take an import off the list; its positions stay.
 * @param {string} id
 */
export function forgetImport(id) {
  return send("DELETE", `${importPath(id)}?fixes=keep`);
}

/**
 * Where the fixes of a device are downloaded, or everything of the viewer.
 * @param {string} format
 * @param {{device: string, from: number | null, to: number | null}} [part]
 */
export function exportPath(format, part) {
  const query = new URLSearchParams({ format });
  if (part) {
    query.set("device", part.device);
    if (part.from !== null) query.set("from", String(part.from));
    if (part.to !== null) query.set("to", String(part.to));
  }
  return `/v1/export?${query}`;
}

/** @returns {Promise<OwnForwarding[] | null>} null where forwardings are off */
export function forwardings() {
  return getJson(FORWARDINGS);
}

/** @param {Record<string, unknown>} forwarding */
export function makeForwarding(forwarding) {
  return sendJson("POST", FORWARDINGS, forwarding);
}

/**
 * @param {string} id
 * @param {"pause" | "resume"} what
 */
export function changeForwarding(id, what) {
  return sendJson("POST", `${FORWARDINGS}/${encodeURIComponent(id)}/${what}`);
}

/** @param {string} id */
export function deleteForwarding(id) {
  return send("DELETE", `${FORWARDINGS}/${encodeURIComponent(id)}`);
}
