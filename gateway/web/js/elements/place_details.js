// One favourite place: which hours of the week and which days of a year were spent there.

import { duration, moment } from "../format.js";
import { make, setText } from "./svg_icon.js";

const HOUR_MS = 3600e3;
const DAY_MS = 86400e3;
const YEAR_DAYS = 371; // 53 weeks
const DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const VISITS_SHOWN = 12;

customElements.define("place-details", class extends HTMLElement {
  connectedCallback() {
    if (this.summary) return;
    this.summary = make("p", { className: "summary" });
    this.week = make("div", { className: "week-grid", role: "img" });
    this.year = make("div", { className: "year-grid", role: "img" });
    this.visits = make("ol", { className: "visits" });
    this.replaceChildren(
      this.summary,
      make("h4", { text: "Hours of the week" }), this.week,
      make("h4", { text: "A year" }), this.year,
      make("h4", { text: "Last visits" }), this.visits,
    );
  }

  /** `visits` of this place alone, by time; `now` is where the year ends. */
  show(visits, now) {
    const dwell = visits.reduce((sum, visit) => sum + visit.departure - visit.arrival, 0);
    setText(this.summary, visits.length
      ? `${visits.length} ${visits.length === 1 ? "visit" : "visits"} in a year, ${duration(dwell / 1000 / visits.length)} each on average`
      : "No visit within the last year.");
    this.drawWeek(weekHours(visits));
    this.drawYear(dayHours(visits, now), now);
    this.visits.replaceChildren(...visits.slice(-VISITS_SHOWN).reverse().map((visit) => make("li", {},
      make("span", { text: moment(visit.arrival) }),
      make("span", { className: "dwell", text: duration((visit.departure - visit.arrival) / 1000) }))));
  }

  drawWeek(hours) {
    const most = Math.max(...hours.flat(), 1e-9);
    const cells = [make("span", {})];
    for (let hour = 0; hour < 24; hour++) cells.push(make("span", { className: "tick", text: hour % 6 ? "" : String(hour) }));
    hours.forEach((row, day) => {
      cells.push(make("span", { className: "tick", text: DAYS[day] }));
      row.forEach((value, hour) => cells.push(cell(value / most,
        `${DAYS[day]} ${hour}:00, ${duration(value * 3600)}`)));
    });
    this.week.replaceChildren(...cells);
    this.week.setAttribute("aria-label", busiest(hours));
  }

  drawYear(hours, now) {
    const first = weekStart(now) - (YEAR_DAYS - 7) * DAY_MS;
    const cells = [];
    for (let number = 0; number < YEAR_DAYS; number++) {
      const day = startOfDay(first + number * DAY_MS + 12 * HOUR_MS);
      if (day > now) break;
      const value = hours.get(day) ?? 0;
      cells.push(cell(Math.min(1, value / 8), `${new Date(day).toLocaleDateString()}, ${duration(value * 3600)}`));
    }
    this.year.replaceChildren(...cells);
    this.year.setAttribute("aria-label", `Days with a visit: ${hours.size}`);
  }
});

function cell(share, title) {
  const element = make("span", { className: "cell", title });
  // What is hardly used is still told from what is not.
  element.style.setProperty("--share", share > 0 ? String(Math.round(15 + 85 * share)) : "0");
  return element;
}

/** Hours spent in each hour of the local week: 7 rows from Monday, 24 columns. */
export function weekHours(visits) {
  const hours = Array.from({ length: 7 }, () => new Array(24).fill(0));
  for (const visit of visits) {
    for (let at = visit.arrival; at < visit.departure;) {
      const date = new Date(at);
      const next = Math.min(visit.departure, nextHour(date));
      hours[(date.getDay() + 6) % 7][date.getHours()] += (next - at) / HOUR_MS;
      at = next;
    }
  }
  return hours;
}

/** Hours spent on each day of the last 53 weeks, by the start of the local day. */
export function dayHours(visits, now) {
  const hours = new Map();
  const first = now - YEAR_DAYS * DAY_MS;
  for (const visit of visits) {
    for (let at = Math.max(visit.arrival, first); at < visit.departure;) {
      const day = startOfDay(at);
      // A day has 23 to 25 hours.
      const next = Math.min(visit.departure, startOfDay(day + 36 * HOUR_MS));
      hours.set(day, (hours.get(day) ?? 0) + (next - at) / HOUR_MS);
      at = next;
    }
  }
  return hours;
}

/** Where the next full hour of the local clock begins; zones may be half an hour off. */
function nextHour(date) {
  const past = ((date.getMinutes() * 60 + date.getSeconds()) * 1000) + date.getMilliseconds();
  return date.getTime() + HOUR_MS - past;
}

function startOfDay(time) {
  const date = new Date(time);
  return new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();
}

function weekStart(time) {
  const date = new Date(time);
  return new Date(date.getFullYear(), date.getMonth(), date.getDate() - ((date.getDay() + 6) % 7)).getTime();
}

function busiest(hours) {
  let best = [0, 0];
  hours.forEach((row, day) => row.forEach((value, hour) => { if (value > hours[best[0]][best[1]]) best = [day, hour]; }));
  return hours[best[0]][best[1]] ? `Most time on ${DAYS[best[0]]} at ${best[1]}:00` : "No time in this year";
}
