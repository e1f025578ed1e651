// The course of a device's battery.

import * as api from "../api.js";
import { attempt } from "../complaints.js";
import { make } from "../dom.js";
import { percent } from "../format.js";
import { t } from "../i18n.js";
import { drawTimeChart } from "../time_chart.js";

/** @import { BatteryLevel } from "../types/api.js" */

const DAY_MS = 86_400_000;
const SHOWN_MS = 7 * DAY_MS;
/** Of a longer silence nobody knows what the battery did. */
const GAP_MS = DAY_MS / 2;
const FRESH_MS = 5 * 60_000;

export class BatteryCourse extends HTMLElement {
  /** @type {string | null} */
  device = null;
  asked = -Infinity;
  canvas = make("canvas", { className: "chart", role: "img" });
  figure = make("figure", { hidden: true }, make("figcaption", { text: t("device.battery_course") }), this.canvas);
  error = make("p", { className: "refusal", role: "alert", hidden: true });

  connectedCallback() {
    if (!this.firstChild) this.append(this.figure, this.error);
  }

  /**
   * Show the last days of a device, and look again now and then.
   * @param {string} device
   */
  async show(device) {
    const now = Date.now();
    if (device === this.device && now - this.asked < FRESH_MS) return;
    if (device !== this.device) this.figure.hidden = true;
    this.device = device;
    this.asked = now;
    const levels = await attempt(this.error, () => api.battery(device, now - SHOWN_MS, now));
    if (levels && device === this.device) this.draw(levels, now);
  }

  /**
   * @param {BatteryLevel[]} levels
   * @param {number} now
   */
  draw(levels, now) {
    this.figure.hidden = levels.length < 2;
    if (this.figure.hidden) return;
    const points = levels.map(({ time, battery }) => ({ time, value: battery }));
    const values = points.map(({ value }) => value);
    const caption = t("device.battery_range", { low: percent(Math.min(...values)), high: percent(Math.max(...values)) });
    this.canvas.setAttribute("aria-label", `${t("device.battery_course")}: ${caption}`);
    drawTimeChart(this.canvas, points, { from: now - SHOWN_MS, to: now, top: 100, gapMs: GAP_MS, caption });
  }
}
customElements.define("battery-course", BatteryCourse);
