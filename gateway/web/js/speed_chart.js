// The speed along a track, drawn on a canvas.

import { speed } from "./format.js";
import { t } from "./i18n.js";

/**
 * Draw the speeds that are known; hide the canvas where there are fewer than three.
 * @param {HTMLCanvasElement} canvas
 * @param {import("./tracks.js").TrackPoint[]} track
 * @returns {number | null} the highest speed, m/s; null where nothing was drawn
 */
export function drawSpeedChart(canvas, track) {
  const points = track.flatMap(({ time, speed: own }) => (own !== null && Number.isFinite(own) ? [{ time, speed: own }] : []));
  canvas.hidden = points.length < 3;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  const context = canvas.getContext("2d");
  const [first, last] = [points[0], points.at(-1)];
  if (canvas.hidden || !width || !context || !first || !last) return null;
  const ratio = devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  context.scale(ratio, ratio);
  const to = Math.max(first.time + 1, last.time);
  const top = points.reduce((most, point) => Math.max(most, point.speed), 3);
  const x = (/** @type {number} */ time) => 1 + ((time - first.time) / (to - first.time)) * (width - 2);
  const style = getComputedStyle(canvas);
  context.beginPath();
  points.forEach((point, index) => context[index ? "lineTo" : "moveTo"](x(point.time), height - 2 - (point.speed / top) * (height - 16)));
  context.strokeStyle = style.getPropertyValue("--accent");
  context.lineWidth = 1.6;
  context.lineJoin = "round";
  context.stroke();
  context.lineTo(x(last.time), height);
  context.lineTo(x(first.time), height);
  context.globalAlpha = 0.13;
  context.fillStyle = style.getPropertyValue("--accent");
  context.fill();
  context.globalAlpha = 1;
  context.fillStyle = style.getPropertyValue("--text-soft");
  context.font = `11px ${style.fontFamily}`;
  context.fillText(t("device.top_speed", { speed: speed(top) }), 0, 10);
  return top;
}
