// The speed along a track.

import { speed } from "./format.js";
import { t } from "./i18n.js";
import { drawTimeChart } from "./time_chart.js";

/**
 * Draw the speeds that are known; hide the canvas where there are fewer than three.
 * @param {HTMLCanvasElement} canvas
 * @param {import("./tracks.js").TrackPoint[]} track
 * @returns {number | null} the highest speed, m/s; null where nothing was drawn
 */
export function drawSpeedChart(canvas, track) {
  const points = track.flatMap(({ time, speed: own }) => (own !== null && Number.isFinite(own) ? [{ time, value: own }] : []));
  canvas.hidden = points.length < 3;
  const [first, last] = [points[0], points.at(-1)];
  if (canvas.hidden || !first || !last) return null;
  const top = points.reduce((most, point) => Math.max(most, point.value), 3);
  const caption = t("device.top_speed", { speed: speed(top) });
  return drawTimeChart(canvas, points, { from: first.time, to: last.time, top, caption }) ? top : null;
}
