// A value over time as a line with a filled ground, drawn on a canvas.

/**
 * @typedef {object} Frame
 * @property {number} from ms since 1970
 * @property {number} to
 * @property {number} top the value at the upper end; 0 is at the lower one
 * @property {number} [gapMs] points that are further apart are not joined
 * @property {string} [caption] above the line
 */

/**
 * @param {HTMLCanvasElement} canvas
 * @param {{time: number, value: number}[]} points by time
 * @param {Frame} frame
 * @returns {boolean} whether there was room to draw
 */
export function drawTimeChart(canvas, points, { from, to, top, gapMs = Infinity, caption = "" }) {
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  const context = canvas.getContext("2d");
  if (!width || !context) return false;
  const ratio = devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  context.scale(ratio, ratio);
  const style = getComputedStyle(canvas);
  const accent = style.getPropertyValue("--accent");
  const x = (/** @type {number} */ time) => 1 + ((time - from) / Math.max(to - from, 1)) * (width - 2);
  const y = (/** @type {number} */ value) => height - 2 - (value / top) * (height - 16);
  for (const line of lines(points, gapMs)) {
    const [first, last] = [line[0], line.at(-1)];
    if (!first || !last) continue;
    context.beginPath();
    line.forEach(({ time, value }, index) => context[index ? "lineTo" : "moveTo"](x(time), y(value)));
    // A point of its own is seen, too.
    if (line.length === 1) context.lineTo(x(first.time) + 1, y(first.value));
    context.strokeStyle = accent;
    context.lineWidth = 1.6;
    context.lineJoin = "round";
    context.stroke();
    context.lineTo(x(last.time), height);
    context.lineTo(x(first.time), height);
    context.globalAlpha = 0.13;
    context.fillStyle = accent;
    context.fill();
    context.globalAlpha = 1;
  }
  context.fillStyle = style.getPropertyValue("--text-soft");
  context.font = `11px ${style.fontFamily}`;
  context.fillText(caption, 0, 10);
  return true;
}

/**
 * @param {{time: number, value: number}[]} points
 * @param {number} gapMs
 */
function lines(points, gapMs) {
  /** @type {{time: number, value: number}[][]} */
  const found = [];
  let before = -Infinity;
  for (const point of points) {
    if (point.time - before > gapMs || !found.length) found.push([]);
    found.at(-1)?.push(point);
    before = point.time;
  }
  return found;
}
