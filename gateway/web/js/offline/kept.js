// What the page keeps of a user for the time when the gateway cannot be reached: the last positions
// and addresses, and the tiles of the map that were loaded. It is the browser's cache storage, which
// exists in secure contexts alone; elsewhere nothing is kept. It ends with the session.

/** @import { DeviceRow } from "../types/api.js" */
/**
 * @typedef {object} KeptState
 * @property {string} user whose it is
 * @property {string} sight of the session that saw it
 * @property {number} at when the gateway was last heard, ms
 * @property {DeviceRow[]} rows
 */

const CACHE = "waylog-kept";
const STATE = "/kept/state";
const TILES_MAX = 400;
const TILES_DROPPED = 40; // at once, the oldest: asking which there are costs more than dropping one
const TILE_BYTES_MAX = 300_000;
const WAITING_MAX = 100;
export const DAYS_MAX = 30;

export class Kept {
  /** Whose session it is; nothing is written without. @type {string | null} */
  user = null;
  sight = "";
  tiles = 0;
  /** There is no gateway: what is kept is taken without asking it, since that may take long. */
  preferred = false;
  /** Tiles that came before the session was known. @type {[string, Response][]} */
  waiting = [];
  /** One step after the other, so that nothing is written behind a deletion. @type {Promise<unknown>} */
  last = Promise.resolve();

  get possible() { return Boolean(globalThis.caches); }

  /**
   * @template Result
   * @param {() => Promise<Result>} step
   * @returns {Promise<Result | null>} null where the browser refuses, as when its storage is full
   */
  inTurn(step) {
    const turn = this.last.then(step).catch(() => null);
    this.last = turn;
    return turn;
  }

  /** @returns {Promise<KeptState | null>} */
  read() {
    return this.inTurn(async () => {
      if (!this.possible || !await caches.has(CACHE)) return null;
      const found = await (await caches.open(CACHE)).match(STATE);
      /** @type {KeptState | null} */
      const state = found ? await found.json() : null;
      if (state && Date.now() - state.at < DAYS_MAX * 86400e3) return state;
      await caches.delete(CACHE);
      return null;
    });
  }

  /**
   * A session has begun. What another user left is deleted, and positions if friends show less or more now.
   * @param {string} user
   * @param {string} sight
   */
  async begin(user, sight) {
    if (!this.possible) return;
    const state = await this.read();
    if (state?.user !== user) await this.inTurn(() => caches.delete(CACHE));
    else if (state.sight !== sight) await this.inTurn(async () => (await caches.open(CACHE)).delete(STATE));
    this.sight = sight;
    await this.inTurn(async () => {
      this.tiles = (await (await caches.open(CACHE)).keys()).length;
      this.user = user;
    });
    for (const [path, answer] of this.waiting.splice(0)) this.put(path, answer);
  }

  /** Delete everything, and keep nothing until another session begins. */
  async forget() {
    this.user = null;
    this.waiting = [];
    if (this.possible) await this.inTurn(() => caches.delete(CACHE));
  }

  /**
   * @param {number} at
   * @param {DeviceRow[]} rows
   */
  write(at, rows) {
    return this.inTurn(async () => {
      if (this.user === null) return;
      const answer = new Response(JSON.stringify({ user: this.user, sight: this.sight, at, rows }), { headers: { "content-type": "application/json" } });
      await (await caches.open(CACHE)).put(STATE, answer);
    });
  }

  /**
   * A file of the map: from the gateway, or as it was when the gateway had it.
   * @param {string} path
   * @param {RequestInit} [how]
   * @returns {Promise<Response>}
   */
  async load(path, how) {
    const known = this.preferred ? await this.match(path) : undefined;
    if (known) return known;
    try {
      const answer = await fetch(path, how);
      if (this.possible && answer.status === 200) this.put(path, answer.clone());
      if (answer.status < 502) return answer;
      return await this.match(path) ?? answer;
    } catch (error) {
      const kept = how?.signal?.aborted ? undefined : await this.match(path);
      if (kept) return kept;
      throw error;
    }
  }

  /** @param {string} path */
  async match(path) {
    if (!this.possible || !await caches.has(CACHE)) return undefined;
    return (await caches.open(CACHE)).match(path);
  }

  /**
   * @param {string} path
   * @param {Response} answer
   */
  put(path, answer) {
    if (this.user === null) {
      if (this.waiting.length < WAITING_MAX) this.waiting.push([path, answer]);
      return;
    }
    this.inTurn(async () => {
      const body = await answer.arrayBuffer();
      if (this.user === null || body.byteLength > TILE_BYTES_MAX) return;
      const cache = await caches.open(CACHE);
      await cache.put(path, new Response(body, { headers: { "content-type": answer.headers.get("content-type") ?? "" } }));
      this.tiles += 1;
      if (this.tiles > TILES_MAX) await this.drop(cache);
    });
  }

  /** @param {Cache} cache */
  async drop(cache) {
    const keys = (await cache.keys()).filter((request) => new URL(request.url).pathname !== STATE);
    const old = keys.slice(0, Math.max(0, keys.length - TILES_MAX + TILES_DROPPED));
    await Promise.all(old.map((request) => cache.delete(request)));
    this.tiles = keys.length - old.length;
  }
}
