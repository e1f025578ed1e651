// Who sees the viewer's devices, how precisely and until when; whose devices the viewer sees; and who
// asks whom to be shown them.

import { complain } from "../complaints.js";
import * as api from "../api.js";
import { drawAnew, make } from "../dom.js";
import { moment } from "../format.js";
import { t } from "../i18n.js";
import { reasonOf } from "./refusals.js";
import { precisionText, TermsFields } from "./showing_terms.js";

/** @import { Friend, OpenRequest } from "../types/api.js" */

/** @typedef {[verb: string, does: (card: HTMLElement) => void, danger?: boolean]} Action */

export class FriendPanel extends HTMLElement {
  /** Events: `announce` (detail: a text for screen readers), `asked` (detail: how many requests wait for an answer),
   * `leaving`: whose sight ends has changed. */
  error = make("p", { className: "refusal", role: "alert", hidden: true });
  user = nameField();
  terms = new TermsFields();
  /** @type {HTMLFormElement} */
  form = make("form", { className: "add-form" }, make("label", {}, make("span", { text: t("friends.user") }), this.user), ...this.terms.elements,
    make("button", { className: "primary", type: "submit", text: t("friends.show") }));
  /** @type {Set<string>} whom the viewer sees no more as soon as the panel is left: until then that can be undone */
  leaving = new Set();
  /** @type {Friend[]} */
  seenFriends = [];
  /** what is drawn, as JSON */
  drawn = "";
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
      this.change(this.form, user, () => api.showTo(user, this.terms.value), t("friends.now_shown", { user })).then((done) => { if (done) this.user.value = ""; });
    });
    this.askForm.addEventListener("submit", (event) => {
      event.preventDefault();
      const user = this.asked.value.trim();
      this.change(this.askForm, user, () => api.askToSee(user), t("friends.now_asked", { user })).then((done) => { if (done) this.asked.value = ""; });
    });
    // A phone may end a page that is not shown any more without a word.
    document.addEventListener("visibilitychange", () => { if (document.hidden) this.leave(); });
    addEventListener("pagehide", () => this.leave());
  }

  async load() {
    try {
      const [{ shown_to: shownTo, seen }, { received, sent, blocked }] = await Promise.all([api.friends(), api.friendRequests()]);
      // What is open, or being filled in, stays where nothing has changed.
      const drawn = JSON.stringify([shownTo, seen, received, sent, blocked]);
      if (drawn !== this.drawn) drawAnew(this, () => this.draw(shownTo, seen, received, sent, blocked));
      this.drawn = drawn;
      this.dispatchEvent(new CustomEvent("asked", { detail: received.length }));
    } catch (error) {
      complain(this.error, reasonOf(error, ""));
    }
  }

  /**
   * @param {Friend[]} shownTo
   * @param {Friend[]} seen
   * @param {OpenRequest[]} received
   * @param {OpenRequest[]} sent
   * @param {string[]} blocked
   */
  draw(shownTo, seen, received, sent, blocked) {
    this.shownTo.replaceChildren(...shownTo.map((friend) => this.shownCard(friend)));
    this.seenFriends = seen;
    this.drawSeen();
    this.received.replaceChildren(...received.map((request) => this.receivedCard(request)));
    this.receivedBox.hidden = !received.length;
    this.sent.replaceChildren(...sent.map(({ user, until }) => this.card(user, [t("friends.waits"), t("share.until", { time: moment(until) })],
      [[t("friends.take_back"), (card) => this.change(card, user, () => api.takeBack(user), `${t("friends.take_back")}: ${user}`), true]])));
    this.blocked.replaceChildren(...blocked.map((user) => this.card(user, [t("friends.blocked_means")],
      [[t("friends.unblock"), (card) => this.change(card, user, () => api.unblock(user), `${t("friends.unblock")}: ${user}`)]])));
    this.blockedBox.hidden = !blocked.length;
  }

  drawSeen() {
    this.seen.replaceChildren(...this.seenFriends.map((friend) => this.seenCard(friend)));
    if (!this.seenFriends.length) this.seen.append(make("li", { className: "none", text: t("friends.nobody") }));
  }

  /** @param {Friend} friend */
  seenCard(friend) {
    const { user } = friend;
    const card = this.leaving.has(user)
      ? this.card(user, [t("friends.hidden", { user })], [[t("friends.undo"), () => this.setLeaving(friend, false)]])
      : this.card(user, factsOf(friend), [[t("friends.look_away"), () => this.setLeaving(friend, true), true]]);
    // The key that hides also undoes.
    card.querySelector("button")?.setAttribute("data-key", `seen ${user}`);
    return card;
  }

  /**
   * Hide a friend, or undo that. Nobody can take back the end of a sight that another one has given: so it
   * ends when the panel is left, and not before.
   * @param {Friend} friend
   * @param {boolean} leaves
   */
  setLeaving(friend, leaves) {
    const { user } = friend;
    if (leaves) this.leaving.add(user);
    else this.leaving.delete(user);
    drawAnew(this.seen, () => this.drawSeen());
    this.dispatchEvent(new CustomEvent("announce", { detail: `${user}: ${leaves ? t("friends.hidden", { user }) : t("friends.undo")}` }));
    this.dispatchEvent(new Event("leaving"));
  }

  /** The panel is left: what could be undone so far is done. */
  async leave() {
    const users = [...this.leaving];
    if (!users.length) return;
    this.leaving.clear();
    this.drawn = "";
    this.seenFriends = this.seenFriends.filter(({ user }) => !users.includes(user));
    this.drawSeen();
    const ended = await Promise.allSettled(users.map((user) => api.lookAwayFrom(user)));
    ended.forEach((each, index) => {
      if (each.status === "rejected") complain(this.error, `${users[index]}: ${reasonOf(each.reason, users[index] ?? "")}`);
    });
    this.dispatchEvent(new Event("leaving"));
    // The panel may have been opened again meanwhile.
    if (this.offsetParent) await this.load();
  }

  /** @param {Friend} friend */
  shownCard(friend) {
    const { user } = friend;
    return this.card(user, factsOf(friend), [
      [t("friends.change"), (card) => this.choose(card, t("account.save"), new TermsFields(friend), user)],
      [t("friends.end"), (card) => this.change(card, user, () => api.hideFrom(user), `${t("friends.end")}: ${user}`), true],
    ]);
  }

  /** @param {OpenRequest} request */
  receivedCard({ user, time }) {
    return this.card(user, [t("friends.asks", { time: moment(time) })], [
      [t("friends.accept"), (card) => this.choose(card, t("friends.show"), new TermsFields(), user)],
      [t("friends.decline"), (card) => this.change(card, user, () => api.decline(user), `${t("friends.decline")}: ${user}`), true],
      [t("friends.block"), (card) => this.change(card, user, () => api.block(user), `${t("friends.block")}: ${user}`), true],
    ]);
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
      this.change(form, user, () => api.showTo(user, fields.value), t("friends.now_shown", { user }));
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
    const card = make("li", {}, make("div", {}, make("h3", { text: user }), make("p", { text: facts.filter(Boolean).join(" · ") })),
      make("div", { className: "actions" }, ...actions.map(([verb, does, danger]) => {
        const button = make("button", { type: "button", className: "plain", text: verb, "aria-label": `${verb}: ${user}` });
        button.classList.toggle("danger", Boolean(danger));
        button.addEventListener("click", () => does(card));
        return button;
      })));
    return card;
  }

  forgetRefusals() {
    this.error.hidden = true;
    for (const line of this.querySelectorAll(".refusal")) if (line !== this.error) line.remove();
  }

  /**
   * @param {HTMLElement} place the form or the card that it was asked by, which says what has failed
   * @param {string} user
   * @param {() => Promise<void>} does
   * @param {string} text that says it was done
   * @returns {Promise<boolean>}
   */
  async change(place, user, does, text) {
    this.forgetRefusals();
    try {
      await does();
    } catch (error) {
      this.forgetRefusals();
      const line = make("p", { className: "refusal", role: "alert", text: reasonOf(error, user) });
      place.insertBefore(line, place.querySelector(":scope > button"));
      line.scrollIntoView({ block: "nearest" });
      return false;
    }
    this.dispatchEvent(new CustomEvent("announce", { detail: text }));
    this.drawn = ""; // a form that was sent is closed, whatever it has changed
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
