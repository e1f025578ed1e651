// Other people, and oneself: friends, what is shared by links, and the viewer's own account.

import { make } from "../dom.js";
import { TabBar } from "../elements/tab_bar.js";
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
  shares = make("share-panel");
  account = make("account-panel");
  friends = make("friend-panel");
  users = make("user-panel");
  note = make("p", { className: "none", hidden: true });
  /** @type {TabBar<TabName>} */
  tabs = new TabBar("people", t("view.people"), {
    friends: { panel: this.friends, text: t("people.friends") },
    shares: { panel: this.shares, text: t("people.shares") },
    account: { panel: this.account, text: t("people.account") },
    users: { panel: this.users, text: t("people.users") },
  }, () => this.load());

  /**
   * @param {App} app
   * @param {HTMLElement} room
   */
  constructor(app, room) {
    this.app = app;
    room.append(make("div", { className: "people-head" }, this.tabs.element),
      make("div", { className: "people-body", tabindex: "-1" }, this.note, this.friends, this.shares, this.account, this.users));
    this.shares.ownDevices = () => app.store.ownDevices(app.session?.user);
    for (const panel of [this.friends, this.shares, this.account, this.users]) {
      panel.addEventListener("announce", (event) => app.announce(/** @type {CustomEvent<string>} */ (event).detail, true));
    }
    this.friends.addEventListener("asked", (event) => app.tellAsked(/** @type {CustomEvent<number>} */ (event).detail));
    this.friends.addEventListener("leaving", () => { if (this.shown) this.showOnMap(); });
    this.tabs.choose("shares");
    app.addEventListener("known", () => { if (this.shown) this.load(); });
  }

  show() {
    this.shown = true;
    if (this.app.askedBy) this.tabs.choose("friends");
    this.showOnMap();
    this.load();
  }

  /** All devices but those of friends who are about to be hidden. */
  showOnMap() {
    const { leaving } = this.friends;
    this.app.map.showDevices(leaving.size ? (record) => !leaving.has(record.user) : null);
  }

  hide() {
    this.shown = false;
    this.friends.leave();
    this.shares.forget();
    this.account.forget();
    this.users.forget();
  }

  load() {
    const { session } = this.app;
    if (!session) return;
    this.tabs.tab("users").hidden = !session.admin;
    this.users.self = session.user ?? "";
    const reason = session.device ? t("people.of_one_device") : session.open ? t("people.open") : session.user ? "" : t("people.operator", { command: "waylog link" });
    this.note.textContent = reason;
    this.note.hidden = !reason;
    // The installation's own administrator has users, and nothing of its own.
    const onlyUsers = Boolean(reason) && session.admin && !session.device && !session.open;
    if (reason) this.tabs.hide();
    if (reason && !onlyUsers) return;
    this.tabs.element.hidden = Boolean(reason);
    this.tabs.choose(onlyUsers ? "users" : this.tabs.chosen);
    if (this.tabs.chosen !== "friends") this.friends.leave();
    this[this.tabs.chosen].load();
  }
}
