// Asked for only when the gateway wants to know who is looking.

import * as api from "../api.js";
import { make, setText } from "../dom.js";
import { t } from "../i18n.js";

export class SignIn extends HTMLElement {
  dialog = make("dialog", { className: "guide sign-in", "aria-labelledby": "sign-in-title" });
  user = make("input", { autocomplete: "username", required: true, spellcheck: "false" });
  token = make("input", { type: "password", autocomplete: "current-password", required: true });
  refusal = make("p", { className: "refusal", role: "alert", hidden: true });

  connectedCallback() {
    const form = make("form", { method: "dialog" },
      make("h2", { id: "sign-in-title", text: t("sign_in.title") }), this.refusal,
      make("p", { className: "hint", text: t("sign_in.how", { command: "waylog link" }) }),
      make("label", {}, make("span", { text: t("sign_in.user") }), this.user),
      make("label", {}, make("span", { text: t("sign_in.token") }), this.token),
      make("button", { className: "primary", text: t("sign_in.button") }));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.try({ user: this.user.value, token: this.token.value });
    });
    this.dialog.replaceChildren(form);
    this.dialog.addEventListener("cancel", (event) => event.preventDefault());
    this.replaceChildren(this.dialog);
  }

  /**
   * Sign in; tells of it by the event `signed-in` (detail: the session), or says why not.
   * @param {{user: string, token: string}} how
   */
  async try(how) {
    try {
      const session = await api.signIn(how);
      this.token.value = "";
      if (this.dialog.open) this.dialog.close();
      this.dispatchEvent(new CustomEvent("signed-in", { detail: session }));
    } catch (error) {
      this.ask(error instanceof Error ? error.message : String(error));
    }
  }

  /** @param {string} [refusal] why the last attempt failed */
  ask(refusal = "") {
    setText(this.refusal, refusal && `${refusal.charAt(0).toUpperCase()}${refusal.slice(1)}.`);
    this.refusal.hidden = !refusal;
    if (this.dialog.open) return;
    this.dialog.showModal();
    (this.user.value ? this.token : this.user).focus();
  }
}
customElements.define("sign-in", SignIn);
