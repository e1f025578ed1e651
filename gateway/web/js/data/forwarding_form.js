// Asks where positions are to be sent on to: which server, which devices, and how it knows the sender.

import { iconButton, make, setText } from "../dom.js";
import { t } from "../i18n.js";

/**
 * A kind of server: an example of its address, and what it is shown as a proof.
 * @typedef {object} Kind
 * @property {string} title
 * @property {string} example
 * @property {string} hint
 * @property {"token" | "login" | "signature" | "none"} proof
 * @property {boolean} [named] it has names of its own for devices
 */

/** @type {Record<string, Kind>} */
const KINDS = {
  "traccar": { title: t("forward.traccar"), example: "https://traccar.example.org:5055/", hint: t("forward.traccar_hint"), proof: "none", named: true },
  "traccar-json": { title: t("forward.traccar_json"), example: "https://traccar.example.org:5055/", hint: t("forward.traccar_hint"), proof: "none", named: true },
  "dawarich": { title: t("forward.dawarich"), example: "https://dawarich.example.org", hint: t("forward.dawarich_hint"), proof: "token" },
  "home-assistant": { title: t("forward.home_assistant"), example: "https://ha.example.org/api/webhook/ID", hint: t("forward.home_assistant_hint"), proof: "none" },
  "phonetrack": { title: t("forward.phonetrack"), example: "https://cloud.example.org/apps/phonetrack/logPostMultiple/TOKEN", hint: t("forward.phonetrack_hint"), proof: "none" },
  "owntracks-recorder": { title: t("forward.owntracks"), example: "https://recorder.example.org", hint: t("forward.owntracks_hint"), proof: "login" },
  "mqtt": { title: t("forward.mqtt"), example: "mqtts://mqtt.example.org/devices", hint: t("forward.mqtt_hint"), proof: "login" },
  "webhook": { title: t("forward.webhook"), example: "https://example.org/hook", hint: t("forward.webhook_hint"), proof: "signature" },
};

/** @param {string} kind */
export function kindTitle(kind) {
  return KINDS[kind]?.title ?? kind;
}

export class ForwardingForm extends HTMLElement {
  /** Events: `forward` (detail: the body of the request), `close`. */
  kind = make("select", { name: "kind" }, ...Object.entries(KINDS).map(([value, { title }]) => make("option", { value, text: title })));
  hint = make("p", { className: "hint" });
  name = make("input", { name: "name", maxlength: "100", required: true, autocomplete: "off" });
  url = make("input", { name: "url", type: "url", maxlength: "2000", required: true, autocomplete: "off", spellcheck: "false" });
  devices = make("fieldset", { className: "checks" });
  /** @type {Set<string>} the viewer's devices to choose from, without the user */
  offered = new Set();
  names = make("fieldset", { className: "checks", hidden: true });
  token = secret("token");
  username = make("input", { name: "username", maxlength: "1000", autocomplete: "off" });
  password = secret("password");
  signature = secret("signing-secret");
  ofToken = make("label", {}, make("span", { text: t("forward.token") }), this.token);
  ofLogin = make("div", { className: "pair" },
    make("label", {}, make("span", { text: t("forward.username") }), this.username), make("label", {}, make("span", { text: t("forward.password") }), this.password));
  ofSignature = make("label", {}, make("span", { text: t("forward.signature") }), this.signature);
  submit = make("button", { className: "primary", type: "submit", text: t("forward.make") });
  heading = make("h2", { tabindex: "-1", text: t("forward.new") });
  /** @type {HTMLFormElement} */
  form = make("form", { className: "add-form" },
    make("label", {}, make("span", { text: t("forward.kind") }), this.kind), this.hint,
    make("label", {}, make("span", { text: t("forward.name") }), this.name),
    make("label", {}, make("span", { text: t("forward.url") }), this.url),
    this.ofToken, this.ofLogin, this.ofSignature, this.devices, this.names,
    make("p", { className: "hint", text: t("forward.secrets") }), this.submit);

  connectedCallback() {
    if (this.firstChild) return;
    const close = iconButton("close", t("close"));
    close.addEventListener("click", () => this.dispatchEvent(new CustomEvent("close")));
    this.className = "box";
    this.append(make("header", {}, this.heading, close), this.form);
    this.kind.addEventListener("change", () => this.kindChanged());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.dispatchEvent(new CustomEvent("forward", { detail: this.body() }));
    });
  }

  /** @param {string[]} devices the viewer's */
  ask(devices) {
    this.form.reset();
    this.devices.replaceChildren(make("legend", { text: t("forward.devices") }), make("p", { className: "hint", text: t("forward.all_devices") }));
    this.names.replaceChildren(make("legend", { text: t("forward.names") }));
    this.offered.clear();
    this.offer(devices);
    this.heading.focus();
  }

  /**
   * Add those devices to choose from that are not there yet.
   * @param {string[]} devices the viewer's
   */
  offer(devices) {
    for (const device of devices.map((each) => each.slice(each.indexOf("/") + 1))) {
      if (this.offered.has(device)) continue;
      this.offered.add(device);
      this.devices.append(make("label", { className: "check" }, make("input", { type: "checkbox", name: "device", value: device }), make("span", { text: device })));
      this.names.append(make("label", {}, make("span", { text: device }), make("input", { name: "named", "data-device": device, maxlength: "100", autocomplete: "off" })));
    }
    this.kindChanged();
  }

  /** Forget what was typed. */
  forget() {
    this.form.reset();
  }

  get chosen() {
    return /** @type {Kind} */ (KINDS[this.kind.value]);
  }

  kindChanged() {
    const { example, hint, proof, named } = this.chosen;
    this.url.placeholder = example;
    setText(this.hint, hint);
    this.ofToken.hidden = proof !== "token";
    this.ofLogin.hidden = proof !== "login";
    this.ofSignature.hidden = proof !== "signature";
    this.names.hidden = !named || this.names.children.length < 2;
  }

  /** The body of the request: nothing of what the chosen kind does not have. */
  body() {
    const { proof, named } = this.chosen;
    const devices = [...this.devices.querySelectorAll("input")].filter((input) => input.checked).map((input) => input.value);
    const names = Object.fromEntries([...this.names.querySelectorAll("input")].filter((input) => input.value.trim()).map((input) => [input.dataset.device ?? "", input.value.trim()]));
    return {
      name: this.name.value.trim(), kind: this.kind.value, url: this.url.value.trim(),
      ...(devices.length ? { devices } : {}),
      ...(named && Object.keys(names).length ? { device_names: names } : {}),
      ...(proof === "token" && this.token.value ? { token: this.token.value } : {}),
      ...(proof === "login" && this.username.value ? { username: this.username.value } : {}),
      ...(proof === "login" && this.password.value ? { password: this.password.value } : {}),
      ...(proof === "signature" && this.signature.value ? { signing_secret: this.signature.value } : {}),
    };
  }
}
customElements.define("forwarding-form", ForwardingForm);

/** @param {string} name */
function secret(name) {
  return make("input", { name, type: "password", maxlength: "1000", autocomplete: "new-password" });
}
