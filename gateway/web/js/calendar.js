// Days of a time zone. A date is written YYYY-MM-DD.

export const HOUR_MS = 3600e3;
export const DAY_MS = 86400e3;
const QUARTER_MS = 15 * 60e3; // offsets change at quarters of an hour

/** @type {Map<string, Intl.DateTimeFormat>} */
const formats = new Map();
/** @type {Map<string, number>} */
const offsets = new Map();
const OFFSETS_MAX = 20000;

/**
 * How far the clocks of a zone are ahead of UTC, in ms.
 * @param {number} ms
 * @param {string} zone
 */
export function offsetAt(ms, zone) {
  const quarter = Math.floor(ms / QUARTER_MS);
  const key = `${zone} ${quarter}`;
  const known = offsets.get(key);
  if (known !== undefined) return known;
  let format = formats.get(zone);
  if (!format) {
    formats.set(zone, format = new Intl.DateTimeFormat("en-u-ca-iso8601-nu-latn", {
      timeZone: zone, hourCycle: "h23", year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric",
    }));
  }
  /** @type {Record<string, number>} */
  const parts = {};
  for (const { type, value } of format.formatToParts(quarter * QUARTER_MS)) parts[type] = Number(value);
  const { year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0 } = parts;
  const offset = Date.UTC(year, month - 1, day, hour, minute, second) - quarter * QUARTER_MS;
  if (offsets.size >= OFFSETS_MAX) offsets.clear();
  offsets.set(key, offset);
  return offset;
}

/**
 * @param {number} ms
 * @param {string} zone
 */
export function dateOf(ms, zone) {
  return new Date(ms + offsetAt(ms, zone)).toISOString().slice(0, 10);
}

/**
 * When a date begins, ms.
 * @param {string} date
 * @param {string} zone
 */
export function midnight(date, zone) {
  const utc = Date.parse(`${date}T00:00:00Z`);
  const guess = utc - offsetAt(utc, zone);
  // The clocks may have changed between UTC's midnight and the zone's.
  return utc - offsetAt(guess, zone);
}

/**
 * @param {string} date
 * @param {number} days
 */
export function addDays(date, days) {
  return new Date(Date.parse(`${date}T00:00:00Z`) + days * DAY_MS).toISOString().slice(0, 10);
}

/**
 * The first day of the month that is so many months later.
 * @param {string} date
 * @param {number} months
 */
export function addMonths(date, months) {
  const [year = 1970, month = 1] = date.split("-").map(Number);
  return new Date(Date.UTC(year, month - 1 + months, 1)).toISOString().slice(0, 10);
}

/**
 * 0 for a Monday to 6 for a Sunday.
 * @param {string} date
 */
export function weekday(date) {
  return (new Date(`${date}T00:00:00Z`).getUTCDay() + 6) % 7;
}

/** @param {unknown} text */
export function isDate(text) {
  return typeof text === "string" && /^\d{4}-\d\d-\d\d$/.test(text) && !Number.isNaN(Date.parse(`${text}T00:00:00Z`));
}

/**
 * The weekday, 0 to 6, on which weeks begin in a region, 0 for Monday.
 * @param {string} locale
 */
export function firstWeekday(locale) {
  const own = /** @type {{getWeekInfo?: () => {firstDay: number}, weekInfo?: {firstDay: number}}} */ (
    /** @type {unknown} */ (new Intl.Locale(locale)));
  return ((own.getWeekInfo?.() ?? own.weekInfo)?.firstDay ?? 1) - 1;
}
