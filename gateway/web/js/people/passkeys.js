// Passkeys: the browser's side of Web Authentication. It is there on HTTPS and on localhost alone.

import * as api from "../api.js";

/** Whether this browser and this address can use passkeys. */
export function canUsePasskeys() {
  return isSecureContext && typeof PublicKeyCredential === "function"
    && "parseCreationOptionsFromJSON" in PublicKeyCredential && !/^[\d.]+$|^\[/.test(location.hostname);
}

/**
 * Make a passkey of this account. Throws where the browser or the gateway refuses.
 * @param {string} name
 * @param {string} password
 */
export async function makePasskey(name, password) {
  const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(await api.passkeyCreation(password));
  const made = /** @type {PublicKeyCredential} */ (await navigator.credentials.create({ publicKey }));
  await api.addPasskey(name, made.toJSON());
}

/** Ask for a passkey of this site; what signs in with it. */
export async function askForPasskey() {
  const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(await api.passkeyRequest());
  const answer = /** @type {PublicKeyCredential} */ (await navigator.credentials.get({ publicKey }));
  return { passkey: answer.toJSON() };
}

/**
 * Whether somebody has closed the browser's question.
 * @param {unknown} error
 */
export function isCancelled(error) {
  return error instanceof DOMException && (error.name === "NotAllowedError" || error.name === "AbortError");
}
