// Who sees the viewer's devices, how precisely and until when; whose devices the viewer sees; and who
// asks whom to be shown them.

import { complain } from "../complaints.js";
import * as api from "../api.js";
import { make } from "../dom.js";
import { moment } from "../format.js";
import { t } from "../i18n.js";
import { precisionText, TermsFields } from "./showing_terms.js";

/** @import { Friend, OpenRequest } from "../types/api.js" */

/** @typedef {[verb: string, does: () => void, danger?: boolean]} Action */

export class FriendPanel extends HTMLElement {
  /** Events: `announce` (detail: a text for screen readers), `asked` (detail: how many requests wait for an answer). */
  error = make("p", { className: "refusal", role: "alert", hidden: true });
  user = nameField();
  terms = new TermsFields();
  /** @type {HTMLFormElement} */
  form = make("form", { className: "add-form" }, make("label", {}, make("span", { text: t("friends.user") }), this.user), ...this.terms.elements,
    make("button", { className: "primary", type: "submit", text: t("friends.show") }));
  asked = nameField();
  /** @type {HTMLFormElement} */
  askForm = make("form", { className: "add-form" }, make("label", {}, make("span", { text: t("friends.ask_whom") }), this.asked),
    make("button", { className: "primary", type: "submit", text: t("friends.ask") }));
  received = make("ul", { className: "cards" });
  shownTo = make("ul", { className: "cards" });
  seen = make("ul", { className: "cards" });
  sent = make("ul", { className: "cards" });
  blocked = make("ul", { className: "cards" });
  receivedBox = make("section", { hidden: true }, make("h2", { text: t("friends.received") }), make("p", { text: t("friends.received_lead") }), this.received);
  blockedBox = make("section", { hidden: true }, make("h2", { text: t("friends.blocked") }), this.blocked);

  connectedCallback() {
    if (this.firstChild) return;
    this.append(this.error, this.receivedBox,
      make("section", {}, make("h2", { text: t("friends.shown_to") }), make("p", { text: t("friends.lead") }), this.shownTo, this.form),
      make("section", {}, make("h2", { text: t("friends.seen") }), this.seen, this.sent, this.askForm),
      this.blockedBox);
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      const user = this.user.value.trim();
      this.change(() => api.showTo(user, this.terms.value), t("friends.now_shown", { user })).then((done) => { if (done) this.user.value = ""; });
    });
    this.askForm.addEventListener("submit", (event) => {
      event.preventDefault();
      const user = this.asked.value.trim();
      this.change(() => api.askToSee(user), t("friends.now_asked", { user })).then((done) => { if (done) this.asked.value = ""; });
    });
  }

  async load() {
    try {
      const [{ shown_to: shownTo, seen }, { received, sent, blocked }] = await Promise.all([api.friends(), api.friendRequests()]);
      this.shownTo.replaceChildren(...shownTo.map((friend) => this.shownCard(friend)));
      this.seen.replaceChildren(...seen.map((friend) => this.card(friend.user, factsOf(friend),
        [[t("friends.look_away"), () => this.change(() => api.lookAwayFrom(friend.user), `${t("friends.look_away")}: ${friend.user}`), true]])));
      if (!seen.length) this.seen.append(make("li", { className: "none", text: t("friends.nobody") }));
      this.received.replaceChildren(...received.map((request) => this.receivedCard(request)));
      this.receivedBox.hidden = !received.length;
      this.sent.replaceChildren(...sent.map(({ user, until }) => this.card(user, [t("friends.waits"), t("share.until", { time: moment(until) })],
        [[t("friends.take_back"), () => this.change(() => api.takeBack(user), `${t("friends.take_back")}: ${user}`), true]])));
      this.blocked.replaceChildren(...blocked.map((user) => this.card(user, [t("friends.blocked_means")],
        [[t("friends.unblock"), () => this.change(() => api.unblock(user), `${t("friends.unblock")}: ${user}`)]])));
      this.blockedBox.hidden = !blocked.length;
      this.dispatchEvent(new CustomEvent("asked", { detail: received.length }));
    } catch (error) {
      complain(this.error, error);
    }
  }

  /** @param {Friend} friend */
  shownCard(friend) {
    const { user } = friend;
    const card = this.card(user, factsOf(friend), [
      [t("friends.change"), () => this.choose(card, t("account.save"), new TermsFields(friend), user)],
      [t("friends.end"), () => this.change(() => api.hideFrom(user), `${t("friends.end")}: ${user}`), true],
    ]);
    return card;
  }

  /** @param {OpenRequest} request */
  receivedCard({ user, time }) {
    const card = this.card(user, [t("friends.asks", { time: moment(time) })], [
      [t("friends.accept"), () => this.choose(card, t("friends.show"), new TermsFields(), user)],
      [t("friends.decline"), () => this.change(() => api.decline(user), `${t("friends.decline")}: ${user}`), true],
      [t("friends.block"), () => this.change(() => api.block(user), `${t("friends.block")}: ${user}`), true],
    ]);
    return card;
  }

  /**
   * Ask how a user is shown the viewer's devices, below the card; once more closes it.
   * @param {HTMLElement} card
   * @param {string} verb
   * @param {TermsFields} fields
   * @param {string} user
   */
  choose(card, verb, fields, user) {
    const button = card.querySelector("button");
    const open = card.querySelector("form");
    button?.setAttribute("aria-expanded", String(!open));
    if (open) {
      open.remove();
      return;
    }
    /** @type {HTMLFormElement} */
    const form = make("form", { className: "add-form" }, ...fields.elements, make("button", { className: "primary", type: "submit", text: verb, "aria-label": `${verb}: ${user}` }));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.change(() => api.showTo(user, fields.value), t("friends.now_shown", { user }));
    });
    card.append(form);
    fields.precision.focus();
  }

  /**
   * @param {string} user
   * @param {string[]} facts
   * @param {Action[]} actions
   */
  card(user, facts, actions) {
    return make("li", {}, make("div", {}, make("h3", { text: user }), make("p", { text: facts.filter(Boolean).join(" · ") })),
      make("div", { className: "actions" }, ...actions.map(([verb, does, danger]) => {
        const button = make("button", { type: "button", className: "plain", text: verb, "aria-label": `${verb}: ${user}` });
        button.classList.toggle("danger", Boolean(danger));
        button.addEventListener("click", does);
        return button;
      })));
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

function nameField() {
  return make("input", { name: "user", required: true, maxlength: "64", autocomplete: "off", spellcheck: "false", autocapitalize: "none" });
}

/** @param {Friend} friend */
function factsOf(friend) {
  return [t("account.since", { time: moment(friend.since) }), precisionText(friend), friend.until ? t("share.until", { time: moment(friend.until) }) : ""];
}
