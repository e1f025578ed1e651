// What has happened in zones, as it happens: one request waits at the gateway for the next event.

import * as api from "./api.js";

/** @import { ZoneEvent } from "./types/api.js" */

const WAIT_S = 25;
const AGAIN_MS = 5000;
const AGAIN_MAX_MS = 60e3;
const KEPT = 200;
/** What is older when it comes is no news. */
const NEWS_MS = 5 * 60e3;

export class AlertFeed extends EventTarget {
  /** Events: `events` (there are more), `alert` (detail: an event to be told now). */
  /** @type {ZoneEvent[]} the newest last */
  events = [];
  cursor = "";
  started = false;

  /** Begin to listen; there is nothing to hear for who has no devices of its own. */
  async start() {
    if (this.started) return;
    this.started = true;
    for (let againMs = AGAIN_MS; ;) {
      try {
        const answer = await api.events(this.cursor, this.cursor ? WAIT_S : 0);
        if (!answer) return; // an older gateway
        this.take(answer.cursor, answer.events);
        againMs = AGAIN_MS;
      } catch (error) {
        if (error instanceof api.SignInNeeded || error instanceof api.Forbidden) { this.started = false; return; }
        await new Promise((resolve) => { setTimeout(resolve, againMs); });
        againMs = Math.min(2 * againMs, AGAIN_MAX_MS);
      }
    }
  }

  /**
   * @param {string} cursor
   * @param {ZoneEvent[]} events
   */
  take(cursor, events) {
    const isFirst = !this.cursor;
    this.cursor = cursor;
    const known = new Set(this.events.map((event) => event.id));
    const fresh = events.filter((event) => !known.has(event.id));
    if (!fresh.length && !isFirst) return;
    this.events = [...this.events, ...fresh].slice(-KEPT);
    this.dispatchEvent(new Event("events"));
    if (isFirst) return;
    for (const event of fresh) {
      if (event.alert && Date.now() - event.time < NEWS_MS) this.dispatchEvent(new CustomEvent("alert", { detail: event }));
    }
  }
}
