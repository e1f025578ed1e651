// The bottom sheet of a phone: three heights, by dragging its handle or by the arrow keys.

import { t } from "./i18n.js";

const HEIGHTS = [0.17, 0.46, 0.9];
const NAMES = [t("sheet.low"), t("sheet.half"), t("sheet.full")];

export class Sheet {
  level = 1;
  /** @type {HTMLElement[]} */
  handles = [];

  /**
   * Let a panel be one, by its handle.
   * @param {HTMLElement} panel
   * @param {HTMLElement} handle
   */
  add(panel, handle) {
    this.handles.push(handle);
    this.set(this.level);
    this.listen(panel, handle);
  }

  /** @param {number} level */
  set(level) {
    this.level = Math.max(0, Math.min(HEIGHTS.length - 1, level));
    document.documentElement.style.setProperty("--sheet-height", `${(HEIGHTS[this.level] ?? 0) * 100}dvh`);
    for (const handle of this.handles) {
      handle.setAttribute("aria-valuenow", String(this.level));
      handle.setAttribute("aria-valuetext", NAMES[this.level] ?? "");
    }
  }

  /**
   * @param {HTMLElement} panel
   * @param {HTMLElement} handle
   */
  listen(panel, handle) {
    /** @type {{y: number, height: number} | null} */
    let start = null;
    handle.addEventListener("pointerdown", (event) => {
      start = { y: event.clientY, height: panel.offsetHeight };
      handle.setPointerCapture(event.pointerId);
      panel.dataset.dragging = "";
    });
    handle.addEventListener("pointermove", (event) => {
      if (!start) return;
      document.documentElement.style.setProperty("--sheet-height", `${start.height + start.y - event.clientY}px`);
    });
    const end = (/** @type {PointerEvent} */ event) => {
      if (!start) return;
      const share = (start.height + start.y - event.clientY) / innerHeight;
      const moved = Math.abs(start.y - event.clientY);
      start = null;
      delete panel.dataset.dragging;
      if (moved < 5) {
        this.set((this.level + 1) % HEIGHTS.length);
        return;
      }
      const distances = HEIGHTS.map((height) => Math.abs(height - share));
      this.set(distances.indexOf(Math.min(...distances)));
    };
    handle.addEventListener("pointerup", end);
    handle.addEventListener("pointercancel", end);
    handle.addEventListener("keydown", (event) => {
      const step = event.key === "ArrowUp" ? 1 : event.key === "ArrowDown" ? -1 : 0;
      if (!step) return;
      event.preventDefault();
      this.set(this.level + step);
    });
  }
}
