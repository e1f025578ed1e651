// The timeline of a day as a list: stays, trips, and gaps.

import { dateOf } from "../calendar.js";
import { drawAnew, make } from "../dom.js";
import { clock, date, distance, duration, speed } from "../format.js";
import { t } from "../i18n.js";

/** @import { TimelineItem } from "../types/api.js" */
/** @typedef {{title: string, detail: string, icon: string}} Words what is written of an item */

export class DayTimeline extends HTMLElement {
  /** Events: `choose` (detail: an item). */
  zone = "UTC";
  /** @type {Map<TimelineItem, HTMLButtonElement>} */
  buttons = new Map();

  /**
   * @param {TimelineItem[]} items
   * @param {{fromMs: number, toMs: number, zone: string, wordsOf: (item: TimelineItem) => Words}} options
   */
  show(items, { fromMs, toMs, zone, wordsOf }) {
    this.zone = zone;
    this.buttons.clear();
    const severalDays = toMs - fromMs > 25 * 3600e3;
    /** @type {HTMLElement[]} */
    const parts = [];
    let day = "";
    let list = make("ol", { className: "timeline" });
    if (!severalDays) parts.push(list);
    for (const item of items) {
      const own = dateOf(Math.max(item.start, fromMs), zone);
      if (severalDays && own !== day) {
        day = own;
        list = make("ol", { className: "timeline" });
        parts.push(make("h3", { className: "timeline-day", text: date(Math.max(item.start, fromMs), "longDay", zone) }), list);
      }
      list.append(this.row(item, wordsOf(item), fromMs, toMs));
    }
    drawAnew(this, () => this.replaceChildren(...parts));
  }

  /**
   * @param {TimelineItem} item
   * @param {Words} words
   * @param {number} fromMs
   * @param {number} toMs
   */
  row(item, words, fromMs, toMs) {
    const button = make("button", { type: "button", className: "entry", "data-key": `${item.kind} ${item.start}` },
      make("span", { className: "when" }, this.bound(item.start, fromMs, toMs), make("span", { className: "end" }, this.bound(item.end, fromMs, toMs))),
      make("span", { className: "rail" }, make("svg-icon", { name: words.icon })),
      make("span", { className: "what" },
        make("span", { className: "title", text: words.title }),
        words.detail ? make("span", { className: "detail", text: words.detail }) : null));
    button.addEventListener("click", () => this.dispatchEvent(new CustomEvent("choose", { detail: item })));
    this.buttons.set(item, button);
    return make("li", { className: item.kind }, button);
  }

  /**
   * A time of day, with its date where it is of another day than those that are shown.
   * @param {number} time
   * @param {number} fromMs
   * @param {number} toMs
   */
  bound(time, fromMs, toMs) {
    const text = clock(time, this.zone);
    return time < fromMs || time >= toMs
      ? make("time", {}, make("small", { text: date(time, "day", this.zone) }), text)
      : make("time", { text });
  }

  /** @param {TimelineItem | null} item */
  mark(item) {
    for (const [own, button] of this.buttons) {
      if (own === item) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
  }

  /** @param {TimelineItem} item */
  reveal(item) {
    this.buttons.get(item)?.scrollIntoView({ block: "nearest" });
  }
}
customElements.define("day-timeline", DayTimeline);

/**
 * What is written of an item.
 * @param {TimelineItem} item
 * @param {{title: string, rest: string, icon: string} | null} place of a stay, where it is known
 * @returns {Words}
 */
export function wordsOf(item, place) {
  const lasted = duration((item.end - item.start) / 1000);
  if (item.kind === "gap") {
    return { title: t("diary.gap"), icon: "gap", detail: t("diary.gap_detail", { duration: lasted, distance: distance(item.distance_m) }) };
  }
  if (item.kind === "trip") {
    const seconds = (item.end - item.start) / 1000;
    return {
      title: t(item.ended ? "diary.trip" : "diary.trip_on", { distance: distance(item.distance_m), duration: lasted }), icon: "trip",
      detail: t("diary.trip_speeds", { mean: speed(seconds > 0 ? item.distance_m / seconds : 0), top: speed(item.fastest) }),
    };
  }
  const silent = item.silent_s >= 3600 ? t("diary.silent", { duration: duration(item.silent_s) }) : "";
  return {
    title: place?.title ?? t("diary.stay"), icon: place?.icon ?? "pin",
    detail: [lasted, place?.rest, silent].filter(Boolean).join(" · "),
  };
}
