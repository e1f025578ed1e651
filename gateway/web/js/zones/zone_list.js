// The viewer's zones, each with what happened there last.

import { drawAnew, make } from "../dom.js";
import { moment } from "../format.js";
import { t } from "../i18n.js";

/** @import { Zone, ZoneEvent } from "../types/api.js" */

const EVENTS_SHOWN = 8;
const LATEST_SHOWN = 12;

export class ZoneList extends HTMLElement {
  /** Events: `pick` (detail: a zone), `add`. */
  add = make("button", { type: "button", className: "primary add", "data-key": "add" }, make("svg-icon", { name: "plus" }), t("zone.new"));
  list = make("ul", { className: "zones" });
  latest = make("ul", { className: "zone-events" });
  latestBox = make("section", { hidden: true }, make("h3", { text: t("zone.latest") }), this.latest);

  connectedCallback() {
    if (this.firstChild) return;
    this.add.addEventListener("click", () => this.dispatchEvent(new Event("add")));
    this.replaceChildren(make("h2", { className: "visually-hidden", text: t("zone.tab") }), this.add, this.list, this.latestBox);
  }

  /**
   * @param {Zone[]} zones
   * @param {ZoneEvent[]} events the newest last
   */
  show(zones, events) {
    drawAnew(this, () => {
      this.list.replaceChildren(...zones.map((zone) => {
        const last = events.findLast((event) => event.zone === zone.id);
        const button = make("button", { type: "button", className: "zone", "data-key": `zone ${zone.id}` },
          make("svg-icon", { name: "zone" }), make("span", { className: "name", text: zone.name }),
          make("span", { className: "detail", text: last ? sentence(last) : summary(zone) }));
        button.addEventListener("click", () => this.dispatchEvent(new CustomEvent("pick", { detail: zone })));
        return make("li", {}, button);
      }));
      if (!zones.length) this.list.append(make("li", { className: "none", text: t("zone.none") }));
      this.latestBox.hidden = !events.length;
      this.latest.replaceChildren(...rows(events, LATEST_SHOWN));
    });
  }
}
customElements.define("zone-list", ZoneList);

/** @param {Zone} zone */
function summary({ alerts, geometry }) {
  const shape = geometry.type === "Point" ? t("zone.circle") : geometry.type === "LineString" ? t("zone.corridor") : t("zone.polygon");
  if (!alerts.length) return t("zone.no_alert", { shape });
  return `${shape} · ${alerts.map((kind) => t(kind === "enter" ? "zone.enter" : kind === "leave" ? "zone.leave" : "zone.dwell")).join(", ")}`;
}

/**
 * What has happened, as a sentence: "phone entered School".
 * @param {ZoneEvent} event
 */
export function happening({ kind, device, name }) {
  const words = { device: device.slice(device.indexOf("/") + 1), zone: name ?? "" };
  if (kind === "enter") return t("event.enter", words);
  if (kind === "leave") return t("event.leave", words);
  if (kind === "dwell") return t("event.dwell", words);
  return t(kind === "silence" ? "event.silence" : "event.speeding", words);
}

/** @param {ZoneEvent} event */
function sentence(event) {
  return `${happening(event)} · ${moment(event.time)}`;
}

/**
 * @param {ZoneEvent[]} events
 * @param {number} [most]
 */
export function rows(events, most = EVENTS_SHOWN) {
  return events.slice(-most).reverse().map((event) => make("li", {},
    make("span", { text: happening(event) }), make("span", { className: "when", text: moment(event.time) })));
}
