// What a device did: a calendar, the timeline of a day or of some days, the way on the map with a
// player, and statistics. Each part is asked for when it is opened.

import * as api from "../api.js";
import { addDays, addMonths, dateOf, DAY_MS, isDate, midnight } from "../calendar.js";
import { addressLines } from "../device_store.js";
import { wordsOf } from "../diary/day_timeline.js";
import "../diary/day_player.js";
import { DiaryMap } from "../diary/diary_map.js";
import { itemAt, momentAt, placesOf, sums } from "../diary/journey.js";
import "../diary/month_calendar.js";
import { make, setText } from "../dom.js";
import { compass, coordinates, date, dayRange, distance, duration, zoneOf } from "../format.js";
import { t } from "../i18n.js";
import { iconOf, titled } from "../places.js";
import { settings } from "../settings.js";
import { bearing, metresBetween } from "../tracks.js";

/** @import { App } from "../app.js" */
/** @import { Words } from "../diary/day_timeline.js" */
/** @import { View } from "../navigation.js" */
/** @import { TitledPlace } from "../places.js" */
/** @import { Span, TimelineItem } from "../types/api.js" */
/** @import { State } from "../url_state.js" */
/** @typedef {{title: string, rest: string, icon: string}} KnownPlace */

const TIMELINE_DAYS_MAX = 31;
const REFRESH_MS = 60e3;
const NEAR_M = 150;
const ASK_PLACE_MS = 700;
/** Where the window is lower, the calendar would leave no room for the timeline. */
const TALL_PX = 1000;

/**
 * @param {App} app
 * @param {HTMLElement} room
 * @returns {View}
 */
export function open(app, room) {
  return new DiaryView(app, room);
}

/** @typedef {{key: string, title: string, range: (today: string) => [first: string, last: string]}} Preset */
/** @type {Preset[]} */
const PRESETS = [
  { key: "today", title: t("diary.today"), range: (today) => [today, today] },
  { key: "yesterday", title: t("diary.yesterday"), range: (today) => [addDays(today, -1), addDays(today, -1)] },
  { key: "7", title: t("diary.week"), range: (today) => [addDays(today, -6), today] },
  { key: "30", title: t("diary.thirty_days"), range: (today) => [addDays(today, -29), today] },
  { key: "month", title: t("diary.this_month"), range: (today) => [`${today.slice(0, 7)}-01`, today] },
  { key: "year", title: t("diary.this_year"), range: (today) => [`${today.slice(0, 4)}-01-01`, today] },
];

class DiaryView {
  shown = false;
  zone = zoneOf();
  /** @type {string | null} */
  device = null;
  first = "";
  last = "";
  /** @type {"timeline" | "statistics"} */
  tab = "timeline";
  /** @type {Span | null} */
  span = null;
  /** @type {TimelineItem[]} */
  items = [];
  /** @type {import("../diary/day_timeline.js").DayTimeline | null} */
  timeline = null;
  /** @type {Map<TimelineItem, KnownPlace>} */
  known = new Map();
  /** @type {TitledPlace[]} */
  places = [];
  /** @type {AbortController | undefined} */
  loading;
  /** @type {Map<string, Map<string, number>>} */
  months = new Map();
  loadedAt = 0;
  staleToday = false;
  askedPlaceAt = 0;
  /** @type {number | undefined} */
  placeTimer;

  devices = make("select", { "aria-label": t("diary.device") });
  previous = this.stepButton("previous", t("diary.previous"), -1);
  next = this.stepButton("next", t("diary.next"), 1);
  period = make("button", { type: "button", className: "period", "aria-expanded": "true", "aria-controls": "diary-calendar" });
  calendar = make("month-calendar", { id: "diary-calendar" });
  until = make("input", { type: "date", "aria-label": t("diary.last_day") });
  from = make("input", { type: "date", "aria-label": t("diary.first_day") });
  presets = make("div", { className: "presets", role: "group", "aria-label": t("diary.presets") });
  tabs = new Map(/** @type {const} */ (["timeline", "statistics"]).map((tab) => {
    const button = make("button", { type: "button", text: t(tab === "timeline" ? "diary.timeline" : "diary.statistics"), "aria-pressed": "false" });
    button.addEventListener("click", () => { this.tab = tab; this.load(); });
    return [tab, button];
  }));
  summary = make("p", { className: "day-summary", "aria-live": "polite" });
  list = make("div", { className: "diary-list" });
  player = make("day-player", { hidden: true });

  /**
   * @param {App} app
   * @param {HTMLElement} room
   */
  constructor(app, room) {
    this.app = app;
    this.map = new DiaryMap(app.map);
    this.picker = make("div", { className: "calendar-box" }, this.calendar,
      make("div", { className: "range" }, this.from, make("span", { text: "–", "aria-hidden": "true" }), this.until), this.presets);
    this.deviceBox = make("div", { className: "diary-device" }, this.devices);
    room.append(make("div", { className: "diary-body", tabindex: "-1" },
      this.deviceBox,
      make("div", { className: "diary-head" }, this.previous, this.period, this.next),
      this.picker,
      make("div", { className: "segmented diary-tabs", role: "group", "aria-label": t("diary.show") }, ...this.tabs.values()),
      this.summary, this.list));
    document.body.append(this.player);
    this.setPickerOpen(innerHeight > TALL_PX && innerWidth > 720);
    this.listen();
  }

  /**
   * @param {string} icon
   * @param {string} label
   * @param {number} step
   */
  stepButton(icon, label, step) {
    const button = make("button", { className: "icon-button", type: "button", "aria-label": label, title: label }, make("svg-icon", { name: icon }));
    button.addEventListener("click", () => {
      const days = (Date.parse(this.last) - Date.parse(this.first)) / DAY_MS + 1;
      this.choose(addDays(this.first, step * days), addDays(this.last, step * days));
    });
    return button;
  }

  listen() {
    const { app } = this;
    for (const { title, range } of PRESETS) {
      const button = make("button", { type: "button", text: title, "aria-pressed": "false" });
      button.addEventListener("click", () => {
        if (innerHeight <= TALL_PX) this.setPickerOpen(false);
        this.choose(...range(this.today()));
      });
      this.presets.append(button);
    }
    this.devices.addEventListener("change", () => app.go({ device: this.devices.value, day: null, until: null }));
    this.period.addEventListener("click", () => this.setPickerOpen(this.picker.hidden));
    this.calendar.addEventListener("choose", (event) => {
      const chosen = /** @type {CustomEvent<string>} */ (event).detail;
      if (innerHeight <= TALL_PX) this.setPickerOpen(false);
      this.choose(chosen, chosen);
    });
    this.calendar.addEventListener("month", (event) => this.markMonth(/** @type {CustomEvent<string>} */ (event).detail));
    for (const input of [this.from, this.until]) {
      input.addEventListener("change", () => {
        if (isDate(this.from.value) && isDate(this.until.value)) {
          const [first = "", last = ""] = [this.from.value, this.until.value].sort();
          this.choose(first, last);
        }
      });
    }
    this.player.addEventListener("time", (event) => this.showTime(/** @type {CustomEvent<number>} */ (event).detail));
    app.addEventListener("known", () => { if (this.shown) this.show(app.state); });
    app.addEventListener("fit", () => { if (this.shown) this.fit(); });
    app.addEventListener("theme", () => { if (this.shown) this.map.setShown(true); });
    app.addEventListener("fix", (event) => {
      if (this.shown && /** @type {CustomEvent} */ (event).detail.device === this.device) this.staleToday = true;
    });
    setInterval(() => {
      const isToday = this.last === this.today();
      if (this.shown && !document.hidden && this.staleToday && isToday && !this.player.playing && Date.now() - this.loadedAt > REFRESH_MS) this.load(true);
    }, 5000);
  }

  today() {
    return dateOf(Date.now(), this.zone);
  }

  /** @param {boolean} open */
  setPickerOpen(open) {
    this.picker.hidden = !open;
    this.period.setAttribute("aria-expanded", String(open));
    if (open) this.markMonth(this.calendar.month);
  }

  /**
   * @param {string} first
   * @param {string} last
   */
  choose(first, last) {
    const today = this.today();
    if (first > today) return;
    this.app.go({ device: this.device, day: first, until: last > today && first !== last ? today : last });
  }

  /** @param {State} state */
  async show(state) {
    this.shown = true;
    const { store } = this.app;
    this.app.map.showDevices(() => false);
    this.map.setShown(true);
    this.fillDevices();
    const own = store.records.filter((record) => record.user === this.app.session?.user);
    const latest = [...(own.length ? own : store.records)].sort((a, b) => b.heard - a.heard)[0];
    const device = state.device ?? latest?.device ?? null;
    if (!device) {
      this.list.replaceChildren(make("p", { className: "none", text: t("list.empty") }));
      return;
    }
    const record = store.get(device);
    // Its last position tells the day, where none is given, and the time zone of the place.
    const needsRecord = !state.day || settings.current.zone === "place";
    if (needsRecord && !record && !this.app.snapshotTaken) return;
    if (device !== this.device) await this.setDevice(device);
    if (!this.shown) return;
    // A device that was imported has a last day that is known, as well.
    const first = state.day ?? dateOf(record?.time ?? Date.now(), this.zone);
    const last = state.until && state.until >= first ? state.until : first;
    const days = (Date.parse(last) - Date.parse(first)) / DAY_MS + 1;
    if (days > TIMELINE_DAYS_MAX) this.tab = "statistics";
    else if (days === 1 && this.last !== this.first) this.tab = "timeline";
    const changed = first !== this.first || last !== this.last || !this.loadedAt;
    Object.assign(this, { first, last, span: changed ? null : this.span });
    this.app.remember({ device, day: first, until: last });
    this.calendar.show({ first, last, today: this.today(), zone: this.zone });
    if (changed) this.load();
    else {
      this.draw();
      this.offerLastDay();
    }
  }

  hide() {
    this.shown = false;
    this.loading?.abort();
    this.player.pause();
    this.player.hidden = true;
    this.map.setShown(false);
    this.loadedAt = 0;
  }

  fillDevices() {
    const names = this.app.store.records.map((record) => record.device).sort();
    const { device } = this.app.state;
    if (device && !names.includes(device)) names.push(device);
    if (names.length !== this.devices.options.length) {
      this.devices.replaceChildren(...names.map((name) => make("option", { value: name, text: name })));
    }
    this.deviceBox.hidden = names.length < 2;
    this.devices.value = device ?? this.device ?? names[0] ?? "";
  }

  /** @param {string} device */
  async setDevice(device) {
    this.device = device;
    this.devices.value = device;
    this.months.clear();
    this.loadedAt = 0;
    this.first = this.last = "";
    this.places = [];
    const record = this.app.store.get(device);
    let zone;
    if (settings.current.zone === "place" && record) {
      try { zone = (await api.addresses([[record.lat, record.lon]]))[0]?.timezone; } catch { /* the viewer's then */ }
    }
    this.zone = zoneOf(zone);
  }

  /** @param {string} month its first day */
  async markMonth(month) {
    const { device, zone } = this;
    if (!device || this.picker.hidden || !this.first) return;
    const known = this.months.get(month);
    if (known) this.calendar.mark(known);
    if (known && month.slice(0, 7) !== this.today().slice(0, 7)) return;
    const from = midnight(addDays(month, -7), zone);
    const to = midnight(addDays(addMonths(month, 1), 14), zone) - 1;
    try {
      const found = new Map((await api.days(device, from, to, zone)).map((day) => [day.date, day.fixes]));
      this.months.set(month, found);
      if (device === this.device && month === this.calendar.month) this.calendar.mark(found);
    } catch { /* the calendar works without marks */ }
  }

  /** Ask for what is shown. `quietly`, it replaces what is there without a word. */
  async load(quietly = false) {
    const { device, zone, first, last } = this;
    if (!device || !first) return;
    this.loading?.abort();
    this.loading = new AbortController();
    const { signal } = this.loading;
    const [fromMs, toMs] = [midnight(first, zone), midnight(addDays(last, 1), zone)];
    this.loadedAt = Date.now();
    this.staleToday = false;
    this.head();
    if (!quietly) {
      this.summary.textContent = t("diary.loading");
      this.list.replaceChildren();
      this.items = [];
      this.draw();
    }
    try {
      if (this.tab === "statistics") await this.loadStatistics(device, fromMs, toMs, signal);
      else await this.loadTimeline(device, fromMs, toMs, signal, quietly);
    } catch (error) {
      if (signal.aborted) return;
      this.loadedAt = 0;
      this.summary.textContent = t("diary.failed", { reason: error instanceof Error ? error.message : String(error) });
    }
  }

  head() {
    const { first, last, zone } = this;
    const noon = (/** @type {string} */ day) => midnight(day, zone) + 12 * 3600e3;
    setText(this.period, first === last ? date(noon(first), "headDay", zone)
      : dayRange(noon(first), noon(last), zone));
    const today = this.today();
    this.next.disabled = last >= today;
    this.from.value = first;
    this.until.value = last;
    this.from.max = this.until.max = today;
    for (const [tab, button] of this.tabs) button.setAttribute("aria-pressed", String(tab === this.tab));
    [...this.presets.children].forEach((button, index) => {
      const range = PRESETS[index]?.range(today) ?? [];
      button.setAttribute("aria-pressed", String(range[0] === first && range[1] === last));
    });
    const tooLong = (Date.parse(last) - Date.parse(first)) / DAY_MS >= TIMELINE_DAYS_MAX;
    const timeline = this.tabs.get("timeline");
    if (timeline) timeline.disabled = tooLong;
  }

  /**
   * @param {string} device
   * @param {number} fromMs
   * @param {number} toMs
   * @param {AbortSignal} signal
   * @param {boolean} quietly
   */
  async loadTimeline(device, fromMs, toMs, signal, quietly) {
    const [items] = await Promise.all([api.timeline(device, fromMs, toMs - 1, signal), this.loadPlaces(device)]);
    if (signal.aborted) return;
    this.items = items;
    this.known.clear();
    this.map.chosen = null;
    this.write(fromMs, toMs);
    const time = this.player.time;
    const begin = Math.max(fromMs, items[0]?.start ?? fromMs);
    const end = Math.min(toMs, Math.max(items.at(-1)?.end ?? toMs, begin + 1));
    this.player.hidden = !items.length;
    this.player.setPeriod(begin, end, this.zone, items);
    if (quietly) this.player.setTime(time);
    else this.fit();
    await this.loadAddresses(signal);
    if (signal.aborted) return;
    this.write(fromMs, toMs);
    this.showTime(this.player.time);
  }

  /** @param {string} device */
  async loadPlaces(device) {
    if (this.places.length) return;
    try { this.places = titled(await api.places(device)); } catch { /* no history */ }
  }

  /** @param {AbortSignal} signal */
  async loadAddresses(signal) {
    const stays = this.items.filter((item) => item.kind === "stay");
    for (const stay of stays) {
      const place = this.placeNear(stay);
      if (place) this.known.set(stay, { title: place.title, rest: place.address && place.address !== place.title ? place.address : "", icon: iconOf(place) });
    }
    const unknown = stays.filter((stay) => !this.known.has(stay));
    try {
      const found = await api.addresses(unknown.map((stay) => [stay.lat, stay.lon]), signal);
      unknown.forEach((stay, index) => {
        const address = found[index];
        if (!address?.display_name) return;
        const [title, rest] = addressLines(address);
        this.known.set(stay, { title, rest, icon: "pin" });
      });
    } catch { /* the times are known all the same */ }
    this.tellApart();
  }

  /** Where the address is no finer than a suburb, several places have it: say where they lie from the first one. */
  tellApart() {
    /** @type {Map<string, {lat: number, lon: number}>} */
    const firsts = new Map();
    for (const [stay, place] of this.known) {
      if (stay.kind !== "stay") continue;
      const first = firsts.get(place.title);
      if (!first) firsts.set(place.title, stay);
      else if (metresBetween(first, stay) > NEAR_M) {
        const away = { title: place.title, distance: distance(metresBetween(first, stay)), direction: compass(bearing(first, stay)) };
        this.known.set(stay, { ...place, title: t("place.away_from_namesake", away) });
      }
    }
  }

  /** @param {{lat: number, lon: number}} spot */
  placeNear(spot) {
    let best = null;
    let nearest = Infinity;
    for (const place of this.places) {
      const away = metresBetween(place, spot);
      if (away < nearest && away <= Math.max(NEAR_M, place.radius_m ?? 0)) [best, nearest] = [place, away];
    }
    return best;
  }

  /**
   * @param {TimelineItem} item
   * @returns {Words}
   */
  words(item) {
    return wordsOf(item, this.known.get(item) ?? null);
  }

  /**
   * @param {number} fromMs
   * @param {number} toMs
   */
  write(fromMs, toMs) {
    const { items } = this;
    const total = sums(items, fromMs, toMs);
    this.summary.textContent = items.length
      ? [t("diary.moved", { distance: distance(total.distance_m), duration: duration(total.moving_s) }), t("diary.trips", { count: total.trips }),
        total.unknown_s >= 60 ? t("diary.unknown", { duration: duration(total.unknown_s) }) : ""].filter(Boolean).join(" · ")
      : t("diary.empty");
    // What is written again, with more words, keeps the focus.
    const timeline = this.timeline?.isConnected ? this.timeline : this.newTimeline();
    for (const child of [...this.list.children]) if (child !== timeline) child.remove();
    timeline.show(items, { fromMs, toMs, zone: this.zone, wordsOf: (item) => this.words(item) });
    this.offerLastDay();
    this.draw();
  }

  newTimeline() {
    const timeline = make("day-timeline");
    timeline.addEventListener("choose", (event) => this.chooseItem(/** @type {CustomEvent<TimelineItem>} */ (event).detail));
    this.list.append(timeline);
    this.timeline = timeline;
    return timeline;
  }

  /** Lead away from an empty time, also once the device is known later than its timeline. */
  offerLastDay() {
    if (this.items.length || !this.timeline?.isConnected || this.list.querySelector(".to-last")) return;
    const button = this.lastDayButton();
    if (button) this.list.append(button);
  }

  /** What leads from an empty time to where there is something; null where that is not known. */
  lastDayButton() {
    const record = this.app.store.get(this.device);
    if (!record) return null;
    const last = dateOf(record.time, this.zone);
    if (this.first <= last && last <= this.last) return null;
    const button = make("button", { type: "button", className: "primary to-last", text: t("diary.open_last", { day: date(record.time, "dayOfYear", this.zone) }) });
    button.addEventListener("click", () => this.choose(last, last));
    return button;
  }

  /**
   * @param {string} device
   * @param {number} fromMs
   * @param {number} toMs
   * @param {AbortSignal} signal
   */
  async loadStatistics(device, fromMs, toMs, signal) {
    this.player.hidden = true;
    const { spanFor } = await import("../diary/travel_statistics.js");
    const span = this.span ?? spanFor((toMs - fromMs) / DAY_MS);
    const totals = await api.statistics(device, fromMs, toMs - 1, this.zone, span, signal);
    if (signal.aborted) return;
    this.summary.textContent = "";
    const statistics = make("travel-statistics");
    statistics.addEventListener("span", (event) => { this.span = /** @type {CustomEvent<Span>} */ (event).detail; this.load(); });
    statistics.addEventListener("choose", (event) => {
      const { first, last } = /** @type {CustomEvent} */ (event).detail;
      this.choose(first, last);
    });
    this.list.replaceChildren(statistics);
    await statistics.show(totals, { span, zone: this.zone, signal });
  }

  /** @param {TimelineItem} item */
  chooseItem(item) {
    this.map.chosen = item;
    this.player.pause();
    this.player.setTime(Math.max(item.start, this.player.fromMs));
    this.draw();
    this.app.map.fit(placesOf(item));
  }

  draw() {
    if (!this.shown) return;
    this.map.draw(this.items, (item) => this.words(item).title);
    if (!this.items.length) this.map.mark(null);
  }

  fit() {
    const places = this.items.flatMap(placesOf);
    if (places.length && this.app.map.map) this.app.map.fit(places);
  }

  /** @param {number} time */
  showTime(time) {
    if (!this.shown) return;
    const item = itemAt(this.items, time);
    const moment = momentAt(this.items, time);
    this.map.mark(moment);
    this.timeline?.mark(item);
    if (this.player.playing && item) this.timeline?.reveal(item);
    clearTimeout(this.placeTimer);
    if (!item || !moment) return;
    if (item.kind !== "trip") {
      this.player.setPlace(this.words(item).title);
      return;
    }
    // Where it drove by, every second at most while it plays.
    const wait = Math.max(0, ASK_PLACE_MS - (Date.now() - this.askedPlaceAt));
    this.placeTimer = setTimeout(() => this.namePlace(moment, time), this.player.playing ? wait : 150);
    if (this.player.playing && wait === 0) this.namePlace(moment, time);
  }

  /**
   * @param {{lat: number, lon: number}} spot
   * @param {number} time
   */
  async namePlace(spot, time) {
    clearTimeout(this.placeTimer);
    this.askedPlaceAt = Date.now();
    let text = coordinates(spot.lat, spot.lon);
    try { text = (await api.addresses([[spot.lat, spot.lon]]))[0]?.display_name ?? text; } catch { /* the coordinates do */ }
    if (this.shown && itemAt(this.items, this.player.time) === itemAt(this.items, time)) this.player.setPlace(text);
  }
}
