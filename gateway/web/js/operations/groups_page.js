// Groups: the list, and one with its members, its lag, and setting its offsets.

import { make } from "../dom.js";
import { number } from "../format.js";
import { t } from "../i18n.js";
import { button, facts, labelled, section, table } from "./parts.js";
import * as requests from "./requests.js";

/** @import { Confirmation } from "./confirmation.js" */
/** @import { Group } from "../types/operations.js" */

export class GroupsPage {
  element = make("div", {});

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
  async load([, name]) {
    if (name !== undefined) {
      this.show(await requests.group(name));
      return;
    }
    const rows = (await requests.groups()).map(({ group, type, state, members }) => [
      type === "share" ? group : button(group, () => this.open(["groups", group]), { className: "link" }), type, state, members === null ? "–" : number(members)]);
    this.element.replaceChildren(table(t("operations.groups"), [t("operations.group"), t("operations.type"), t("operations.state"), t("operations.members")], rows, { numeric: [3] }));
  }

  /** @param {Group} group */
  show(group) {
    const topics = [...new Set(group.places.map(({ topic }) => topic))];
    const reads = (/** @type {Record<string, number[]>} */ of) => Object.entries(of).map(([topic, partitions]) => `${topic}: ${partitions.join(", ")}`).join("; ");
    this.element.replaceChildren(
      facts([[t("operations.state"), group.state], [t("operations.assignor"), group.assignor || "–"], [t("operations.coordinator"), group.coordinator || "–"], [t("operations.lag"), number(group.lag)]]),
      make("div", { className: "actions operations-actions" }, topics.length > 0 && button(t("operations.set_offsets"), () => this.reset(group, topics))),
      section(t("operations.members"), table(t("operations.members"), [t("operations.member"), t("operations.client"), t("operations.host"), t("operations.reads")],
        group.members.map(({ id, client, host, reads: of }) => [id, client, host, reads(of)]))),
      section(t("operations.offsets_of", { count: group.partitions }), table(t("operations.offsets"),
        [t("operations.topic"), t("operations.partition"), t("operations.committed"), t("operations.end"), t("operations.lag")],
        group.places.map(({ topic, partition, committed, end, lag }) => [topic, String(partition), committed, end, lag]), { numeric: [1, 2, 3, 4] })));
  }

  /**
   * @param {Group} group
   * @param {string[]} topics
   */
  reset({ group: name }, topics) {
    const topic = make("select", { name: "topic" }, ...topics.map((each) => make("option", { value: each, text: each })));
    const to = make("input", { name: "to", value: "beginning", maxlength: "40", autocomplete: "off", spellcheck: "false" });
    const body = () => ({ topic: topic.value, to: to.value.trim() });
    this.confirmation.ask({
      title: t("operations.set_offsets"), lead: t("operations.set_offsets_lead"), name, action: t("operations.set_offsets"), danger: true,
      fields: [labelled(t("operations.topic"), topic), labelled(t("operations.offset_to"), to)],
      rehearse: async () => table(t("operations.would_set"), [t("operations.partition"), t("operations.before"), t("operations.after")],
        (await requests.resetOffsets(name, { ...body(), dry_run: true })).slice(0, 200).map(({ partition, before, after }) => [String(partition), before, after]), { numeric: [1, 2] }),
      act: async () => {
        await requests.resetOffsets(name, { ...body(), confirm: name });
        this.announce(t("operations.offsets_set", { name }));
        await this.load(["groups", name]);
      },
    });
  }
}
