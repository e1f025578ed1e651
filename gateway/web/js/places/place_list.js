// The favourite places of a device: how they are used, and what the viewer says of them.

import * as api from "../api.js";
import { drawAnew, make } from "../dom.js";
import { day, distance, duration } from "../format.js";
import { t } from "../i18n.js";
import { iconOf } from "../places.js";
import { metresBetween } from "../tracks.js";
import "../elements/place_details.js";

/** @import { TitledPlace } from "../places.js" */
/** @import { PlaceEdit, Visit } from "../types/api.js" */

const YEAR_MS = 371 * 86400e3;
const MERGED_M = 2000;

export class PlaceList extends HTMLElement {
  /** Events: `focus-map` (detail: a place), `edit` (detail: {place_id, changes, said}), `zone` (detail: a place). */
  /** @type {TitledPlace[]} */
  places = [];
  /** @type {PlaceEdit[]} */
  edits = [];
  device = "";
  edited = false;
  /** @type {string | null} */
  opened = null;
  list = make("ol", { className: "places" });
  undone = make("ul", { className: "undone" });
  undoneBox = make("section", { hidden: true }, make("h3", { text: t("places.taken_out") }), this.undone);

  connectedCallback() {
    if (!this.firstChild) this.replaceChildren(make("h2", { className: "visually-hidden", text: t("places.tab") }), this.list, this.undoneBox);
  }

  /**
   * @param {string} device
   * @param {TitledPlace[]} places
   * @param {PlaceEdit[]} edits
   * @param {boolean} mayEdit
   */
  show(device, places, edits, mayEdit) {
    if (device !== this.device) this.opened = null;
    Object.assign(this, { device, places, edits, edited: mayEdit });
    drawAnew(this, () => {
      this.list.replaceChildren(...places.map((place) => this.row(place)));
      if (!places.length) this.list.append(make("li", { className: "none", text: t("places.none") }));
      const taken = mayEdit ? edits.filter((edit) => edit.deleted || edit.merged_into) : [];
      this.undoneBox.hidden = !taken.length;
      this.undone.replaceChildren(...taken.map((edit) => this.takenRow(edit)));
    });
  }

  /** @param {TitledPlace} place */
  row(place) {
    const open = place.place_id === this.opened;
    const button = make("button", { type: "button", "aria-expanded": open, "data-key": `place ${place.place_id}` },
      make("svg-icon", { name: iconOf(place) }),
      make("span", { className: "name", text: place.title, title: place.address ?? place.title }),
      make("span", { className: "dwell", text: t("place.visits", { count: place.visits }) }));
    const item = make("li", {}, button);
    button.addEventListener("click", () => {
      this.opened = open ? null : place.place_id;
      if (!open) this.dispatchEvent(new CustomEvent("focus-map", { detail: place }));
      this.show(this.device, this.places, this.edits, this.edited);
    });
    if (open) item.append(this.details(place));
    return item;
  }

  /** @param {TitledPlace} place */
  details(place) {
    const facts = [
      place.address ?? "", t("places.spent", { duration: duration(place.dwell_s) }),
      place.first && place.last ? t("places.first_last", { first: day(place.first), last: day(place.last) }) : "",
    ];
    const details = make("place-details");
    const box = make("div", { className: "place-box" }, make("h3", { className: "visually-hidden", text: place.title }), ...facts.filter(Boolean).map((fact) => make("p", { className: "detail", text: fact })), details);
    this.loadVisits(place, details);
    if (this.edited) box.append(this.editor(place));
    return box;
  }

  /**
   * @param {TitledPlace} place
   * @param {HTMLElementTagNameMap["place-details"]} details
   */
  async loadVisits(place, details) {
    // The year that ends with the last visit: imported years are shown like this one.
    const end = place.last ?? Date.now();
    /** @type {Visit[]} */
    let visits = [];
    try { visits = await api.visits(this.device, end - YEAR_MS, end); } catch { /* no history */ }
    if (details.isConnected) details.show(visits.filter((visit) => visit.place_id === place.place_id), end);
  }

  /** @param {TitledPlace} place */
  editor(place) {
    const name = make("input", { type: "text", maxlength: "200", value: place.named_by === "user" ? (place.name ?? "") : "", placeholder: place.title, autocomplete: "off" });
    const rename = make("form", { className: "zone-form", novalidate: true },
      make("label", {}, make("span", { text: t("places.own_name") }), name),
      make("footer", {}, make("button", { type: "submit", className: "plain", text: t("places.rename"), "data-key": `rename ${place.place_id}` })));
    rename.addEventListener("submit", (event) => {
      event.preventDefault();
      if (name.value.trim()) this.say(place, { name: name.value.trim() }, t("places.renamed", { name: name.value.trim() }));
    });
    const actions = make("div", { className: "actions" });
    const act = (/** @type {string} */ text, /** @type {() => void} */ does, danger = false) => {
      const button = make("button", { type: "button", className: "plain", text });
      button.classList.toggle("danger", danger);
      button.addEventListener("click", does);
      actions.append(button);
    };
    act(t("places.zone_here"), () => this.dispatchEvent(new CustomEvent("zone", { detail: place })));
    if (place.label === "home") act(t("places.not_home"), () => this.say(place, { label: "none" }, t("places.saved")));
    else {
      act(t("places.is_home"), () => this.say(place, { label: "home" }, t("places.saved")));
      if (place.label !== "work") act(t("places.is_work"), () => this.say(place, { label: "work" }, t("places.saved")));
      act(t("places.take_out"), () => this.say(place, { deleted: true }, t("places.taken", { name: place.title })), true);
    }
    return make("div", { className: "place-edit" }, rename, this.merger(place), actions);
  }

  /**
   * The places that this one may be a part of: the near ones, the nearest first.
   * @param {TitledPlace} place
   */
  merger(place) {
    if (place.label === "home") return null;
    const near = this.places.filter((other) => other !== place).map((other) => ({ other, away: metresBetween(place, other) }))
      .filter(({ away }) => away <= MERGED_M).sort((a, b) => a.away - b.away);
    if (!near.length) return null;
    const select = make("select", { "aria-label": t("places.part_of") }, ...near.map(({ other, away }) => (
      make("option", { value: other.place_id, text: `${other.title} (${distance(away)})` }))));
    const merge = make("button", { type: "button", className: "plain", text: t("places.merge") });
    merge.addEventListener("click", () => this.say(place, { merged_into: select.value }, t("places.merged", { name: place.title })));
    return make("div", { className: "merge" }, select, merge);
  }

  /** @param {PlaceEdit} edit */
  takenRow(edit) {
    const other = this.places.find((place) => place.place_id === edit.merged_into);
    const name = edit.name ?? edit.known_as ?? t("place.unnamed");
    const text = edit.merged_into ? t("places.part", { name, other: other?.title ?? t("place.unnamed") }) : t("places.left_out", { name });
    const undo = make("button", { type: "button", className: "plain", text: edit.merged_into ? t("places.split") : t("places.put_back"), "data-key": `undo ${edit.place_id}` });
    undo.addEventListener("click", () => this.dispatchEvent(new CustomEvent("edit", { detail: {
      place_id: edit.place_id, changes: { deleted: false, merged_into: null }, said: t("places.comes_back") } })));
    return make("li", {}, make("span", { text }), undo);
  }

  /**
   * @param {TitledPlace} place
   * @param {Record<string, unknown>} changes
   * @param {string} said
   */
  say(place, changes, said) {
    this.dispatchEvent(new CustomEvent("edit", { detail: { place_id: place.place_id, changes, said } }));
  }
}
customElements.define("place-list", PlaceList);
