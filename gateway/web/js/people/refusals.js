// Why the gateway refuses something about friends, in the viewer's language.

import { SignInNeeded, Unanswered } from "../api.js";
import { moment } from "../format.js";
import { t } from "../i18n.js";

/** @import { Key } from "../i18n.js" */

/** @type {Record<string, Key>} by the gateway's code */
const BY_CODE = {
  oneself: "refused.oneself", no_such_user: "refused.no_such_user", past_end: "refused.past_end", seen_already: "refused.seen_already",
  too_many_friends: "refused.too_many_friends", too_many_sent: "refused.too_many_sent", too_many_received: "refused.too_many_received",
  too_many_blocked: "refused.too_many_blocked", declined: "refused.declined", too_often: "refused.too_often",
};
/** @type {Record<number, Key>} where there is no code */
const BY_STATUS = { 401: "refused.signed_out", 503: "refused.busy" };

/**
 * What to tell the viewer; the gateway's own words where nothing else is known.
 * @param {unknown} error
 * @param {string} user whom it was about
 * @returns {string}
 */
export function reasonOf(error, user) {
  if (error instanceof SignInNeeded) return t("refused.signed_out");
  if (!(error instanceof Unanswered)) {
    // Without an answer, `fetch` has a TypeError.
    return error instanceof TypeError ? t("refused.unreachable") : error instanceof Error ? error.message : String(error);
  }
  const key = BY_CODE[error.code] ?? BY_STATUS[error.status];
  return key ? t(key, { user, count: error.waitS || 1, time: moment(Date.now() + error.waitS * 1000) }) : error.message;
}
