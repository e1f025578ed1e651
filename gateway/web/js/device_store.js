// What the page knows about each device: its newest fix and the newest address.
// Pure data; the map, the list and the drawer each read it at their own pace.

export class DeviceStore {
  constructor() {
    // Plain calls: at thousands of fixes a second an event object each would cost more than all else.
    this.onFix = () => {};
    this.onAddress = () => {};
    this.devices = new Map();
    this.records = []; // by slot: the index of a device in the map layer's buffer
    this.dirty = new Set(); // slots whose position changed since the layer last took them
    this.fixCount = 0;
    this.addressCount = 0;
  }

  get size() { return this.records.length; }

  get(name) { return this.devices.get(name); }

  /** Take over a row of GET /v1/devices. */
  applyRow(row) {
    const fix = row.fix ?? row.position ?? row;
    if (this.applyFix({ ...fix, device: row.device ?? fix.device })) this.fixCount -= 1;
    const address = row.address;
    if (!address) return;
    const whole = typeof address === "string" ? { display_name: address }
      : address.display_name ? address : { display_name: row.display_name, address };
    this.applyAddress({ time: fix.time, ...whole, device: row.device ?? fix.device }, false);
  }

  /** A fix; one older than what is known changes nothing. Returns whether it was taken. */
  applyFix(fix) {
    if (typeof fix?.device !== "string" || !Number.isFinite(fix.lat) || !Number.isFinite(fix.lon)) return false;
    const time = liveTime(fix);
    let record = this.devices.get(fix.device);
    if (!record) {
      const [user, ...rest] = fix.device.split("/");
      record = { device: fix.device, user, name: rest.join("/") || user, slot: this.records.length, address: null, search: fix.device.toLowerCase() };
      this.devices.set(fix.device, record);
      this.records.push(record);
    } else if (time < record.time) {
      return false;
    }
    record.lat = fix.lat;
    record.lon = fix.lon;
    record.time = time;
    record.received = fix.received ?? null;
    record.speed = fix.speed ?? null;
    record.course = fix.course ?? null;
    record.accuracy = fix.accuracy ?? null;
    record.altitude = fix.altitude ?? null;
    record.battery = fix.battery ?? record.battery ?? null; // apps send it now and then
    record.charging = fix.charging ?? null;
    record.source = fix.source ?? record.source ?? null;
    record.trigger = fix.trigger ?? null;
    this.dirty.add(record.slot);
    this.fixCount += 1;
    this.onFix(record);
    return true;
  }

  /** An address; one of an older fix changes nothing. */
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

/** The fix's own time, or its arrival's where that is absurd: as the gateway decides it. */
function liveTime(fix) {
  const arrived = fix.received ?? Date.now();
  const own = fix.time;
  return !Number.isFinite(own) || own > arrived + 86400e3 || own < 946684800e3 ? arrived : own;
}

/** An address as a headline and the rest: ["Aeulestrasse 5", "9490 Vaduz, Liechtenstein"]. */
export function addressLines(address) {
  const part = address.address ?? {};
  const street = part.road ?? part.pedestrian ?? part.footway ?? part.path;
  const town = part.city ?? part.town ?? part.village ?? part.municipality ?? part.hamlet;
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
