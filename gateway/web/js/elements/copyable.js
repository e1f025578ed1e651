// A text that is copied by a button, or selected where the browser lets no page copy.

import { make, setText } from "../dom.js";
import { t } from "../i18n.js";

/**
 * @param {string} label
 * @param {string} text
 */
export function copyable(label, text) {
  const code = make("code", { text });
  const button = make("button", { type: "button", className: "plain", text: t("guide.copy"), "aria-label": t("add.copy", { what: label }) });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      setText(button, t("guide.copied"));
    } catch {
      getSelection()?.selectAllChildren(code); // plain HTTP from afar has no clipboard
      setText(button, t("guide.selected"));
    }
  });
  return make("div", { className: "copyable" }, make("span", { text: label }), code, button);
}
