// One favourite place: which hours of the week and which days of a year were spent there.

import { addDays, dateOf, DAY_MS, HOUR_MS, midnight, offsetAt, weekday } from "../calendar.js";
import { make, setText } from "../dom.js";
import { date, day, duration, moment, zoneOf } from "../format.js";
import { t } from "../i18n.js";

/** @import { Visit } from "../types/api.js" */

const YEAR_DAYS = 371; // 53 weeks
const VISITS_SHOWN = 12;
const MONDAY_MS = 4 * DAY_MS; // 5 January 1970

export class PlaceDetails extends HTMLElement {
  summary = make("p", { className: "summary" });
  week = make("div", { className: "week-grid", role: "img" });
  year = make("div", { className: "year-grid", role: "img" });
  visits = make("ol", { className: "visits" });

  connectedCallback() {
    this.replaceChildren(
      this.summary,
      make("h4", { text: t("place.week") }), this.week,
      make("h4", { text: t("place.year") }), this.year,
      make("h4", { text: t("place.last_visits") }), this.visits,
    );
  }

  /**
   * @param {Visit[]} visits of this place alone, by time
   * @param {number} end of the year that is shown, ms
   */
  show(visits, end) {
    const zone = zoneOf();
    const dwell = visits.reduce((sum, visit) => sum + visit.departure - visit.arrival, 0);
    const recent = end > Date.now() - 7 * DAY_MS;
    setText(this.summary, !visits.length ? t("place.no_visit")
      : t(recent ? "place.summary" : "place.summary_until", { count: visits.length, each: duration(dwell / 1000 / visits.length), until: day(end) }));
    this.drawWeek(weekHours(visits, zone));
    this.drawYear(dayHours(visits, end, zone), end, zone);
    this.visits.replaceChildren(...visits.slice(-VISITS_SHOWN).reverse().map((visit) => make("li", {},
      make("span", { text: moment(visit.arrival) }),
      make("span", { className: "dwell", text: duration((visit.departure - visit.arrival) / 1000) }))));
  }

  /** @param {number[][]} hours */
  drawWeek(hours) {
    const most = Math.max(...hours.flat(), 1e-9);
    const cells = [make("span")];
    for (let hour = 0; hour < 24; hour += 1) cells.push(make("span", { className: "tick", text: hour % 6 ? "" : String(hour) }));
    hours.forEach((row, number) => {
      cells.push(make("span", { className: "tick", text: weekdayName(number) }));
      row.forEach((value, hour) => cells.push(cell(value / most,
        t("place.hour", { weekday: weekdayName(number), hour: hourName(hour), duration: duration(value * 3600) }))));
    });
    this.week.replaceChildren(...cells);
    this.week.setAttribute("aria-label", busiest(hours));
  }

  /**
   * @param {Map<string, number>} hours
   * @param {number} end
   * @param {string} zone
   */
  drawYear(hours, end, zone) {
    const last = dateOf(end, zone);
    const first = addDays(last, -weekday(last) - (YEAR_DAYS - 7));
    const cells = [];
    for (let number = 0; number < YEAR_DAYS; number += 1) {
      const own = addDays(first, number);
      if (own > last) break;
      const value = hours.get(own) ?? 0;
      cells.push(cell(Math.min(1, value / 8), t("place.day", { date: day(midnight(own, zone), zone), duration: duration(value * 3600) })));
    }
    this.year.replaceChildren(...cells);
    this.year.setAttribute("aria-label", t("place.days_with_visit", { count: hours.size }));
  }
}
customElements.define("place-details", PlaceDetails);

/** @param {number} number 0 for Monday */
function weekdayName(number) {
  return inUtc("weekday", MONDAY_MS + number * DAY_MS);
}

/** @param {number} hour */
function hourName(hour) {
  return inUtc("hour", hour * HOUR_MS);
}

/**
 * A weekday or an hour, whatever the zone.
 * @param {"weekday" | "hour"} form
 * @param {number} ms
 */
function inUtc(form, ms) {
  return date(ms - offsetAt(ms, zoneOf()), form);
}

/**
 * @param {number} share
 * @param {string} title
 */
function cell(share, title) {
  const element = make("span", { className: "cell", title });
  // What is hardly used is still told from what is not.
  element.style.setProperty("--share", share > 0 ? String(Math.round(15 + 85 * share)) : "0");
  return element;
}

/**
 * Hours spent in each hour of the zone's week: 7 rows from Monday, 24 columns.
 * @param {Visit[]} visits
 * @param {string} zone
 */
export function weekHours(visits, zone) {
  const hours = Array.from({ length: 7 }, () => /** @type {number[]} */ (new Array(24).fill(0)));
  for (const visit of visits) {
    for (let at = visit.arrival; at < visit.departure;) {
      const local = at + offsetAt(at, zone);
      const next = Math.min(visit.departure, at + HOUR_MS - (local % HOUR_MS));
      const row = hours[weekday(dateOf(at, zone))] ?? [];
      const hour = new Date(local).getUTCHours();
      row[hour] = (row[hour] ?? 0) + (next - at) / HOUR_MS;
      at = next;
    }
  }
  return hours;
}

/**
 * Hours spent on each day of the 53 weeks before `end`, by date.
 * @param {Visit[]} visits
 * @param {number} end
 * @param {string} zone
 * @returns {Map<string, number>}
 */
export function dayHours(visits, end, zone) {
  const hours = new Map();
  const first = end - YEAR_DAYS * DAY_MS;
  for (const visit of visits) {
    for (let at = Math.max(visit.arrival, first); at < visit.departure;) {
      const own = dateOf(at, zone);
      const next = Math.min(visit.departure, midnight(addDays(own, 1), zone));
      hours.set(own, (hours.get(own) ?? 0) + (next - at) / HOUR_MS);
      at = next;
    }
  }
  return hours;
}

/** @param {number[][]} hours */
function busiest(hours) {
  let [best, bestDay, bestHour] = [0, 0, 0];
  hours.forEach((row, number) => row.forEach((value, hour) => {
    if (value > best) [best, bestDay, bestHour] = [value, number, hour];
  }));
  return best ? t("place.busiest", { weekday: weekdayName(bestDay), hour: hourName(bestHour) }) : t("place.no_time");
}
