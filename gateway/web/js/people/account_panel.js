// What the viewer signs in with, and where the viewer is signed in.

import * as api from "../api.js";
import { make } from "../dom.js";
import { copyable } from "../elements/copyable.js";
import { moment } from "../format.js";
import { t } from "../i18n.js";
import { canUsePasskeys, isCancelled, makePasskey } from "./passkeys.js";

/** @import { OwnAccount, OwnSession } from "../types/api.js" */

export class OwnAccountPanel extends HTMLElement {
  /** Events: `announce` (detail: a text for screen readers). */
  /** @type {OwnAccount | null} */
  account = null;
  /** @type {string | null} a blob: URL, released with what it shows */
  picture = null;
  error = make("p", { className: "refusal", role: "alert", hidden: true });
  content = make("div", { className: "account" });
  dialog = make("dialog", { className: "guide sign-in", "aria-labelledby": "account-dialog-title" });
  refusal = make("p", { className: "refusal", role: "alert", hidden: true });

  connectedCallback() {
    if (this.firstChild) return;
    this.append(this.error, this.content);
    document.body.append(this.dialog);
    this.dialog.addEventListener("close", () => this.forget());
  }

  async load() {
    try {
      this.account = await api.account();
      this.error.hidden = true;
    } catch (error) {
      this.error.textContent = error instanceof Error ? error.message : String(error);
      this.error.hidden = false;
    }
    if (this.account) this.draw(this.account);
  }

  /** Forget secrets that were shown. */
  forget() {
    if (this.picture) URL.revokeObjectURL(this.picture);
    this.picture = null;
    this.dialog.replaceChildren();
    if (this.dialog.open) this.dialog.close();
  }

  /** @param {OwnAccount} account */
  draw(account) {
    this.content.replaceChildren(
      make("section", {}, make("h2", { text: t("account.password") }),
        make("p", { text: account.password ? t("account.password_set") : t("account.password_none") }),
        this.actions([account.password ? t("account.password_change") : t("account.password_make"), () => this.askPassword()])),
      make("section", {}, make("h2", { text: t("account.factor") }),
        make("p", { text: account.second_factor ? t("account.factor_on", { count: account.recovery_codes }) : t("account.factor_off") }),
        this.actions(account.second_factor ? [t("account.factor_end"), () => this.askToEndFactor(), "danger"]
          : account.password ? [t("account.factor_add"), () => this.askForFactor()] : null)),
      make("section", {}, make("h2", { text: t("account.passkeys") }),
        make("p", { text: canUsePasskeys() ? t("account.passkeys_lead") : t("account.passkeys_not_here") }),
        make("ul", { className: "cards" }, ...account.passkeys.map((passkey) => this.card(
          passkey.name || t("account.passkey"), t("account.passkey_of", { host: passkey.rp_id, time: moment(passkey.used ?? passkey.created) }),
          t("account.remove"), () => api.removePasskey(passkey.id)))),
        this.actions(canUsePasskeys() ? [t("account.passkey_add"), () => this.askForPasskey()] : null)),
      make("section", {}, make("h2", { text: t("account.sessions") }),
        make("ul", { className: "cards" }, ...account.sessions.map((session) => this.session(session))),
        this.actions(account.sessions.length > 1 ? [t("account.sign_out_others"), () => this.doing(() => api.endSessions()), "danger"] : null)));
  }

  /** @param {[text: string, does: () => void, className?: string] | null} action */
  actions(action) {
    if (!action) return null;
    const [text, does, className = ""] = action;
    const button = make("button", { type: "button", className: `plain ${className}`.trim(), text });
    button.addEventListener("click", does);
    return make("div", { className: "actions" }, button);
  }

  /** @param {OwnSession} session */
  session({ id, created, agent, current }) {
    const about = t("account.since", { time: moment(created) });
    if (current) return make("li", {}, make("div", {}, make("h3", { text: browserOf(agent) }), make("p", { text: [t("account.this_browser"), about].join(" · ") })));
    return this.card(browserOf(agent), about, t("account.sign_out"), () => api.endSessions(id));
  }

  /**
   * @param {string} title
   * @param {string} about
   * @param {string} verb
   * @param {() => Promise<void>} does
   */
  card(title, about, verb, does) {
    const button = make("button", { type: "button", className: "plain danger", text: verb, "aria-label": `${verb}: ${title}` });
    button.addEventListener("click", () => this.doing(does));
    return make("li", {}, make("div", {}, make("h3", { text: title }), make("p", { text: about })), button);
  }

  /** @param {() => Promise<void>} does */
  async doing(does) {
    try {
      await does();
    } catch (error) {
      this.error.textContent = error instanceof Error ? error.message : String(error);
      this.error.hidden = false;
      return;
    }
    await this.load();
  }

  // --- dialogs ----------------------------------------------------------------------------------

  /**
   * A dialog with some fields; `does` may throw what is shown.
   * @param {string} title
   * @param {(Node | null | false)[]} parts
   * @param {string} button
   * @param {() => Promise<void>} does
   */
  ask(title, parts, button, does) {
    const form = make("form", { method: "dialog" }, make("h2", { id: "account-dialog-title", text: title }), this.refusal, ...parts);
    const cancel = make("button", { type: "button", className: "plain", text: t("account.cancel") });
    cancel.addEventListener("click", () => this.dialog.close());
    const submit = make("button", { className: "primary", text: button });
    form.append(make("div", { className: "sign-in-buttons" }, cancel, submit));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      submit.disabled = true;
      this.refusal.hidden = true;
      try {
        await does();
      } catch (error) {
        if (!isCancelled(error)) {
          this.refusal.textContent = error instanceof Error ? error.message : String(error);
          this.refusal.hidden = false;
        }
      }
      submit.disabled = false;
    });
    this.refusal.hidden = true;
    this.dialog.replaceChildren(form);
    if (!this.dialog.open) this.dialog.showModal();
    form.querySelector("input")?.focus();
  }

  /** The field for the present password, which proves who asks. */
  proof() {
    const input = make("input", { type: "password", autocomplete: "current-password", required: true });
    const label = this.account?.password ? make("label", {}, make("span", { text: t("account.present") }), input) : null;
    return { label, get password() { return input.value; } };
  }

  /** @param {string} text */
  done(text) {
    this.dialog.close();
    this.dispatchEvent(new CustomEvent("announce", { detail: text }));
    return this.load();
  }

  askPassword() {
    const proof = this.proof();
    const password = make("input", { type: "password", autocomplete: "new-password", required: true, minlength: "8" });
    this.ask(t("account.password_change"), [
      make("input", { className: "visually-hidden", autocomplete: "username", value: this.account?.user ?? "", tabindex: "-1", "aria-hidden": "true", readonly: true }),
      proof.label, make("label", {}, make("span", { text: t("account.new_password") }), password), make("p", { className: "hint", text: t("account.password_hint") }),
    ], t("account.save"), async () => {
      await api.setPassword(password.value, proof.password);
      await this.done(t("account.password_changed"));
    });
    if (proof.label) proof.label.querySelector("input")?.focus();
    else password.focus();
  }

  askForFactor() {
    const proof = this.proof();
    this.ask(t("account.factor_add"), [make("p", { className: "hint", text: t("account.factor_lead") }), proof.label], t("account.next"), async () => {
      const made = await api.proposeSecondFactor(proof.password);
      this.picture = URL.createObjectURL(new Blob([made.qr_code], { type: "image/svg+xml" }));
      const code = make("input", { autocomplete: "one-time-code", inputmode: "numeric", required: true, maxlength: "10" });
      this.ask(t("account.factor_add"), [
        make("div", { className: "setup" }, make("p", { text: t("account.factor_scan") }), make("img", { className: "qr", alt: t("account.factor_qr"), src: this.picture }),
          make("details", {}, make("summary", { text: t("add.by_hand") }), copyable(t("account.factor_secret"), made.secret))),
        make("label", {}, make("span", { text: t("account.factor_code") }), code),
      ], t("account.turn_on"), async () => this.showRecovery(await api.confirmSecondFactor(code.value.trim())));
    });
  }

  /** @param {string[]} codes */
  showRecovery(codes) {
    this.ask(t("account.recovery"), [
      make("p", { className: "hint", text: t("account.recovery_lead") }), make("pre", { text: codes.join("\n"), tabindex: "0" }),
    ], t("account.recovery_kept"), () => this.done(t("account.factor_is_on")));
    return this.load();
  }

  askToEndFactor() {
    const proof = this.proof();
    this.ask(t("account.factor_end"), [make("p", { className: "hint", text: t("account.factor_end_lead") }), proof.label], t("account.factor_end"), async () => {
      await api.endSecondFactor(proof.password);
      await this.done(t("account.factor_ended"));
    });
  }

  askForPasskey() {
    const proof = this.proof();
    const name = make("input", { maxlength: "100", autocomplete: "off", value: browserOf(navigator.userAgent) });
    this.ask(t("account.passkey_add"), [proof.label, make("label", {}, make("span", { text: t("account.passkey_name") }), name)], t("account.next"), async () => {
      await makePasskey(name.value, proof.password);
      await this.done(t("account.passkey_added"));
    });
  }
}
customElements.define("account-panel", OwnAccountPanel);

/** @type {[RegExp, string][]} the most particular first: they call themselves by each other's names */
const BROWSERS = [[/Edg\//, "Edge"], [/OPR\//, "Opera"], [/Firefox\//, "Firefox"], [/Chrome\//, "Chrome"], [/Safari\//, "Safari"]];
/** @type {[RegExp, string][]} */
const SYSTEMS = [[/Android/, "Android"], [/iPhone|iPad/, "iOS"], [/Windows/, "Windows"], [/Mac OS/, "macOS"], [/Linux/, "Linux"]];

/**
 * A browser by name and system, as far as it says.
 * @param {string} agent
 */
function browserOf(agent) {
  const nameOf = (/** @type {[RegExp, string][]} */ known) => known.find(([pattern]) => pattern.test(agent))?.[1];
  return [nameOf(BROWSERS), nameOf(SYSTEMS)].filter(Boolean).join(" · ") || t("account.some_browser");
}
