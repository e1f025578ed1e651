// The map by area, for viewers of many devices: the gateway sends what this part of the map shows,
// points or counts. The store then has the devices in sight, and those that were chosen or found.

import { readFrame } from "./area_frames.js";

/** @import { DeviceStore } from "../device_store.js" */
/** @import { LiveConnection } from "../live_connection.js" */
/** @import { MapView } from "../map_view.js" */
/** @import { Cell, Frame, FramePoint } from "./area_frames.js" */

const LOOK_MS = 200;
/** Of the view, on each side: where the map is dragged there are devices already. */
const MARGIN = 0.25;

export class AreaView extends EventTarget {
  /** Events: `begun`, `ended`, `seen` (after each frame of points or counts), `lost` (a chosen device's name). */
  /**
   * @param {LiveConnection} live
   * @param {DeviceStore} store
   * @param {MapView} map
   */
  constructor(live, store, map) {
    super();
    this.live = live;
    this.store = store;
    this.map = map;
    this.active = false;
    this.inside = 0;
    this.visible = 0;
    this.level = 0;
    /** @type {Map<string, Cell> | null} by place; null while there are points */
    this.cells = null;
    /** @type {Map<number, string>} */
    this.names = new Map();
    /** @type {Set<string>} devices in sight */
    this.members = new Set();
    /** @type {Set<string>} devices that are shown wherever they are */
    this.watched = new Set();
    /** @type {Set<string>} those of them that always are */
    this.kept = new Set();
    /** @type {{bounds: import("maplibre-gl").LngLatBounds, zoom: number} | null} what was asked for */
    this.asked = null;
    /** @type {Set<string>} those of them of which the gateway has told */
    this.told = new Set();
    /** @type {number | undefined} */
    this.timer;
    this.framesTaken = 0;
    live.addEventListener("frame", (event) => this.takeBuffer(/** @type {CustomEvent<ArrayBuffer>} */ (event).detail));
    map.addEventListener("moved", () => this.lookSoon());
    map.addEventListener("moving", () => this.lookSoon());
  }

  begin() {
    if (!this.active) {
      this.active = true;
      this.store.clear();
      this.dispatchEvent(new Event("begun"));
    }
    // A new connection has other numbers, and has told nothing yet.
    this.told.clear();
    this.asked = null;
    this.look();
  }

  end() {
    if (!this.active) return;
    this.active = false;
    clearTimeout(this.timer);
    this.timer = undefined;
    this.cells = null;
    for (const set of [this.names, this.members, this.told]) set.clear();
    this.store.clear();
    this.live.look(null);
    this.dispatchEvent(new Event("ended"));
  }

  /**
   * Which devices are shown wherever they are.
   * @param {Iterable<string>} devices
   */
  watch(devices) {
    const watched = new Set([...this.kept, ...devices]);
    if (watched.size === this.watched.size && [...watched].every((device) => this.watched.has(device))) return;
    this.watched = watched;
    if (this.active) this.look();
  }

  /**
   * These devices are shown from now on, besides those that are chosen.
   * @param {string[]} devices
   */
  keep(devices) {
    this.kept = new Set(devices);
    this.watch([...this.watched]);
  }

  /** After a moment: a map that is dragged moves with each frame. */
  lookSoon() {
    if (!this.active || this.timer !== undefined) return;
    this.timer = setTimeout(() => {
      this.timer = undefined;
      if (!this.isInSight()) this.look();
    }, LOOK_MS);
  }

  /** Whether what the map shows is in what was asked for: a map that follows a device moves all the time. */
  isInSight() {
    const { map } = this.map;
    const { asked } = this;
    if (!map || !asked || Math.floor(map.getZoom()) !== Math.floor(asked.zoom)) return false;
    const [bounds, there] = [map.getBounds(), asked.bounds];
    const dx = (there.getEast() - there.getWest()) * MARGIN;
    const dy = (there.getNorth() - there.getSouth()) * MARGIN;
    return bounds.getWest() >= there.getWest() - dx && bounds.getEast() <= there.getEast() + dx
      && bounds.getSouth() >= there.getSouth() - dy && bounds.getNorth() <= there.getNorth() + dy;
  }

  look() {
    clearTimeout(this.timer);
    this.timer = undefined;
    const { map } = this.map;
    if (!this.active || !map) return;
    this.asked = { bounds: map.getBounds(), zoom: map.getZoom() };
    this.live.look({ bbox: boxOf(map.getBounds()), zoom: Math.max(0, map.getZoom()), devices: [...this.watched] });
  }

  /** @param {ArrayBuffer} buffer */
  takeBuffer(buffer) {
    if (!this.active) return;
    const frame = readFrame(buffer);
    if (frame) this.take(frame);
  }

  /** @param {Frame} frame */
  take(frame) {
    this.framesTaken += 1;
    this.visible = frame.visible;
    if (frame.kind === "names") {
      if (frame.whole) this.forgetAll();
      for (const [number, name] of frame.names) this.names.set(number, name);
      return;
    }
    if (frame.kind === "chosen") {
      this.takeChosen(frame.points);
      return;
    }
    this.inside = frame.inside;
    this.level = frame.level;
    if (frame.kind === "counts") {
      this.setMembers(new Set());
      if (frame.whole || !this.cells) this.cells = new Map();
      for (const cell of frame.cells) this.cells.set(`${cell.x}/${cell.y}`, cell);
      for (const [x, y] of frame.gone) this.cells.delete(`${x}/${y}`);
    } else {
      this.cells = null;
      const here = this.applied(frame.points);
      if (frame.whole) this.setMembers(here);
      else for (const device of here) this.members.add(device);
      for (const number of frame.gone) {
        const device = this.names.get(number);
        if (device === undefined || !this.members.delete(device)) continue;
        if (!this.watched.has(device)) this.store.remove(device);
      }
    }
    this.dispatchEvent(new Event("seen"));
  }

  /** @param {FramePoint[]} points */
  applied(points) {
    /** @type {Set<string>} */
    const found = new Set();
    for (const { number, ...position } of points) {
      const device = this.names.get(number);
      if (device === undefined) continue;
      found.add(device);
      this.store.applyPosition(device, position);
    }
    return found;
  }

  /** @param {Set<string>} members */
  setMembers(members) {
    for (const device of this.members) {
      if (!members.has(device) && !this.watched.has(device)) this.store.remove(device);
    }
    this.members = members;
  }

  /** @param {FramePoint[]} points */
  takeChosen(points) {
    const told = this.applied(points);
    for (const device of this.told) {
      if (told.has(device) || this.members.has(device)) continue;
      this.store.remove(device);
      // Erased, or no longer a friend's.
      if (this.watched.has(device)) this.dispatchEvent(new CustomEvent("lost", { detail: device }));
    }
    this.told = told;
  }

  /** Other rights, or a gateway that has begun anew: nothing of before is known to be shown. */
  forgetAll() {
    this.names.clear();
    this.setMembers(new Set());
  }
}

/**
 * A box of degrees as the gateway takes it, with a margin.
 * @param {import("maplibre-gl").LngLatBounds} bounds
 * @returns {[number, number, number, number]}
 */
export function boxOf(bounds) {
  const [west, south, east, north] = [bounds.getWest(), bounds.getSouth(), bounds.getEast(), bounds.getNorth()];
  const dx = (east - west) * MARGIN;
  const dy = (north - south) * MARGIN;
  const wrapped = (/** @type {number} */ lon) => ((((lon + 180) % 360) + 360) % 360) - 180;
  const limited = (/** @type {number} */ lat) => Math.max(-90, Math.min(90, lat));
  const whole = east - west + 2 * dx >= 360;
  return [whole ? -180 : wrapped(west - dx), limited(south - dy), whole ? 180 : wrapped(east + dx), limited(north + dy)];
}
