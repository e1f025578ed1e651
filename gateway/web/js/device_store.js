// What the page knows about each device: its newest fix and the newest address.
// Pure data; the map, the list and the drawer each read it at their own pace.

/** @import { Address, DeviceRow, Fix } from "./types/api.js" */

/**
 * @typedef {object} DeviceRecord
 * @property {string} device
 * @property {string} user
 * @property {string} name
 * @property {number} slot the index of the device in the map layer's buffer
 * @property {number} lat
 * @property {number} lon
 * @property {number} time of the position, ms
 * @property {number} heard when the position arrived, ms
 * @property {number | null} received
 * @property {number | null} speed
 * @property {number | null} course
 * @property {number | null} accuracy
 * @property {number | null} altitude
 * @property {number | null} battery
 * @property {boolean | null} charging
 * @property {string | null} source
 * @property {Address | null} address
 * @property {[string, string]} lines the address as a headline and the rest
 * @property {string} search what a search looks in
 */

export class DeviceStore {
  constructor() {
    // Plain calls: at thousands of fixes a second an event object each would cost more than all else.
    /** @type {(record: DeviceRecord) => void} */
    this.onFix = () => {};
    /** @type {(record: DeviceRecord) => void} */
    this.onAddress = () => {};
    /** Something is in `dirty` or `removed`. */
    this.onMoved = () => {};
    /** @type {Map<string, DeviceRecord>} */
    this.devices = new Map();
    /** @type {DeviceRecord[]} */
    this.records = []; // by slot
    /** @type {Set<number>} */
    this.dirty = new Set(); // slots whose position changed since the layer last took them
    /** @type {[number, number][]} slots that were left since then, in order, and from where the last record moved there */
    this.removed = [];
    this.fixCount = 0;
    this.addressCount = 0;
  }

  get size() { return this.records.length; }

  /**
   * The names of a user's own devices, in order.
   * @param {string | null | undefined} user
   */
  ownDevices(user) {
    return this.records.map((record) => record.device).filter((device) => device.startsWith(`${user}/`)).sort();
  }

  /** @param {string | null} name */
  get(name) { return name === null ? undefined : this.devices.get(name); }

  /**
   * Take over a row of GET /v1/devices.
   * @param {DeviceRow} row
   */
  applyRow(row) {
    const fix = row.fix ?? /** @type {Fix} */ (/** @type {unknown} */ (row));
    if (this.applyFix({ ...fix, device: row.device })) this.fixCount -= 1;
    if (row.address) this.applyAddress({ ...row.address, device: row.device }, false);
  }

  /**
   * A fix; one older than what is known changes nothing. Returns whether it was taken.
   * @param {Fix} fix
   */
  applyFix(fix) {
    if (typeof fix?.device !== "string" || !Number.isFinite(fix.lat) || !Number.isFinite(fix.lon)) return false;
    const time = liveTime(fix);
    let record = this.devices.get(fix.device);
    if (!record) {
      const [user = "", ...rest] = fix.device.split("/");
      record = {
        device: fix.device, user, name: rest.join("/") || user, slot: this.records.length, search: fix.device.toLowerCase(),
        lat: fix.lat, lon: fix.lon, time, heard: time, received: null, speed: null, course: null, accuracy: null, altitude: null,
        battery: null, charging: null, source: null, address: null, lines: ["", ""],
      };
      this.devices.set(fix.device, record);
      this.records.push(record);
    } else if (time < record.time) {
      return false;
    }
    record.lat = fix.lat;
    record.lon = fix.lon;
    record.time = time;
    record.received = fix.received ?? null;
    record.heard = Math.max(time, fix.received ?? time);
    record.speed = fix.speed ?? null;
    record.course = fix.course ?? null;
    record.accuracy = fix.accuracy ?? null;
    record.altitude = fix.altitude ?? null;
    record.battery = fix.battery ?? record.battery; // apps send it now and then
    record.charging = fix.charging ?? null;
    record.source = fix.source ?? record.source;
    this.dirty.add(record.slot);
    this.fixCount += 1;
    this.onMoved();
    this.onFix(record);
    return true;
  }

  /**
   * A position of which the gateway says that it is the newest.
   * @param {string} device
   * @param {{lat: number, lon: number, time: number, received: number, speed: number | null, course: number | null, accuracy: number | null}} position
   */
  applyPosition(device, position) {
    const record = this.devices.get(device);
    if (!record) {
      this.applyFix({ id: "", user: "", device, ...position });
      return;
    }
    Object.assign(record, position);
    record.heard = Math.max(position.time, position.received);
    this.dirty.add(record.slot);
    this.fixCount += 1;
    this.onMoved();
    this.onFix(record);
  }

  /**
   * Forget a device; the last record takes its slot.
   * @param {string} device
   */
  remove(device) {
    const record = this.devices.get(device);
    if (!record) return;
    this.devices.delete(device);
    const last = this.records.pop();
    this.removed.push([record.slot, this.records.length]);
    const lastIsDirty = this.dirty.delete(this.records.length);
    this.dirty.delete(record.slot);
    if (last && last !== record) {
      last.slot = record.slot;
      this.records[last.slot] = last;
      if (lastIsDirty) this.dirty.add(last.slot);
    }
    record.slot = -1;
    this.onMoved();
  }

  clear() {
    for (const device of [...this.devices.keys()].reverse()) this.remove(device);
  }

  takeRemoved() {
    const { removed } = this;
    this.removed = [];
    return removed;
  }

  /**
   * An address; one of an older fix changes nothing. Returns whether it was taken.
   * @param {Address} address
   * @param {boolean} [counted]
   */
  applyAddress(address, counted = true) {
    const record = this.devices.get(address?.device);
    if (!record || !address.display_name) return false;
    if (record.address && address.time < record.address.time) return false;
    record.address = address;
    record.lines = addressLines(address);
    record.search = `${record.device} ${address.display_name}`.toLowerCase();
    if (counted) this.addressCount += 1;
    this.onAddress(record);
    return true;
  }

  takeDirty() {
    const taken = this.dirty;
    this.dirty = new Set();
    return taken;
  }
}

/**
 * The fix's own time, or its arrival's where that is absurd: as the gateway decides it.
 * @param {Fix} fix
 */
function liveTime(fix) {
  const arrived = fix.received ?? Date.now();
  const own = fix.time;
  return !Number.isFinite(own) || own > arrived + 86400e3 || own < 946684800e3 ? arrived : own;
}

/**
 * An address as a headline and the rest: ["Aeulestrasse 5", "9490 Vaduz, Liechtenstein"].
 * @param {Pick<Address, "display_name" | "address">} address
 * @returns {[string, string]}
 */
export function addressLines(address) {
  const part = address.address ?? {};
  const street = part.road ?? part.pedestrian ?? part.footway ?? part.path;
  const town = townOf(part);
  const text = address.display_name;
  if (street && text.includes(street)) {
    const first = part.house_number ? `${street} ${part.house_number}` : street;
    const place = [[part.postcode, town].filter(Boolean).join(" ") || part.county, part.country];
    const rest = place.filter(Boolean).join(", ");
    if (rest) return [first, rest];
  }
  const comma = text.indexOf(", ");
  return comma < 0 ? [text, ""] : [text.slice(0, comma), text.slice(comma + 2)];
}

/** @param {import("./types/api.js").AddressParts} part */
export function townOf(part) {
  return part.city ?? part.town ?? part.village ?? part.municipality ?? part.hamlet;
}
