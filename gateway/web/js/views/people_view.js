// Other people, and oneself: friends, what is shared by links, and the viewer's own account.

import { make } from "../dom.js";
import { t } from "../i18n.js";
import "../people/account_panel.js";
import "../people/friend_panel.js";
import "../people/share_panel.js";
import "../people/user_panel.js";

/** @import { App } from "../app.js" */
/** @import { View } from "../navigation.js" */

/** @typedef {"friends" | "shares" | "account" | "users"} TabName */

/**
 * @param {App} app
 * @param {HTMLElement} room
 * @returns {View}
 */
export function open(app, room) {
  return new PeopleView(app, room);
}

class PeopleView {
  shown = false;
  shares = make("share-panel", { id: "people-shares", role: "tabpanel", "aria-labelledby": "people-tab-shares" });
  account = make("account-panel", { id: "people-account", role: "tabpanel", "aria-labelledby": "people-tab-account", hidden: true });
  friends = make("friend-panel", { id: "people-friends", role: "tabpanel", "aria-labelledby": "people-tab-friends", hidden: true });
  users = make("user-panel", { id: "people-users", role: "tabpanel", "aria-labelledby": "people-tab-users", hidden: true });
  note = make("p", { className: "none", hidden: true });
  /** @type {Record<TabName, {panel: HTMLElement, tab: HTMLButtonElement}>} */
  tabs = {
    friends: { panel: this.friends, tab: this.tab("friends", t("people.friends")) },
    shares: { panel: this.shares, tab: this.tab("shares", t("people.shares")) },
    account: { panel: this.account, tab: this.tab("account", t("people.account")) },
    users: { panel: this.users, tab: this.tab("users", t("people.users")) },
  };
  bar = make("div", { className: "segmented", role: "tablist", "aria-label": t("view.people") }, ...Object.values(this.tabs).map(({ tab }) => tab));
  /** @type {TabName} */
  chosen = "shares";

  /**
   * @param {App} app
   * @param {HTMLElement} room
   */
  constructor(app, room) {
    this.app = app;
    room.append(make("div", { className: "people-head" }, this.bar),
      make("div", { className: "people-body", tabindex: "-1" }, this.note, this.friends, this.shares, this.account, this.users));
    this.shares.ownDevices = () => app.store.records.map((record) => record.device).filter((device) => device.startsWith(`${app.session?.user}/`)).sort();
    for (const { panel } of Object.values(this.tabs)) {
      panel.addEventListener("announce", (event) => app.announce(/** @type {CustomEvent<string>} */ (event).detail, true));
    }
    this.bar.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const names = /** @type {TabName[]} */ (Object.keys(this.tabs)).filter((name) => !this.tabs[name].tab.hidden);
      const step = event.key === "ArrowRight" ? 1 : names.length - 1;
      const next = names[(names.indexOf(this.chosen) + step) % names.length] ?? "shares";
      this.choose(next);
      this.load();
      this.tabs[next].tab.focus();
    });
    this.choose("shares");
    app.addEventListener("known", () => { if (this.shown) this.load(); });
  }

  /**
   * @param {TabName} name
   * @param {string} text
   */
  tab(name, text) {
    const button = make("button", { type: "button", id: `people-tab-${name}`, role: "tab", "aria-controls": `people-${name}`, text });
    button.addEventListener("click", () => { this.choose(name); this.load(); });
    return button;
  }

  /** @param {TabName} chosen */
  choose(chosen) {
    this.chosen = chosen;
    for (const [name, { panel, tab }] of Object.entries(this.tabs)) {
      panel.hidden = name !== chosen;
      tab.setAttribute("aria-selected", String(name === chosen));
      tab.tabIndex = name === chosen ? 0 : -1;
    }
  }

  show() {
    this.shown = true;
    this.app.map.showDevices(null);
    this.load();
  }

  hide() {
    this.shown = false;
    this.shares.forget();
    this.account.forget();
    this.users.forget();
  }

  load() {
    const { session } = this.app;
    if (!session) return;
    this.tabs.users.tab.hidden = !session.admin;
    this.users.self = session.user ?? "";
    const reason = session.device ? t("people.of_one_device") : session.open ? t("people.open") : session.user ? "" : t("people.operator", { command: "waylog link" });
    this.note.textContent = reason;
    this.note.hidden = !reason;
    // The installation's own administrator has users, and nothing of its own.
    const onlyUsers = Boolean(reason) && session.admin && !session.device && !session.open;
    this.bar.hidden = Boolean(reason);
    if (onlyUsers) this.choose("users");
    else if (reason) {
      for (const { panel } of Object.values(this.tabs)) panel.hidden = true;
      return;
    }
    this[this.chosen].load();
  }
}
