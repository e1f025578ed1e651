// Asked for only when the gateway wants to know who is looking.

import * as api from "../api.js";
import { make, setText } from "../dom.js";
import { t } from "../i18n.js";
import { askForPasskey, canUsePasskeys, isCancelled } from "../people/passkeys.js";

export class SignIn extends HTMLElement {
  dialog = make("dialog", { className: "guide sign-in", "aria-labelledby": "sign-in-title" });
  user = make("input", { autocomplete: "username", required: true, spellcheck: "false", autocapitalize: "none" });
  token = make("input", { type: "password", autocomplete: "current-password", required: true });
  code = make("input", { autocomplete: "one-time-code", spellcheck: "false", autocapitalize: "none", maxlength: "40" });
  codeLabel = make("label", { hidden: true }, make("span", { text: t("sign_in.code") }), this.code);
  refusal = make("p", { className: "refusal", role: "alert", hidden: true });
  passkey = make("button", { type: "button", className: "plain", text: t("sign_in.passkey"), hidden: !canUsePasskeys() });

  connectedCallback() {
    const form = make("form", { method: "dialog" },
      make("h2", { id: "sign-in-title", text: t("sign_in.title") }), this.refusal,
      make("label", {}, make("span", { text: t("sign_in.user") }), this.user),
      make("label", {}, make("span", { text: t("sign_in.token") }), this.token),
      this.codeLabel,
      make("div", { className: "sign-in-buttons" }, this.passkey, make("button", { className: "primary", text: t("sign_in.button") })),
      make("p", { className: "hint", text: t("sign_in.how", { command: "waylog link" }) }));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const code = this.codeLabel.hidden ? {} : { second_factor: this.code.value.trim() };
      this.try({ user: this.user.value, token: this.token.value, ...code });
    });
    for (const input of [this.user, this.token]) input.addEventListener("input", () => this.askForCode(false));
    this.passkey.addEventListener("click", () => this.tryPasskey());
    this.dialog.replaceChildren(form);
    this.dialog.addEventListener("cancel", (event) => event.preventDefault());
    this.replaceChildren(this.dialog);
  }

  /** @param {boolean} wanted */
  askForCode(wanted) {
    this.codeLabel.hidden = !wanted;
    this.code.required = wanted;
    this.code.value = "";
    if (wanted) this.code.focus();
  }

  /**
   * Sign in; tells of it by the event `signed-in` (detail: the session), or says why not.
   * @param {Parameters<typeof api.signIn>[0]} how
   */
  async try(how) {
    try {
      const session = await api.signIn(how);
      this.token.value = "";
      this.askForCode(false);
      if (this.dialog.open) this.dialog.close();
      this.dispatchEvent(new CustomEvent("signed-in", { detail: session }));
    } catch (error) {
      if (error instanceof api.SecondFactorNeeded) {
        this.refusal.hidden = true;
        this.askForCode(true);
      } else {
        this.code.value = "";
        this.ask(error instanceof Error ? error.message : String(error));
      }
    }
  }

  async tryPasskey() {
    try {
      await this.try(await askForPasskey());
    } catch (error) {
      if (!isCancelled(error)) this.ask(error instanceof Error ? error.message : String(error));
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
