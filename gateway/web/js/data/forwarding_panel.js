// What the viewer has sent on to other servers: how each fares, paused, ended.

import { attempt } from "../complaints.js";
import { drawAnew, make, setText } from "../dom.js";
import { moment, number } from "../format.js";
import { t } from "../i18n.js";
import { changeForwarding, deleteForwarding, forwardings, makeForwarding } from "./data_api.js";
import "./forwarding_form.js";
import { kindTitle } from "./forwarding_form.js";

/** @import { ForwardingState, OwnForwarding } from "../types/api.js" */

const POLL_MS = 3000;

/** @type {Record<ForwardingState, string>} */
const STATES = { new: t("forward.state_new"), live: t("forward.state_live"), behind: t("forward.state_behind"), failing: t("forward.state_failing"), paused: t("forward.state_paused") };

export class ForwardingPanel extends HTMLElement {
  /** Events: `announce` (detail: a text for screen readers). */
  /** @type {() => string[]} the viewer's devices */
  ownDevices = () => [];
  /** @type {number | undefined} */
  timer;
  shown = false;
  /** Whether the platform has said that it sends on. */
  offered = false;
  drawn = "";
  add = make("button", { type: "button", className: "primary add", "aria-expanded": "false", hidden: true }, make("svg-icon", { name: "plus" }), t("forward.add"));
  form = make("forwarding-form", { hidden: true });
  error = make("p", { className: "refusal", role: "alert", hidden: true });
  lead = make("p", { className: "hint" });
  list = make("ul", { className: "imports" });
  confirmation = make("dialog", { className: "guide confirm", "aria-labelledby": "forward-end-title" });

  connectedCallback() {
    if (this.firstChild) return;
    this.append(this.add, this.form, this.error, this.lead, this.list);
    document.body.append(this.confirmation);
    this.add.addEventListener("click", () => {
      this.form.hidden = false;
      this.add.hidden = true;
      this.add.setAttribute("aria-expanded", "true");
      this.form.ask(this.ownDevices());
    });
    this.form.addEventListener("close", () => { this.forget(); this.add.focus(); });
    this.form.addEventListener("forward", async (event) => {
      const { detail } = /** @type {CustomEvent<Record<string, unknown>>} */ (event);
      this.form.submit.disabled = true;
      const made = await attempt(this.error, () => makeForwarding(detail));
      this.form.submit.disabled = false;
      if (!made) return;
      this.forget();
      this.add.focus();
      this.dispatchEvent(new CustomEvent("announce", { detail: t("forward.made") }));
      await this.load();
    });
  }

  async load() {
    this.shown = true;
    clearTimeout(this.timer);
    const found = await attempt(this.error, forwardings, false);
    if (found === null) {
      this.offered = false;
      this.forget();
      setText(this.lead, t("forward.off"));
      return;
    }
    if (found) {
      this.offered = true;
      this.add.hidden = !this.form.hidden;
      this.draw(found);
    }
    clearTimeout(this.timer);
    if (this.shown) this.timer = window.setTimeout(() => this.load(), POLL_MS);
  }

  /** The viewer has a further device. */
  devicesChanged() {
    if (!this.form.hidden) this.form.offer(this.ownDevices());
  }

  /** Ask no more. */
  rest() {
    this.shown = false;
    clearTimeout(this.timer);
    this.forget();
  }

  /** Forget what was typed, secrets before all. */
  forget() {
    this.form.forget();
    this.form.hidden = true;
    this.add.hidden = !this.offered;
    this.add.setAttribute("aria-expanded", "false");
  }

  /** @param {OwnForwarding[]} found */
  draw(found) {
    setText(this.lead, found.length ? t("forward.lead") : [t("forward.lead"), t("forward.none")].join(" "));
    const drawn = JSON.stringify(found);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    drawAnew(this.list, () => this.list.replaceChildren(...found.map((each) => this.card(each))));
  }

  /** @param {OwnForwarding} forwarding */
  card(forwarding) {
    const { id, name, state, paused_by_administrator: stopped } = forwarding;
    const buttons = make("div", { className: "actions" });
    const act = (/** @type {string} */ key, /** @type {string} */ text, /** @type {() => void} */ does, danger = false) => {
      const button = make("button", { type: "button", className: "plain", text, "data-key": `${key} ${id}`, "aria-label": `${text}: ${name}` });
      button.classList.toggle("danger", danger);
      button.addEventListener("click", does);
      buttons.append(button);
    };
    if (forwarding.paused_by) act("resume", t("forward.resume"), () => this.change(() => changeForwarding(id, "resume")));
    else if (!stopped) act("pause", t("forward.pause"), () => this.change(() => changeForwarding(id, "pause")));
    act("end", t("forward.end"), () => this.askToEnd(forwarding), true);
    const facts = [kindTitle(forwarding.kind), forwarding.url, forwarding.devices ? forwarding.devices.join(", ") : t("forward.every_device")];
    return make("li", { className: `import forwarding ${state}` },
      make("h2", { text: name }),
      make("p", { className: "state" }, make("span", { className: `badge ${state}`, text: STATES[state] ?? state }),
        forwarding.forwarded !== null && make("span", { text: t("forward.until", { time: moment(forwarding.forwarded) }) })),
      make("p", { className: "hint", text: facts.join(" · ") }),
      stopped && make("p", { className: "refusal", text: t("forward.stopped", { reason: stopped.reason }) }),
      forwarding.error && make("p", { className: "refusal", text: forwarding.error }),
      forwarding.refused > 0 && make("p", { className: "refusal", text: t("forward.refused", { count: forwarding.refused, shown: number(forwarding.refused), reason: forwarding.refusal ?? "" }) }),
      forwarding.missed > 0 && make("p", { className: "hint", text: t("forward.missed", { count: forwarding.missed, shown: number(forwarding.missed) }) }),
      buttons);
  }

  /** @param {OwnForwarding} forwarding */
  askToEnd({ id, name }) {
    const keep = make("button", { type: "button", className: "plain", text: t("forward.keep") });
    const end = make("button", { type: "button", className: "primary danger", text: t("forward.end") });
    keep.addEventListener("click", () => this.confirmation.close());
    end.addEventListener("click", async () => {
      this.confirmation.close();
      await this.change(() => deleteForwarding(id));
      this.dispatchEvent(new CustomEvent("announce", { detail: t("forward.ended", { name }) }));
    });
    this.confirmation.replaceChildren(
      make("h2", { id: "forward-end-title", text: t("forward.end_title", { name }) }),
      make("p", { className: "lead", text: t("forward.end_lead") }),
      make("footer", {}, keep, end));
    this.confirmation.showModal();
  }

  /** @param {() => Promise<unknown>} does */
  async change(does) {
    const done = await attempt(this.error, async () => { await does(); return true; });
    if (done) await this.load();
  }
}
customElements.define("forwarding-panel", ForwardingPanel);
