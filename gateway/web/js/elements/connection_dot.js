// Whether the page is live: a dot and a word, and a button to reconnect at once.

import { make, setText } from "../dom.js";
import { t } from "../i18n.js";

/** @import { ConnectionState } from "../live_connection.js" */

/** @type {Record<ConnectionState, string>} */
const WORDS = { connecting: t("connection.connecting"), live: t("connection.live"), lost: t("connection.lost") };

export class ConnectionDot extends HTMLElement {
  word = make("span", { className: "word" });
  button = make("button", { className: "dot-button", type: "button" }, make("span", { className: "dot" }), this.word);
  /** @type {ConnectionState} */
  state = "connecting";
  /** @type {number | null} */
  retryAt = null;

  connectedCallback() {
    this.button.addEventListener("click", () => this.dispatchEvent(new Event("retry")));
    this.replaceChildren(this.button);
    this.show("connecting", null);
    setInterval(() => this.show(this.state, this.retryAt), 1000);
  }

  /**
   * @param {ConnectionState} state
   * @param {number | null} retryAt when the next attempt is made, ms
   */
  show(state, retryAt) {
    this.state = state;
    this.dataset.state = state;
    this.retryAt = retryAt;
    const seconds = retryAt ? Math.ceil((retryAt - Date.now()) / 1000) : 0;
    setText(this.word, state === "lost" && seconds > 0 ? t("connection.offline", { seconds }) : WORDS[state]);
    this.button.disabled = state !== "lost";
    this.button.title = state === "lost" ? t("connection.retry") : "";
  }
}
customElements.define("connection-dot", ConnectionDot);
