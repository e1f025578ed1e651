// The records of a topic.

import { make } from "../dom.js";
import { moment, number } from "../format.js";
import { t } from "../i18n.js";
import { brief, labelled, whole } from "./parts.js";
import * as requests from "./requests.js";

/** @import { LogRecord, Records } from "../types/operations.js" */

const ENDED = { time: t("operations.ended_time"), bytes: t("operations.ended_bytes"), records: t("operations.ended_records") };

export class RecordsPage {
  partition = make("input", { name: "partition", type: "number", min: "0", placeholder: t("operations.all") });
  from = make("select", { name: "from" },
    make("option", { value: "newest", text: t("operations.newest") }), make("option", { value: "beginning", text: t("operations.from_beginning") }),
    make("option", { value: "at", text: t("operations.from_at") }));
  at = make("input", { name: "at", autocomplete: "off", placeholder: "2h", maxlength: "40" });
  key = make("input", { name: "key", autocomplete: "off", spellcheck: "false", maxlength: "200" });
  limit = make("select", { name: "limit" }, ...["20", "50", "200"].map((value) => make("option", { value, text: number(Number(value)), selected: value === "50" })));
  atRow = labelled(t("operations.at"), this.at);
  note = make("p", { className: "lead", "aria-live": "polite" });
  error = make("p", { className: "refusal", role: "alert", hidden: true });
  list = make("ul", { className: "operations-records" });
  /** @type {HTMLFormElement} */
  form = make("form", { className: "operations-bar add-form" }, labelled(t("operations.partition"), this.partition), labelled(t("operations.from"), this.from), this.atRow,
    labelled(t("operations.key_has"), this.key), labelled(t("operations.how_many"), this.limit), make("button", { className: "primary", text: t("operations.read") }));
  element = make("div", {}, this.form, this.error, this.note, this.list);
  name = "";
  asked = 0;

  constructor() {
    this.atRow.hidden = true;
    this.from.addEventListener("change", () => { this.atRow.hidden = this.from.value !== "at"; });
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.read(); });
  }

  /** @param {string[]} path */
  async load([, name = ""]) {
    if (name !== this.name) {
      this.name = name;
      this.partition.value = this.key.value = this.at.value = "";
      this.from.value = "newest";
      this.atRow.hidden = true;
    }
    await this.read();
  }

  async read() {
    const asked = ++this.asked;
    this.error.hidden = true;
    const from = this.from.value === "at" ? this.at.value.trim() || "beginning" : this.from.value;
    try {
      const found = await requests.records(this.name, {
        from, limit: this.limit.value, ...(this.partition.value && { partition: this.partition.value }), ...(this.key.value && { key: this.key.value }),
      });
      if (asked === this.asked) this.show(found);
    } catch (error) {
      if (asked !== this.asked) return;
      this.list.replaceChildren();
      this.note.textContent = "";
      this.error.textContent = error instanceof Error ? error.message : String(error);
      this.error.hidden = false;
    }
  }

  /** @param {Records} found */
  show({ records, read, ended }) {
    this.note.textContent = [t("operations.found", { count: records.length }), t("operations.looked_at", { count: read }), ended ? ENDED[ended] : ""].filter(Boolean).join(" · ");
    this.list.replaceChildren(...records.map((record) => this.row(record)));
  }

  /** @param {LogRecord} record */
  row(record) {
    const { partition, offset, time, key, value, headers } = record;
    const details = make("details", {}, make("summary", {},
      make("span", { className: "place", text: `${partition}:${offset}` }), make("span", { className: "time", text: time < 0 ? "–" : moment(time) }),
      make("span", { className: "key", text: brief(key) }), make("span", { className: "value", text: brief(value) })));
    // Most are never opened.
    details.addEventListener("toggle", () => {
      if (details.childElementCount > 1) return;
      details.append(make("h4", { text: t("operations.key") }), whole(key), make("h4", { text: t("operations.value") }), whole(value));
      if (headers.length) {
        details.append(make("h4", { text: t("operations.headers") }), make("dl", { className: "operations-facts" },
          ...headers.map(([name, text]) => make("div", {}, make("dt", { text: name }), make("dd", { text })))));
      }
      if (value.kind !== "null" && value.kind !== "sealed") {
        details.append(make("a", { className: "plain download", href: requests.valueUrl(this.name, partition, offset), download: true, text: t("operations.all_bytes") }));
      }
    });
    return make("li", {}, details);
  }
}
