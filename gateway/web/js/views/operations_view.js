// For administrators: how the platform does, its log, and what may be changed of it.

import { make } from "../dom.js";
import { t } from "../i18n.js";
import { BrokersPage } from "../operations/brokers_page.js";
import { Confirmation } from "../operations/confirmation.js";
import { GroupsPage } from "../operations/groups_page.js";
import { LogPage } from "../operations/log_page.js";
import { OverviewPage } from "../operations/overview_page.js";
import { button } from "../operations/parts.js";
import { RecordsPage } from "../operations/records_page.js";
import { RefusedPage } from "../operations/refused_page.js";
import { TopicPage } from "../operations/topic_page.js";
import { TopicsPage } from "../operations/topics_page.js";

/** @import { App } from "../app.js" */
/** @import { View } from "../navigation.js" */
/** @import { State } from "../url_state.js" */

/**
 * @typedef {object} Page a page of the view
 * @property {HTMLElement} element
 * @property {(path: string[]) => Promise<void>} load
 * @property {() => void} [hide]
 */
/** @typedef {"overview" | "brokers" | "topics" | "groups" | "refused" | "log"} TabName */

/**
 * @param {App} app
 * @param {HTMLElement} room
 * @returns {View}
 */
export function open(app, room) {
  return new OperationsView(app, room);
}

class OperationsView {
  shown = false;
  confirmation = new Confirmation();
  /** @type {Record<TabName, string>} */
  titles = {
    overview: t("operations.overview"), brokers: t("operations.brokers"), topics: t("operations.topics"),
    groups: t("operations.groups"), refused: t("operations.refused"), log: t("operations.log"),
  };
  /** @type {Map<string, Page>} */
  pages = new Map();
  /** @type {Page | null} */
  page = null;
  /** @type {string[]} */
  path = ["overview"];
  asked = 0;
  error = make("p", { className: "refusal", role: "alert", hidden: true });
  trail = make("nav", { className: "operations-trail", "aria-label": t("operations.trail"), hidden: true });
  title = make("h2", { className: "operations-title", tabindex: "-1" });
  body = make("div", { className: "operations-body", id: "operations-panel", role: "tabpanel", tabindex: "-1" });

  /**
   * @param {App} app
   * @param {HTMLElement} room
   */
  constructor(app, room) {
    this.app = app;
    const names = /** @type {TabName[]} */ (Object.keys(this.titles));
    this.tabs = names.map((name) => {
      const tab = make("button", { type: "button", id: `operations-tab-${name}`, role: "tab", "aria-controls": "operations-panel", text: this.titles[name] });
      tab.addEventListener("click", () => this.go([name]));
      return { name, tab };
    });
    const bar = make("div", { className: "segmented operations-tabs", role: "tablist", "aria-label": t("view.operations") }, ...this.tabs.map(({ tab }) => tab));
    bar.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const step = event.key === "ArrowRight" ? 1 : names.length - 1;
      const next = this.tabs[(this.tabs.findIndex(({ name }) => name === this.path[0]) + step) % names.length];
      if (!next) return;
      this.go([next.name]);
      next.tab.focus();
    });
    const refresh = button(t("operations.refresh"), () => this.load());
    room.append(bar, make("div", { className: "operations-head" }, this.trail, this.title, refresh), this.error, this.body);
    app.addEventListener("known", () => { if (this.shown && !this.page) this.load(); });
  }

  /** @param {string[]} path */
  go(path) {
    this.app.go({ page: "operations", at: path.map(encodeURIComponent).join("/") });
  }

  /** @param {State} state */
  show(state) {
    const before = this.path.join("/");
    this.shown = true;
    this.app.map.showDevices(null);
    const path = (state.at ?? "").split("/").filter(Boolean).map(decoded);
    this.path = path[0] && path[0] in this.titles ? path : ["overview"];
    this.load();
    if (before !== this.path.join("/") && this.path.length > 1) this.title.focus();
  }

  hide() {
    this.shown = false;
    this.page?.hide?.();
  }

  /** @param {string[]} path */
  pageOf(path) {
    const [tab = "overview", name, part] = path;
    const kind = tab === "topics" && name !== undefined ? (part === "records" ? "records" : "topic") : tab;
    let page = this.pages.get(kind);
    if (!page) {
      page = this.made(kind);
      this.pages.set(kind, page);
    }
    return page;
  }

  /**
   * @param {string} kind
   * @returns {Page}
   */
  made(kind) {
    const go = (/** @type {string[]} */ path) => this.go(path);
    const announce = (/** @type {string} */ text) => this.app.announce(text, true);
    switch (kind) {
      case "brokers": return new BrokersPage();
      case "topics": return new TopicsPage(this.confirmation, go, announce);
      case "topic": return new TopicPage(this.confirmation, go, announce);
      case "records": return new RecordsPage();
      case "groups": return new GroupsPage(this.confirmation, go, announce);
      case "refused": return new RefusedPage(announce);
      case "log": return new LogPage();
      default: return new OverviewPage();
    }
  }

  async load() {
    const { session } = this.app;
    if (!session) return;
    const asked = ++this.asked;
    this.error.hidden = true;
    const [tab = "overview", name, part] = this.path;
    for (const { name: each, tab: element } of this.tabs) {
      element.setAttribute("aria-selected", String(each === tab));
      element.tabIndex = each === tab ? 0 : -1;
      if (each === tab) element.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
    this.body.setAttribute("aria-labelledby", `operations-tab-${tab}`);
    this.title.textContent = part === "records" ? t("operations.records_of", { name: name ?? "" }) : name ?? this.titles[/** @type {TabName} */ (tab)];
    this.trail.hidden = name === undefined;
    this.trail.replaceChildren(button(this.titles[/** @type {TabName} */ (tab)], () => this.go([tab]), { className: "link" }),
      ...(part === "records" ? [" / ", button(name ?? "", () => this.go([tab, name ?? ""]), { className: "link" })] : []));
    if (!session.admin || session.device || session.open) {
      this.page?.hide?.();
      this.body.replaceChildren();
      this.complain(t("operations.for_administrators"));
      return;
    }
    const page = this.pageOf(this.path);
    if (page !== this.page) {
      this.page?.hide?.();
      this.page = page;
      this.body.replaceChildren(page.element);
      this.body.scrollTop = 0;
    }
    this.body.setAttribute("aria-busy", "true");
    try {
      await page.load(this.path);
    } catch (error) {
      if (asked === this.asked) this.complain(error instanceof Error ? error.message : String(error));
    } finally {
      if (asked === this.asked) {
        this.body.setAttribute("aria-busy", "false");
        this.body.dataset.shown = this.path.join("/");
      }
    }
  }

  /** @param {string} text */
  complain(text) {
    this.error.textContent = text;
    this.error.hidden = false;
  }
}

/** @param {string} text */
function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}
