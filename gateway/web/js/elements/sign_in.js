// Asked for only when the gateway wants to know who is looking.

import * as api from "../api.js";
import { make, setText } from "./svg_icon.js";

customElements.define("sign-in", class extends HTMLElement {
  connectedCallback() {
    this.dialog = make("dialog", { className: "guide sign-in", "aria-labelledby": "sign-in-title" });
    this.user = make("input", { autocomplete: "username", required: true, spellcheck: "false" });
    this.token = make("input", { type: "password", autocomplete: "current-password", required: true });
    this.message = make("p", { className: "hint" });
    const form = make("form", { method: "dialog" },
      make("h2", { id: "sign-in-title", text: "Sign in to Waylog" }), this.message,
      make("label", {}, make("span", { text: "User" }), this.user),
      make("label", {}, make("span", { text: "Token" }), this.token),
      make("button", { className: "primary", text: "Sign in" }));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      api.signIn(this.user.value, this.token.value);
      this.token.value = "";
      this.dialog.close();
      this.dispatchEvent(new Event("signed-in"));
    });
    this.dialog.append(form);
    this.dialog.addEventListener("cancel", (event) => event.preventDefault());
    this.replaceChildren(this.dialog);
  }

  ask() {
    if (this.dialog.open) return;
    const wrong = api.credentials() !== null;
    setText(this.message, wrong ? "User and token do not match. The demo user's token is in data/demo.token." : "The demo user is demo; its token is in data/demo.token.");
    api.signIn(null);
    this.dialog.showModal();
    (this.user.value ? this.token : this.user).focus();
  }
});
