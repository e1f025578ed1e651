// Where devices in sight have just been: each movement is a line that fades, in one draw call. A
// ring of the newest ones: memory does not grow, however long the page is open.

import { linked, release } from "../map/graphics.js";
import { mercator, translated } from "../points_layer.js";

/** @import { CustomRenderMethodInput, Map as LibraryMap } from "maplibre-gl" */
/** @typedef {import("../points_layer.js").Mercator} Mercator */

const LINES = 16384;
const FLOATS = 5; // from x, y; to x, y; time
const FADE_S = 90;
const WIDTH_PX = 2;
const LONGEST = 2.5e-4; // of the world, 10 km: what is farther was not seen moving

const VERTEX = `#version 300 es
precision highp float;
uniform mat4 u_matrix;
uniform float u_shift, u_now, u_fade, u_width;
uniform vec2 u_size;
in vec2 a_from, a_to;
in float a_time;
out float v_alpha;
void main() {
  vec4 from = u_matrix * vec4(a_from.x + u_shift, a_from.y, 0.0, 1.0);
  vec4 to = u_matrix * vec4(a_to.x + u_shift, a_to.y, 0.0, 1.0);
  vec2 along = (to.xy / to.w - from.xy / from.w) * u_size;
  float reach = length(along);
  vec2 across = reach > 0.01 ? vec2(-along.y, along.x) / reach : vec2(0.0);
  bool end = gl_VertexID > 1;
  float side = (gl_VertexID & 1) == 1 ? 1.0 : -1.0;
  vec4 at = end ? to : from;
  gl_Position = at + vec4(across * side * u_width / u_size * at.w, 0.0, 0.0);
  v_alpha = clamp(1.0 - (u_now - a_time) / u_fade, 0.0, 1.0);
  if (v_alpha <= 0.0) gl_Position = vec4(2.0, 2.0, 2.0, 1.0);
}`;

const FRAGMENT = `#version 300 es
precision highp float;
uniform vec3 u_colour;
in float v_alpha;
out vec4 colour;
void main() { float a = 0.55 * v_alpha; colour = vec4(u_colour * a, a); }`;

export class TrailsLayer {
  constructor() {
    this.id = "trails";
    this.type = /** @type {const} */ ("custom");
    this.renderingMode = /** @type {const} */ ("2d");
    /** @type {LibraryMap | null} */
    this.map = null;
    /** @type {import("../map/graphics.js").Graphics | null} */
    this.graphics = null;
    this.exact = new Float64Array(LINES * 4);
    this.data = new Float32Array(LINES * FLOATS);
    this.count = 0;
    this.next = 0;
    this.epoch = performance.now();
    this.newest = -Infinity;
    /** @type {Mercator} */
    this.origin = [0.5, 0.5];
    this.changed = false;
    /** @type {number[]} */
    this.colour = [14, 169, 117];
  }

  now() { return (performance.now() - this.epoch) / 1000; }

  /**
   * A device has moved.
   * @param {number} fromX
   * @param {number} fromY
   * @param {number} toX
   * @param {number} toY
   */
  add(fromX, fromY, toX, toY) {
    if (Math.abs(toX - fromX) + Math.abs(toY - fromY) > LONGEST || (fromX === toX && fromY === toY)) return;
    this.exact.set([fromX, fromY, toX, toY], this.next * 4);
    this.newest = this.now();
    this.data[this.next * FLOATS + 4] = this.newest;
    this.write(this.next);
    this.next = (this.next + 1) % LINES;
    this.count = Math.min(LINES, this.count + 1);
    this.changed = true;
  }

  clear() {
    this.count = this.next = 0;
  }

  /** @param {number} index */
  write(index) {
    for (let i = 0; i < 4; i += 1) this.data[index * FLOATS + i] = (this.exact[index * 4 + i] ?? 0) - (this.origin[i & 1] ?? 0);
  }

  /**
   * @param {LibraryMap} map
   * @param {WebGLRenderingContext | WebGL2RenderingContext} context
   */
  onAdd(map, context) {
    const gl = /** @type {WebGL2RenderingContext} */ (context);
    this.map = map;
    const { program, uniforms } = linked(gl, VERTEX, FRAGMENT, ["a_from", "a_to", "a_time"],
      ["u_matrix", "u_shift", "u_now", "u_fade", "u_width", "u_size", "u_colour"]);
    const buffer = gl.createBuffer();
    const array = gl.createVertexArray();
    gl.bindVertexArray(array);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.bufferData(gl.ARRAY_BUFFER, this.data.byteLength, gl.DYNAMIC_DRAW);
    for (const [index, size, offset] of /** @type {const} */ ([[0, 2, 0], [1, 2, 8], [2, 1, 16]])) {
      gl.enableVertexAttribArray(index);
      gl.vertexAttribPointer(index, size, gl.FLOAT, false, FLOATS * 4, offset);
      gl.vertexAttribDivisor(index, 1);
    }
    gl.bindVertexArray(null);
    this.graphics = { program, buffer, array, uniforms };
    this.changed = true;
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

  /**
   * @param {WebGLRenderingContext | WebGL2RenderingContext} context
   * @param {CustomRenderMethodInput} args
   */
  render(context, args) {
    const gl = /** @type {WebGL2RenderingContext} */ (context);
    const { graphics, map } = this;
    if (!graphics || !map || !this.count || this.now() > this.newest + FADE_S) return;
    const centre = map.getCenter().wrap();
    const middle = mercator(centre.lat, centre.lng);
    if (Math.hypot(middle[0] - this.origin[0], middle[1] - this.origin[1]) * 2 ** map.getZoom() >= 64) {
      this.origin = middle;
      for (let index = 0; index < this.count; index += 1) this.write(index);
      this.changed = true;
    }
    const at = (/** @type {string} */ name) => graphics.uniforms[name] ?? null;
    gl.useProgram(graphics.program);
    gl.bindVertexArray(graphics.array);
    gl.bindBuffer(gl.ARRAY_BUFFER, graphics.buffer);
    if (this.changed) gl.bufferSubData(gl.ARRAY_BUFFER, 0, this.data, 0, this.count * FLOATS);
    this.changed = false;
    const matrix = translated(Float64Array.from(args.defaultProjectionData.mainMatrix), this.origin[0], this.origin[1]);
    gl.uniformMatrix4fv(at("u_matrix"), false, new Float32Array(matrix));
    gl.uniform1f(at("u_now"), this.now());
    gl.uniform1f(at("u_fade"), FADE_S);
    gl.uniform1f(at("u_width"), WIDTH_PX * devicePixelRatio);
    gl.uniform2f(at("u_size"), gl.drawingBufferWidth, gl.drawingBufferHeight);
    gl.uniform3fv(at("u_colour"), this.colour.map((value) => value / 255));
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    gl.disable(gl.DEPTH_TEST);
    const west = Math.floor(map.getBounds().getWest() / 360 + 0.5);
    const east = Math.floor(map.getBounds().getEast() / 360 + 0.5);
    for (let copy = west; copy <= east; copy += 1) {
      gl.uniform1f(at("u_shift"), copy);
      gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, this.count);
    }
    gl.bindVertexArray(null);
  }
}
