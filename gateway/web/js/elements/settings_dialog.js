// What a viewer may choose: language, units, clock, time zone, colours.

import { iconButton, make } from "../dom.js";
import { LANGUAGES, t } from "../i18n.js";
import { settings } from "../settings.js";

/** @import { Settings } from "../settings.js" */
/** @typedef {[value: string, text: string][]} Choices */

/** @returns {Choices} */
function zones() {
  const names = Intl.supportedValuesOf?.("timeZone") ?? [];
  const own = settings.current.zone;
  const all = own === "viewer" || own === "place" || names.includes(own) ? names : [own, ...names];
  return [["viewer", t("settings.zone_viewer")], ["place", t("settings.zone_place")], ...all.map((name) => /** @type {[string, string]} */ ([name, name.replaceAll("_", " ")]))];
}

export class SettingsDialog extends HTMLElement {
  dialog = make("dialog", { className: "guide settings", "aria-labelledby": "settings-title" });

  /** What the operator offers. @type {import("../types/api.js").BaseMap[]} */
  baseMaps = [];

  connectedCallback() {
    this.replaceChildren(this.dialog);
  }

  open() {
    const close = iconButton("close", t("close"));
    close.addEventListener("click", () => this.dialog.close());
    const done = make("button", { className: "primary", type: "button", text: t("settings.done") });
    done.addEventListener("click", () => this.dialog.close());
    this.dialog.replaceChildren();
    this.dialog.append(...[
      make("header", {}, make("h2", { id: "settings-title", text: t("settings.title"), tabindex: "-1", autofocus: true }), close),
      this.choice("language", t("settings.language"), [["auto", t("settings.auto")], ...Object.entries(LANGUAGES)]),
      this.choice("units", t("settings.units"), [["metric", t("settings.metric")], ["imperial", t("settings.imperial")], ["nautical", t("settings.nautical")]]),
      this.choice("clock", t("settings.clock"), [["auto", t("settings.auto_language")], ["24", t("settings.clock_24")], ["12", t("settings.clock_12")]]),
      this.choice("zone", t("settings.zone"), zones()),
      this.choice("theme", t("settings.theme"), [["auto", t("settings.theme_auto")], ["light", t("settings.light")], ["dark", t("settings.dark")]]),
      this.baseMaps.length > 0 && this.choice("base_map", t("settings.base_map"), [["embedded", t("base_map.embedded")],
        ...this.baseMaps.map(({ name }) => /** @type {[string, string]} */ ([name, name === "map" ? t("base_map.map") : t("base_map.satellite")]))]),
      make("footer", {}, make("p", { className: "hint", text: t("settings.kept") }),
        make("a", { href: "/docs", text: t("settings.docs") }), done),
    ].filter((part) => part !== false));
    this.dialog.showModal();
  }

  /**
   * @param {keyof Settings} name
   * @param {string} text
   * @param {Choices} choices
   */
  choice(name, text, choices) {
    const id = `settings-${name}`;
    const select = make("select", { id, name }, ...choices.map(([value, shown]) => make("option", { value, text: shown })));
    select.value = settings.current[name];
    if (select.selectedIndex < 0) select.selectedIndex = 0; // what was chosen once is not offered any more
    select.addEventListener("change", () => settings.set({ [name]: select.value }));
    return make("div", { className: "choice" }, make("label", { for: id, text }), select);
  }
}
customElements.define("settings-dialog", SettingsDialog);
