// How values are written for people. Units come in as SI, as the platform has them.

export const LIVE_S = 60;
export const RECENT_S = 900;

/** "live", "recent" or "quiet": how long ago a device was last heard of. */
export function ageClass(ageS) {
  if (ageS <= LIVE_S) return "live";
  return ageS <= RECENT_S ? "recent" : "quiet";
}

const LONGEST_AGE_S = 7 * 86400;

/** "now", "42 s", "7 min", "3 h", "5 d", and from a week on the day: "12 Oct", "12 Oct 2019". */
export function shortAge(ageS) {
  if (!Number.isFinite(ageS)) return "";
  if (ageS >= LONGEST_AGE_S) return day(Date.now() - ageS * 1000);
  if (ageS < 5) return "now";
  if (ageS < 60) return `${Math.floor(ageS)} s`;
  if (ageS < 3600) return `${Math.floor(ageS / 60)} min`;
  if (ageS < 86400) return `${Math.floor(ageS / 3600)} h`;
  return `${Math.floor(ageS / 86400)} d`;
}

/** The same as a phrase: "just now", "7 min ago", "on 12 Oct 2019". */
export function agePhrase(ageS) {
  const text = shortAge(ageS);
  if (!text) return "never";
  if (ageS >= LONGEST_AGE_S) return `on ${text}`;
  return text === "now" ? "just now" : `${text} ago`;
}

/** Seconds as "45 min", "7 h 30 min", "3 d 4 h". */
export function duration(s) {
  const minutes = Math.round(s / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return hours % 24 ? `${Math.floor(hours / 24)} d ${hours % 24} h` : `${hours / 24} d`;
}

/** Metres as "8 m", "1.4 km", "312 km". */
export function distance(m) {
  if (m < 1000) return `${Math.round(m)} m`;
  return m < 1e5 ? `${(m / 1000).toFixed(1)} km` : `${Math.round(m / 1000).toLocaleString("en")} km`;
}

/** m/s as km/h. */
export function speed(metresPerSecond) {
  const kmh = metresPerSecond * 3.6;
  return kmh < 10 ? kmh.toFixed(1) : String(Math.round(kmh));
}

const POINTS = ["N", "NE", "E", "SE", "S", "SW", "W", "NW"];

/** Degrees as a point of the compass. */
export function compass(degrees) {
  return POINTS[Math.round((((degrees % 360) + 360) % 360) / 45) % 8];
}

/** A rate per second with as many digits as say something. */
export function rate(perSecond) {
  if (!Number.isFinite(perSecond)) return "–";
  if (perSecond >= 10000) return `${(perSecond / 1000).toFixed(1)}k`;
  if (perSecond >= 100) return Math.round(perSecond).toLocaleString("en");
  if (perSecond >= 10) return perSecond.toFixed(0);
  return perSecond > 0 ? perSecond.toFixed(1) : "0";
}

/** A count: "1,204", "38.2k". */
export function count(n) {
  if (!Number.isFinite(n)) return "–";
  return n >= 100000 ? `${(n / 1000).toFixed(0)}k` : Math.round(n).toLocaleString("en");
}

/** Milliseconds as "12 ms", "1.3 s". */
export function latency(ms) {
  if (!Number.isFinite(ms)) return "–";
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

export function coordinates(lat, lon) {
  return `${lat.toFixed(5)}, ${lon.toFixed(5)}`;
}

const DAY = { day: "numeric", month: "short" };
const CLOCK = { weekday: "short", ...DAY, hour: "2-digit", minute: "2-digit", second: "2-digit" };
const YEAR = { year: "numeric" };
const days = [DAY, { ...DAY, ...YEAR }].map((parts) => new Intl.DateTimeFormat(undefined, parts));
const clocks = [CLOCK, { ...CLOCK, ...YEAR }].map((parts) => new Intl.DateTimeFormat(undefined, parts));

/** With the year where it is not this one. */
function written([inThisYear, inOthers], ms) {
  const date = new Date(ms);
  return (date.getFullYear() === new Date().getFullYear() ? inThisYear : inOthers).format(date);
}

/** A day in the viewer's own time zone. */
export function day(ms) {
  return written(days, ms);
}

/** A moment in the viewer's own time zone. */
export function moment(ms) {
  return written(clocks, ms);
}
