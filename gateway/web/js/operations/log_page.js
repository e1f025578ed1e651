// The last lines of this gateway's log.

import { make } from "../dom.js";
import { moment } from "../format.js";
import { t } from "../i18n.js";
import { labelled } from "./parts.js";
import * as requests from "./requests.js";

/** @import { LogLine } from "../types/operations.js" */

const REFRESH_MS = 3000;
const LINES_MAX = 500;

export class LogPage {
  filter = make("input", { type: "search", name: "filter", autocomplete: "off", spellcheck: "false" });
  list = make("ol", { className: "operations-log", tabindex: "0", "aria-label": t("operations.log_lines") });
  element = make("div", {}, make("p", { className: "lead", text: t("operations.log_lead") }), make("div", { className: "operations-bar add-form" }, labelled(t("operations.line_has"), this.filter)), this.list);
  /** @type {LogLine[]} */
  lines = [];
  shown = false;
  timer = 0;
  asked = 0;

  constructor() {
    this.filter.addEventListener("input", () => this.draw());
  }

  async load() {
    this.shown = true;
    const asked = ++this.asked;
    clearTimeout(this.timer);
    if (!document.hidden) {
      const news = await requests.log(this.lines.at(-1)?.number ?? 0);
      if (asked !== this.asked) return;
      this.lines = [...this.lines, ...news].slice(-LINES_MAX);
      if (news.length) this.draw();
    }
    if (this.shown) this.timer = setTimeout(() => this.load().catch(() => {}), REFRESH_MS);
  }

  hide() {
    this.shown = false;
    clearTimeout(this.timer);
  }

  draw() {
    const text = this.filter.value.toLowerCase();
    const found = this.lines.filter((line) => `${line.level} ${line.logger} ${line.message}`.toLowerCase().includes(text)).reverse();
    this.list.replaceChildren(...found.map((line) => make("li", { className: line.level.toLowerCase() },
      make("span", { className: "time", text: moment(line.time) }), make("b", { text: line.level }), make("span", { className: "logger", text: line.logger }),
      make("span", { className: "message", text: line.message }), line.exception ? make("pre", { text: line.exception }) : null)));
  }
}
