// One topic: its partitions and settings, and what may be changed of them.

import { make } from "../dom.js";
import { number } from "../format.js";
import { t } from "../i18n.js";
import { bytes, button, labelled, section, table } from "./parts.js";
import * as requests from "./requests.js";

/** @import { Confirmation } from "./confirmation.js" */
/** @import { Move, Setting, Topic } from "../types/operations.js" */

export class TopicPage {
  element = make("div", {});
  name = "";
  start = 0;
  onlyChanged = false;

  /**
   * @param {Confirmation} confirmation
   * @param {(path: string[]) => void} open
   * @param {(text: string) => void} announce
   */
  constructor(confirmation, open, announce) {
    this.confirmation = confirmation;
    this.open = open;
    this.announce = announce;
  }

  /** @param {string[]} path */
  async load([, name = ""]) {
    if (name !== this.name) this.start = 0;
    this.name = name;
    this.show(await requests.topic(name, this.start));
  }

  again() {
    this.load(["topics", this.name]).catch(() => {});
  }

  /** @param {Topic} topic */
  show(topic) {
    const { name, rows, next } = topic;
    const page = (/** @type {string} */ text, /** @type {number} */ start) => button(text, () => { this.start = start; this.again(); });
    const mayChange = topic.owner !== "kafka";
    const list = topic.settings.filter(({ source }) => !this.onlyChanged || source === "topic");
    const only = make("input", { type: "checkbox", checked: this.onlyChanged });
    only.addEventListener("change", () => { this.onlyChanged = only.checked; this.show(topic); });
    this.element.replaceChildren(
      make("div", { className: "actions operations-actions" },
        button(t("operations.records"), () => this.open(["topics", name, "records"]), { className: "primary" }),
        button(t("operations.elect"), () => this.elect()), button(t("operations.reassign"), () => this.reassign()),
        topic.owner === "other" && button(t("operations.add_partitions"), () => this.grow(topic)),
        topic.owner === "other" && button(t("operations.delete"), () => this.remove(), { className: "plain danger" })),
      topic.owner === "other" ? "" : make("p", { className: "lead", text: mayChange ? t("operations.protected") : t("operations.logs_own") }),
      section(t("operations.partitions_of", { count: topic.partitions }), table(t("operations.partitions"),
        [t("operations.partition"), t("operations.leader"), t("operations.replicas"), t("operations.in_sync"), t("operations.first"), t("operations.end"), t("operations.size")],
        rows.map((row) => [
          String(row.partition), row.leader < 0 ? make("span", { className: "bad", text: t("operations.no_leader") }) : String(row.leader), row.replicas.join(", "),
          row.in_sync.length < row.replicas.length ? make("span", { className: "bad", text: row.in_sync.join(", ") }) : row.in_sync.join(", "), row.first, row.end, bytes(row.bytes),
        ]), { numeric: [4, 5, 6] }),
      make("div", { className: "actions" }, this.start > 0 && page(t("operations.previous"), Math.max(0, this.start - 100)), next !== null && page(t("operations.more"), next))),
      section(t("operations.settings"), make("label", { className: "check" }, only, make("span", { text: t("operations.only_changed") })),
        table(t("operations.settings"), [t("operations.setting"), t("operations.value"), t("operations.source"), t("operations.action")], list.map((setting) => [
          setting.name, setting.sensitive ? t("operations.secret") : setting.value ?? "–",
          { topic: make("b", { text: t("operations.source_topic") }), broker: t("operations.source_broker"), default: t("operations.source_default") }[setting.source],
          mayChange && !setting.read_only ? button(t("operations.change"), () => this.change(setting), { label: `${t("operations.change")}: ${setting.name}` }) : "–",
        ]))));
  }

  /** @param {Setting} setting */
  change(setting) {
    const value = make("input", { name: "value", value: setting.value ?? "", autocomplete: "off", spellcheck: "false" });
    const back = make("input", { type: "checkbox", name: "default" });
    back.addEventListener("change", () => { value.disabled = back.checked; });
    this.confirmation.ask({
      title: setting.name, lead: t("operations.change_lead", { name: this.name }), name: this.name, action: t("operations.change"),
      fields: [labelled(t("operations.value"), value), setting.source === "topic" ? make("label", { className: "check" }, back, make("span", { text: t("operations.back_to_default") })) : null],
      act: async () => {
        await requests.changeTopic(this.name, { confirm: this.name, ...(back.checked ? { defaults: [setting.name] } : { settings: { [setting.name]: value.value } }) });
        this.announce(t("operations.changed", { name: this.name }));
        this.again();
      },
    });
  }

  /** @param {Topic} topic */
  grow({ name, partitions }) {
    const wanted = make("input", { name: "partitions", type: "number", min: String(partitions + 1), value: String(partitions + 1) });
    this.confirmation.ask({
      title: t("operations.add_partitions"), lead: t("operations.add_partitions_lead"), name, action: t("operations.change"),
      fields: [labelled(t("operations.partitions"), wanted)],
      act: async () => {
        await requests.changeTopic(name, { confirm: name, partitions: Number(wanted.value) });
        this.announce(t("operations.changed", { name }));
        this.again();
      },
    });
  }

  remove() {
    const { name } = this;
    this.confirmation.ask({
      title: t("operations.delete_title", { name }), lead: t("operations.delete_lead"), name, action: t("operations.delete"), danger: true,
      act: async () => {
        await requests.deleteTopic(name);
        this.announce(t("operations.deleted", { name }));
        this.open(["topics"]);
      },
    });
  }

  elect() {
    const { name } = this;
    this.confirmation.ask({
      title: t("operations.elect"), lead: t("operations.elect_lead"), name, action: t("operations.elect"),
      act: async () => {
        const refused = (await requests.electLeaders(name)).filter(({ reason }) => reason);
        if (refused.length) throw new Error(refused.map(({ partition, reason }) => `${partition}: ${reason}`).join("; "));
        this.announce(t("operations.elected", { name }));
        this.again();
      },
    });
  }

  reassign() {
    const { name } = this;
    const brokers = make("input", { name: "brokers", inputmode: "numeric", pattern: "[0-9, ]+", autocomplete: "off" });
    const ids = () => brokers.value.split(",").map((each) => each.trim()).filter(Boolean).map(Number);
    this.confirmation.ask({
      title: t("operations.reassign"), lead: t("operations.reassign_lead"), name, action: t("operations.reassign"),
      fields: [labelled(t("operations.to_brokers"), brokers)],
      rehearse: async () => movesTable(await requests.reassign(name, { brokers: ids(), dry_run: true })),
      act: async () => {
        const refused = (await requests.reassign(name, { brokers: ids(), confirm: name })).filter((move) => move.refused);
        if (refused.length) throw new Error(refused.map((move) => `${move.partition}: ${move.refused}`).join("; "));
        this.announce(t("operations.moves", { name }));
        this.again();
      },
    });
  }
}

/** @param {Move[]} moves */
function movesTable(moves) {
  if (!moves.length) return make("p", { className: "none", text: t("operations.nothing_moves") });
  return table(t("operations.would_move"), [t("operations.partition"), t("operations.before"), t("operations.after")],
    moves.slice(0, 200).map(({ partition, before, after }) => [number(partition), before.join(", "), after?.join(", ") ?? "–"]));
}
