// How precisely devices are shown to somebody, and until when: choices, and what they mean.

import { make } from "../dom.js";
import { distance, moment } from "../format.js";
import { t } from "../i18n.js";

/** @import { Friend, Precision, ShowingTerms } from "../types/api.js" */

const HOUR_MS = 3600e3;
const KEEP = "keep";
/** @type {[value: string, text: string][]} */
export const PRECISIONS = [["exact", t("share.exact")], ["500", t("share.about", { length: distance(500) })], ["2000", t("share.about", { length: distance(2000) })], ["town", t("share.town")]];

/**
 * The precision that a choice stands for.
 * @param {string} value
 * @returns {{precision: Precision, metres?: number}}
 */
export function precisionOf(value) {
  const metres = Number(value);
  return metres ? { precision: "metres", metres } : { precision: /** @type {Precision} */ (value) };
}

/**
 * A precision as people read it; nothing for exact positions.
 * @param {{precision: Precision, metres: number | null}} terms
 */
export function precisionText({ precision, metres }) {
  return precision === "exact" ? "" : precision === "town" ? t("share.town") : t("share.about", { length: distance(metres ?? 0) });
}

/** Fields of a form that choose how a friend is shown the viewer's devices. */
export class TermsFields {
  precision = make("select", { name: "precision" });
  end = make("select", { name: "end" });
  day = make("input", { type: "date", name: "day" });
  dayLabel = make("label", { hidden: true }, make("span", { text: t("friends.last_day") }), this.day);
  elements = [
    make("label", {}, make("span", { text: t("friends.precision") }), this.precision),
    make("label", {}, make("span", { text: t("friends.ends") }), this.end), this.dayLabel];

  /** @param {Friend} [friend] whom devices are shown to already */
  constructor(friend) {
    const known = friend && (friend.precision === "metres" ? String(friend.metres) : friend.precision);
    const choices = known && !PRECISIONS.some(([value]) => value === known)
      ? [...PRECISIONS, /** @type {[string, string]} */ ([known, precisionText(friend)])] : PRECISIONS;
    this.precision.append(...choices.map(([value, text]) => make("option", { value, text, selected: value === (known ?? "exact") })));
    /** @type {[value: string, text: string][]} */
    const ends = [["", t("friends.no_end")], ["hour", t("share.hour")], ["today", t("friends.today")], ["day", t("friends.until_day")]];
    if (friend?.until) ends.unshift([KEEP, t("share.until", { time: moment(friend.until) })]);
    this.end.append(...ends.map(([value, text]) => make("option", { value, text })));
    this.end.addEventListener("change", () => {
      this.dayLabel.hidden = this.end.value !== "day";
      this.day.required = !this.dayLabel.hidden;
      this.day.min = dateOf(Date.now());
    });
  }

  /** @returns {ShowingTerms} */
  get value() {
    const terms = precisionOf(this.precision.value);
    return this.end.value === KEEP ? terms : { ...terms, until: this.until() };
  }

  until() {
    switch (this.end.value) {
      case "hour": return Date.now() + HOUR_MS;
      case "today": return midnightAfter(new Date());
      case "day": return midnightAfter(new Date(`${this.day.value}T12:00`));
      default: return null;
    }
  }
}

/** @param {Date} day */
function midnightAfter(day) {
  return new Date(day.getFullYear(), day.getMonth(), day.getDate() + 1).getTime();
}

/**
 * A date as an input of the browser has it, in the browser's own zone.
 * @param {number} ms
 */
function dateOf(ms) {
  return new Date(ms - new Date(ms).getTimezoneOffset() * 60e3).toISOString().slice(0, 10);
}
