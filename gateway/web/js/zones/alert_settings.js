// How the viewer is told: this browser, servers of the viewer's own, and quiet hours.

import * as api from "../api.js";
import { attempt } from "../complaints.js";
import { drawAnew, make, setText } from "../dom.js";
import { moment, zoneOf } from "../format.js";
import { language, t } from "../i18n.js";
import { activeWorker } from "../offline/registration.js";

/** @import { AlertChannel, AlertSettings as Settings } from "../types/api.js" */

/** @type {Record<string, string>} */
const KINDS = { email: t("alerts.email"), webhook: t("alerts.webhook"), apprise: t("alerts.apprise"), ntfy: t("alerts.ntfy") };

export class AlertSettings extends HTMLElement {
  /** Events: `channels` (detail: the list, after each change). */
  /** @type {AlertChannel[]} */
  channels = [];
  /**
   * The forms of codes, by the channel's id: what is typed there stays while the list changes.
   * @type {Map<string, HTMLFormElement>}
   */
  codeForms = new Map();
  /** @type {Settings} */
  settings = {};
  quiet = make("input", { type: "checkbox" });
  from = make("input", { type: "time", value: "22:00", "aria-label": t("alerts.quiet_from") });
  until = make("input", { type: "time", value: "07:00", "aria-label": t("alerts.quiet_until") });
  list = make("ul", { className: "channels" });
  browser = make("button", { type: "button", className: "plain", hidden: true });
  kind = make("select", { "aria-label": t("alerts.kind") });
  name = make("input", { type: "text", maxlength: "100", autocomplete: "off" });
  url = make("input", { type: "url", maxlength: "2000", autocomplete: "off", placeholder: "https://" });
  secret = make("input", { type: "password", maxlength: "1000", autocomplete: "new-password" });
  urlTitle = make("span");
  secretTitle = make("span");
  ofSecret = make("label", {}, this.secretTitle, this.secret);
  error = make("p", { className: "refusal", role: "alert", hidden: true });
  /** @type {string | null} the platform's key of Web Push */
  key = null;

  connectedCallback() {
    if (this.firstChild) return;
    const form = make("form", { className: "zone-form", novalidate: true },
      make("label", {}, make("span", { text: t("alerts.kind") }), this.kind),
      make("label", {}, make("span", { text: t("zone.name") }), this.name),
      make("label", {}, this.urlTitle, this.url), this.ofSecret,
      make("footer", {}, make("button", { type: "submit", className: "primary", text: t("alerts.add") })));
    this.replaceChildren(
      make("label", { className: "check" }, this.quiet, make("span", { text: t("alerts.quiet") })),
      make("div", { className: "quiet-hours" }, this.from, make("span", { text: "–", "aria-hidden": "true" }), this.until),
      make("p", { className: "hint", text: t("alerts.quiet_how") }),
      this.browser,
      make("h3", { text: t("alerts.channels") }), this.list,
      make("details", {}, make("summary", { text: t("alerts.new_channel") }), form),
      this.error);
    form.addEventListener("submit", (event) => { event.preventDefault(); this.add(); });
    this.kind.addEventListener("change", () => this.kindChanged());
    for (const input of [this.quiet, this.from, this.until]) input.addEventListener("change", () => attempt(this.error, () => this.setQuiet()));
    this.browser.addEventListener("click", () => attempt(this.error, () => this.allowBrowser()));
    this.offer([]);
  }

  /** @param {string[]} kinds that the platform has */
  offer(kinds) {
    const chosen = this.kind.value;
    this.kind.replaceChildren(...Object.entries(KINDS).filter(([kind]) => kinds.includes(kind)).map(([kind, text]) => make("option", { value: kind, text })));
    if (kinds.includes(chosen)) this.kind.value = chosen;
    this.kindChanged();
  }

  kindChanged() {
    const isMailbox = this.kind.value === "email";
    this.url.type = isMailbox ? "email" : "url";
    this.url.placeholder = isMailbox ? "name@example.org" : "https://";
    setText(this.urlTitle, isMailbox ? t("alerts.mailbox") : t("alerts.url"));
    setText(this.secretTitle, this.kind.value === "webhook" ? t("alerts.signing_secret") : t("alerts.token"));
    this.ofSecret.hidden = isMailbox;
  }

  async load() {
    await attempt(this.error, async () => {
      const [channels, settings, kinds] = await Promise.all([api.alertChannels(), api.alertSettings(), api.alertChannelKinds()]);
      this.offer(kinds);
      this.show(channels, settings);
    });
    await this.offerBrowser();
  }

  /**
   * @param {AlertChannel[]} channels
   * @param {Settings} settings
   */
  show(channels, settings) {
    this.settings = settings;
    this.quiet.checked = Boolean(settings.quiet);
    if (settings.quiet) {
      this.from.value = settings.quiet.from;
      this.until.value = settings.quiet.until;
    }
    this.showChannels(channels);
  }

  /** @param {AlertChannel[]} channels */
  showChannels(channels) {
    this.channels = channels;
    drawAnew(this.list, () => this.list.replaceChildren(...channels.map((channel) => this.row(channel))));
    this.list.hidden = !channels.length;
    this.dispatchEvent(new CustomEvent("channels", { detail: channels }));
  }

  /** @param {AlertChannel} channel */
  row(channel) {
    const state = channel.error ? t("alerts.failed", { reason: channel.error }) : channel.told ? t("alerts.told", { time: moment(channel.told) }) : "";
    const test = make("button", { type: "button", className: "plain", text: t("alerts.test"), "aria-label": `${t("alerts.test")}: ${channel.name}` });
    const remove = make("button", { type: "button", className: "plain danger", text: t("zone.delete"), "aria-label": `${t("zone.delete")}: ${channel.name}` });
    test.addEventListener("click", () => attempt(this.error, async () => this.changed(await api.testAlertChannel(channel.id))));
    remove.addEventListener("click", () => attempt(this.error, async () => {
      await api.deleteAlertChannel(channel.id);
      this.showChannels(this.channels.filter((each) => each.id !== channel.id));
    }));
    return make("li", {},
      make("b", { text: channel.name }), make("span", { className: "detail", text: `${KINDS[channel.kind] ?? channel.kind} · ${channel.server}` }),
      state && make("span", { className: channel.error ? "refusal" : "detail", text: state }),
      channel.unconfirmed && this.codeForm(channel),
      make("div", { className: "actions" }, !channel.unconfirmed && test, remove));
  }

  /**
   * Where the code of a mailbox is entered.
   * @param {AlertChannel} channel
   */
  codeForm({ id, name }) {
    const shown = this.codeForms.get(id);
    if (shown) return shown;
    const title = t("alerts.code");
    const code = make("input", { type: "text", name: "code", inputmode: "numeric", autocomplete: "one-time-code", maxlength: "20", required: true, "aria-label": `${title}: ${name}` });
    const again = make("button", { type: "button", className: "plain", text: t("alerts.code_again"), "aria-label": `${t("alerts.code_again")}: ${name}` });
    const form = make("form", { className: "code" },
      make("p", { className: "hint", text: t("alerts.code_sent") }), code,
      make("footer", { className: "actions" }, again, make("button", { type: "submit", className: "primary", text: t("alerts.confirm"), "aria-label": `${t("alerts.confirm")}: ${name}` })));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      attempt(this.error, async () => this.changed(await api.confirmAlertChannel(id, code.value.trim())));
    });
    again.addEventListener("click", () => attempt(this.error, async () => this.changed(await api.sendAlertCode(id))));
    this.codeForms.set(id, form);
    return form;
  }

  /** @param {AlertChannel} channel */
  changed(channel) {
    this.showChannels(this.channels.map((each) => (each.id === channel.id ? channel : each)));
  }

  async add() {
    await attempt(this.error, async () => {
      const kind = this.kind.value;
      const isMailbox = kind === "email";
      // A mailbox is told in the language in which its user asks for it.
      if (isMailbox && this.settings.language !== language) this.settings = await api.setAlertSettings({ ...this.settings, language });
      const secret = this.secret.value && !isMailbox ? { [kind === "webhook" ? "signing_secret" : "token"]: this.secret.value } : {};
      const url = this.url.value.trim();
      const made = await api.makeAlertChannel({ kind, name: this.name.value.trim() || KINDS[kind] || "", url: isMailbox ? `mailto:${url}` : url, ...secret });
      for (const input of [this.name, this.url, this.secret]) input.value = "";
      this.showChannels([...this.channels, made]);
    });
  }

  async setQuiet() {
    const quiet = this.quiet.checked && this.from.value && this.until.value
      ? { from: this.from.value, until: this.until.value, time_zone: zoneOf() } : null;
    this.settings = await api.setAlertSettings({ quiet, language });
  }

  /** Offer what this browser can do: Web Push where the platform has it, else notices of an open page. */
  async offerBrowser() {
    if (!globalThis.Notification || Notification.permission === "denied") return;
    this.key = await api.pushKey().catch(() => null);
    const subscribed = this.key && "serviceWorker" in navigator
      && await (await navigator.serviceWorker.getRegistration("/"))?.pushManager?.getSubscription();
    this.browser.hidden = Boolean(subscribed) || (!this.key && Notification.permission === "granted");
    setText(this.browser, this.key ? t("alerts.push") : t("alerts.notify"));
  }

  async allowBrowser() {
    if (await Notification.requestPermission() !== "granted") return;
    if (this.key) {
      const worker = await activeWorker();
      if (!worker) throw new Error(t("alerts.no_worker"));
      const subscription = await worker.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: this.key });
      await api.subscribeToPush(subscription);
    }
    this.browser.hidden = true;
  }
}
customElements.define("alert-settings", AlertSettings);
