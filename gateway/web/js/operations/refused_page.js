// What parts of the platform could not take: why, the bytes, and trying again.

import { attempt } from "../complaints.js";
import { make } from "../dom.js";
import { moment } from "../format.js";
import { t } from "../i18n.js";
import { button, facts, labelled, whole } from "./parts.js";
import * as requests from "./requests.js";

/** @import { Refused, RefusedList, Retried } from "../types/operations.js" */

export class RefusedPage {
  error = make("p", { className: "refusal", role: "alert", hidden: true });
  said = make("p", { className: "lead", "aria-live": "polite" });
  list = make("ul", { className: "operations-records" });
  older = button(t("operations.older"), () => { this.before = this.next; this.again(); });
  element = make("div", {}, this.error, this.said, this.list, this.older);
  /** @type {number | null} */
  before = null;
  /** @type {number | null} */
  next = null;

  /** @param {(text: string) => void} announce */
  constructor(announce) {
    this.announce = announce;
  }

  async load() {
    this.before = null;
    this.show(await requests.refused(null));
  }

  again() {
    attempt(this.error, async () => this.show(await requests.refused(this.before)));
  }

  /** @param {RefusedList} found */
  show({ records, before }) {
    this.next = before;
    this.older.hidden = before === null;
    this.said.textContent = t("operations.refused_lead", { count: records.length });
    this.list.replaceChildren(...records.map((record) => this.row(record)));
  }

  /** @param {Refused} record */
  row(record) {
    const { place, time, source, reason, device, origin, value } = record;
    const details = make("details", {}, make("summary", {},
      make("span", { className: "place", text: place }), make("span", { className: "time", text: moment(time) }),
      make("span", { className: "key", text: source }), make("span", { className: "value", text: reason })));
    details.addEventListener("toggle", () => {
      if (details.childElementCount > 1 || !details.open) return;
      const bytes = make("div", {}, whole(value));
      const to = make("input", { name: "to", value: origin?.split(":")[0] ?? "", autocomplete: "off", spellcheck: "false", autocapitalize: "none" });
      details.append(
        facts([[t("operations.reason"), reason], [t("operations.device"), device ?? "–"], [t("operations.came_from"), origin ?? t("operations.no_record")]]),
        bytes,
        make("div", { className: "operations-bar add-form" }, labelled(t("operations.to_topic"), to),
          button(t("operations.all_bytes"), () => attempt(this.error, async () => bytes.replaceChildren(whole((await requests.refusedRecord(place)).record.value)))),
          button(t("operations.try_again"), () => this.retry(place, to.value.trim(), origin), { className: "primary", label: `${t("operations.try_again")}: ${place}` })));
    });
    return make("li", {}, details);
  }

  /**
   * @param {string} place
   * @param {string} to
   * @param {string | null} origin
   */
  retry(place, to, origin) {
    return attempt(this.error, async () => {
      const own = origin?.split(":")[0];
      const [outcome] = await requests.retry({ places: [place], ...(to && to !== own && { to }) });
      if (!outcome) return;
      const text = words(outcome);
      this.said.textContent = text;
      this.announce(text);
    });
  }
}

/** @param {Retried} outcome */
function words({ place, to, left_out, refused }) {
  if (refused !== null) return t("operations.retry_refused", { place, reason: refused });
  if (left_out !== null) return t("operations.left_out", { place, reason: left_out });
  return t("operations.sent_again", { place, topic: to ?? "" });
}
