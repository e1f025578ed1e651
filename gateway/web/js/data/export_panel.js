// Downloads: the positions of a device in a format of the viewer's choice, or everything at once.

import { addDays, midnight } from "../calendar.js";
import { make } from "../dom.js";
import { zoneOf } from "../format.js";
import { t } from "../i18n.js";
import { exportPath } from "./data_api.js";

/** @type {[value: string, text: string][]} */
const FORMATS = [["gpx", t("export.gpx")], ["geojson", t("export.geojson")], ["kml", t("export.kml")], ["csv", t("export.csv")], ["parquet", t("export.parquet")]];

export class ExportPanel extends HTMLElement {
  /** @type {() => string[]} the viewer's devices */
  ownDevices = () => [];
  device = make("select", { name: "device" });
  format = formats("format", "gpx");
  from = make("input", { type: "date", name: "from" });
  to = make("input", { type: "date", name: "to" });
  link = make("a", { className: "primary download", download: true, text: t("export.download") });
  none = make("p", { className: "none", text: t("export.no_device"), hidden: true });
  fields = make("div", { className: "add-form" },
    make("label", {}, make("span", { text: t("export.device") }), this.device),
    make("div", { className: "pair" },
      make("label", {}, make("span", { text: t("export.from") }), this.from), make("label", {}, make("span", { text: t("export.to") }), this.to)),
    make("label", {}, make("span", { text: t("export.format") }), this.format), this.link);
  allFormat = formats("all-format", "geojson");
  allLink = make("a", { className: "primary download", download: true, text: t("export.download_all") });

  connectedCallback() {
    if (this.firstChild) return;
    this.append(
      make("section", { className: "box" }, make("h2", { text: t("export.of_device") }), make("p", { className: "hint", text: t("export.lead") }), this.none, this.fields),
      make("section", { className: "box" }, make("h2", { text: t("export.everything") }), make("p", { className: "hint", text: t("export.everything_lead") }),
        make("div", { className: "add-form" }, make("label", {}, make("span", { text: t("export.format") }), this.allFormat), this.allLink)));
    for (const field of [this.device, this.format, this.from, this.to, this.allFormat]) field.addEventListener("change", () => this.update());
  }

  load() {
    const devices = this.ownDevices();
    const before = this.device.value;
    this.device.replaceChildren(...devices.map((device) => make("option", { value: device, text: device.slice(device.indexOf("/") + 1) })));
    if (devices.includes(before)) this.device.value = before;
    this.none.hidden = devices.length > 0;
    this.fields.hidden = !devices.length;
    this.update();
  }

  /** Let the links lead to what is chosen. */
  update() {
    this.from.max = this.to.value;
    this.to.min = this.from.value;
    const zone = zoneOf();
    const from = this.from.value ? midnight(this.from.value, zone) : null;
    const to = this.to.value ? midnight(addDays(this.to.value, 1), zone) - 1 : null;
    this.link.href = exportPath(this.format.value, { device: this.device.value, from, to });
    this.allLink.href = exportPath(this.allFormat.value);
  }
}
customElements.define("export-panel", ExportPanel);

/**
 * @param {string} name
 * @param {string} chosen
 */
function formats(name, chosen) {
  return make("select", { name }, ...FORMATS.map(([value, text]) => make("option", { value, text, selected: value === chosen })));
}
