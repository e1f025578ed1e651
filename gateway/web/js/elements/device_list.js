// Search, a filter by age, and every device as a row. Only the rows in sight exist: ten thousand
// devices scroll like ten. The same facts as on the map, for keyboard and screen reader.

import { ageClass, count, shortAge } from "../format.js";
import "./place_search.js";
import { make, setText } from "./svg_icon.js";

const ROW_PX = 62;
const SPARE_ROWS = 4;
const NAMES = { live: "Live", recent: "Recent", quiet: "Quiet" };
const MEANINGS = { live: "heard of within a minute", recent: "within 15 minutes", quiet: "longer ago" };

customElements.define("device-list", class extends HTMLElement {
  connectedCallback() {
    this.query = "";
    this.classFilter = null;
    this.sort = "recent";
    this.rows = [];
    this.shown = [];
    this.search = make("input", { type: "search", placeholder: "Search device, address or place", "aria-label": "Search device, address or place", autocomplete: "off", spellcheck: "false" });
    this.places = make("place-search", {});
    this.search.addEventListener("input", () => { this.setQuery(this.search.value); this.places.ask(this.search.value); });
    this.order = make("select", { "aria-label": "Sort by" },
      make("option", { value: "recent", text: "Latest first" }), make("option", { value: "name", text: "By name" }));
    this.order.addEventListener("change", () => { this.sort = this.order.value; this.refresh(true); });
    this.chips = {};
    const chips = make("div", { className: "chips", role: "group", "aria-label": "Show by age of the last position" });
    for (const name of ["live", "recent", "quiet"]) {
      const number = make("b", { text: "0" });
      const chip = make("button", { className: `chip ${name}`, type: "button", "aria-pressed": "false", title: `${NAMES[name]}: ${MEANINGS[name]}` },
        make("span", { className: "mark" }), number, make("span", { text: NAMES[name] }));
      chip.addEventListener("click", () => this.setClass(this.classFilter === name ? null : name));
      this.chips[name] = { chip, number };
      chips.append(chip);
    }
    this.scroller = make("div", { className: "rows", role: "list", tabindex: "-1" });
    this.space = make("div", { className: "space" });
    this.scroller.append(this.space);
    this.scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    this.scroller.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.scroller);
    this.none = make("p", { className: "none", hidden: true });
    this.replaceChildren(
      make("label", { className: "search" }, make("svg-icon", { name: "search" }), this.search),
      this.places,
      chips,
      make("div", { className: "list-head" }, this.total = make("span", {}), this.order),
      this.scroller, this.none,
    );
  }

  setStore(store) {
    this.store = store;
    this.refresh(true);
  }

  setQuery(query) {
    this.query = query.trim().toLowerCase();
    if (this.search.value.trim().toLowerCase() !== this.query) this.search.value = query;
    this.filterChanged();
  }

  setClass(name) {
    this.classFilter = name;
    for (const [key, { chip }] of Object.entries(this.chips)) chip.setAttribute("aria-pressed", String(key === name));
    this.filterChanged();
  }

  filterChanged() {
    this.scroller.scrollTop = 0;
    this.refresh(true);
    const active = this.query || this.classFilter;
    this.dispatchEvent(new CustomEvent("filter", { detail: active ? (record) => this.matches(record, Date.now()) : null }));
  }

  matches(record, now) {
    if (this.query && !record.search.includes(this.query)) return false;
    return !this.classFilter || ageClass((now - record.time) / 1000) === this.classFilter;
  }

  select(record) {
    this.selected = record;
    this.draw();
  }

  /** Count, filter and sort again. The order stays while someone points at the list. */
  refresh(force = false) {
    if (!this.store) return;
    const now = Date.now();
    const counts = { live: 0, recent: 0, quiet: 0 };
    for (const record of this.store.records) counts[ageClass((now - record.time) / 1000)] += 1;
    for (const [name, { number, chip }] of Object.entries(this.chips)) {
      setText(number, count(counts[name]));
      chip.disabled = counts[name] === 0 && this.classFilter !== name;
    }
    const busy = !force && (this.scroller.matches(":hover") || this.scroller.contains(document.activeElement));
    if (!busy || this.countAtSort !== this.store.size) {
      const found = this.query || this.classFilter ? this.store.records.filter((record) => this.matches(record, now)) : [...this.store.records];
      const byName = (a, b) => a.device.localeCompare(b.device, "en", { numeric: true });
      // Seconds, not milliseconds: devices that report together should not change places all the time.
      found.sort(this.sort === "name" ? byName
        : (a, b) => Math.floor(b.time / 60000) - Math.floor(a.time / 60000) || (a.device < b.device ? -1 : 1));
      this.shown = found;
      this.countAtSort = this.store.size;
    }
    const all = this.store.size;
    setText(this.total, this.shown.length === all ? `${count(all)} ${all === 1 ? "device" : "devices"}` : `${count(this.shown.length)} of ${count(all)} devices`);
    this.none.hidden = this.shown.length > 0;
    if (!this.none.hidden) setText(this.none, all ? "No device matches." : "No device has sent a position yet.");
    this.scroller.hidden = this.shown.length === 0;
    this.draw();
  }

  draw() {
    if (!this.shown) return;
    const height = this.scroller.clientHeight || 400;
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / ROW_PX) - SPARE_ROWS);
    const last = Math.min(this.shown.length, first + Math.ceil(height / ROW_PX) + 2 * SPARE_ROWS);
    this.space.style.height = `${this.shown.length * ROW_PX}px`;
    while (this.rows.length < last - first) this.rows.push(this.makeRow());
    const now = Date.now();
    this.rows.forEach((row, index) => {
      const record = this.shown[first + index];
      row.element.hidden = first + index >= last;
      if (row.element.hidden) return;
      this.fill(row, record, first + index, now);
    });
  }

  makeRow() {
    const row = {
      element: make("div", { className: "row", role: "listitem" }),
      button: make("button", { className: "row-button", type: "button" }),
      mark: make("span", { className: "mark" }),
      name: make("span", { className: "name" }),
      user: make("span", { className: "user" }),
      address: make("span", { className: "address" }),
      age: make("span", { className: "age" }),
      battery: make("span", { className: "battery" }),
    };
    row.button.append(row.mark, make("span", { className: "title" }, row.name, row.user), row.age, row.address, row.battery);
    row.element.append(row.button);
    row.button.addEventListener("click", () => this.dispatchEvent(new CustomEvent("pick", { detail: row.record })));
    this.space.append(row.element);
    return row;
  }

  fill(row, record, index, now) {
    const age = (now - record.time) / 1000;
    row.record = record;
    row.element.style.transform = `translateY(${index * ROW_PX}px)`;
    row.element.setAttribute("aria-setsize", this.shown.length);
    row.element.setAttribute("aria-posinset", index + 1);
    row.button.setAttribute("aria-current", String(record === this.selected));
    row.element.dataset.device = record.device;
    row.mark.className = `mark ${ageClass(age)}`;
    setText(row.name, record.name);
    setText(row.user, record.name === record.user ? "" : record.user);
    setText(row.age, shortAge(age));
    setText(row.address, record.address ? record.address.display_name : `${record.lat.toFixed(4)}, ${record.lon.toFixed(4)}`);
    setText(row.battery, record.battery === null ? "" : `${Math.round(record.battery)} %`);
    row.battery.classList.toggle("low", record.battery !== null && record.battery <= 20);
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (!step) return;
    event.preventDefault();
    const current = this.rows.find((row) => row.button === document.activeElement)?.record;
    const index = Math.min(this.shown.length - 1, Math.max(0, this.shown.indexOf(current) + step));
    const top = index * ROW_PX;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    if (top + ROW_PX > this.scroller.scrollTop + this.scroller.clientHeight) this.scroller.scrollTop = top + ROW_PX - this.scroller.clientHeight;
    this.draw();
    this.rows.find((row) => row.record === this.shown[index] && !row.element.hidden)?.button.focus({ preventScroll: true });
  }
});
