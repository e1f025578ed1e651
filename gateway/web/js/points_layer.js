// Every device as a point of one WebGL draw call. A device glides from its last position to the
// new one in the shader, so that a position costs eight numbers and no layout of any kind.

import { LIVE_S, RECENT_S } from "./format.js";
import { linked, release } from "./map/graphics.js";

/** @import { DeviceRecord, DeviceStore } from "./device_store.js" */
/** @import { CustomRenderMethodInput, Map as LibraryMap, Point } from "maplibre-gl" */

const FLOATS = 8; // from x, y; to x, y; start of the glide; time of the fix; course; state
const GLIDE_S = 0.9;
const PULSE_S = 1.6;
const PULSE_LIMIT = 300; // devices; above it the rings would hide the map
const NOSE_LIMIT = 2000; // devices; above it a direction is shown from zoom 8 on only

const VERTEX = `#version 300 es
precision highp float;
uniform mat4 u_matrix;
uniform float u_shift, u_now, u_glide, u_scale, u_pulse, u_noses;
uniform vec2 u_ages;
in vec2 a_from, a_to;
in vec4 a_rest; // start, time, course, state
flat out float v_age, v_course, v_state, v_pulse, v_size, v_reach;
void main() {
  float t = u_glide > 0.0 ? clamp((u_now - a_rest.x) / u_glide, 0.0, 1.0) : 1.0;
  vec2 at = mix(a_from, a_to, t * t * (3.0 - 2.0 * t));
  gl_Position = u_matrix * vec4(at.x + u_shift, at.y, 0.0, 1.0);
  float age = u_now - a_rest.y;
  v_age = age <= u_ages.x ? 0.0 : age <= u_ages.y ? 1.0 : 2.0;
  v_course = u_noses > 0.5 && v_age < 1.5 ? a_rest.z : -1.0;
  v_state = a_rest.w;
  v_pulse = u_pulse > 0.0 ? clamp((u_now - a_rest.x) / u_pulse, 0.0, 1.0) : 1.0;
  float radius = (v_age < 0.5 ? 6.0 : v_age < 1.5 ? 5.4 : 4.4) * u_scale * (v_state > 1.5 ? 1.35 : v_state > 0.5 ? 1.2 : 1.0);
  v_size = radius;
  // No larger than what is drawn in it: a fragment costs as much when it stays empty.
  v_reach = v_pulse < 1.0 || v_state > 1.5 ? radius * 2.6 : (v_course > -0.5 ? radius * 1.7 : radius) + 2.6 * u_scale;
  gl_PointSize = v_reach * 2.0;
  if (v_state < -0.5) gl_Position = vec4(2.0, 2.0, 2.0, 1.0);
}`;

const FRAGMENT = `#version 300 es
precision highp float;
uniform vec4 u_colours[3];
uniform vec4 u_rim, u_selected;
uniform float u_scale;
flat in float v_age, v_course, v_state, v_pulse, v_size, v_reach;
out vec4 colour;
void main() {
  vec2 p = (gl_PointCoord * 2.0 - 1.0) * v_reach;
  float away = length(p);
  if (away > v_reach) discard;
  float circle = away - v_size;
  float shape = circle;
  if (v_course > -0.5) {
    float s = sin(v_course), c = cos(v_course);
    vec2 q = vec2(c * p.x + s * p.y, -s * p.x + c * p.y); // y points backwards
    float tip = abs(q.x) * 0.8 - (q.y + v_size * 1.667) * 0.6; // its sides touch the circle
    shape = min(circle, max(tip, q.y + 0.6 * v_size));
  }
  vec4 fill = v_age < 0.5 ? u_colours[0] : v_age < 1.5 ? u_colours[1] : u_colours[2];
  float soft = 0.75;
  float rim = 1.9 * u_scale;
  float inside = 1.0 - smoothstep(-soft, soft, shape);
  float outer = 1.0 - smoothstep(-soft, soft, shape - rim);
  // Second cue beside colour: the longer ago, the emptier the disc.
  float hole = v_age < 0.5 ? 0.0 : 1.0 - smoothstep(-soft, soft, away - v_size * (v_age < 1.5 ? 0.34 : 0.62));
  vec4 rimColour = v_state > 1.5 ? u_selected : u_rim;
  vec4 body = mix(fill, u_rim, hole);
  vec4 result = mix(rimColour, body, inside) * outer;
  float ring = 0.0;
  if (v_pulse < 1.0) ring = (1.0 - smoothstep(0.0, 1.8 * u_scale, abs(away - v_size * (1.0 + v_pulse * 1.45)))) * (1.0 - v_pulse) * 0.75;
  if (v_state > 1.5) ring = max(ring, (1.0 - smoothstep(-soft, soft, abs(away - v_size * 2.15) - 0.9 * u_scale)) * 0.9);
  colour = result + (v_state > 1.5 ? u_selected : fill) * ring * (1.0 - result.a);
  if (colour.a < 0.01) discard;
}`;

/** @typedef {[number, number]} Mercator x eastwards, y southwards; the world is 0..1 */
/** @typedef {import("./map/graphics.js").Graphics} Graphics */

export class PointsLayer {
  /**
   * @param {DeviceStore} store
   * @param {{reducedMotion?: boolean}} [options]
   */
  constructor(store, { reducedMotion = false } = {}) {
    this.id = "devices";
    this.type = /** @type {const} */ ("custom");
    this.renderingMode = /** @type {const} */ ("2d");
    /** @type {LibraryMap | null} */
    this.map = null;
    /** @type {Graphics | null} */
    this.graphics = null;
    this.data = new Float32Array(0);
    this.exact = new Float64Array(0);
    this.resized = false;
    this.changed = false;
    this.store = store;
    this.reducedMotion = reducedMotion;
    this.count = 0;
    this.capacity = 0;
    this.reserve(1024);
    this.epoch = performance.now();
    this.wallEpoch = Date.now();
    /** @type {Mercator} */
    this.origin = [0.5, 0.5];
    /** @type {((record: DeviceRecord) => boolean) | null} */
    this.filter = null;
    /** @type {DeviceRecord | null} */
    this.selected = null;
    /** @type {DeviceRecord | null} */
    this.hovered = null;
    /** @type {ReadonlySet<string>} names of devices that are chosen beside it */
    this.pinned = new Set();
    /** @type {((fromX: number, fromY: number, toX: number, toY: number) => void) | null} a device has moved */
    this.onMove = null;
    /** @type {Set<number>} slots that have another device than was drawn there */
    this.fresh = new Set();
    /** @type {number[][]} */
    this.colours = [];
    /** @type {number[]} */
    this.rim = [];
    /** @type {number[]} */
    this.accent = [];
    this.busyUntil = 0;
    this.updatedAt = -Infinity;
    this.updateAsked = false;
    this.frames = 0;
    this.setTheme("light");
  }

  /** @param {number} capacity of devices */
  reserve(capacity) {
    const data = new Float32Array(capacity * FLOATS);
    // Positions in double precision: a Float32 of a whole world is metres wide.
    const exact = new Float64Array(capacity * 4);
    if (this.capacity) {
      data.set(this.data);
      exact.set(this.exact);
    }
    this.data = data;
    this.exact = exact;
    this.capacity = capacity;
    this.resized = true;
  }

  /** @param {string} theme */
  setTheme(theme) {
    const dark = theme === "dark";
    this.colours = dark
      ? [[46, 230, 168], [255, 179, 64], [127, 139, 156]]
      : [[14, 169, 117], [232, 140, 0], [125, 136, 152]];
    this.rim = dark ? [16, 20, 27] : [255, 255, 255];
    this.accent = dark ? [125, 148, 255] : [59, 91, 253];
    this.map?.triggerRepaint();
  }

  /**
   * @param {LibraryMap} map
   * @param {WebGLRenderingContext | WebGL2RenderingContext} context
   */
  onAdd(map, context) {
    const gl = /** @type {WebGL2RenderingContext} */ (context);
    this.map = map;
    const { program, uniforms } = linked(gl, VERTEX, FRAGMENT, ["a_from", "a_to", "a_rest"],
      ["u_matrix", "u_shift", "u_now", "u_glide", "u_scale", "u_pulse", "u_noses", "u_ages", "u_colours", "u_rim", "u_selected"]);
    const buffer = gl.createBuffer();
    const array = gl.createVertexArray();
    gl.bindVertexArray(array);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    for (const [index, size, offset] of /** @type {const} */ ([[0, 2, 0], [1, 2, 8], [2, 4, 16]])) {
      gl.enableVertexAttribArray(index);
      gl.vertexAttribPointer(index, size, gl.FLOAT, false, FLOATS * 4, offset);
    }
    gl.bindVertexArray(null);
    this.graphics = { program, buffer, array, uniforms };
    this.resized = true;
  }

  /**
   * @param {LibraryMap} _map
   * @param {WebGLRenderingContext | WebGL2RenderingContext} context
   */
  onRemove(_map, context) {
    if (!this.graphics) return;
    release(/** @type {WebGL2RenderingContext} */ (context), this.graphics);
    this.graphics = null;
  }

  /** Whether a device is on its way, or about to be. */
  get gliding() {
    return this.store.dirty.size > 0 || (!this.reducedMotion && this.now() < this.updatedAt + GLIDE_S);
  }

  now() { return (performance.now() - this.epoch) / 1000; }

  /** From now on take what changes with the next frame: any number of fixes costs one upload, and none costs nothing. */
  follow() {
    this.store.onMoved = () => this.updateSoon();
    this.updateSoon();
  }

  updateSoon() {
    if (this.updateAsked) return;
    this.updateAsked = true;
    requestAnimationFrame(() => { this.updateAsked = false; this.update(); });
  }

  /** Take the positions that changed. Returns how many. */
  update() {
    const shrunk = this.takeRemoved();
    const dirty = this.store.takeDirty();
    if (!dirty.size) {
      if (shrunk) this.map?.triggerRepaint();
      return 0;
    }
    const { records } = this.store;
    while (records.length > this.capacity) this.reserve(this.capacity * 2);
    const now = this.now();
    for (const slot of dirty) {
      const record = records[slot];
      if (!record) continue;
      const [x, y] = mercator(record.lat, record.lon);
      const at = slot * 4;
      const { exact } = this;
      if (slot < this.count && !this.fresh.delete(slot)) {
        const [currentX, currentY] = this.current(slot, now);
        exact[at] = currentX + Math.round(x - currentX); // the short way over the antimeridian
        exact[at + 1] = currentY;
        this.onMove?.(currentX, currentY, x + Math.round(currentX - x), y);
      } else {
        exact[at] = x;
        exact[at + 1] = y;
      }
      exact[at + 2] = x;
      exact[at + 3] = y;
      this.data[slot * FLOATS + 4] = now;
      this.write(slot);
    }
    this.count = records.length;
    this.updatedAt = now;
    this.changed = true;
    this.busyUntil = performance.now() + (this.reducedMotion ? 0 : (this.count <= PULSE_LIMIT ? PULSE_S : GLIDE_S) * 1000);
    this.map?.triggerRepaint();
    return dirty.size;
  }

  /** Close the gaps that devices have left which are no longer known: the last one moves there. */
  takeRemoved() {
    const removed = this.store.takeRemoved();
    for (const [slot, last] of removed) {
      const isFresh = this.fresh.delete(last) || last >= this.count;
      if (last < this.count) {
        this.exact.copyWithin(slot * 4, last * 4, last * 4 + 4);
        this.data.copyWithin(slot * FLOATS, last * FLOATS, (last + 1) * FLOATS);
        this.count = last;
        this.changed = true;
      }
      // What has not been drawn yet does not glide from where another device was.
      if (isFresh && slot < this.count) this.fresh.add(slot);
      else this.fresh.delete(slot);
    }
    return removed.length > 0;
  }

  /** @param {number} slot */
  write(slot) {
    const record = this.store.records[slot];
    if (!record) return;
    const { data, exact, origin } = this;
    const at = slot * FLOATS;
    for (let i = 0; i < 4; i += 1) data[at + i] = (exact[slot * 4 + i] ?? 0) - (origin[i & 1] ?? 0);
    data[at + 5] = (record.heard - this.wallEpoch) / 1000;
    const moving = record.course !== null && (record.speed === null || record.speed > 0.5);
    data[at + 6] = moving && record.course !== null ? (record.course * Math.PI) / 180 : -1;
    data[at + 7] = this.stateOf(record);
  }

  /** @param {DeviceRecord} record */
  stateOf(record) {
    if (record === this.selected || this.pinned.has(record.device)) return 2;
    if (this.filter && !this.filter(record)) return -1;
    return record === this.hovered ? 1 : 0;
  }

  restate() {
    for (let slot = 0; slot < this.count; slot += 1) {
      const record = this.store.records[slot];
      if (record) this.data[slot * FLOATS + 7] = this.stateOf(record);
    }
    this.changed = true;
    this.map?.triggerRepaint();
  }

  /** @param {((record: DeviceRecord) => boolean) | null} filter */
  setFilter(filter) { this.filter = filter; this.restate(); }

  /** @param {DeviceRecord | null} record */
  select(record) { this.selected = record; this.restate(); }

  /** @param {ReadonlySet<string>} devices */
  pin(devices) { this.pinned = devices; this.restate(); }

  /** @param {DeviceRecord | null} record */
  hover(record) {
    if (record === this.hovered) return;
    this.hovered = record;
    this.restate();
  }

  /**
   * Where a device is drawn right now.
   * @param {number} slot
   * @returns {Mercator}
   */
  current(slot, now = this.now()) {
    const [x = 0, y = 0, toX = 0, toY = 0] = this.exact.subarray(slot * 4, slot * 4 + 4);
    const t = this.reducedMotion ? 1 : Math.min(1, Math.max(0, (now - (this.data[slot * FLOATS + 4] ?? 0)) / GLIDE_S));
    const eased = t * t * (3 - 2 * t);
    return [x + (toX - x) * eased, y + (toY - y) * eased];
  }

  /**
   * The device whose point is nearest to a pixel, within `reach` pixels.
   * @param {Point} point
   */
  pick(point, reach = 14) {
    const { map } = this;
    if (!map) return null;
    const centre = map.unproject(point);
    const [px, py] = mercator(centre.lat, centre.lng);
    const scale = 512 * 2 ** map.getZoom();
    /** @type {DeviceRecord | null} */
    let best = null;
    let bestDistance = (reach / scale) ** 2;
    const now = this.now();
    for (let slot = 0; slot < this.count; slot += 1) {
      if ((this.data[slot * FLOATS + 7] ?? 0) < 0) continue;
      const [x, y] = this.current(slot, now);
      const dx = x - px - Math.round(x - px);
      const d = dx * dx + (y - py) ** 2;
      if (d < bestDistance) {
        bestDistance = d;
        best = this.store.records[slot] ?? null;
      }
    }
    return best;
  }

  /**
   * @param {Mercator} centre
   * @param {number} zoom
   */
  reanchor(centre, zoom) {
    const far = Math.hypot(centre[0] - this.origin[0], centre[1] - this.origin[1]) * 2 ** zoom;
    if (far < 64) return; // half a thousandth of a pixel of error at most
    this.origin = centre;
    for (let slot = 0; slot < this.count; slot += 1) {
      for (let i = 0; i < 4; i += 1) this.data[slot * FLOATS + i] = (this.exact[slot * 4 + i] ?? 0) - (centre[i & 1] ?? 0);
    }
    this.changed = true;
  }

  /**
   * @param {WebGLRenderingContext | WebGL2RenderingContext} context
   * @param {CustomRenderMethodInput} args
   */
  render(context, args) {
    const gl = /** @type {WebGL2RenderingContext} */ (context);
    const { graphics, map } = this;
    if (!this.count || !graphics || !map) return;
    this.frames += 1;
    const { uniforms } = graphics;
    const at = (/** @type {string} */ name) => uniforms[name] ?? null;
    const centre = map.getCenter().wrap();
    this.reanchor(mercator(centre.lat, centre.lng), map.getZoom());
    gl.useProgram(graphics.program);
    gl.bindVertexArray(graphics.array);
    gl.bindBuffer(gl.ARRAY_BUFFER, graphics.buffer);
    if (this.resized) {
      gl.bufferData(gl.ARRAY_BUFFER, this.data, gl.DYNAMIC_DRAW);
      this.resized = false;
    } else if (this.changed) {
      gl.bufferSubData(gl.ARRAY_BUFFER, 0, this.data, 0, this.count * FLOATS);
    }
    this.changed = false;
    // The origin is put into the matrix in double precision; the buffer holds the small rest.
    const m = Float64Array.from(args.defaultProjectionData.mainMatrix);
    const matrix = translated(m, this.origin[0], this.origin[1]);
    gl.uniformMatrix4fv(at("u_matrix"), false, new Float32Array(matrix));
    const pulse = !this.reducedMotion && this.count <= PULSE_LIMIT ? PULSE_S : 0;
    const scale = (this.count > 4000 && map.getZoom() < 7 ? 0.62 : this.count > 800 && map.getZoom() < 6 ? 0.8 : 1) * devicePixelRatio;
    gl.uniform1f(at("u_now"), this.now());
    gl.uniform1f(at("u_glide"), this.reducedMotion ? 0 : GLIDE_S);
    gl.uniform1f(at("u_pulse"), pulse);
    gl.uniform1f(at("u_scale"), scale);
    gl.uniform1f(at("u_noses"), this.count <= NOSE_LIMIT || map.getZoom() >= 8 ? 1 : 0);
    gl.uniform2f(at("u_ages"), LIVE_S, RECENT_S);
    const solid = (/** @type {number[]} */ c) => [...c.map((v) => v / 255), 1];
    gl.uniform4fv(at("u_colours"), this.colours.flatMap(solid));
    gl.uniform4fv(at("u_rim"), solid(this.rim));
    gl.uniform4fv(at("u_selected"), solid(this.accent));
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    gl.disable(gl.DEPTH_TEST);
    const west = Math.floor(map.getBounds().getWest() / 360 + 0.5);
    const east = Math.floor(map.getBounds().getEast() / 360 + 0.5);
    for (let copy = west; copy <= east; copy += 1) {
      gl.uniform1f(at("u_shift"), copy);
      gl.drawArrays(gl.POINTS, 0, this.count);
      if (this.selected && this.selected.slot < this.count) gl.drawArrays(gl.POINTS, this.selected.slot, 1); // above all others
    }
    gl.bindVertexArray(null);
    if (performance.now() < this.busyUntil) map.triggerRepaint();
  }
}

/**
 * @param {number} lat
 * @param {number} lon
 * @returns {Mercator}
 */
export function mercator(lat, lon) {
  const sine = Math.sin((Math.max(-85.0511287798, Math.min(85.0511287798, lat)) * Math.PI) / 180);
  return [lon / 360 + 0.5, 0.5 - Math.log((1 + sine) / (1 - sine)) / (4 * Math.PI)];
}

/**
 * @param {Float64Array} m a matrix of four columns
 * @param {number} x
 * @param {number} y
 */
export function translated(m, x, y) {
  const out = Float64Array.from(m);
  for (let row = 0; row < 4; row += 1) out[12 + row] = (m[row] ?? 0) * x + (m[4 + row] ?? 0) * y + (m[12 + row] ?? 0);
  return out;
}
