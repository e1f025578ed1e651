// A month as a grid of days; those with data are marked. Arrow keys go from day to day.

import { addDays, addMonths, firstWeekday, midnight, weekday } from "../calendar.js";
import { iconButton, make, setText } from "../dom.js";
import { count, date as written } from "../format.js";
import { locale, t } from "../i18n.js";

const ROWS = 6;
const MONDAY = "1970-01-05";
const STEPS = new Map([["ArrowLeft", -1], ["ArrowRight", 1], ["ArrowUp", -7], ["ArrowDown", 7]]);

export class MonthCalendar extends HTMLElement {
  /** Events: `choose` (detail: a date), `month` (detail: its first day). */
  zone = "UTC";
  month = "1970-01-01";
  first = "1970-01-01";
  last = "1970-01-01";
  today = "1970-01-01";
  /** @type {Map<string, number>} */
  fixes = new Map();
  heading = make("h3", { "aria-live": "polite" });
  grid = make("div", { className: "month-grid", role: "grid", "aria-label": t("diary.calendar") });

  connectedCallback() {
    const step = (/** @type {string} */ icon, /** @type {string} */ label, /** @type {number} */ months) => {
      const button = iconButton(icon, label);
      button.addEventListener("click", () => this.turn(addMonths(this.month, months)));
      return button;
    };
    this.replaceChildren(
      make("div", { className: "month-head" },
        step("previous_year", t("diary.previous_year"), -12), step("previous", t("diary.previous_month"), -1), this.heading,
        step("next", t("diary.next_month"), 1), step("next_year", t("diary.next_year"), 12)),
      this.grid,
    );
    this.grid.addEventListener("keydown", (event) => this.key(event));
  }

  /** @param {string} month its first day */
  turn(month) {
    this.month = month;
    this.draw();
    this.dispatchEvent(new CustomEvent("month", { detail: month }));
  }

  /**
   * @param {{first: string, last: string, today: string, zone: string}} chosen
   */
  show(chosen) {
    Object.assign(this, chosen);
    const month = `${chosen.last.slice(0, 7)}-01`;
    if (month !== this.month) this.turn(month);
    else this.draw();
  }

  /** @param {Map<string, number>} fixes of each date */
  mark(fixes) {
    this.fixes = fixes;
    this.draw();
  }

  /**
   * @param {string} date
   * @param {"month" | "longDay" | "weekdayLetter" | "weekday"} form
   */
  name(date, form) {
    return written(midnight(date, this.zone) + 12 * 3600e3, form, this.zone);
  }

  draw() {
    setText(this.heading, this.name(this.month, "month"));
    const begin = firstWeekday(locale);
    const first = addDays(this.month, -((weekday(this.month) - begin + 7) % 7));
    const most = Math.max(1, ...this.fixes.values());
    const focused = this.grid.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement).dataset.date : null;
    const names = Array.from({ length: 7 }, (_, number) => {
      const day = addDays(MONDAY, begin + number);
      return make("span", { role: "columnheader", className: "weekday", "aria-label": this.name(day, "weekday"), text: this.name(day, "weekdayLetter") });
    });
    const rows = Array.from({ length: ROWS }, (_, row) => make("div", { role: "row", className: "week" },
      ...Array.from({ length: 7 }, (_day, column) => this.cell(addDays(first, row * 7 + column), most))));
    this.grid.replaceChildren(make("div", { role: "row", className: "week" }, ...names), ...rows);
    if (focused) this.focusOn(focused);
  }

  /**
   * @param {string} date
   * @param {number} most
   */
  cell(date, most) {
    const fixes = this.fixes.get(date) ?? 0;
    const within = this.first <= date && date <= this.last;
    const said = fixes ? t("diary.day_with_data", { day: this.name(date, "longDay"), count: fixes, shown: count(fixes) }) : this.name(date, "longDay");
    const button = make("button", { type: "button", "data-date": date, "aria-label": said, title: said,
      tabindex: date === this.last ? "0" : "-1", disabled: date > this.today,
      className: ["day", date.slice(0, 7) === this.month.slice(0, 7) ? "" : "other", date === this.today ? "today" : "", fixes ? "has" : ""].filter(Boolean).join(" "),
    }, make("span", { text: String(Number(date.slice(8))) }), fixes ? make("i", { style: `--share: ${(0.35 + 0.65 * Math.sqrt(fixes / most)).toFixed(2)}` }) : null);
    button.addEventListener("click", () => this.dispatchEvent(new CustomEvent("choose", { detail: date })));
    return make("div", { role: "gridcell", "aria-selected": String(within) }, button);
  }

  /** @param {string} date */
  focusOn(date) {
    const button = /** @type {HTMLElement | null} */ (this.grid.querySelector(`[data-date="${date}"]`));
    button?.focus();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const step = STEPS.get(event.key);
    const at = event.target instanceof HTMLElement ? event.target.dataset.date : undefined;
    if (!step || !at) return;
    event.preventDefault();
    const next = addDays(at, step);
    if (next > this.today) return;
    if (next.slice(0, 7) !== this.month.slice(0, 7)) this.turn(`${next.slice(0, 7)}-01`);
    this.focusOn(next);
  }
}
customElements.define("month-calendar", MonthCalendar);
