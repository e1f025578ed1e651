// How the platform does, renewed every two seconds.

import { drawAnew, make, setText } from "../dom.js";
import { count, duration, latency, moment, rate } from "../format.js";
import { t } from "../i18n.js";
import { drawSparkLine } from "../spark_line.js";
import { bytes, section, table } from "./parts.js";
import * as requests from "./requests.js";

/** @import { Overview } from "../types/operations.js" */

const REFRESH_MS = 2000;
const SAMPLES = 120;

/** @type {Record<string, string>} */
const STAGES = {
  append: t("operations.stage_append"), location: t("operations.stage_location"),
  resolve: t("operations.stage_resolve"), address: t("operations.stage_address"),
};

/** @type {{title: string, write: (value: number) => string, read: (overview: Overview) => number | null}[]} */
const CHARTS = [
  { title: t("operations.records_in"), write: (value) => `${rate(value)} ${t("unit.per_second")}`, read: (overview) => overview.records_in_per_second },
  { title: t("operations.records_out"), write: (value) => `${rate(value)} ${t("unit.per_second")}`, read: (overview) => overview.records_out_per_second },
  { title: t("operations.lag_of_all"), write: count, read: (overview) => overview.groups.reduce((sum, { lag }) => sum + lag, 0) },
  { title: t("operations.append_latency"), write: latency, read: (overview) => overview.stages.find(({ name }) => name === "append")?.p99_ms ?? null },
];

export class OverviewPage {
  error = make("p", { className: "refusal", role: "alert", hidden: true });
  charts = CHARTS.map((chart) => {
    const value = make("b", { text: "–" });
    const canvas = make("canvas", { "aria-hidden": "true" });
    const cell = make("div", { className: "operations-chart" }, make("span", { text: chart.title }), value, canvas);
    return { ...chart, value, canvas, cell, samples: /** @type {(number | null)[]} */ ([]) };
  });
  rest = make("div", { className: "operations-rest" });
  element = make("div", {}, this.error, make("div", { className: "operations-charts" }, ...this.charts.map(({ cell }) => cell)), this.rest);
  timer = 0;
  shown = false;
  asked = 0;
  drawn = "";

  /** @returns {Promise<void>} */
  async load() {
    this.shown = true;
    const asked = ++this.asked;
    clearTimeout(this.timer);
    if (!document.hidden) await this.ask();
    if (this.shown && asked === this.asked) this.timer = setTimeout(() => this.load(), REFRESH_MS);
  }

  async ask() {
    try {
      const overview = await requests.overview();
      this.error.hidden = true;
      this.show(overview);
    } catch (error) {
      this.error.textContent = error instanceof Error ? error.message : String(error);
      this.error.hidden = false;
    }
  }

  hide() {
    this.shown = false;
    clearTimeout(this.timer);
  }

  /** @param {Overview} overview */
  show(overview) {
    for (const chart of this.charts) {
      const sample = chart.read(overview);
      chart.samples.push(sample);
      if (chart.samples.length > SAMPLES) chart.samples.shift();
      setText(chart.value, sample === null ? "–" : chart.write(sample));
      drawSparkLine(chart.canvas, chart.samples, SAMPLES, getComputedStyle(chart.canvas).getPropertyValue("--accent"));
    }
    const sections = this.sections(overview);
    const holder = make("div", {}, ...sections);
    // What is the same is left in peace: somebody may be reading it, or have the keyboard in it.
    if (holder.textContent === this.drawn) return;
    this.drawn = holder.textContent ?? "";
    drawAnew(this.rest, () => this.rest.replaceChildren(...sections));
  }

  /** @param {Overview} overview */
  sections(overview) {
    const { cluster, history_written: written } = overview;
    const perSecond = (/** @type {number | null} */ value) => (value === null ? "–" : rate(value));
    const parts = overview.parts.map(({ name, healthy, detail }) => {
      const state = healthy === null ? t("operations.unknown") : healthy ? t("operations.in_order") : t("operations.trouble");
      return [name, make("span", { className: healthy === false ? "bad" : "good", text: state }), detail];
    });
    const disks = (cluster?.brokers ?? []).flatMap(({ id, disks: of }) => of.map((disk) => [
      t("operations.broker_of", { id: String(id) }), disk.path, bytes(disk.log_bytes), bytes(disk.usable_bytes), bytes(disk.total_bytes)]));
    const facts = [
      t("operations.facts", { count: overview.devices, uptime: duration(overview.uptime_s) }),
      written === null ? "" : t("operations.history_written", { time: moment(written) }),
      overview.unknown.length ? t("operations.not_known", { what: overview.unknown.join("; ") }) : "",
    ];
    return [
      make("p", { className: "lead", text: facts.filter(Boolean).join(" · ") }),
      section(t("operations.stages"), table(t("operations.stages"),
        [t("operations.stage"), t("operations.per_second"), t("operations.half"), t("operations.most")],
        overview.stages.map(({ name, per_second, p50_ms, p99_ms }) => [STAGES[name] ?? name, perSecond(per_second), p50_ms === null ? "–" : latency(p50_ms), p99_ms === null ? "–" : latency(p99_ms)]), { numeric: [1, 2, 3] })),
      section(t("operations.health"), table(t("operations.health"), [t("operations.part"), t("operations.state"), t("operations.detail")], parts)),
      section(t("operations.lag_by_group"), table(t("operations.lag_by_group"), [t("operations.group"), t("operations.state"), t("operations.topics"), t("operations.lag"), t("operations.per_second")],
        overview.groups.map(({ group, state, topics, lag, per_second }) => [group, state, topics.join(", "), count(lag), perSecond(per_second)]), { numeric: [3, 4] })),
      section(t("operations.busy_topics"), table(t("operations.busy_topics"), [t("operations.topic"), t("operations.per_second")],
        overview.topics.map(({ topic, per_second }) => [topic, rate(per_second)]), { numeric: [1] })),
      section(t("operations.disks"), table(t("operations.disks"), [t("operations.broker"), t("operations.folder"), t("operations.logs_take"), t("operations.free"), t("operations.in_all")], disks, { numeric: [2, 3, 4] })),
    ];
  }
}
