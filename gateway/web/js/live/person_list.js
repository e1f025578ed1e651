// The friends of the viewer: where each was last, in words, and how long ago. A press follows one on the map.

import * as api from "../api.js";
import { make, setText } from "../dom.js";
import { ageClass, agePhrase, coordinates, moment, percent } from "../format.js";
import { t } from "../i18n.js";
import { precisionText } from "../people/showing_terms.js";

/** @import { App } from "../app.js" */
/** @import { DeviceRecord } from "../device_store.js" */
/** @import { Friend } from "../types/api.js" */

const LOAD_MS = 60e3;
/** Where the gateway has more devices than the page, it is asked for those of so many friends, and for so many of each. */
const LOOKED_UP_MAX = 20;
const DEVICES_MAX = 5;

/** What may be left below the list's edge before it is said that there is more, in px. */
const MORE_PX = 8;

/** @typedef {ReturnType<typeof makeRow>} Row */

/** @param {string} user */
function makeRow(user) {
  const row = {
    picture: make("span", { className: "initial", "aria-hidden": "true", text: [...user][0]?.toUpperCase() ?? "" }),
    mark: make("span", { className: "mark" }),
    terms: make("span", { className: "user" }),
    place: make("span", { className: "address" }),
    age: make("span", { className: "age" }),
    battery: make("span", { className: "battery" }),
    button: make("button", { className: "person", type: "button", "data-user": user }),
    record: /** @type {DeviceRecord | null} */ (null),
  };
  row.picture.append(row.mark);
  row.picture.style.setProperty("--hue", String(hueOf(user)));
  row.button.append(row.picture, make("span", { className: "title" }, make("span", { className: "name", text: user }), row.terms),
    row.age, row.place, row.battery);
  return row;
}

export class PersonList extends HTMLElement {
  /** Events: `pick` (detail: the record of a friend's device). */
  /** @type {App | null} */
  app = null;
  /** @type {Friend[]} */
  friends = [];
  /** @type {Map<string, Row>} */
  rows = new Map();
  /** @type {string[]} devices of friends that the gateway was asked for */
  devices = [];
  loadedAt = -Infinity;
  list = make("ul");
  count = make("span", { className: "count" });
  heading = make("h2", { id: "people-here" }, make("span", { text: t("persons.title") }), " ", this.count);

  connectedCallback() {
    this.setAttribute("role", "region");
    this.setAttribute("aria-labelledby", this.heading.id);
    this.hidden = true;
    this.replaceChildren(this.heading, this.list);
    this.list.addEventListener("scroll", () => this.tellMore(), { passive: true });
    new ResizeObserver(() => this.tellMore()).observe(this.list);
  }

  /** Show by the list's edge whether there are more persons below it. */
  tellMore() {
    const { scrollHeight, scrollTop, clientHeight } = this.list;
    this.toggleAttribute("data-more", scrollHeight - scrollTop - clientHeight > MORE_PX);
  }

  /** Learn whose devices the viewer sees; from time to time, and at once if `force`. */
  async load(force = false) {
    const { app } = this;
    const session = app?.session;
    if (!app || !session?.user || session.device || session.open) return;
    if (!force && performance.now() - this.loadedAt < LOAD_MS) return;
    this.loadedAt = performance.now();
    try {
      this.friends = (await api.friends()).seen;
    } catch {
      return; // the connection dot says what there is to say
    }
    if (app.area.active) await this.lookUp(app);
    const users = new Set(this.friends.map((friend) => friend.user));
    for (const user of this.rows.keys()) if (!users.has(user)) this.rows.delete(user);
    for (const user of users) if (!this.rows.has(user)) this.rows.set(user, this.add(user));
    this.refresh();
  }

  /** @param {App} app */
  async lookUp(app) {
    const found = await Promise.all(this.friends.slice(0, LOOKED_UP_MAX).map(({ user }) => (
      api.devicesNamed(`${user}/`, DEVICES_MAX).then((rows) => rows.filter((row) => row.device.startsWith(`${user}/`))).catch(() => []))));
    const rows = found.flat();
    for (const row of rows) app.store.applyRow(row);
    this.devices = rows.map((row) => row.device);
    this.dispatchEvent(new Event("looked-up"));
  }

  /** @param {string} user */
  add(user) {
    const row = makeRow(user);
    row.button.addEventListener("click", () => { if (row.record) this.dispatchEvent(new CustomEvent("pick", { detail: row.record })); });
    return row;
  }

  refresh() {
    this.hidden = this.friends.length === 0;
    if (this.hidden || !this.app) return;
    /** @type {Map<string, DeviceRecord>} */
    const newest = new Map();
    for (const record of this.app.store.records) {
      const last = newest.get(record.user);
      if (this.rows.has(record.user) && (!last || record.time > last.time)) newest.set(record.user, record);
    }
    const now = Date.now();
    for (const friend of this.friends) {
      const row = this.rows.get(friend.user);
      if (row) fill(row, friend, newest.get(friend.user) ?? null, now);
    }
    const wanted = [...this.rows.values()].map(({ button }) => button);
    if (this.list.childElementCount !== wanted.length || wanted.some((button, index) => this.list.children[index]?.firstChild !== button)) {
      this.list.replaceChildren(...wanted.map((button) => make("li", {}, button)));
      setText(this.count, t("persons.count", { count: wanted.length }));
      this.tellMore();
    }
  }

  /** @param {DeviceRecord | null} selected */
  select(selected) {
    for (const [user, { button }] of this.rows) button.setAttribute("aria-current", String(selected?.user === user));
  }
}
customElements.define("person-list", PersonList);

/**
 * @param {Row} row
 * @param {Friend} friend
 * @param {DeviceRecord | null} record
 * @param {number} now
 */
function fill(row, friend, record, now) {
  row.record = record;
  // Not `disabled`: a screen reader finds the friend all the same.
  row.button.setAttribute("aria-disabled", String(!record));
  const terms = precisionText(friend);
  setText(row.terms, [terms, friend.until ? t("share.until", { time: moment(friend.until) }) : ""].filter(Boolean).join(" · "));
  const age = record ? (now - record.time) / 1000 : Infinity;
  row.mark.className = `mark ${ageClass(age)}`;
  if (!record) {
    setText(row.place, t("persons.nowhere"));
    setText(row.age, "");
    setText(row.battery, "");
    return;
  }
  setText(row.place, record.address ? record.lines.filter(Boolean).join(", ") : coordinates(record.lat, record.lon));
  setText(row.age, agePhrase(age));
  row.age.title = moment(record.time);
  setText(row.battery, record.battery === null ? "" : percent(record.battery));
  row.battery.classList.toggle("low", record.battery !== null && record.battery <= 20);
}

/**
 * A colour that stays the same for a name, in degrees.
 * @param {string} user
 */
function hueOf(user) {
  let hash = 0;
  for (const each of user) hash = (hash * 31 + (each.codePointAt(0) ?? 0)) % 360;
  return hash;
}
