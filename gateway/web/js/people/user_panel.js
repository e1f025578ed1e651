// For administrators: who has an account here, with what rights, and inviting others.

import { complain } from "../complaints.js";
import * as api from "../api.js";
import { drawAnew, make } from "../dom.js";
import { copyable } from "../elements/copyable.js";
import { moment } from "../format.js";
import { t } from "../i18n.js";

/** @import { Invitation, KnownUser } from "../types/api.js" */

export class UserPanel extends HTMLElement {
  /** Events: `announce` (detail: a text for screen readers). */
  self = "";
  error = make("p", { className: "refusal", role: "alert", hidden: true });
  user = make("input", { name: "user", required: true, maxlength: "64", pattern: "[A-Za-z0-9][A-Za-z0-9._@\\-]*", autocomplete: "off", spellcheck: "false", autocapitalize: "none" });
  admin = make("input", { type: "checkbox", name: "admin" });
  /** @type {HTMLFormElement} */
  form = make("form", { className: "add-form" }, make("label", {}, make("span", { text: t("users.name") }), this.user),
    make("label", { className: "check" }, this.admin, make("span", { text: t("users.admin") })),
    make("button", { className: "primary", type: "submit", text: t("users.invite") }));
  made = make("div", { className: "box", hidden: true });
  list = make("ul", { className: "cards" });
  dialog = make("dialog", { className: "guide sign-in", "aria-labelledby": "user-dialog-title" });

  connectedCallback() {
    if (this.firstChild) return;
    this.append(this.error, this.form, this.made, this.list);
    document.body.append(this.dialog);
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.attempt(async () => {
        this.show(await api.inviteUser(this.user.value.trim(), this.admin.checked));
        this.user.value = "";
        this.admin.checked = false;
      });
    });
  }

  /** Forget the link: it is shown once. */
  forget() {
    this.made.replaceChildren();
    this.made.hidden = true;
  }

  /** @param {Invitation} invitation */
  show({ user, link, until }) {
    this.made.replaceChildren(make("h2", { tabindex: "-1", text: t("users.invited", { user }) }),
      make("p", { text: t("users.hand_on", { time: moment(until) }) }), copyable(t("share.link"), link));
    this.made.hidden = false;
    this.made.querySelector("h2")?.focus();
  }

  async load() {
    try {
      const users = await api.users();
      drawAnew(this.list, () => this.list.replaceChildren(...users.map((user) => this.card(user))));
    } catch (error) {
      complain(this.error, error);
    }
  }

  /** @param {KnownUser} user */
  card(user) {
    const facts = [
      user.admin ? t("users.admin") : "", user.may_send ? "" : t("users.looks_only"), t("users.devices", { count: user.devices }),
      user.fixes_per_minute ? t("users.rate", { count: user.fixes_per_minute }) : "", user.devices_max ? t("users.devices_max", { count: user.devices_max }) : "",
      user.second_factor ? t("account.factor") : user.password ? t("account.password") : "",
    ];
    const change = make("button", { type: "button", className: "plain", text: t("users.change"), "aria-label": `${t("users.change")}: ${user.name}` });
    change.addEventListener("click", () => this.ask(user));
    return make("li", {}, make("div", {}, make("h3", { text: user.name }), make("p", { text: facts.filter(Boolean).join(" · ") })), user.name !== this.self && change);
  }

  /** @param {KnownUser} user */
  ask(user) {
    const admin = make("input", { type: "checkbox", checked: user.admin });
    const sends = make("input", { type: "checkbox", checked: user.may_send });
    const rate = make("input", { type: "number", min: "1", value: user.fixes_per_minute ?? "" });
    const devices = make("input", { type: "number", min: "1", value: user.devices_max ?? "" });
    const button = (/** @type {string} */ text, /** @type {() => Promise<void>} */ does, danger = false) => {
      const made = make("button", { type: "button", className: "plain", text });
      made.classList.toggle("danger", danger);
      made.addEventListener("click", () => { this.dialog.close(); this.attempt(does); });
      return made;
    };
    const form = make("form", { method: "dialog", className: "add-form" }, make("h2", { id: "user-dialog-title", text: user.name }),
      make("label", { className: "check" }, admin, make("span", { text: t("users.admin") })), make("label", { className: "check" }, sends, make("span", { text: t("users.may_send") })),
      make("label", {}, make("span", { text: t("users.rate_max") }), rate), make("label", {}, make("span", { text: t("users.devices_bound") }), devices),
      make("div", { className: "actions" },
        button(t("users.link"), async () => this.show(await api.inviteAgain(user.name))),
        button(t("users.revoke"), () => api.revokeUser(user.name), true)),
      make("div", { className: "sign-in-buttons" }, button(t("account.cancel"), async () => {}), make("button", { className: "primary", text: t("account.save") })));
    form.addEventListener("submit", () => this.attempt(() => api.changeUser(user.name, {
      admin: admin.checked, may_send: sends.checked, fixes_per_minute: Number(rate.value) || null, devices_max: Number(devices.value) || null,
    })));
    this.dialog.replaceChildren(form);
    this.dialog.showModal();
  }

  /** @param {() => Promise<void>} does */
  async attempt(does) {
    this.error.hidden = true;
    this.forget();
    try {
      await does();
    } catch (error) {
      complain(this.error, error);
    }
    await this.load();
  }
}
customElements.define("user-panel", UserPanel);
