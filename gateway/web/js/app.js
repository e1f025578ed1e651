// The page: who is signed in, what comes in, the map, and the views that show it.

import { AlertFeed } from "./alert_feed.js";
import * as api from "./api.js";
import { DeviceStore } from "./device_store.js";
import { AreaView } from "./live/area_view.js";
import { byId } from "./dom.js";
import { language, locale, t, translate } from "./i18n.js";
import { LiveConnection } from "./live_connection.js";
import { MapView } from "./map_view.js";
import { Navigation } from "./navigation.js";
import { Absence } from "./offline/absence.js";
import { adoptFormerSubscription, registerWorker } from "./offline/registration.js";
import { settings } from "./settings.js";
import { Sheet } from "./sheet.js";
import { readState, takeSignInCode, writeState } from "./url_state.js";
import "./elements/svg_icon.js";
import "./elements/alert_toasts.js";
import "./elements/connection_dot.js";
import "./elements/navigation_bar.js";
import "./elements/map_notice.js";
import "./elements/offline_notice.js";
import "./elements/settings_dialog.js";
import "./elements/sign_in.js";
import "./elements/start_guide.js";

/** @import { DeviceRecord } from "./device_store.js" */
/** @import { Session, ZoneEvent } from "./types/api.js" */
/** @import { State } from "./url_state.js" */

const ANNOUNCE_MS = 10000;
const IDENTIFY_AGAIN_MS = 2000;
const ANSWER_MS = 4000;
const REMEMBER_MS = 200;
const ASKED_MS = 60e3;
/** Devices above which the gateway sends what the map shows in place of all. */
const ALL_UP_TO = 500;
/** Own devices that are known besides. */
const OWN_UP_TO = 20;
const SETTINGS_OPEN = "waylog.settings.open";
const root = document.documentElement;

/** What the views share. */
export class App extends EventTarget {
  /** Events: `fix` and `address` (detail: the record), `resolved` (detail: ms it took), `known` (after each snapshot). */
  signInCode = takeSignInCode();
  state = readState();
  store = new DeviceStore();
  live = new LiveConnection();
  sheet = new Sheet();
  alerts = new AlertFeed();
  /** @type {Session | null} */
  session = null;
  snapshotTaken = false;
  announcedAt = 0;
  /** Users who ask to be shown the viewer's devices. */
  askedBy = 0;
  /** @type {number | undefined} */
  rememberTimer;

  constructor() {
    super();
    translate(document);
    root.lang = locale;
    document.querySelector("link[rel=manifest]")?.setAttribute("href", `/static/manifest/${language}.webmanifest`);
    this.guide = byId("guide", "start-guide");
    this.signIn = byId("sign-in", "sign-in");
    this.absence = new Absence(this);
    const load = this.absence.kept.load.bind(this.absence.kept);
    this.map = new MapView(byId("map", "main"), this.store, { theme: root.dataset.theme ?? "light", view: this.state.view, load });
    this.area = new AreaView(this.live, this.store, this.map);
    this.navigation = new Navigation(this, byId("navigation", "navigation-bar"), byId("rooms", "div"));
    this.sheet.add(byId("panel", "section"), byId("handle", "div"));
    this.store.onFix = (record) => this.tell("fix", record);
    this.store.onAddress = (record) => this.tell("address", record);
    this.listen();
  }

  /**
   * @param {string} name
   * @param {unknown} [detail]
   */
  tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }

  listen() {
    const { live, map } = this;
    const dot = byId("connection", "connection-dot");
    live.addEventListener("message", (event) => this.take(/** @type {CustomEvent} */ (event).detail));
    live.addEventListener("opened", () => this.resume());
    // Whatever a friend showed until now is nowhere on a page that is loaded anew.
    live.addEventListener("narrowed", () => this.absence.leave());
    live.addEventListener("state", () => {
      root.dataset.connection = live.state;
      dot.show(live.state, live.retryAt);
    });
    dot.addEventListener("retry", () => live.retryNow());
    // A session may end, by a revocation as well, while the page is open.
    live.addEventListener("refused", () => {
      api.session().catch((error) => { if (error instanceof api.SignInNeeded) this.askToSignIn(); });
    });
    this.signIn.addEventListener("signed-in", (event) => this.begin(/** @type {CustomEvent<Session>} */ (event).detail));
    byId("sign-out-button", "button").addEventListener("click", () => this.absence.signOut(api.signOut));
    byId("zoom-in", "button").addEventListener("click", () => map.map?.zoomIn());
    byId("zoom-out", "button").addEventListener("click", () => map.map?.zoomOut());
    byId("fit", "button").addEventListener("click", () => this.tell("fit"));
    byId("guide-button", "button").addEventListener("click", () => this.guide.open());
    this.guide.addEventListener("phone", () => this.go({ page: "devices" }));
    byId("settings-button", "button").addEventListener("click", () => byId("settings", "settings-dialog").open());
    byId("skip", "a").addEventListener("click", (event) => { event.preventDefault(); byId("rooms", "div").focus(); });
    map.addEventListener("moved", () => this.remember());
    const mapNotice = byId("map-notice", "map-notice");
    map.addEventListener("base", () => mapNotice.show(map.baseFailed));
    mapNotice.addEventListener("retry", () => map.showBase());
    const toasts = byId("alerts", "alert-toasts");
    this.alerts.addEventListener("alert", (event) => toasts.tell(/** @type {CustomEvent<ZoneEvent>} */ (event).detail));
    toasts.addEventListener("show", (event) => {
      const { zone, device } = /** @type {CustomEvent<ZoneEvent>} */ (event).detail;
      this.go(zone ? { page: "places", zone } : { page: "live", device });
    });
    settings.addEventListener("change", (event) => this.settingsChanged(/** @type {CustomEvent<string[]>} */ (event).detail));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.setTheme());
    addEventListener("popstate", () => {
      this.state = { ...readState(), view: this.state.view };
      this.navigation.show(this.state);
    });
    addEventListener("keydown", (event) => {
      const typing = event.target instanceof Element && event.target.matches("input, select, textarea");
      if (event.key === "Escape" && !document.querySelector("dialog:modal")) {
        if (typing) /** @type {HTMLElement} */ (event.target).blur();
        else this.tell("escape");
      } else if (event.key === "/" && !typing) {
        event.preventDefault();
        this.tell("search");
      }
    });
  }

  /** @param {{kind: "fix" | "address", data: any}} message */
  take({ kind, data }) {
    if (this.area.active) return;
    if (kind === "fix") this.store.applyFix(data);
    else if (this.store.applyAddress(data) && data.resolved) {
      const took = Date.now() - (this.store.get(data.device)?.received ?? data.resolved);
      if (took >= 0 && took < 60000) this.tell("resolved", took);
    }
  }

  /** @param {string} [refusal] */
  askToSignIn(refusal) {
    this.live.stop();
    this.absence.ended();
    this.signIn.ask(refusal);
  }

  /** @param {Session} session */
  async begin(session) {
    if (this.session && this.session.user !== session.user) {
      await this.absence.leave();
      return;
    }
    this.session = session;
    await this.absence.began(session);
    const button = byId("sign-out-button", "button");
    button.hidden = session.open;
    button.title = session.user ? t("sign_out.user", { user: session.user }) : t("sign_out");
    this.navigation.bar.offer("operations", session.admin && !session.device && !session.open);
    this.live.start();
    this.map.signedIn();
    this.offerBaseMaps();
    if (session.user && !session.device && !session.open) this.alerts.start();
    this.lookForRequests();
    this.guide.setPlatform(session, await api.entrances().catch(() => null));
  }

  /** Tell who asks to be shown the viewer's devices. */
  async lookForRequests() {
    const { session } = this;
    if (document.hidden || !session?.user || session.device || session.open) return;
    const before = this.askedBy;
    try {
      this.tellAsked((await api.friendRequests()).received.length);
    } catch { /* the next time */ }
    if (this.askedBy > before) this.announce(t("friends.asked_by", { count: this.askedBy }), true);
  }

  /** @param {number} count of users who ask to be shown the viewer's devices */
  tellAsked(count) {
    this.askedBy = count;
    this.navigation.bar.count("people", t("friends.asked_by", { count }), count);
  }

  /** Base maps of other servers, where the operator has named some. */
  async offerBaseMaps() {
    const offered = await api.baseMaps().catch(() => []);
    byId("settings", "settings-dialog").baseMaps = offered;
    this.map.offerBases(offered);
  }

  /** Sign in by the link that was opened, or go on as whoever has a session here already. */
  async identify() {
    let refusal;
    // Where packets get lost there is no answer for minutes, and no error.
    const late = setTimeout(() => this.absence.restore(), ANSWER_MS);
    try {
      await this.absence.signOutLeft(api.signOut);
      if (this.signInCode) {
        try {
          await this.begin(await api.signIn({ code: this.signInCode }));
          return;
        } catch (error) {
          if (!(error instanceof api.SignInRefused)) throw error;
          refusal = error.message;
        }
      }
      await this.begin(await api.session());
    } catch (error) {
      if (error instanceof api.SignInNeeded) {
        this.askToSignIn(refusal);
        return;
      }
      setTimeout(() => this.identify(), IDENTIFY_AGAIN_MS);
      this.absence.restore();
    } finally {
      clearTimeout(late);
    }
  }

  /**
   * A stream has begun, after an interruption perhaps as somebody else, since the cookie is all tabs', or when
   * friends show less than before.
   */
  async resume() {
    if (this.snapshotTaken && !this.absence.restored) {
      const session = await api.session().catch(() => null);
      if (session && (session.user !== this.session?.user || session.sight !== this.session?.sight)) {
        await this.absence.leave();
        return;
      }
    }
    await this.takeSnapshot();
  }

  /** Everything known so far, and again after each interruption: what was missed is in it. */
  async takeSnapshot() {
    try {
      // Frames need the socket; server-sent events tell of all devices, however many there are.
      const { rows, more } = await api.devices(this.live.socket ? ALL_UP_TO : undefined);
      if (more) {
        await this.map.ready;
        this.absence.confirmed(null);
        this.area.begin();
        this.keepOwn();
      } else {
        this.area.end();
        for (const row of rows) this.store.applyRow(row);
        this.absence.confirmed(rows);
      }
      this.snapshotTaken = true;
    } catch (error) {
      if (error instanceof api.SignInNeeded) this.askToSignIn();
    }
    this.guide.setEmpty(this.snapshotTaken && this.store.size === 0 && !this.area.active);
    this.tell("known");
  }

  /** The viewer's own devices are shown wherever they are, unless these are the many. */
  async keepOwn() {
    const own = `${this.session?.user}/`;
    const rows = await api.devicesNamed(own, OWN_UP_TO + 1).catch(() => []);
    if (rows.length > OWN_UP_TO || !this.area.active) return;
    const found = rows.filter((row) => row.device.startsWith(own));
    for (const row of found) this.store.applyRow(row);
    this.area.keep(found.map((row) => row.device));
  }

  /**
   * Change what is shown. The browser's "back" undoes it.
   * @param {Partial<State>} changes
   */
  go(changes) {
    Object.assign(this.state, changes);
    if (this.map.map) this.state.view = this.map.view();
    clearTimeout(this.rememberTimer);
    writeState(this.state, true);
    this.navigation.show(this.state);
  }

  /**
   * Keep a change that is shown already in the URL, in a moment.
   * @param {Partial<State>} [changes]
   */
  remember(changes = {}) {
    Object.assign(this.state, changes);
    clearTimeout(this.rememberTimer);
    this.rememberTimer = setTimeout(() => {
      if (!this.map.map) return;
      this.state.view = this.map.view();
      writeState(this.state);
    }, REMEMBER_MS);
  }

  /**
   * Tell a screen reader, every ten seconds at most.
   * @param {string} text
   * @param {boolean} [atOnce]
   */
  announce(text, atOnce = false) {
    const now = Date.now();
    if (!atOnce && now - this.announcedAt < ANNOUNCE_MS) return;
    this.announcedAt = now;
    byId("announce", "div").textContent = text;
  }

  /** @param {string[]} names */
  settingsChanged(names) {
    if (names.includes("theme")) this.setTheme();
    if (names.includes("base_map")) this.map.showBase();
    if (names.every((name) => name === "theme" || name === "base_map")) return;
    // Whatever is written is written anew; the choice goes on where it was.
    try { sessionStorage.setItem(SETTINGS_OPEN, names[0] ?? ""); } catch { /* it is not opened again */ }
    location.reload();
  }

  reopenSettings() {
    let name = null;
    try {
      name = sessionStorage.getItem(SETTINGS_OPEN);
      sessionStorage.removeItem(SETTINGS_OPEN);
    } catch { /* storage is switched off */ }
    if (name === null) return;
    const dialog = byId("settings", "settings-dialog");
    dialog.open();
    dialog.querySelector(`select[name="${name}"]`)?.scrollIntoView();
    /** @type {HTMLElement | null} */ (dialog.querySelector(`select[name="${name}"]`))?.focus();
  }

  setTheme() {
    const { theme } = settings.current;
    const dark = theme === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : theme === "dark";
    root.dataset.theme = dark ? "dark" : "light";
    this.map.setTheme(root.dataset.theme);
    this.tell("theme");
  }

  async start() {
    globalThis.waylog = hooksOf(this);
    this.identify();
    const showing = this.navigation.show(this.state);
    setInterval(() => this.lookForRequests(), ASKED_MS);
    setInterval(() => {
      const devices = String(this.store.size);
      if (root.dataset.devices !== devices) root.dataset.devices = devices;
      if (this.guide.empty && this.store.size) this.guide.setEmpty(false);
    }, 250);
    await Promise.all([this.map.ready, showing]);
    this.map.points.follow();
    this.tell("map");
    this.reopenSettings();
    root.dataset.ready = "true";
    await registerWorker();
    adoptFormerSubscription().catch(() => { /* the browser offers to subscribe again */ });
  }
}

/**
 * What tests look at and call.
 * @param {App} app
 */
function hooksOf(app) {
  return {
    app, store: app.store, view: app.map, live: app.live, area: app.area,
    get map() { return app.map.map; },
    get deviceCount() { return app.store.size; },
    get updates() { return app.store.fixCount; },
    get frames() { return app.map.points.frames; },
    get moving() { return app.map.map.isMoving() || app.map.points.gliding; },
    positionOf: (/** @type {string} */ device) => app.map.positionOf(device),
  };
}

new App().start().catch((error) => {
  root.dataset.failed = "true";
  byId("map", "main").textContent = t("map.failed", { reason: error.message });
  console.error(error);
});
