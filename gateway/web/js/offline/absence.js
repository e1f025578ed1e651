// While the gateway cannot be reached: says so and since when, shows what was known last, and keeps
// that up to date as long as there is a gateway.

import { byId } from "../dom.js";
import { Kept } from "./kept.js";

/** @import { DeviceRecord } from "../device_store.js" */
/** @import { App } from "../app.js" */
/** @import { DeviceRow, Session } from "../types/api.js" */

const LOOK_MS = 1000;
/** A connection that comes back at once is no news. */
const PATIENCE_MS = 3000;
const WRITE_MS = 15_000;
/** Without news the time alone is written, less often. */
const REWRITE_MS = 60_000;
const DEVICES_MAX = 500;
const SIGNING_OUT = "waylog.signing-out";
/** What tabs tell each other beside `{ user }`. */
const SIGNED_OUT = "signed_out";

export class Absence {
  kept = new Kept();
  /** Whether kept positions are shown that no gateway has confirmed. */
  restored = false;
  /** @type {number | null} when the gateway was heard last, ms */
  heard = null;
  writtenAt = 0;
  written = "";
  others = globalThis.BroadcastChannel ? new BroadcastChannel("waylog") : null;

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.notice = byId("offline", "offline-notice");
    app.live.addEventListener("state", () => this.look());
    setInterval(() => this.look(), LOOK_MS);
    document.addEventListener("visibilitychange", () => { if (document.hidden) this.write(true); });
    if (this.others) this.others.onmessage = (event) => this.hear(event.data);
  }

  get present() { return this.app.live.state === "live"; }

  look() {
    const now = Date.now();
    if (this.present) {
      this.heard = now;
      this.write();
    }
    const gone = this.restored || (this.app.live.state === "lost" && now - (this.heard ?? now) > PATIENCE_MS);
    this.kept.preferred = gone;
    this.notice.show(gone ? this.heard : null);
  }

  /** There is no gateway at the start: show what was known last, once. */
  async restore() {
    if (this.restored || this.app.session) return;
    const state = await this.kept.read();
    if (!state || this.app.session) return;
    this.restored = true;
    this.kept.preferred = true;
    this.heard = state.at;
    byId("sign-out-button", "button").hidden = false;
    for (const row of state.rows) this.app.store.applyRow(row);
    this.app.snapshotTaken = true;
    this.app.map.signedIn();
    this.look();
    this.app.tell("known");
  }

  /**
   * The gateway has said who is signed in.
   * @param {Session} session
   */
  async began(session) {
    const user = session.user ?? "";
    this.others?.postMessage({ user });
    if (this.restored) {
      const state = await this.kept.read();
      if (state?.user !== user || state.sight !== session.sight) {
        await this.leave();
        return;
      }
    }
    await this.kept.begin(user, session.sight);
  }

  /**
   * Everything is known again: what has gone meanwhile goes here too.
   * @param {DeviceRow[] | null} rows null where there are more than the page has
   */
  confirmed(rows) {
    if (!this.restored) return;
    this.restored = false;
    const there = new Set(rows?.map((row) => row.device));
    for (const { device } of [...this.app.store.records]) if (!there.has(device)) this.app.store.remove(device);
    this.look();
  }

  /** The session is over: nothing of it is left here. */
  async ended() {
    await this.kept.forget();
    if (this.restored) location.reload();
  }

  /**
   * Sign out, at the gateway as soon as there is one.
   * @param {() => Promise<Response>} ask
   */
  async signOut(ask) {
    try { localStorage.setItem(SIGNING_OUT, "1"); } catch { /* the gateway is asked now or not at all */ }
    await this.kept.forget();
    this.others?.postMessage(SIGNED_OUT);
    await this.askToSignOut(ask).catch(() => {});
    location.reload();
  }

  /**
   * Finish a sign-out that the gateway was not there for. Raises where it is not there yet.
   * @param {() => Promise<Response>} ask
   */
  async signOutLeft(ask) {
    let left = null;
    try { left = localStorage.getItem(SIGNING_OUT); } catch { /* storage is switched off */ }
    if (left !== null) await this.askToSignOut(ask);
  }

  /** @param {() => Promise<Response>} ask */
  async askToSignOut(ask) {
    const answer = await ask();
    if (answer.status >= 500) throw new Error(`${answer.status}`);
    try { localStorage.removeItem(SIGNING_OUT); } catch { /* storage is switched off */ }
  }

  /**
   * Another tab has signed out, or knows who is signed in: to all tabs, since they have one cookie.
   * @param {"signed_out" | {user: string}} said
   */
  hear(said) {
    const { session } = this.app;
    if (said === SIGNED_OUT || (session && said.user !== (session.user ?? ""))) this.leave();
  }

  /** Nothing of the user who was signed in stays on the page, nor is kept. */
  async leave() {
    await this.kept.forget();
    location.reload();
  }

  /** @param {boolean} [now] */
  write(now = false) {
    const { store } = this.app;
    const age = Date.now() - this.writtenAt;
    const news = `${store.fixCount} ${store.addressCount} ${store.size}`;
    if (!this.present || this.heard === null || !this.app.snapshotTaken || this.kept.user === null) return;
    if (!now && age < (news === this.written ? REWRITE_MS : WRITE_MS) && this.written) return;
    this.writtenAt = Date.now();
    this.written = news;
    this.kept.write(this.heard, this.rows());
  }

  rows() {
    const own = `${this.kept.user}/`;
    const isOwn = (/** @type {DeviceRecord} */ record) => Number(record.device.startsWith(own));
    return [...this.app.store.records].sort((a, b) => isOwn(b) - isOwn(a) || b.heard - a.heard).slice(0, DEVICES_MAX).map(rowOf);
  }
}

/**
 * A record as the gateway tells of it.
 * @param {DeviceRecord} record
 * @returns {DeviceRow}
 */
function rowOf({ device, user, lat, lon, time, received, accuracy, altitude, speed, course, battery, charging, source, address }) {
  const fix = { id: "", device, user, lat, lon, time, received: received ?? time, accuracy, altitude, speed, course, battery, charging, source };
  return { device, fix, address };
}
