// How to get the first device onto the map: three commands, each with a button that copies it.
// In the middle of the map while it is empty, later behind the "+" of the panel.

import { make, setText } from "./svg_icon.js";

const DEMO = "demo";

const quoted = (text) => (/^[\w./:@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** The commands for this platform, and for who is signed in. */
function commands({ origin, host, session, entrances }) {
  const user = session?.user ?? DEMO;
  const file = user === DEMO && entrances?.demo_token;
  const token = file ? `$(cat ${quoted(file)})` : "$TOKEN";
  const waylog = quoted(entrances?.command ?? "waylog");
  const list = [
    { title: "HTTP", hint: "One position with curl. Browsers and scripts send the same JSON.",
      text: `curl -u "${user}:${token}" \\\n  ${origin}/v1/positions \\\n  -d '{"device":"phone","lat":47.1410,"lon":9.5209}'` },
  ];
  const port = entrances?.mqtt_port ?? entrances?.mqtts_port;
  if (port) {
    const tls = entrances.mqtt_port ? "" : " --tls-use-os-certs";
    list.push({ title: "MQTT", hint: "As the OwnTracks app does; the address comes back on devices/…/address.",
      text: `mosquitto_pub -h ${host} -p ${port}${tls} -u ${user} -P "${token}" \\\n  -t owntracks/${user}/phone \\\n  -m '{"_type":"location","lat":47.1410,"lon":9.5209,"tst":'$(date +%s)'}'` });
  }
  const shown = file ? `--token-file ${quoted(file)}` : '--token "$TOKEN"';
  list.push({ title: "Replay", hint: "A recorded track (GPX, GeoJSON, CSV, KML, …) as if it was driven now.",
    text: `${waylog} replay track.gpx --speed 10 \\\n  --gateway ${origin} \\\n  --user ${user} ${shown}` });
  return list;
}

customElements.define("start-guide", class extends HTMLElement {
  connectedCallback() {
    this.dialog = make("dialog", { className: "guide", "aria-labelledby": "guide-title" });
    const close = make("button", { className: "icon-button", type: "button", "aria-label": "Close" }, make("svg-icon", { name: "close" }));
    close.addEventListener("click", () => this.dismiss());
    this.dialog.addEventListener("close", () => { this.dismissed = true; });
    this.lead = make("p", { className: "lead" });
    this.tabs = make("div", { className: "segmented", role: "tablist", "aria-label": "Way to send" });
    this.hint = make("p", { className: "hint" });
    this.code = make("code", {});
    this.copyWord = make("span", { text: "Copy" });
    this.copyIcon = make("svg-icon", { name: "copy" });
    const copy = make("button", { className: "primary", type: "button" }, this.copyIcon, this.copyWord);
    copy.addEventListener("click", () => this.copy());
    this.said = make("span", { className: "visually-hidden", "aria-live": "polite" });
    this.dialog.append(
      make("header", {}, make("h2", { id: "guide-title", text: "Connect your first device", tabindex: "-1", autofocus: true }), close),
      this.lead, this.tabs, make("div", { role: "tabpanel", id: "guide-panel" }, this.hint, make("pre", { tabindex: "0" }, this.code)),
      make("footer", {}, make("p", { className: "wait" }, make("span", { className: "beacon" }), "Waiting for a position …"), this.said, copy),
    );
    this.replaceChildren(this.dialog);
    this.setPlatform(null, null);
  }

  /** Say who is signed in (api.session) and where the platform is (api.entrances). */
  setPlatform(session, entrances) {
    this.session = session;
    this.commands = commands({ origin: location.origin, host: location.hostname, session, entrances });
    this.tabs.replaceChildren();
    this.commands.forEach((command, index) => {
      const tab = make("button", { type: "button", role: "tab", text: command.title, "aria-controls": "guide-panel" });
      tab.addEventListener("click", () => this.choose(index));
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        this.choose((index + step + this.commands.length) % this.commands.length);
        this.tabs.children[this.chosen].focus();
      });
      this.tabs.append(tab);
    });
    this.choose(Math.min(this.chosen ?? 0, this.commands.length - 1));
    this.setEmpty(this.empty ?? false);
  }

  choose(index) {
    this.chosen = index;
    [...this.tabs.children].forEach((tab, at) => {
      tab.setAttribute("aria-selected", String(at === index));
      tab.tabIndex = at === index ? 0 : -1;
    });
    setText(this.hint, this.commands[index].hint);
    setText(this.code, this.commands[index].text);
    this.confirm(false);
  }

  async copy() {
    const { text } = this.commands[this.chosen];
    try {
      await navigator.clipboard.writeText(text);
      this.confirm(true);
    } catch {
      getSelection().selectAllChildren(this.code); // plain HTTP from afar has no clipboard
      setText(this.said, "Selected; copy it with the keyboard.");
    }
  }

  confirm(done) {
    this.copyIcon.setAttribute("name", done ? "check" : "copy");
    setText(this.copyWord, done ? "Copied" : "Copy");
    setText(this.said, done ? "Copied" : "");
  }

  /** While there is no device the guide is part of the page; afterwards it is a dialog. */
  setEmpty(empty) {
    this.empty = empty;
    const where = this.session?.admin ? "on the machine where Waylog runs" : "with your token in the variable TOKEN";
    setText(this.lead, empty
      ? `Nothing has been sent yet. Run one of these ${where}, and see it appear here.`
      : `Run one of these ${where}; every app that speaks OwnTracks, Overland, OsmAnd or Traccar works as well.`);
    setText(this.dialog.querySelector("h2"), empty ? "Connect your first device" : "Connect a device");
    this.dialog.querySelector(".wait").hidden = !empty;
    if (empty && !this.dismissed && !this.dialog.open) this.dialog.show();
    if (!empty && this.dialog.open && this.shownEmpty) this.dialog.close();
    this.shownEmpty = empty;
  }

  open() {
    if (this.dialog.open) this.dialog.close();
    this.dialog.showModal();
  }

  dismiss() {
    this.dialog.close();
  }
});
