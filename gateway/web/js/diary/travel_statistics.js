// Totals by day, week, month or year: two small charts, and the same as a table.

import * as api from "../api.js";
import { addDays, midnight } from "../calendar.js";
import { townOf } from "../device_store.js";
import { make } from "../dom.js";
import { date, distance, duration, number, speed } from "../format.js";
import { locale, t } from "../i18n.js";

/** @import { Span, Total } from "../types/api.js" */

/** @type {Record<Span, string>} */
const NAMES = { day: t("statistics.day"), week: t("statistics.week"), month: t("statistics.month"), year: t("statistics.year") };
const POINTS_MAX = 1000;
const TOWNS_SHOWN = 4;

/**
 * What is added up by, so that a chart has some dozens of bars.
 * @param {number} days
 * @returns {Span}
 */
export function spanFor(days) {
  if (days <= 45) return "day";
  if (days <= 200) return "week";
  return days <= 1500 ? "month" : "year";
}

export class TravelStatistics extends HTMLElement {
  /** Events: `span` (detail: a Span), `choose` (detail: {first, last}, dates). */
  zone = "UTC";
  /** @type {Span} */
  span = "day";
  /** @type {Map<string, HTMLElement>} */
  townCells = new Map();

  spans = new Map(/** @type {Span[]} */ (Object.keys(NAMES)).map((span) => {
    const button = make("button", { type: "button", text: NAMES[span], "aria-pressed": "false" });
    button.addEventListener("click", () => this.dispatchEvent(new CustomEvent("span", { detail: span })));
    return [span, button];
  }));

  /**
   * @param {Total[]} totals
   * @param {{span: Span, zone: string, signal: AbortSignal}} options
   */
  async show(totals, { span, zone, signal }) {
    Object.assign(this, { span, zone });
    for (const [own, button] of this.spans) button.setAttribute("aria-pressed", String(own === span));
    const choice = make("div", { className: "segmented", role: "group", "aria-label": t("statistics.by") }, ...this.spans.values());
    if (!totals.length) {
      this.replaceChildren(choice, make("p", { className: "none", text: t("statistics.empty") }));
      return;
    }
    this.replaceChildren(choice, this.sums(totals),
      this.chart(totals, t("statistics.distance"), (total) => total.distance_m, distance),
      this.chart(totals, t("statistics.moving"), (total) => total.moving_s, duration),
      this.table(totals));
    await this.nameTowns(totals, signal);
  }

  /** @param {Total[]} totals */
  sums(totals) {
    const sum = (/** @type {(total: Total) => number} */ of) => totals.reduce((all, total) => all + of(total), 0);
    /** @type {[string, string][]} */
    const facts = [
      [t("statistics.distance"), distance(sum((total) => total.distance_m))],
      [t("statistics.moving"), duration(sum((total) => total.moving_s))],
      [t("statistics.trips"), number(sum((total) => total.trips))],
    ];
    return make("dl", { className: "facts" }, ...facts.map(([name, value]) => make("div", {}, make("dt", { text: name }), make("dd", { text: value }))));
  }

  /**
   * @param {string} first the first day of a total
   * @param {boolean} [short]
   */
  name(first, short = false) {
    const ms = midnight(first, this.zone) + 12 * 3600e3;
    if (this.span === "year") return date(ms, "year", this.zone);
    if (this.span === "month") return date(ms, short ? "shortMonth" : "month", this.zone);
    return date(ms, short || this.span === "week" ? "day" : "shortDay", this.zone);
  }

  /**
   * @param {Total[]} totals
   * @param {string} title
   * @param {(total: Total) => number} of
   * @param {(value: number) => string} write
   */
  chart(totals, title, of, write) {
    const most = Math.max(1e-9, ...totals.map(of));
    const bars = totals.map((total) => {
      const bar = make("span", { title: t("statistics.bar", { name: this.name(total.date), value: write(of(total)) }) });
      bar.style.setProperty("--share", String(Math.max(of(total) > 0 ? 0.02 : 0, of(total) / most)));
      return bar;
    });
    const best = totals.reduce((a, b) => (of(b) > of(a) ? b : a));
    const said = t("statistics.chart", { title, value: write(of(best)), name: this.name(best.date) });
    return make("figure", { className: "bars" },
      make("figcaption", {}, make("span", { text: title }), make("span", { className: "most", text: t("statistics.most", { value: write(most) }) })),
      make("div", { className: "columns", role: "img", "aria-label": said }, ...bars),
      make("div", { className: "ends", "aria-hidden": "true" },
        make("span", { text: this.name(totals[0]?.date ?? "", true) }), make("span", { text: totals.length > 1 ? this.name(totals.at(-1)?.date ?? "", true) : "" })));
  }

  /** @param {Total[]} totals */
  table(totals) {
    this.townCells.clear();
    const head = [NAMES[this.span], t("statistics.distance"), t("statistics.moving"), t("statistics.trips"), t("statistics.fastest")];
    const rows = [...totals].reverse().map((total) => {
      const towns = make("td", { className: "towns", colspan: "5" });
      this.townCells.set(total.date, towns);
      const open = make("button", { type: "button", className: "link", text: this.name(total.date) });
      open.addEventListener("click", () => this.dispatchEvent(new CustomEvent("choose", { detail: { first: total.date, last: this.lastOf(total.date) } })));
      return [
        make("tr", {}, make("th", { scope: "row" }, open), ...[distance(total.distance_m), duration(total.moving_s), number(total.trips), total.fastest ? speed(total.fastest) : "–"].map((text) => make("td", { text }))),
        make("tr", { className: "of", hidden: true }, towns),
      ];
    });
    return make("div", { className: "table-box", tabindex: "0", role: "region", "aria-label": t("statistics.table") },
      make("table", {}, make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col", text })))), make("tbody", {}, ...rows.flat())));
  }

  /** @param {string} first */
  lastOf(first) {
    if (this.span === "day") return first;
    if (this.span === "week") return addDays(first, 6);
    const [year = 1970, month = 1] = first.split("-").map(Number);
    return new Date(Date.UTC(this.span === "year" ? year + 1 : year, this.span === "year" ? 0 : month, 0)).toISOString().slice(0, 10);
  }

  /**
   * Name the towns and countries of each total, where there is a geocoder.
   * @param {Total[]} totals
   * @param {AbortSignal} signal
   */
  async nameTowns(totals, signal) {
    const points = new Map(totals.flatMap((total) => total.visited.map((place) => /** @type {const} */ ([place.join(), place]))).slice(0, POINTS_MAX));
    /** @type {import("../types/api.js").GeocodedPlace[]} */
    let found = [];
    try { found = await api.addresses([...points.values()], signal); } catch { return; }
    if (signal.aborted) return;
    const byPoint = new Map([...points.keys()].map((key, index) => [key, found[index]?.address]));
    const list = new Intl.ListFormat(locale, { type: "unit" });
    for (const total of totals) {
      const towns = new Set();
      const countries = new Set();
      for (const place of total.visited) {
        const own = byPoint.get(place.join());
        if (!own) continue;
        const town = townOf(own) ?? own.county ?? own.state;
        if (town) towns.add(town);
        if (own.country) countries.add(own.country);
      }
      const cell = this.townCells.get(total.date);
      if (!cell || !towns.size) continue;
      const names = [...towns].slice(0, TOWNS_SHOWN);
      const more = towns.size - names.length;
      cell.textContent = t("statistics.towns", { towns: list.format(more ? [...names, t("statistics.more", { count: more })] : names), countries: list.format(countries) });
      cell.parentElement?.removeAttribute("hidden");
    }
  }
}
customElements.define("travel-statistics", TravelStatistics);
