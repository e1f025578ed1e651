// How values are written for people: in the viewer's language, units, clock and time zone.
// Units come in as SI, as the platform has them.

import { locale, t } from "./i18n.js";
import { settings } from "./settings.js";

export const LIVE_S = 60;
export const RECENT_S = 900;
/** A fix that arrived this much later than its time is of another time than now. */
export const LATE_MS = 15 * 60e3;

const MINUTE_S = 60;
const HOUR_S = 3600;
const DAY_S = 86400;
const METRES_PER_MILE = 1609.344;
const METRES_PER_FOOT = 0.3048;
const METRES_PER_NAUTICAL_MILE = 1852;

/** @typedef {{value: string, unit: string}} Quantity a number and its unit, each as it is written */

/**
 * How long ago a device was last heard of.
 * @param {number} ageS
 * @returns {"live" | "recent" | "quiet"}
 */
export function ageClass(ageS) {
  if (ageS <= LIVE_S) return "live";
  return ageS <= RECENT_S ? "recent" : "quiet";
}

const relative = new Intl.RelativeTimeFormat(locale, { numeric: "always" });

/** @type {[number, Intl.RelativeTimeFormatUnit][]} the length of each unit in seconds */
const AGES = [[365.25 * DAY_S, "year"], [30.44 * DAY_S, "month"], [DAY_S, "day"], [HOUR_S, "hour"], [MINUTE_S, "minute"], [1, "second"]];

/**
 * "just now", "7 minutes ago", "2 years ago"; empty where it is unknown.
 * @param {number} ageS
 */
export function agePhrase(ageS) {
  if (!Number.isFinite(ageS)) return "";
  if (ageS < 5) return t("age.now");
  for (const [length, unit] of AGES) if (ageS >= length) return relative.format(-Math.floor(ageS / length), unit);
  return t("age.now");
}

/**
 * Seconds as "45 min", "7 h 30 min", "3 d 4 h".
 * @param {number} s
 */
export function duration(s) {
  const minutes = Math.round(s / MINUTE_S);
  if (minutes < 60) return t("duration.minutes", { minutes });
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? t("duration.hours_minutes", { hours, minutes: minutes % 60 }) : t("duration.hours", { hours });
  const days = Math.floor(hours / 24);
  return hours % 24 ? t("duration.days_hours", { days, hours: hours % 24 }) : t("duration.days", { days });
}

/** @type {Map<number, Intl.NumberFormat>} */
const numbers = new Map();

/**
 * @param {number} value
 * @param {number} [digits] behind the decimal sign
 */
export function number(value, digits = 0) {
  let format = numbers.get(digits);
  if (!format) numbers.set(digits, format = new Intl.NumberFormat(locale, { minimumFractionDigits: digits, maximumFractionDigits: digits }));
  return format.format(value);
}

/**
 * @param {number} m a length on the ground
 * @returns {Quantity} "8 m", "1.4 km", "312 km"
 */
export function length(m) {
  const { units } = settings.current;
  if (units === "imperial") {
    const miles = m / METRES_PER_MILE;
    if (miles < 0.1) return { value: number(m / METRES_PER_FOOT), unit: t("unit.foot") };
    return { value: number(miles, miles < 100 ? 1 : 0), unit: t("unit.mile") };
  }
  const [long, unit] = units === "nautical" ? [METRES_PER_NAUTICAL_MILE, t("unit.nautical_mile")] : [1000, t("unit.kilometre")];
  if (m < long) return { value: number(m), unit: t("unit.metre") };
  return { value: number(m / long, m / long < 100 ? 1 : 0), unit };
}

/** @param {number} m */
export function distance(m) {
  return together(length(m));
}

/**
 * @param {number} m above the sea
 * @returns {Quantity}
 */
export function elevation(m) {
  return settings.current.units === "imperial" ? { value: number(m / METRES_PER_FOOT), unit: t("unit.foot") } : { value: number(m), unit: t("unit.metre") };
}

/**
 * @param {number} metresPerSecond
 * @returns {Quantity}
 */
export function speedOf(metresPerSecond) {
  const { units } = settings.current;
  const [metres, unit] = units === "imperial" ? [METRES_PER_MILE, t("unit.miles_per_hour")]
    : units === "nautical" ? [METRES_PER_NAUTICAL_MILE, t("unit.knot")] : [1000, t("unit.kilometres_per_hour")];
  const value = (metresPerSecond * HOUR_S) / metres;
  return { value: number(value, value < 10 ? 1 : 0), unit };
}

/** @param {number} metresPerSecond */
export function speed(metresPerSecond) {
  return together(speedOf(metresPerSecond));
}

/** @param {Quantity} quantity */
function together({ value, unit }) {
  return `${value} ${unit}`;
}

/** @param {number} share of one hundred */
export function percent(share) {
  return t("unit.percent", { value: number(share) });
}

/**
 * Degrees as a point of the compass.
 * @param {number} degrees
 */
export function compass(degrees) {
  const points = t("compass.points").split(" ");
  return points[Math.round((((degrees % 360) + 360) % 360) / 45) % 8] ?? "";
}

/**
 * A rate per second with as many digits as say something.
 * @param {number} perSecond
 */
export function rate(perSecond) {
  if (!Number.isFinite(perSecond)) return "–";
  if (perSecond >= 10000) return t("number.thousands", { value: number(perSecond / 1000, 1) });
  return number(perSecond, perSecond > 0 && perSecond < 10 ? 1 : 0);
}

/** @param {number} n a count: "1,204", "382k" */
export function count(n) {
  if (!Number.isFinite(n)) return "–";
  return n >= 100000 ? t("number.thousands", { value: number(n / 1000) }) : number(n);
}

/**
 * @param {number} ms
 * @returns {Quantity} "12 ms", "1.3 s"
 */
export function latencyOf(ms) {
  return ms < 1000 ? { value: number(ms), unit: t("unit.millisecond") } : { value: number(ms / 1000, 1), unit: t("unit.second") };
}

/** @param {number} ms */
export function latency(ms) {
  return Number.isFinite(ms) ? together(latencyOf(ms)) : "–";
}

/**
 * @param {number} lat
 * @param {number} lon
 */
export function coordinates(lat, lon) {
  return `${lat.toFixed(5)}, ${lon.toFixed(5)}`;
}

/** @type {Record<string, Intl.DateTimeFormatOptions>} */
const FORMS = {
  day: { day: "numeric", month: "short" },
  dayOfYear: { day: "numeric", month: "short", year: "numeric" },
  numericDay: { day: "numeric", month: "numeric", year: "numeric" },
  longDay: { weekday: "long", day: "numeric", month: "long", year: "numeric" },
  headDay: { weekday: "short", day: "numeric", month: "long", year: "numeric" },
  shortDay: { weekday: "short", day: "numeric", month: "short" },
  month: { month: "long", year: "numeric" },
  shortMonth: { month: "short" },
  year: { year: "numeric" },
  clock: { hour: "numeric", minute: "2-digit" },
  hour: { hour: "numeric" },
  clockOfDay: { weekday: "short", day: "numeric", month: "short", hour: "numeric", minute: "2-digit", second: "2-digit" },
  clockOfYear: { weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "numeric", minute: "2-digit", second: "2-digit" },
  weekday: { weekday: "short" },
  weekdayLetter: { weekday: "narrow" },
};
/** @type {Map<string, Intl.DateTimeFormat>} */
const dates = new Map();

/**
 * A time in one of the FORMS.
 * @param {number} ms
 * @param {keyof typeof FORMS} form
 * @param {string} [zone] of the place, where it is known
 */
export function date(ms, form, zone) {
  return formatOf(form, zone).format(ms);
}

/**
 * Two days in one phrase: "25 Aug – 31 Dec 2011".
 * @param {number} fromMs
 * @param {number} toMs
 * @param {string} [zone]
 */
export function dayRange(fromMs, toMs, zone) {
  return formatOf("dayOfYear", zone).formatRange(fromMs, toMs);
}

/**
 * @param {keyof typeof FORMS} form
 * @param {string} [zone]
 */
function formatOf(form, zone) {
  const own = zoneOf(zone);
  const key = `${form} ${own} ${settings.current.clock}`;
  let format = dates.get(key);
  if (!format) {
    const options = { ...FORMS[form], timeZone: own };
    const { clock } = settings.current;
    if (options.hour && clock === "12") options.hour12 = true;
    if (options.hour && clock === "24") options.hourCycle = "h23";
    dates.set(key, format = new Intl.DateTimeFormat(locale, options));
  }
  return format;
}

/**
 * The time zone in which times are shown, as the viewer has chosen.
 * @param {string} [place] the zone of the place, where it is known
 */
export function zoneOf(place) {
  const { zone } = settings.current;
  if (zone === "viewer") return new Intl.DateTimeFormat().resolvedOptions().timeZone;
  return zone === "place" ? place ?? new Intl.DateTimeFormat().resolvedOptions().timeZone : zone;
}

/**
 * A day, with the year where it is not this one.
 * @param {number} ms
 * @param {string} [zone]
 */
export function day(ms, zone) {
  return date(ms, isThisYear(ms) ? "day" : "dayOfYear", zone);
}

/**
 * A moment to the second, with the year where it is not this one.
 * @param {number} ms
 * @param {string} [zone]
 */
export function moment(ms, zone) {
  return date(ms, isThisYear(ms) ? "clockOfDay" : "clockOfYear", zone);
}

/**
 * "14:05" or "2:05 PM".
 * @param {number} ms
 * @param {string} [zone]
 */
export function clock(ms, zone) {
  return date(ms, "clock", zone);
}

/** @param {number} ms */
function isThisYear(ms) {
  return new Date(ms).getFullYear() === new Date().getFullYear();
}
