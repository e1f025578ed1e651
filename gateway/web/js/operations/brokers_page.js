// Brokers, the quorum of controllers, and partitions that are behind or being moved.

import { make } from "../dom.js";
import { number } from "../format.js";
import { t } from "../i18n.js";
import { bytes, facts, section, table } from "./parts.js";
import * as requests from "./requests.js";

export class BrokersPage {
  element = make("div", {});

  async load() {
    const cluster = await requests.brokers();
    const ids = (/** @type {number[]} */ nodes) => nodes.join(", ");
    this.element.replaceChildren(
      facts([
        [t("operations.cluster"), cluster.cluster_id],
        [t("operations.partitions"), cluster.partitions === null ? "–" : number(cluster.partitions)],
        [t("operations.under_replicated"), number(cluster.under_replicated)],
      ]),
      cluster.unknown.length ? make("p", { className: "refusal", text: t("operations.not_known", { what: cluster.unknown.join("; ") }) }) : "",
      section(t("operations.brokers"), table(t("operations.brokers"),
        [t("operations.broker"), t("operations.address"), t("operations.state"), t("operations.leads"), t("operations.replicas"), t("operations.in_sync"), t("operations.logs_take"), t("operations.free")],
        cluster.brokers.map((broker) => [
          String(broker.id), broker.address, make("span", { className: broker.answers ? "good" : "bad", text: broker.answers ? t("operations.answers") : t("operations.silent") }),
          broker.leads, broker.replicas, broker.in_sync, bytes(broker.disks.length ? broker.disks.reduce((sum, disk) => sum + disk.log_bytes, 0) : null),
          bytes(broker.disks.length ? Math.min(...broker.disks.map((disk) => disk.usable_bytes)) : null),
        ]), { numeric: [3, 4, 5, 6, 7] })),
      section(t("operations.quorum"), table(t("operations.quorum"),
        [t("operations.controller"), t("operations.role"), t("operations.epoch"), t("operations.end"), t("operations.behind"), t("operations.seen")],
        cluster.quorum.map(({ id, role, end_offset, behind, seen_ms_ago }) => [
          String(id), { active: t("operations.role_active"), voter: t("operations.role_voter"), observer: t("operations.role_observer") }[role],
          cluster.epoch ?? "–", end_offset, behind, seen_ms_ago === null ? "–" : t("operations.ms_ago", { count: seen_ms_ago })]), { numeric: [2, 3, 4, 5] })),
      section(t("operations.lagging_partitions"), table(t("operations.lagging_partitions"),
        [t("operations.topic"), t("operations.partition"), t("operations.leader"), t("operations.replicas"), t("operations.in_sync")],
        cluster.behind.map((each) => [each.topic, String(each.partition), each.leader < 0 ? "–" : String(each.leader), ids(each.replicas), ids(each.in_sync)]))),
      section(t("operations.moving"), table(t("operations.moving"),
        [t("operations.topic"), t("operations.partition"), t("operations.replicas"), t("operations.adding"), t("operations.removing")],
        cluster.moving.map((each) => [each.topic, String(each.partition), ids(each.replicas), ids(each.adding), ids(each.removing)]))));
  }
}
