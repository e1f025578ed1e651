// Search, a filter by age, and every device as a row. Only the rows in sight exist: ten thousand
// devices scroll like ten. The same facts as on the map, for keyboard and screen reader.

import { make, setText } from "../dom.js";
import { ageClass, agePhrase, count, date, LATE_MS, moment, percent } from "../format.js";
import { t } from "../i18n.js";
import "./place_search.js";

/** @import { DeviceRecord, DeviceStore } from "../device_store.js" */
/** @import { AreaView } from "../live/area_view.js" */
/** @typedef {"live" | "recent" | "quiet"} AgeClass */

const ROW_PX = 62;
const SPARE_ROWS = 4;
/** @type {Record<AgeClass, {name: string, meaning: string}>} */
const CLASSES = {
  live: { name: t("age.live"), meaning: t("age.live_meaning") },
  recent: { name: t("age.recent"), meaning: t("age.recent_meaning") },
  quiet: { name: t("age.quiet"), meaning: t("age.quiet_meaning") },
};
const NAMES = /** @type {AgeClass[]} */ (Object.keys(CLASSES));
const STEPS = new Map([["ArrowDown", 1], ["ArrowUp", -1], ["PageDown", 8], ["PageUp", -8]]);

/** @typedef {ReturnType<typeof makeRow>} Row */

function makeRow() {
  const row = {
    element: make("div", { className: "row", role: "listitem" }),
    button: make("button", { className: "row-button", type: "button" }),
    mark: make("span", { className: "mark" }),
    name: make("span", { className: "name" }),
    user: make("span", { className: "user" }),
    of: make("span", { className: "of" }),
    address: make("span", { className: "address" }),
    age: make("span", { className: "age" }),
    battery: make("span", { className: "battery" }),
    record: /** @type {DeviceRecord | undefined} */ (undefined),
  };
  row.button.append(row.mark, make("span", { className: "title" }, row.name, row.user, row.of), row.age, row.address, row.battery);
  row.element.append(row.button);
  return row;
}

export class DeviceList extends HTMLElement {
  /** Events: `pick` (detail: a record, and whether it is chosen beside others), `filter` (detail: which records are shown,
   * or null), `ask` (detail: what the gateway is to be searched for), `place`. */
  query = "";
  /** @type {AgeClass | null} */
  classFilter = null;
  /** @type {Row[]} */
  rows = [];
  /** @type {DeviceRecord[]} */
  shown = [];
  /** @type {DeviceRecord | null} */
  selected = null;
  /** @type {DeviceStore | null} */
  store = null;
  countAtSort = -1;
  /** @type {AreaView | null} where the gateway has more devices than the page */
  area = null;
  /** @type {Set<string> | null} what the gateway has found */
  found = null;
  search = make("input", { type: "search", placeholder: t("search.label"), "aria-label": t("search.label"), autocomplete: "off", spellcheck: "false" });
  places = make("place-search");
  order = make("select", { "aria-label": t("list.sort") },
    make("option", { value: "recent", text: t("list.by_time") }), make("option", { value: "name", text: t("list.by_name") }));
  chips = new Map(NAMES.map((name) => [name, this.makeChip(name)]));
  scroller = make("div", { className: "rows", role: "list", tabindex: "-1" });
  space = make("div", { className: "space" });
  none = make("p", { className: "none", hidden: true });
  total = make("span");
  classes = make("div", { className: "chips", role: "group", "aria-label": t("list.filter") }, ...[...this.chips.values()].map(({ chip }) => chip));

  connectedCallback() {
    this.search.addEventListener("input", () => { this.setQuery(this.search.value); this.places.ask(this.search.value); });
    this.order.addEventListener("change", () => this.refresh(true));
    this.scroller.append(this.space);
    this.scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    this.scroller.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.scroller);
    this.replaceChildren(
      make("label", { className: "search" }, make("svg-icon", { name: "search" }), this.search),
      this.places,
      this.classes,
      make("div", { className: "list-head" }, this.total, this.order),
      this.scroller, this.none,
    );
  }

  /** @param {AgeClass} name */
  makeChip(name) {
    const number = make("b", { text: "0" });
    const chip = make("button", { className: `chip ${name}`, type: "button", "aria-pressed": "false", title: `${CLASSES[name].name}: ${CLASSES[name].meaning}` },
      make("span", { className: "mark" }), number, make("span", { text: CLASSES[name].name }));
    chip.addEventListener("click", () => this.setClass(this.classFilter === name ? null : name));
    return { chip, number };
  }

  /** @param {DeviceStore} store */
  setStore(store) {
    this.store = store;
    this.refresh(true);
  }

  /** @param {string} query */
  setQuery(query) {
    this.query = query.trim().toLowerCase();
    this.found = null;
    this.dispatchEvent(new CustomEvent("ask", { detail: this.query }));
    if (this.search.value.trim().toLowerCase() !== this.query) this.search.value = query;
    this.filterChanged();
  }

  /**
   * The gateway has more devices than the page, which knows those of this area; null: it has all.
   * @param {AreaView | null} area
   */
  setArea(area) {
    this.area = area;
    this.found = null;
    this.refresh(true);
  }

  /** @param {string[] | null} devices that the gateway has found; null without a question */
  setFound(devices) {
    this.found = devices && new Set(devices);
    this.filterChanged();
  }

  /** @param {AgeClass | null} name */
  setClass(name) {
    this.classFilter = name;
    for (const [key, { chip }] of this.chips) chip.setAttribute("aria-pressed", String(key === name));
    this.filterChanged();
  }

  /** Which records are shown; null for all. */
  filter() {
    return this.query || this.classFilter ? (/** @type {DeviceRecord} */ record) => this.accepts(record, Date.now()) : null;
  }

  filterChanged() {
    this.scroller.scrollTop = 0;
    this.refresh(true);
    this.dispatchEvent(new CustomEvent("filter", { detail: this.filter() }));
  }

  /**
   * @param {DeviceRecord} record
   * @param {number} now
   */
  accepts(record, now) {
    if (this.query && !(this.area && this.found ? this.found.has(record.device) : record.search.includes(this.query))) return false;
    return !this.classFilter || ageClass((now - record.heard) / 1000) === this.classFilter;
  }

  /** @param {DeviceRecord | null} record */
  select(record) {
    this.selected = record;
    this.draw();
  }

  /** Count, filter and sort again. The order stays while someone points at the list. */
  refresh(force = false) {
    if (!this.store) return;
    const now = Date.now();
    const counts = { live: 0, recent: 0, quiet: 0 };
    for (const record of this.store.records) counts[ageClass((now - record.heard) / 1000)] += 1;
    for (const [name, { number, chip }] of this.chips) {
      setText(number, count(counts[name]));
      chip.disabled = counts[name] === 0 && this.classFilter !== name;
    }
    const busy = !force && (this.scroller.matches(":hover") || this.scroller.contains(document.activeElement));
    if (!busy || this.countAtSort !== this.store.size) {
      const found = this.query || this.classFilter ? this.store.records.filter((record) => this.accepts(record, now)) : [...this.store.records];
      // Minutes, not milliseconds: devices that report together should not change places all the time.
      found.sort(this.order.value === "name" ? (a, b) => a.device.localeCompare(b.device, "en", { numeric: true })
        : (a, b) => Math.floor(b.heard / 60000) - Math.floor(a.heard / 60000) || (a.device < b.device ? -1 : 1));
      this.shown = found;
      this.countAtSort = this.store.size;
    }
    this.tellTotal();
    // Where there are counts, only some devices are known.
    this.classes.hidden = Boolean(this.area?.cells);
    this.scroller.hidden = this.shown.length === 0;
    this.draw();
  }

  tellTotal() {
    const { area } = this;
    const all = area?.visible ?? this.store?.size ?? 0;
    const shown = area && !this.query && !this.classFilter ? area.inside : this.shown.length;
    setText(this.total, shown === all ? t("list.devices", { count: all, shown: count(all) })
      : t(area && !this.query ? "list.in_sight" : "list.devices_of", { shown: count(shown), all: count(all) }));
    this.none.hidden = this.shown.length > 0;
    if (!this.none.hidden) setText(this.none, t(area?.cells && !this.query ? "list.too_many" : all ? "list.no_match" : "list.empty"));
  }

  draw() {
    const height = this.scroller.clientHeight || 400;
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / ROW_PX) - SPARE_ROWS);
    const last = Math.min(this.shown.length, first + Math.ceil(height / ROW_PX) + 2 * SPARE_ROWS);
    this.space.style.height = `${this.shown.length * ROW_PX}px`;
    while (this.rows.length < last - first) this.addRow();
    const now = Date.now();
    this.rows.forEach((row, index) => {
      const record = this.shown[first + index];
      row.element.hidden = first + index >= last || !record;
      if (!row.element.hidden && record) this.fill(row, record, first + index, now);
    });
  }

  addRow() {
    const row = makeRow();
    row.button.addEventListener("click", (event) => {
      const also = event.ctrlKey || event.metaKey || event.shiftKey;
      this.dispatchEvent(new CustomEvent("pick", { detail: { record: row.record, also } }));
    });
    this.space.append(row.element);
    this.rows.push(row);
  }

  /**
   * @param {Row} row
   * @param {DeviceRecord} record
   * @param {number} index
   * @param {number} now
   */
  fill(row, record, index, now) {
    const age = (now - record.heard) / 1000;
    row.record = record;
    row.element.style.transform = `translateY(${index * ROW_PX}px)`;
    row.element.setAttribute("aria-setsize", String(this.shown.length));
    row.element.setAttribute("aria-posinset", String(index + 1));
    row.button.setAttribute("aria-current", String(record === this.selected));
    row.element.dataset.device = record.device;
    row.mark.className = `mark ${ageClass(age)}`;
    setText(row.name, record.name);
    setText(row.user, record.name === record.user ? "" : record.user);
    setText(row.of, record.heard - record.time > LATE_MS ? t("age.of_day", { day: date(record.time, "numericDay") }) : "");
    setText(row.age, agePhrase(age));
    row.age.title = moment(record.heard);
    setText(row.address, record.address ? record.address.display_name : `${record.lat.toFixed(4)}, ${record.lon.toFixed(4)}`);
    setText(row.battery, record.battery === null ? "" : percent(record.battery));
    row.battery.classList.toggle("low", record.battery !== null && record.battery <= 20);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const step = STEPS.get(event.key);
    if (!step) return;
    event.preventDefault();
    const current = this.rows.find((row) => row.button === document.activeElement)?.record;
    const at = current ? this.shown.indexOf(current) : -1;
    const index = Math.min(this.shown.length - 1, Math.max(0, at + step));
    const top = index * ROW_PX;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    if (top + ROW_PX > this.scroller.scrollTop + this.scroller.clientHeight) this.scroller.scrollTop = top + ROW_PX - this.scroller.clientHeight;
    this.draw();
    this.rows.find((row) => row.record === this.shown[index] && !row.element.hidden)?.button.focus({ preventScroll: true });
  }
}
customElements.define("device-list", DeviceList);
