// The way of the fixes in four figures, each with its last two minutes.

import { count, latency, rate } from "../format.js";
import { make, setText } from "./svg_icon.js";

const SAMPLES = 120;
const STAGES = [
  { key: "fixes", title: "Fixes in", unit: "/s", write: rate, help: "fixes appended to the log each second" },
  { key: "addresses", title: "Addresses", unit: "/s", write: rate, help: "addresses found each second" },
  { key: "lag", title: "Resolver lag", unit: "", write: count, help: "fixes that wait for their address" },
  { key: "push", title: "Time to address", unit: "", write: latency, help: "from the arrival of a fix to its address on this page (median)" },
];

customElements.define("pipeline-strip", class extends HTMLElement {
  connectedCallback() {
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", "Pipeline");
    this.cells = STAGES.map((stage) => {
      const value = make("b", { text: "–" });
      const canvas = make("canvas", { "aria-hidden": "true" });
      const cell = make("div", { className: `stage ${stage.key}`, title: stage.help },
        make("span", { className: "title", text: stage.title }), make("span", { className: "value" }, value, make("small", { text: stage.unit })), canvas);
      return { ...stage, value, canvas, cell, samples: [] };
    });
    this.replaceChildren(...this.cells.map(({ cell }) => cell));
  }

  /** `figures` has a number, or undefined where it is not known, for each stage. */
  show(figures) {
    this.hidden = false;
    for (const cell of this.cells) {
      const figure = figures[cell.key];
      cell.samples.push(Number.isFinite(figure) ? figure : null);
      if (cell.samples.length > SAMPLES) cell.samples.shift();
      setText(cell.value, cell.write(figure ?? NaN));
      this.draw(cell);
    }
    const lag = figures.lag ?? 0;
    this.dataset.behind = String(lag > Math.max(1000, 5 * (figures.fixes ?? 0)));
  }

  draw({ canvas, samples, cell }) {
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (!width || !height) return;
    const ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const top = Math.max(1, ...samples);
    const colour = getComputedStyle(cell).getPropertyValue("--stage");
    const step = width / (SAMPLES - 1);
    const left = width - (samples.length - 1) * step;
    context.beginPath();
    let open = false;
    samples.forEach((sample, index) => {
      if (sample === null) { open = false; return; }
      const y = height - 1.5 - (sample / top) * (height - 4);
      context[open ? "lineTo" : "moveTo"](left + index * step, y);
      open = true;
    });
    context.strokeStyle = colour;
    context.lineWidth = 1.5;
    context.lineJoin = "round";
    context.stroke();
    context.lineTo(width, height);
    context.lineTo(left, height);
    context.globalAlpha = 0.12;
    context.fillStyle = colour;
    context.fill();
    context.globalAlpha = 1;
  }
});

/** The figures of GET /v1/pipeline. Rates may be given, or counted up. */
export class PipelineReader {
  constructor() { this.last = null; }

  read(body, now = performance.now()) {
    const flat = flatten(body);
    const pick = (...names) => { for (const name of names) if (Number.isFinite(flat[name])) return flat[name]; return undefined; };
    const counted = { fixes: pick("fixes", "fixes_total", "location.records"), addresses: pick("addresses", "addresses_total", "address.records") };
    const figures = {
      fixes: pick("fixes_per_s", "fixes_per_second", "location.rate", "location.per_second"),
      addresses: pick("addresses_per_s", "addresses_per_second", "address.rate", "address.per_second"),
      lag: pick("resolver_lag", "lag", "resolver.lag", "lag.resolver"),
    };
    for (const key of ["fixes", "addresses"]) {
      if (figures[key] === undefined && this.last && Number.isFinite(counted[key])) {
        figures[key] = Math.max(0, ((counted[key] - this.last.counted[key]) * 1000) / (now - this.last.now));
      }
    }
    this.last = { counted, now };
    return figures;
  }
}

function flatten(value, prefix = "", out = {}) {
  for (const [key, inner] of Object.entries(value ?? {})) {
    const name = prefix ? `${prefix}.${key}` : key;
    if (inner !== null && typeof inner === "object") flatten(inner, name, out);
    else out[name] = inner;
  }
  return out;
}
