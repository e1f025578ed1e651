// The list of topics, and making one.

import { make } from "../dom.js";
import { number } from "../format.js";
import { t } from "../i18n.js";
import { bytes, button, labelled, table } from "./parts.js";
import * as requests from "./requests.js";

/** @import { Confirmation } from "./confirmation.js" */
/** @import { Owner, TopicList } from "../types/operations.js" */

/** @type {Record<Owner, string>} */
const OWNERS = { platform: t("operations.owner_platform"), kafka: t("operations.owner_kafka"), other: t("operations.owner_other") };

export class TopicsPage {
  search = make("input", { type: "search", name: "name", autocomplete: "off", spellcheck: "false" });
  list = make("div", {});
  element = make("div", {},
    make("div", { className: "operations-bar add-form" }, labelled(t("operations.search_topics"), this.search), button(t("operations.new_topic"), () => this.askForNew(), { className: "primary" })),
    this.list);
  after = "";
  asked = 0;

  /**
   * @param {Confirmation} confirmation
   * @param {(path: string[]) => void} open
   * @param {(text: string) => void} announce
   */
  constructor(confirmation, open, announce) {
    this.confirmation = confirmation;
    this.open = open;
    this.announce = announce;
    this.search.addEventListener("input", () => { this.after = ""; this.load().catch(() => {}); });
  }

  async load() {
    const asked = ++this.asked;
    const found = await requests.topics(this.search.value.trim(), this.after);
    if (asked === this.asked) this.show(found);
  }

  /** @param {TopicList} found */
  show({ topics, total, next }) {
    const rows = topics.map((topic) => [
      button(topic.name, () => this.open(["topics", topic.name]), { className: "link" }),
      OWNERS[topic.owner], topic.partitions, topic.replicas,
      topic.under_replicated ? make("span", { className: "bad", text: number(topic.under_replicated) }) : "0", bytes(topic.bytes),
    ]);
    this.list.replaceChildren(
      table(t("operations.topics"), [t("operations.topic"), t("operations.owner"), t("operations.partitions"), t("operations.copies"), t("operations.under_replicated"), t("operations.size")], rows, { numeric: [2, 3, 4, 5] }),
      make("p", { className: "lead", text: t("operations.topics_of", { count: total }) }),
      next === null ? "" : button(t("operations.more"), () => { this.after = next; this.load().catch(() => {}); }));
  }

  askForNew() {
    const name = make("input", { name: "topic", required: true, maxlength: "249", pattern: "[A-Za-z0-9._\\-]+", autocomplete: "off", spellcheck: "false", autocapitalize: "none" });
    const partitions = make("input", { name: "partitions", type: "number", min: "1", max: "100000", value: "1" });
    const factor = make("input", { name: "factor", type: "number", min: "1", max: "100" });
    const settings = make("textarea", { name: "settings", rows: "3", spellcheck: "false" });
    const question = () => this.confirmation.ask({
      title: t("operations.new_topic"), lead: t("operations.new_topic_lead", { name: name.value, count: Number(partitions.value) }), name: name.value, action: t("operations.create"),
      act: async () => {
        await requests.createTopic({
          name: name.value, confirm: name.value, settings: settingsOf(settings.value),
          ...(partitions.value && { partitions: Number(partitions.value) }), ...(factor.value && { replication_factor: Number(factor.value) }),
        });
        this.announce(t("operations.created", { name: name.value }));
        this.open(["topics", name.value]);
      },
    });
    const next = make("button", { className: "primary", text: t("operations.next") });
    const cancel = button(t("account.cancel"), () => { this.load().catch(() => {}); });
    const form = make("form", { className: "add-form box" }, make("h3", { text: t("operations.new_topic") }), labelled(t("operations.name"), name), labelled(t("operations.partitions"), partitions),
      labelled(t("operations.factor"), factor), labelled(t("operations.settings_lines"), settings), make("div", { className: "sign-in-buttons" }, cancel, next));
    form.addEventListener("submit", (event) => { event.preventDefault(); question(); });
    this.list.replaceChildren(form);
    name.focus();
  }
}

/**
 * Lines NAME=VALUE.
 * @param {string} text
 * @returns {Record<string, string>}
 */
function settingsOf(text) {
  return Object.fromEntries(text.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
    const at = line.indexOf("=");
    return at < 0 ? [line, ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  }));
}
