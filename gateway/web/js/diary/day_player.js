// A slider over the time of a timeline, and buttons that play it.

import { make, setText } from "../dom.js";
import { clock, date } from "../format.js";
import { t } from "../i18n.js";

const SPEEDS = [1, 10, 60, 600];
const STEP_S = 10;

export class DayPlayer extends HTMLElement {
  /** Events: `time` (detail: ms). */
  fromMs = 0;
  toMs = 0;
  time = 0;
  zone = "UTC";
  speed = 60;
  playing = false;
  drawnAt = 0;
  playButton = make("button", { type: "button", className: "play" });
  slider = make("input", { type: "range", min: "0", step: String(STEP_S), "aria-label": t("player.time") });
  clock = make("b", { className: "clock" });
  place = make("span", { className: "place-now" });
  bands = make("div", { className: "bands", "aria-hidden": "true" });
  speeds = new Map(SPEEDS.map((speed) => {
    const button = make("button", { type: "button", text: t("player.speed", { speed }), "aria-pressed": "false" });
    button.addEventListener("click", () => this.setSpeed(speed));
    return [speed, button];
  }));

  connectedCallback() {
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", t("player.label"));
    this.playButton.addEventListener("click", () => (this.playing ? this.pause() : this.play()));
    this.slider.addEventListener("input", () => { this.pause(); this.setTime(this.fromMs + Number(this.slider.value) * 1000); });
    this.replaceChildren(
      this.playButton,
      make("div", { className: "now" }, this.clock, this.place),
      make("div", { className: "segmented", role: "group", "aria-label": t("player.speeds") }, ...this.speeds.values()),
      make("div", { className: "track-time" }, this.bands, this.slider),
    );
    this.setSpeed(this.speed);
    this.pause();
  }

  /**
   * @param {number} fromMs
   * @param {number} toMs
   * @param {string} zone
   * @param {import("../types/api.js").TimelineItem[]} items what is drawn behind the slider
   */
  setPeriod(fromMs, toMs, zone, items) {
    this.pause();
    Object.assign(this, { fromMs, toMs, zone });
    this.slider.max = String(Math.max(STEP_S, Math.ceil((toMs - fromMs) / 1000)));
    const share = (/** @type {number} */ time) => (100 * (Math.min(toMs, Math.max(fromMs, time)) - fromMs)) / Math.max(1, toMs - fromMs);
    this.bands.replaceChildren(...items.map((item) => {
      const band = make("span", { className: item.kind });
      band.style.left = `${share(item.start)}%`;
      band.style.width = `${Math.max(0, share(item.end) - share(item.start))}%`;
      return band;
    }));
    this.setTime(fromMs);
  }

  /** @param {number} speed */
  setSpeed(speed) {
    this.speed = speed;
    for (const [own, button] of this.speeds) button.setAttribute("aria-pressed", String(own === speed));
  }

  /** @param {number} time */
  setTime(time) {
    this.time = Math.min(this.toMs, Math.max(this.fromMs, time));
    this.slider.value = String((this.time - this.fromMs) / 1000);
    const several = this.toMs - this.fromMs > 25 * 3600e3;
    const text = clock(this.time, this.zone);
    setText(this.clock, several ? `${date(this.time, "day", this.zone)} ${text}` : text);
    this.dispatchEvent(new CustomEvent("time", { detail: this.time }));
  }

  /** @param {string} text where the device is at the time that is shown */
  setPlace(text) {
    setText(this.place, text);
    this.slider.setAttribute("aria-valuetext", [this.clock.textContent, text].filter(Boolean).join(", "));
  }

  play() {
    if (this.time >= this.toMs) this.setTime(this.fromMs);
    this.setPlaying(true);
    this.drawnAt = performance.now();
    requestAnimationFrame(() => this.step());
  }

  pause() {
    this.setPlaying(false);
  }

  /** @param {boolean} playing */
  setPlaying(playing) {
    this.playing = playing;
    const label = t(playing ? "player.pause" : "player.play");
    this.playButton.setAttribute("aria-label", label);
    this.playButton.title = label;
    this.playButton.replaceChildren(make("svg-icon", { name: playing ? "pause" : "play" }));
  }

  step() {
    if (!this.playing) return;
    const now = performance.now();
    this.setTime(this.time + (now - this.drawnAt) * this.speed);
    this.drawnAt = now;
    if (this.time >= this.toMs) this.pause();
    else requestAnimationFrame(() => this.step());
  }
}
customElements.define("day-player", DayPlayer);
