// Whether the page is live: a dot and a word, and a button to reconnect at once.

import { make, setText } from "./svg_icon.js";

const WORDS = { connecting: "Connecting", live: "Live", lost: "Reconnecting" };

customElements.define("connection-dot", class extends HTMLElement {
  connectedCallback() {
    this.word = make("span", { className: "word" });
    this.button = make("button", { className: "dot-button", type: "button" }, make("span", { className: "dot" }), this.word);
    this.button.addEventListener("click", () => this.dispatchEvent(new Event("retry")));
    this.replaceChildren(this.button);
    this.show("connecting", null);
    setInterval(() => this.show(this.dataset.state, this.retryAt), 1000);
  }

  show(state, retryAt) {
    this.dataset.state = state;
    this.retryAt = retryAt;
    const seconds = retryAt ? Math.ceil((retryAt - Date.now()) / 1000) : 0;
    setText(this.word, state === "lost" && seconds > 0 ? `Offline · ${seconds} s` : WORDS[state]);
    this.button.disabled = state !== "lost";
    this.button.title = state === "lost" ? "Reconnect now" : "";
  }
});
