// Asked for only when the gateway wants to know who is looking.

import * as api from "../api.js";
import { make, setText } from "./svg_icon.js";

const HOW = "`waylog link` prints a link that signs you in. Or sign in with a user and its token:";

customElements.define("sign-in", class extends HTMLElement {
  connectedCallback() {
    this.dialog = make("dialog", { className: "guide sign-in", "aria-labelledby": "sign-in-title" });
    this.user = make("input", { autocomplete: "username", required: true, spellcheck: "false" });
    this.token = make("input", { type: "password", autocomplete: "current-password", required: true });
    this.refusal = make("p", { className: "refusal", role: "alert", hidden: true });
    const form = make("form", { method: "dialog" },
      make("h2", { id: "sign-in-title", text: "Sign in to Waylog" }), this.refusal,
      make("p", { className: "hint", text: HOW }),
      make("label", {}, make("span", { text: "User" }), this.user),
      make("label", {}, make("span", { text: "Token or password" }), this.token),
      make("button", { className: "primary", text: "Sign in" }));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.try({ user: this.user.value, token: this.token.value });
    });
    this.dialog.append(form);
    this.dialog.addEventListener("cancel", (event) => event.preventDefault());
    this.replaceChildren(this.dialog);
  }

  /** Sign in by `how` (see api.signIn); tells of it by the event `signed-in`, or says why not. */
  async try(how) {
    try {
      const session = await api.signIn(how);
      this.token.value = "";
      if (this.dialog.open) this.dialog.close();
      this.dispatchEvent(new CustomEvent("signed-in", { detail: session }));
    } catch (error) {
      this.ask(error.message);
    }
  }

  ask(refusal = "") {
    setText(this.refusal, refusal && `${refusal.charAt(0).toUpperCase()}${refusal.slice(1)}.`);
    this.refusal.hidden = !refusal;
    if (this.dialog.open) return;
    this.dialog.showModal();
    (this.user.value ? this.token : this.user).focus();
  }
});
