// Who sees the viewer's devices, and whose devices the viewer sees.

import { complain } from "../complaints.js";
import * as api from "../api.js";
import { make } from "../dom.js";
import { moment } from "../format.js";
import { t } from "../i18n.js";

/** @import { Friend } from "../types/api.js" */

export class FriendPanel extends HTMLElement {
  /** Events: `announce` (detail: a text for screen readers). */
  error = make("p", { className: "refusal", role: "alert", hidden: true });
  user = make("input", { name: "user", required: true, maxlength: "64", autocomplete: "off", spellcheck: "false", autocapitalize: "none" });
  /** @type {HTMLFormElement} */
  form = make("form", { className: "add-form" }, make("label", {}, make("span", { text: t("friends.user") }), this.user),
    make("button", { className: "primary", type: "submit", text: t("friends.show") }));
  shownTo = make("ul", { className: "cards" });
  seen = make("ul", { className: "cards" });

  connectedCallback() {
    if (this.firstChild) return;
    this.append(this.error,
      make("section", {}, make("h2", { text: t("friends.shown_to") }), make("p", { text: t("friends.lead") }), this.shownTo, this.form),
      make("section", {}, make("h2", { text: t("friends.seen") }), this.seen));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      const user = this.user.value.trim();
      this.change(() => api.showTo(user), t("friends.now_shown", { user })).then((done) => { if (done) this.user.value = ""; });
    });
  }

  async load() {
    try {
      const { shown_to: shownTo, seen } = await api.friends();
      this.shownTo.replaceChildren(...shownTo.map((friend) => this.card(friend, t("friends.end"), () => api.hideFrom(friend.user))));
      this.seen.replaceChildren(...seen.map((friend) => this.card(friend, t("friends.look_away"), () => api.lookAwayFrom(friend.user))));
      if (!seen.length) this.seen.append(make("li", { className: "none", text: t("friends.nobody") }));
    } catch (error) {
      complain(this.error, error);
    }
  }

  /**
   * @param {Friend} friend
   * @param {string} verb
   * @param {() => Promise<void>} does
   */
  card({ user, since }, verb, does) {
    const button = make("button", { type: "button", className: "plain danger", text: verb, "aria-label": `${verb}: ${user}` });
    button.addEventListener("click", () => this.change(does, `${verb}: ${user}`));
    return make("li", {}, make("div", {}, make("h3", { text: user }), make("p", { text: t("account.since", { time: moment(since) }) })), button);
  }

  /**
   * @param {() => Promise<void>} does
   * @param {string} text that says it was done
   * @returns {Promise<boolean>}
   */
  async change(does, text) {
    this.error.hidden = true;
    try {
      await does();
    } catch (error) {
      complain(this.error, error);
      return false;
    }
    this.dispatchEvent(new CustomEvent("announce", { detail: text }));
    await this.load();
    return true;
  }
}
customElements.define("friend-panel", FriendPanel);
