// The way of the fixes in four figures, each with its last two minutes.

import { make, setText } from "../dom.js";
import { count, latency, rate } from "../format.js";
import { t } from "../i18n.js";
import { drawSparkLine } from "../spark_line.js";

/** @import { Pipeline } from "../types/api.js" */
/** @typedef {"fixes" | "addresses" | "lag" | "push"} StageName */
/** @typedef {{[name in StageName]?: number | undefined}} Figures */
/**
 * @typedef {object} Stage
 * @property {StageName} key
 * @property {string} title
 * @property {string} unit
 * @property {(figure: number) => string} write
 * @property {string} help
 */

const SAMPLES = 120;
/** @type {Stage[]} */
const STAGES = [
  { key: "fixes", title: t("pipeline.fixes"), unit: t("unit.per_second"), write: rate, help: t("pipeline.fixes_help") },
  { key: "addresses", title: t("pipeline.addresses"), unit: t("unit.per_second"), write: rate, help: t("pipeline.addresses_help") },
  { key: "lag", title: t("pipeline.lag"), unit: "", write: count, help: t("pipeline.lag_help") },
  { key: "push", title: t("pipeline.push"), unit: "", write: latency, help: t("pipeline.push_help") },
];

/** @typedef {Stage & {value: HTMLElement, canvas: HTMLCanvasElement, cell: HTMLElement, samples: (number | null)[]}} Cell */

export class PipelineStrip extends HTMLElement {
  /** @type {Cell[]} */
  cells = STAGES.map((stage) => {
    const value = make("b", { text: "–" });
    const canvas = make("canvas", { "aria-hidden": "true" });
    const cell = make("div", { className: `stage ${stage.key}`, title: stage.help },
      make("span", { className: "title", text: stage.title }), make("span", { className: "value" }, value, make("small", { text: stage.unit })), canvas);
    return { ...stage, value, canvas, cell, samples: [] };
  });

  connectedCallback() {
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", t("pipeline.title"));
    this.replaceChildren(...this.cells.map(({ cell }) => cell));
  }

  /** @param {Figures} figures a number for each stage, or undefined where it is not known */
  show(figures) {
    this.hidden = false;
    for (const cell of this.cells) {
      const figure = figures[cell.key];
      cell.samples.push(figure !== undefined && Number.isFinite(figure) ? figure : null);
      if (cell.samples.length > SAMPLES) cell.samples.shift();
      setText(cell.value, cell.write(figure ?? NaN));
      drawSparkLine(cell.canvas, cell.samples, SAMPLES, getComputedStyle(cell.cell).getPropertyValue("--stage"));
    }
    const lag = figures.lag ?? 0;
    this.dataset.behind = String(lag > Math.max(1000, 5 * (figures.fixes ?? 0)));
  }
}
customElements.define("pipeline-strip", PipelineStrip);

/** The figures of GET /v1/pipeline. Rates may be given, or counted up. */
export class PipelineReader {
  /** @type {{counted: Figures, now: number} | null} */
  last = null;

  /**
   * @param {Pipeline} body
   * @param {number} [now]
   * @returns {Figures}
   */
  read(body, now = performance.now()) {
    const flat = flatten(body);
    /** @param {...string} names */
    const pick = (...names) => names.map((name) => flat[name]).find((value) => value !== undefined);
    /** @type {Figures} */
    const counted = { fixes: pick("fixes", "fixes_total", "location.records"), addresses: pick("addresses", "addresses_total", "address.records") };
    /** @type {Figures} */
    const figures = {
      fixes: pick("fixes_per_s", "fixes_per_second", "location.rate", "location.per_second"),
      addresses: pick("addresses_per_s", "addresses_per_second", "address.rate", "address.per_second"),
      lag: pick("resolver_lag", "lag", "resolver.lag", "lag.resolver"),
    };
    for (const key of /** @type {StageName[]} */ (["fixes", "addresses"])) {
      const [before, after] = [this.last?.counted[key], counted[key]];
      if (figures[key] === undefined && this.last && before !== undefined && after !== undefined) {
        figures[key] = Math.max(0, ((after - before) * 1000) / (now - this.last.now));
      }
    }
    this.last = { counted, now };
    return figures;
  }
}

/**
 * The finite numbers of an object, those of inner objects as `outer.inner`.
 * @param {object} value
 * @param {string} [prefix]
 * @param {Record<string, number>} [out]
 */
function flatten(value, prefix = "", out = {}) {
  for (const [key, inner] of Object.entries(value ?? {})) {
    const name = prefix ? `${prefix}.${key}` : key;
    if (inner !== null && typeof inner === "object") flatten(inner, name, out);
    else if (Number.isFinite(inner)) out[name] = inner;
  }
  return out;
}
