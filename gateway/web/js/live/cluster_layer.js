// Counts of devices by area as circles on the map. They are buttons: few enough, and so there is
// something to see, to reach by keyboard, and to read aloud.

import { make, setText } from "../dom.js";
import { count } from "../format.js";
import { t } from "../i18n.js";
import { mercator } from "../points_layer.js";

/** @import { MapView } from "../map_view.js" */
/** @import { Cell } from "./area_frames.js" */

const CLOSER = 2; // zooms at a click
const ZOOM_MAX = 18;
/** Of a cell, from its middle: circles of neighbours stay apart. */
const STRAY = 0.2;
/** What is outside is not drawn until the map has come to rest. */
const OUTSIDE_PX = 240;

/** @typedef {{button: HTMLButtonElement, lat: number, lon: number, radius: number}} Circle */

export class ClusterLayer {
  /** @param {MapView} view */
  constructor(view) {
    this.view = view;
    this.box = make("div", { className: "clusters", role: "group", "aria-label": t("clusters.label"), hidden: true });
    /** @type {Map<string, Circle>} by level and place */
    this.circles = new Map();
    /** @type {[number, number]} of the map, px */
    this.size = [0, 0];
    view.addEventListener("dressed", () => this.attach());
    /** @type {{place: import("maplibre-gl").LngLat, zoom: number} | null} the middle of the map when the circles were placed */
    this.anchor = null;
    view.addEventListener("moving", () => this.shift());
    view.addEventListener("moved", () => this.place());
  }

  attach() {
    if (this.box.isConnected) return;
    this.view.map.getCanvasContainer().append(this.box);
    const measure = () => {
      // Not with each frame: to ask for a size makes the browser lay out the page.
      const { clientWidth, clientHeight } = this.view.map.getContainer();
      this.size = [clientWidth, clientHeight];
      this.place();
    };
    measure();
    this.view.map.on("resize", measure);
  }

  /**
   * @param {Map<string, Cell> | null} cells null for none
   * @param {number} level
   */
  show(cells, level) {
    this.box.hidden = !cells;
    const keys = new Set();
    for (const [place, cell] of cells ?? []) {
      const key = `${level}/${place}`;
      keys.add(key);
      let circle = this.circles.get(key);
      if (!circle) {
        circle = this.made();
        this.circles.set(key, circle);
      }
      this.fill(circle, cell, level);
    }
    for (const [key, { button }] of this.circles) {
      if (keys.has(key)) continue;
      button.remove();
      this.circles.delete(key);
    }
    this.place();
  }

  /** @returns {Circle} */
  made() {
    const circle = { button: make("button", { className: "cluster", type: "button" }), lat: 0, lon: 0, radius: 0 };
    circle.button.addEventListener("click", (event) => {
      event.stopPropagation(); // it is not the map's
      const zoom = Math.min(ZOOM_MAX, this.view.map.getZoom() + CLOSER);
      this.view.fly({ center: [circle.lon, circle.lat], zoom });
    });
    this.box.append(circle.button);
    return circle;
  }

  /**
   * @param {Circle} circle
   * @param {Cell} cell
   * @param {number} level
   */
  fill(circle, cell, level) {
    const size = 2 ** -level;
    const [x, y] = mercator(cell.lat, cell.lon);
    const near = (/** @type {number} */ at, /** @type {number} */ index) => {
      const middle = (index + 0.5) * size;
      return Math.max(middle - STRAY * size, Math.min(middle + STRAY * size, at));
    };
    circle.lon = (near(x, cell.x) - 0.5) * 360;
    circle.lat = (Math.atan(Math.sinh(Math.PI * (1 - 2 * near(y, cell.y)))) * 180) / Math.PI;
    circle.radius = Math.min(26, 11 + 3.2 * Math.log10(cell.count) + (cell.count > 999 ? 3 : 0));
    const { button } = circle;
    const text = count(cell.count);
    button.style.setProperty("--circle", `${circle.radius.toFixed(1)}px`);
    button.classList.toggle("live", cell.live * 2 >= cell.count);
    button.dataset.count = String(cell.count);
    setText(button, text);
    button.setAttribute("aria-label", t("clusters.devices", { count: cell.count, shown: text, live: count(cell.live) }));
  }

  /** A map that is dragged takes all circles along: one style in place of hundreds. */
  shift() {
    const { map } = this.view;
    if (this.box.hidden || !map) return;
    if (!this.anchor || map.getZoom() !== this.anchor.zoom) {
      this.place();
      return;
    }
    const { x, y } = map.project(this.anchor.place);
    const [width, height] = this.size;
    this.box.style.transform = `translate(${(x - width / 2).toFixed(1)}px, ${(y - height / 2).toFixed(1)}px)`;
  }

  /** Put every circle where it is on the screen. */
  place() {
    if (this.box.hidden || !this.view.map) return;
    const { map } = this.view;
    this.anchor = { place: map.getCenter(), zoom: map.getZoom() };
    this.box.style.transform = "";
    const [width, height] = this.size;
    const middle = map.getCenter().lng;
    for (const { button, lat, lon } of this.circles.values()) {
      const { x, y } = map.project([lon + 360 * Math.round((middle - lon) / 360), lat]);
      const out = x < -OUTSIDE_PX || y < -OUTSIDE_PX || x > width + OUTSIDE_PX || y > height + OUTSIDE_PX;
      if (button.hidden !== out) button.hidden = out;
      if (!out) button.style.transform = `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px) translate(-50%, -50%)`;
    }
  }
}
