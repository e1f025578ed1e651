// One zone: its name, shape and devices, and what one is told of it.

import { make, setText } from "../dom.js";
import { t } from "../i18n.js";
import { CORNERS_MIN, geometryOf } from "./shapes.js";

/** @import { AlertChannel, Zone, ZoneBody } from "../types/api.js" */
/** @import { Draft, Kind } from "./shapes.js" */

/** @type {Record<Kind, string>} */
const KINDS = { circle: t("zone.circle"), polygon: t("zone.polygon"), corridor: t("zone.corridor") };
const ALERTS = /** @type {const} */ (["enter", "leave", "dwell"]);
/** @type {Record<typeof ALERTS[number], string>} */
const ALERT_TITLES = { enter: t("zone.enter"), leave: t("zone.leave"), dwell: t("zone.dwell") };
const DWELL_MINUTES = 10;
let numbered = 0;

export class ZoneEditor extends HTMLElement {
  /** Events: `kind` (detail), `size` (detail: m), `corner`, `undo`, `save` (detail: body), `cancel`, `delete`. */
  /** @type {Draft | null} */
  draft = null;
  titleText = make("h2", { tabindex: "-1" });
  name = make("input", { type: "text", maxlength: "100", required: true, autocomplete: "off" });
  kinds = new Map(/** @type {Kind[]} */ (Object.keys(KINDS)).map((kind) => {
    const button = make("button", { type: "button", text: KINDS[kind], "aria-pressed": "false" });
    button.addEventListener("click", () => this.tell("kind", kind));
    return [kind, button];
  }));
  how = make("p", { className: "hint" });
  size = make("input", { type: "number", min: "10", step: "1", inputmode: "numeric" });
  sizeTitle = make("span");
  sizeBox = make("label", {}, this.sizeTitle, this.size);
  corner = make("button", { type: "button", className: "plain" });
  undo = make("button", { type: "button", className: "plain", text: t("zone.undo_corner") });
  alerts = new Map(ALERTS.map((kind) => [kind, make("input", { type: "checkbox" })]));
  dwell = make("input", { type: "number", min: "1", max: "10080", step: "1", inputmode: "numeric", "aria-label": t("zone.dwell_minutes") });
  devices = make("div", { className: "checks" });
  devicesBox = make("fieldset", {}, make("legend", { text: t("zone.devices") }), this.devices);
  channels = make("div", { className: "checks" });
  channelsBox = make("fieldset", {}, make("legend", { text: t("zone.channels") }), this.channels);
  always = make("input", { type: "checkbox" });
  error = make("p", { className: "refusal", role: "alert", hidden: true });
  removal = make("button", { type: "button", className: "plain danger", text: t("zone.delete") });
  save = make("button", { type: "submit", className: "primary", text: t("zone.save") });

  connectedCallback() {
    if (this.firstChild) return;
    numbered += 1;
    this.titleText.id = `zone-title-${numbered}`;
    this.setAttribute("role", "region");
    this.setAttribute("aria-labelledby", this.titleText.id);
    const cancel = make("button", { type: "button", className: "plain", text: t("zone.cancel") });
    const form = make("form", { className: "zone-form", novalidate: true },
      make("label", {}, make("span", { text: t("zone.name") }), this.name),
      make("div", { className: "segmented", role: "group", "aria-label": t("zone.shape") }, ...this.kinds.values()),
      this.how, this.sizeBox,
      make("div", { className: "actions" }, this.corner, this.undo),
      make("fieldset", {}, make("legend", { text: t("zone.alerts") }), make("div", { className: "checks" },
        ...[...this.alerts].map(([kind, box]) => make("label", { className: "check" }, box, make("span", { text: ALERT_TITLES[kind] }),
          kind === "dwell" && make("span", { className: "minutes" }, this.dwell, make("span", { text: t("zone.minutes"), "aria-hidden": "true" })))))),
      this.devicesBox, this.channelsBox,
      make("label", { className: "check" }, this.always, make("span", { text: t("zone.always") })),
      this.error,
      make("footer", {}, this.removal, cancel, this.save));
    this.replaceChildren(this.titleText, form);
    form.addEventListener("submit", (event) => { event.preventDefault(); this.submit(); });
    cancel.addEventListener("click", () => this.tell("cancel"));
    this.removal.addEventListener("click", () => this.tell("delete"));
    this.corner.addEventListener("click", () => this.tell("corner"));
    this.undo.addEventListener("click", () => this.tell("undo"));
    this.size.addEventListener("input", () => { if (this.size.valueAsNumber >= 10) this.tell("size", this.size.valueAsNumber); });
    this.dwell.addEventListener("input", () => { const box = this.alerts.get("dwell"); if (box) box.checked = true; });
  }

  /**
   * @param {string} name
   * @param {unknown} [detail]
   */
  tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }

  /**
   * @param {Zone | null} zone null for a new one
   * @param {Draft | null} draft null of a shape that cannot be changed here
   * @param {{devices: string[], channels: AlertChannel[], name?: string}} known names of devices and channels to choose from
   */
  open(zone, draft, { devices, channels, name = "" }) {
    this.zone = zone;
    this.draft = draft;
    setText(this.titleText, zone ? zone.name : t("zone.new"));
    this.name.value = zone?.name ?? name;
    for (const [kind, box] of this.alerts) box.checked = (zone?.alerts ?? ["enter", "leave"]).includes(kind);
    this.dwell.value = String(Math.round((zone?.dwell ?? DWELL_MINUTES * 60) / 60));
    this.always.checked = zone?.always ?? false;
    this.removal.hidden = !zone;
    const names = [...new Set([...devices, ...(zone?.devices ?? [])])];
    this.devicesBox.hidden = names.length < 2;
    this.devices.replaceChildren(...names.map((each) => check(each, each, !zone?.devices || zone.devices.includes(each))));
    const ways = [{ id: "browser", name: t("zone.browser") }, { id: "mqtt", name: t("zone.mqtt") }, ...channels];
    this.channels.replaceChildren(...ways.map(({ id, name: title }) => check(id, title, !zone?.channels || zone.channels.includes(id))));
    this.complain("");
    this.drawShape();
  }

  /** Write what the draft is now. */
  drawShape() {
    const { draft } = this;
    for (const [kind, button] of this.kinds) {
      button.setAttribute("aria-pressed", String(kind === draft?.kind));
      button.disabled = !draft;
    }
    const isCircle = draft?.kind === "circle";
    setText(this.how, !draft ? t("zone.how_fixed") : isCircle ? t("zone.how_circle") : draft.kind === "polygon" ? t("zone.how_polygon") : t("zone.how_corridor"));
    this.sizeBox.hidden = !draft || draft.kind === "polygon";
    setText(this.sizeTitle, isCircle ? t("zone.radius") : t("zone.width"));
    if (draft && document.activeElement !== this.size) this.size.value = String(Math.round(draft.metres));
    this.corner.hidden = !draft;
    setText(this.corner, isCircle ? t("zone.to_centre") : t("zone.add_corner"));
    this.undo.hidden = !draft || isCircle;
    this.undo.disabled = !draft || draft.corners.length <= CORNERS_MIN[draft.kind];
    this.save.disabled = Boolean(draft && draft.corners.length < CORNERS_MIN[draft.kind]);
  }

  /** @param {string} reason */
  complain(reason) {
    this.error.hidden = !reason;
    setText(this.error, reason);
  }

  submit() {
    const name = this.name.value.trim();
    if (!name) {
      this.complain(t("zone.name_needed"));
      this.name.focus();
      return;
    }
    const { zone } = this;
    const alerts = ALERTS.filter((kind) => this.alerts.get(kind)?.checked);
    /** @type {ZoneBody} */
    const body = {
      name, alerts, always: this.always.checked, devices: chosen(this.devices), channels: chosen(this.channels),
      ...(this.draft ? geometryOf(this.draft) : { geometry: zone?.geometry ?? { type: "", coordinates: [] } }),
    };
    if (alerts.includes("dwell")) body.dwell = Math.max(60, Math.round((this.dwell.valueAsNumber || DWELL_MINUTES) * 60));
    if (zone?.minimum) body.minimum = zone.minimum;
    this.tell("save", body);
  }
}
customElements.define("zone-editor", ZoneEditor);

/**
 * @param {string} value
 * @param {string} title
 * @param {boolean} checked
 */
function check(value, title, checked) {
  const box = make("input", { type: "checkbox", value });
  box.checked = checked;
  return make("label", { className: "check" }, box, make("span", { text: title }));
}

/**
 * What is checked; null where all is, so that what comes later counts too.
 * @param {HTMLElement} boxes
 * @returns {string[] | null}
 */
function chosen(boxes) {
  const all = [...boxes.querySelectorAll("input")];
  return all.every((box) => box.checked) ? null : all.filter((box) => box.checked).map((box) => box.value);
}
