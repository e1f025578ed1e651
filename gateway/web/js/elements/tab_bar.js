// Tabs above panels of a view: one panel is shown, arrow keys go from tab to tab (WAI-ARIA).

import { make } from "../dom.js";

/**
 * @template {string} Name
 */
export class TabBar {
  /** @type {Record<string, HTMLButtonElement>} */
  tabs = {};

  /**
   * @param {string} prefix of the ids, which panels get too
   * @param {string} label
   * @param {Record<Name, {panel: HTMLElement, text: string}>} panels
   * @param {(name: Name) => void} onChosen somebody has chosen a tab
   */
  constructor(prefix, label, panels, onChosen) {
    this.panels = panels;
    this.names = /** @type {Name[]} */ (Object.keys(panels));
    this.chosen = /** @type {Name} */ (this.names[0]);
    for (const name of this.names) {
      const { panel, text } = panels[name];
      panel.id = `${prefix}-${name}`;
      panel.setAttribute("role", "tabpanel");
      panel.setAttribute("aria-labelledby", `${prefix}-tab-${name}`);
      const tab = make("button", { type: "button", id: `${prefix}-tab-${name}`, role: "tab", "aria-controls": panel.id, text });
      tab.addEventListener("click", () => { this.choose(name); onChosen(name); });
      this.tabs[name] = tab;
    }
    this.element = make("div", { className: "segmented", role: "tablist", "aria-label": label }, ...Object.values(this.tabs));
    this.element.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const shown = this.names.filter((name) => !this.tab(name).hidden);
      const step = event.key === "ArrowRight" ? 1 : shown.length - 1;
      const next = shown[(shown.indexOf(this.chosen) + step) % shown.length] ?? this.chosen;
      this.choose(next);
      onChosen(next);
      this.tab(next).focus();
    });
    this.choose(this.chosen);
  }

  /** @param {Name} name */
  tab(name) {
    return /** @type {HTMLButtonElement} */ (this.tabs[name]);
  }

  /** @param {Name} chosen */
  choose(chosen) {
    this.chosen = chosen;
    for (const name of this.names) {
      const tab = this.tab(name);
      this.panels[name].panel.hidden = name !== chosen;
      tab.setAttribute("aria-selected", String(name === chosen));
      tab.tabIndex = name === chosen ? 0 : -1;
    }
  }

  /** Show no panel, and no tabs. */
  hide() {
    this.element.hidden = true;
    for (const name of this.names) this.panels[name].panel.hidden = true;
  }
}
