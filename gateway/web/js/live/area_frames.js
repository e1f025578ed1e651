// Binary frames of the map by area, as docs/http.md describes them: what a part of the map shows.

const VERSION = 1;
const HEADER = 32;
const POINT = 28;
const CELL = 24;
const UNKNOWN = 0xffff;
const WHOLE = 1;
const KINDS = /** @type {const} */ (["names", "counts", "points", "chosen"]);

/**
 * @typedef {object} FrameHead
 * @property {boolean} whole whether the frame replaces what was known
 * @property {number} level of its cells
 * @property {number} inside devices in the part of the map
 * @property {number} visible devices that the viewer may see
 * @property {number} time ms
 */
/**
 * @typedef {object} FramePoint
 * @property {number} number of the device
 * @property {number} lat
 * @property {number} lon
 * @property {number} time of the position, ms
 * @property {number} received ms
 * @property {number | null} course
 * @property {number | null} speed
 * @property {number | null} accuracy
 */
/** @typedef {{x: number, y: number, count: number, live: number, lat: number, lon: number}} Cell */
/**
 * @typedef {(FrameHead & {kind: "names", names: [number, string][]})
 *   | (FrameHead & {kind: "counts", cells: Cell[], gone: [number, number][]})
 *   | (FrameHead & {kind: "points" | "chosen", points: FramePoint[], gone: number[]})} Frame
 */

/**
 * Read a frame. Throws a RangeError where it is cut off; null for one that only a later page reads.
 * @param {ArrayBuffer} buffer
 * @returns {Frame | null}
 */
export function readFrame(buffer) {
  const data = new DataView(buffer);
  const kind = KINDS[data.getUint8(1) - 1];
  if (data.getUint8(0) !== VERSION || !kind) return null;
  const u32 = (/** @type {number} */ at) => data.getUint32(at, true);
  const head = {
    whole: (data.getUint8(2) & WHOLE) !== 0, level: data.getUint8(3), inside: u32(12), visible: u32(16),
    time: Number(data.getBigInt64(24, true)),
  };
  const rows = u32(4);
  const goneCount = u32(8);
  if (kind === "names") return { ...head, kind, names: readNames(buffer, data, rows) };
  if (kind === "counts") {
    const cells = Array.from({ length: rows }, (_, index) => readCell(data, HEADER + index * CELL));
    const after = HEADER + rows * CELL;
    const gone = Array.from({ length: goneCount }, (_, index) => (
      /** @type {[number, number]} */ ([u32(after + 8 * index), u32(after + 8 * index + 4)])));
    return { ...head, kind, cells, gone };
  }
  const points = Array.from({ length: rows }, (_, index) => readPoint(data, HEADER + index * POINT, head.time));
  const after = HEADER + rows * POINT;
  return { ...head, kind, points, gone: Array.from({ length: goneCount }, (_, index) => u32(after + 4 * index)) };
}

/**
 * @param {ArrayBuffer} buffer
 * @param {DataView} data
 * @param {number} rows
 */
function readNames(buffer, data, rows) {
  const text = new TextDecoder();
  /** @type {[number, string][]} */
  const names = [];
  let at = HEADER;
  for (let row = 0; row < rows; row += 1) {
    const size = data.getUint16(at + 4, true);
    names.push([data.getUint32(at, true), text.decode(new Uint8Array(buffer, at + 6, size))]);
    at += 6 + size;
  }
  return names;
}

/**
 * @param {DataView} data
 * @param {number} at
 * @returns {Cell}
 */
function readCell(data, at) {
  return {
    x: data.getUint32(at, true), y: data.getUint32(at + 4, true),
    count: data.getUint32(at + 8, true), live: data.getUint32(at + 12, true),
    lat: data.getInt32(at + 16, true) / 1e7, lon: data.getInt32(at + 20, true) / 1e7,
  };
}

/**
 * @param {DataView} data
 * @param {number} at
 * @param {number} time of the frame, ms
 * @returns {FramePoint}
 */
function readPoint(data, at, time) {
  const known = (/** @type {number} */ offset, /** @type {number} */ by) => {
    const value = data.getUint16(at + offset, true);
    return value === UNKNOWN ? null : value / by;
  };
  return {
    number: data.getUint32(at, true),
    lat: data.getInt32(at + 4, true) / 1e7, lon: data.getInt32(at + 8, true) / 1e7,
    time: time - data.getUint32(at + 12, true) * 1000, received: time - data.getUint32(at + 16, true) * 1000,
    course: known(20, 100), speed: known(22, 100), accuracy: known(24, 10),
  };
}
