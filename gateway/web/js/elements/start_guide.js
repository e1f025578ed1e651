// How to get the first device onto the map: three commands, each with a button that copies it.
// In the middle of the map while it is empty, later behind the "+" of the panel.

import { iconButton, make, setText } from "../dom.js";
import { t } from "../i18n.js";

/** @import { Entrances, Session } from "../types/api.js" */
/** @typedef {{title: string, hint: string, text: string}} Command */

const DEMO = "demo";

/** @param {string} text */
const quoted = (text) => (/^[\w./:@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/**
 * The commands for this platform, and for who is signed in.
 * @param {{origin: string, host: string, session: Session | null, entrances: Entrances | null}} platform
 * @returns {Command[]}
 */
function commandsFor({ origin, host, session, entrances }) {
  const user = session?.user ?? DEMO;
  const file = user === DEMO && entrances?.demo_token;
  const token = file ? `$(cat ${quoted(file)})` : "$TOKEN";
  const waylog = quoted(entrances?.command ?? "waylog");
  const list = [
    { title: t("guide.http"), hint: t("guide.http_hint"),
      text: `curl -u "${user}:${token}" \\\n  ${origin}/v1/positions \\\n  -d '{"device":"phone","lat":47.1410,"lon":9.5209}'` },
  ];
  const port = entrances?.mqtts_port ?? entrances?.mqtt_port;
  if (port) {
    const tls = entrances?.mqtts_port ? " --tls-use-os-certs" : "";
    list.push({ title: t("guide.mqtt"), hint: t("guide.mqtt_hint"),
      text: `mosquitto_pub -h ${host} -p ${port}${tls} -u ${user} -P "${token}" \\\n  -t owntracks/${user}/phone \\\n  -m '{"_type":"location","lat":47.1410,"lon":9.5209,"tst":'$(date +%s)'}'` });
  }
  const shown = file ? `--token-file ${quoted(file)}` : '--token "$TOKEN"';
  list.push({ title: t("guide.replay"), hint: t("guide.replay_hint"),
    text: `${waylog} replay track.gpx --speed 10 \\\n  --gateway ${origin} \\\n  --user ${user} ${shown}` });
  return list;
}

export class StartGuide extends HTMLElement {
  /** Events: `phone` (one is to be added). */
  dialog = make("dialog", { className: "guide", "aria-labelledby": "guide-title" });
  heading = make("h2", { id: "guide-title", tabindex: "-1", autofocus: true });
  lead = make("p", { className: "lead" });
  tabs = make("div", { className: "segmented", role: "tablist", "aria-label": t("guide.ways") });
  hint = make("p", { className: "hint" });
  code = make("code");
  copyWord = make("span", { text: t("guide.copy") });
  copyIcon = make("svg-icon", { name: "copy" });
  said = make("span", { className: "visually-hidden", "aria-live": "polite" });
  wait = make("p", { className: "wait" }, make("span", { className: "beacon" }), t("guide.waiting"));
  /** @type {Session | null} */
  session = null;
  /** @type {Command[]} */
  commands = [];
  chosen = 0;
  empty = false;
  shownEmpty = false;
  dismissed = false;

  connectedCallback() {
    const close = iconButton("close", t("close"));
    close.addEventListener("click", () => this.dialog.close());
    this.dialog.addEventListener("close", () => { this.dismissed = true; });
    const copy = make("button", { className: "primary", type: "button" }, this.copyIcon, this.copyWord);
    copy.addEventListener("click", () => this.copy());
    const phone = make("button", { className: "plain", type: "button", text: t("guide.phone") });
    phone.addEventListener("click", () => {
      this.dialog.close();
      this.dispatchEvent(new Event("phone"));
    });
    this.dialog.replaceChildren(
      make("header", {}, this.heading, close),
      this.lead, this.tabs,
      make("div", { role: "tabpanel", id: "guide-panel" }, this.hint, make("pre", { tabindex: "0" }, this.code)),
      make("footer", {}, this.wait, this.said, phone, copy),
    );
    this.replaceChildren(this.dialog);
    this.setPlatform(null, null);
  }

  /**
   * Say who is signed in and where the platform is.
   * @param {Session | null} session
   * @param {Entrances | null} entrances
   */
  setPlatform(session, entrances) {
    this.session = session;
    this.commands = commandsFor({ origin: location.origin, host: location.hostname, session, entrances });
    const tabs = this.commands.map((command, index) => {
      const tab = make("button", { type: "button", role: "tab", text: command.title, "aria-controls": "guide-panel" });
      tab.addEventListener("click", () => this.choose(index));
      tab.addEventListener("keydown", (event) => {
        const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
        if (!step) return;
        this.choose((index + step + this.commands.length) % this.commands.length);
        tabs[this.chosen]?.focus();
      });
      return tab;
    });
    this.tabs.replaceChildren(...tabs);
    this.choose(Math.min(this.chosen, this.commands.length - 1));
    this.setEmpty(this.empty);
  }

  /** @param {number} index */
  choose(index) {
    this.chosen = index;
    [...this.tabs.children].forEach((tab, at) => {
      tab.setAttribute("aria-selected", String(at === index));
      tab.setAttribute("tabindex", at === index ? "0" : "-1");
    });
    setText(this.hint, this.commands[index]?.hint ?? "");
    setText(this.code, this.commands[index]?.text ?? "");
    this.confirm(false);
  }

  async copy() {
    try {
      await navigator.clipboard.writeText(this.commands[this.chosen]?.text ?? "");
      this.confirm(true);
    } catch {
      getSelection()?.selectAllChildren(this.code); // plain HTTP from afar has no clipboard
      setText(this.said, t("guide.selected"));
    }
  }

  /** @param {boolean} done */
  confirm(done) {
    this.copyIcon.setAttribute("name", done ? "check" : "copy");
    setText(this.copyWord, done ? t("guide.copied") : t("guide.copy"));
    setText(this.said, done ? t("guide.copied") : "");
  }

  /**
   * While there is no device the guide is part of the page; afterwards it is a dialog.
   * @param {boolean} empty
   */
  setEmpty(empty) {
    this.empty = empty;
    const here = this.session?.admin;
    setText(this.lead, empty ? t(here ? "guide.first_here" : "guide.first_elsewhere")
      : t(here ? "guide.more_here" : "guide.more_elsewhere"));
    setText(this.heading, t(empty ? "guide.first_title" : "guide.title"));
    this.wait.hidden = !empty;
    if (empty && !this.dismissed && !this.dialog.open) this.dialog.show();
    if (!empty && this.dialog.open && this.shownEmpty) this.dialog.close();
    this.shownEmpty = empty;
  }

  open() {
    if (this.dialog.open) this.dialog.close();
    this.dialog.showModal();
  }
}
customElements.define("start-guide", StartGuide);
