// What changes the log is confirmed by typing the name of what it changes.

import { attempt } from "../complaints.js";
import { make } from "../dom.js";
import { t } from "../i18n.js";

/**
 * @typedef {object} Question
 * @property {string} title
 * @property {string} lead what happens
 * @property {string} name what has to be typed
 * @property {string} action the button that does it
 * @property {boolean} [danger]
 * @property {(Node | null)[]} [fields] what else is chosen, above the name
 * @property {(() => Promise<Node | string>) | undefined} [rehearse] tells what would happen, without doing it
 * @property {() => Promise<void>} act
 */

/** A dialog of the page; one of them is enough. */
export class Confirmation {
  dialog = make("dialog", { className: "guide confirm operations-confirm", "aria-labelledby": "operations-confirm-title" });

  constructor() {
    document.body.append(this.dialog);
  }

  /** @param {Question} question */
  ask({ title, lead, name, action, danger = false, fields = [], rehearse, act }) {
    const typed = make("input", { name: "confirm", autocomplete: "off", spellcheck: "false", autocapitalize: "none" });
    const error = make("p", { className: "refusal", role: "alert", hidden: true });
    const planned = make("div", { className: "operations-planned", "aria-live": "polite", hidden: true });
    const cancel = make("button", { type: "button", className: "plain", text: t("account.cancel") });
    const does = make("button", { className: "primary", text: action, disabled: true });
    does.classList.toggle("danger", danger);
    // Whoever has chosen something else has not seen what would happen.
    let rehearsed = !rehearse;
    const look = () => { does.disabled = typed.value !== name || !rehearsed; };
    const work = async (/** @type {() => Promise<void>} */ step) => {
      does.disabled = true;
      await attempt(error, step);
      look();
    };
    const dry = rehearse && make("button", { type: "button", className: "plain", text: t("operations.dry_run") });
    dry?.addEventListener("click", () => work(async () => {
      planned.replaceChildren(await rehearse?.() ?? "");
      planned.hidden = false;
      rehearsed = true;
    }));
    typed.addEventListener("input", look);
    cancel.addEventListener("click", () => this.dialog.close());
    const form = make("form", { className: "add-form" },
      make("h2", { id: "operations-confirm-title", text: title }), make("p", { className: "lead", text: lead }),
      make("div", { className: "operations-fields" }, ...fields), dry, planned,
      make("label", {}, make("span", { text: t("operations.type_name", { name }) }), typed), error,
      make("div", { className: "sign-in-buttons" }, cancel, does));
    form.querySelector(".operations-fields")?.addEventListener("input", () => { rehearsed = !rehearse; planned.hidden = true; look(); });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (does.disabled) return;
      work(async () => { await act(); this.dialog.close(); });
    });
    this.dialog.replaceChildren(form);
    this.dialog.showModal();
  }
}
