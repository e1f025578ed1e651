// The JavaScript client: one module without dependencies, for browsers, Node, Deno and Bun.
//
// docs/client-javascript.md says how it is used. Units are SI and degrees WGS84, times are ms since
// 1970 UTC; members that a newer gateway adds are there too.

/**
 * A time: ms since 1970 UTC, or a Date.
 * @typedef {number | Date} Time
 */

/**
 * A position to send. Positions with one id are one fix, however often they are sent.
 * @typedef {object} Position
 * @property {number} lat
 * @property {number} lon
 * @property {string} [device] a name of the user's, or `user/name`; by default that of the token, or `default`
 * @property {Time} [time] by default when the gateway gets it
 * @property {number} [accuracy] m
 * @property {number} [altitude] m
 * @property {number} [vertical_accuracy] m
 * @property {number} [speed] m/s
 * @property {number} [course] degrees clockwise from true north
 * @property {number} [battery] percent
 * @property {boolean} [charging]
 * @property {string} [trigger]
 * @property {Record<string, unknown>} [attributes]
 * @property {string} [id]
 */

/**
 * What became of positions that were sent: those in `rejected` can never be accepted.
 * @typedef {{ids: string[], rejected: {index: number, reason: string}[]}} Sent
 */

/**
 * @typedef {object} Fix
 * @property {string} id
 * @property {string} device user/name
 * @property {string} user
 * @property {number} lat
 * @property {number} lon
 * @property {number} time
 * @property {number} received
 * @property {number} [accuracy]
 * @property {number} [altitude]
 * @property {number} [speed]
 * @property {number} [course]
 * @property {number} [battery]
 */

/**
 * @typedef {object} Address
 * @property {string} device
 * @property {string} fix_id
 * @property {number} time
 * @property {number} lat
 * @property {number} lon
 * @property {string} display_name
 * @property {Record<string, string>} [address]
 */

/** @typedef {{device: string, user: string, name: string, lat: number, lon: number, time: number, fix: Fix | null, address: Address | null}} Device */
/** @typedef {{time: number, lat: number, lon: number, altitude: number | null, accuracy: number | null, speed: number | null, course: number | null}} TrackPoint */
/** @typedef {{since?: Time, until?: Time}} Period */

/**
 * News of a device; `skipped` says how many events a slow reader has the newest state in place of.
 * @typedef {{type: "fix", fix: Fix} | {type: "address", address: Address} | {type: "skipped", count: number}} LiveEvent
 */

const BATCH_POSITIONS = 1000;
/** UTF-16 units of a request's body, of which none has more than three bytes. */
const BATCH_UNITS = 1024 * 1024;
const PAUSE_MS = 1000;
const PAUSE_MS_MAX = 30000;
/** The gateway sends something every 15 s. */
const SILENCE_MS = 45000;
const REASON_CHARACTERS = 500;
/** Answers after which the same request may succeed. */
const LATER = new Set([429, 502, 503, 504]);

/** The gateway refuses a request. */
export class ApiError extends Error {
  name = "ApiError";

  /**
   * @param {number} status of HTTP
   * @param {string} reason
   */
  constructor(status, reason) {
    super(`HTTP ${status}: ${reason}`);
    this.status = status;
    this.reason = reason;
  }
}

/** Nothing has answered. */
export class Unreachable extends Error {
  name = "Unreachable";
}

/** Talks to one gateway as one user or device. All methods throw ApiError for a refusal, and Unreachable. */
export class Client {
  /**
   * @param {string} [url] of the gateway, such as https://waylog.example.org; in a page of the gateway, that
   * @param {object} [options]
   * @param {string} [options.token] the token or password of `user`, or without one a token that names its
   *   device; without a token the session of the page counts
   * @param {string} [options.user]
   * @param {number} [options.timeoutMs] for one request
   * @param {number} [options.patienceMs] for how long positions are sent again, and a lost stream is sought,
   *   while the gateway is away or busy
   */
  constructor(url = "", { token, user, timeoutMs = 60000, patienceMs = 60000 } = {}) {
    this.base = url.replace(/\/+$/, "");
    this.user = user;
    this.timeoutMs = timeoutMs;
    this.patienceMs = patienceMs;
    /** @type {Record<string, string>} */
    this.headers = token === undefined ? {} : { authorization: authorization(user, token) };
    // A token is not shown where objects are printed.
    Object.defineProperty(this, "headers", { enumerable: false });
  }

  /**
   * Store positions; the answer comes once all in-sync replicas of the log have all of them.
   *
   * Sent in batches; after an exception the first ones may be stored. The positions are given ids where they
   * have none, so that sending the same objects again stores nothing twice.
   * @param {Position | Iterable<Position>} positions
   * @returns {Promise<Sent>}
   */
  async send(positions) {
    /** @type {Sent} */
    const sent = { ids: [], rejected: [] };
    for (const { first, body } of batches(Symbol.iterator in positions ? positions : [positions])) {
      const { ids, rejected = [] } = await this.sendBatch(body);
      sent.ids.push(...ids);
      sent.rejected.push(...rejected.map(({ index, reason }) => ({ index: first + index, reason })));
    }
    return sent;
  }

  /**
   * @param {string} body
   * @returns {Promise<{ids: string[], rejected?: {index: number, reason: string}[]}>}
   */
  async sendBatch(body) {
    const deadline = performance.now() + this.patienceMs;
    for (let pauseMs = PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, PAUSE_MS_MAX)) {
      let failure, waitMs = pauseMs;
      try {
        const answer = await this.fetch("POST", "/v1/positions", body);
        if (answer.ok) return await answer.json();
        failure = await errorOf(answer);
        if (!LATER.has(answer.status)) throw failure;
        waitMs = retryAfterMs(answer);
      } catch (error) {
        if (!(error instanceof Unreachable)) throw error;
        failure = error;
      }
      if (performance.now() + waitMs > deadline) throw failure;
      await sleep(waitMs);
    }
  }

  /**
   * All devices that the user may see, sorted by name.
   * @returns {AsyncGenerator<Device, void, void>}
   */
  async *devices() {
    for (let after; ;) {
      const answer = await this.success("GET", withQuery("/v1/devices", { after }));
      yield* /** @type {Device[]} */ (await answer.json());
      const more = answer.headers.get("waylog-more-after");
      if (more === null) return;
      after = decodeURIComponent(more);
    }
  }

  /**
   * What is known now of `user/name`.
   * @param {string} device
   * @returns {Promise<Device>}
   */
  device(device) {
    return this.get(ofDevice(device));
  }

  /**
   * The address of a device's newest resolved fix.
   * @param {string} device
   * @returns {Promise<Address>}
   */
  address(device) {
    return this.get(ofDevice(device, "address"));
  }

  /**
   * The newest fix and address of each device, then what comes, without a gap.
   *
   * What comes while the newest ones are read may come twice. A connection that is lost is made again and goes
   * on where it was; only after `patienceMs` without one Unreachable is thrown. It ends with the loop that reads
   * it, or when `signal` is aborted.
   * @param {object} [options]
   * @param {string[]} [options.devices] these alone, each as user/name
   * @param {[west: number, south: number, east: number, north: number]} [options.bbox]
   * @param {boolean} [options.friends] whether friends' devices count
   * @param {AbortSignal} [options.signal]
   * @returns {AsyncGenerator<LiveEvent, void, void>}
   */
  async *live({ devices, bbox, friends = true, signal } = {}) {
    const wanted = devices && new Set(devices);
    const isWanted = (/** @type {{device: string, lat: number, lon: number}} */ { device, lat, lon }) => (
      (!wanted || wanted.has(device)) && (friends || this.user === undefined || device.startsWith(`${this.user}/`))
      && (!bbox || isWithin(bbox, lat, lon)));
    const path = (/** @type {string} */ cursor) => withQuery("/v1/stream", {
      device: devices?.length === 1 ? devices[0] : undefined, bbox: bbox?.join(","), since: cursor || undefined });
    let cursor = "", hasBegun = false, lostSince = NaN, pauseMs = PAUSE_MS;
    for (;;) {
      let cause = "the live stream has ended";
      try {
        for await (const { id, event, data } of this.serverEvents(path(cursor), signal)) {
          lostSince = NaN;
          pauseMs = PAUSE_MS;
          if (id) cursor = id;
          if (!hasBegun) {
            for await (const device of this.newest(devices)) {
              if (device.fix && isWanted(device.fix)) yield { type: "fix", fix: device.fix };
              if (device.address && isWanted(device.address)) yield { type: "address", address: device.address };
            }
            hasBegun = true;
          }
          const found = data && JSON.parse(data);
          if (event === "skipped") yield { type: "skipped", count: found.count };
          else if (event === "fix" && isWanted(found)) yield { type: "fix", fix: found };
          else if (event === "address" && isWanted(found)) yield { type: "address", address: found };
        }
      } catch (error) {
        const isLost = error instanceof Unreachable || (error instanceof ApiError && LATER.has(error.status));
        if (!isLost) throw error;
        cause = error.message;
      }
      if (signal?.aborted) return;
      if (Number.isNaN(lostSince)) lostSince = performance.now();
      if (performance.now() + pauseMs - lostSince > this.patienceMs) throw new Unreachable(`${this.base}: ${cause}`);
      await sleep(pauseMs, signal);
      pauseMs = Math.min(2 * pauseMs, PAUSE_MS_MAX);
    }
  }

  /**
   * @param {string[]} [devices]
   * @returns {AsyncGenerator<Device, void, void>}
   */
  async *newest(devices) {
    if (!devices) {
      yield* this.devices();
      return;
    }
    for (const device of devices) {
      try {
        yield await this.device(device);
      } catch (error) {
        // It is not known yet, or not to be seen by the user.
        if (!(error instanceof ApiError) || ![403, 404].includes(error.status)) throw error;
      }
    }
  }

  /**
   * The events of a stream, and its comments as events without data (WHATWG HTML, section 9.2).
   * @param {string} path
   * @param {AbortSignal} [signal]
   * @returns {AsyncGenerator<ServerEvent, void, void>}
   */
  async *serverEvents(path, signal) {
    const ending = new AbortController();
    /** @type {ReadableStreamDefaultReader<Uint8Array> | undefined} */
    let reader;
    // Node forgets the signal of an answer once it has collected the request: the reader ends it too.
    const end = () => {
      ending.abort();
      reader?.cancel().catch(() => {});
    };
    signal?.addEventListener("abort", end);
    if (signal?.aborted) end();
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let silence;
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(end, SILENCE_MS);
    };
    try {
      heard();
      const answer = await fetch(this.base + path, { headers: { ...this.headers, accept: "text/event-stream" }, signal: ending.signal, redirect: "error" });
      if (!answer.ok) throw await errorOf(answer);
      if (!answer.body) return;
      reader = answer.body.getReader();
      const decoder = new TextDecoder();
      const parser = new ServerEventParser();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        heard();
        yield* parser.feed(decoder.decode(value, { stream: true }));
      }
    } catch (error) {
      throw error instanceof ApiError ? error : this.unreachable(error);
    } finally {
      clearTimeout(silence);
      signal?.removeEventListener("abort", end);
      end();
    }
  }

  /**
   * The points of a device by time, at most some 250,000.
   * @param {string} device
   * @param {Period} [period]
   * @returns {Promise<TrackPoint[]>}
   */
  async track(device, period) {
    return trackPoints(JSON.parse(await this.trackFile(device, "geojson", period)));
  }

  /**
   * A track as the text of a file.
   * @param {string} device
   * @param {"geojson" | "gpx" | "kml" | "csv"} format
   * @param {Period} [period]
   * @returns {Promise<string>}
   */
  async trackFile(device, format, period) {
    return (await this.success("GET", ofDevice(device, "track", { format, ...between(period) }))).text();
  }

  /**
   * The favourite places of a device.
   * @param {string} device
   * @returns {Promise<any[]>}
   */
  places(device) {
    return this.get(ofDevice(device, "places"));
  }

  /**
   * The stays that the history job has found, by time.
   * @param {string} device
   * @param {Period} [period]
   * @returns {Promise<any[]>}
   */
  visits(device, period) {
    return this.get(ofDevice(device, "visits", between(period)));
  }

  /**
   * The trips between visits, by time.
   * @param {string} device
   * @param {Period} [period]
   * @returns {Promise<any[]>}
   */
  trips(device, period) {
    return this.get(ofDevice(device, "trips", between(period)));
  }

  /**
   * What a device did in at most 32 days: stays, trips and gaps, without holes.
   * @param {string} device
   * @param {{since: Time, until: Time}} period
   * @returns {Promise<any[]>}
   */
  async timeline(device, period) {
    return (await this.get(ofDevice(device, "timeline", between(period)))).items;
  }

  /**
   * The days (YYYY-MM-DD) with fixes, and how many; at most 400 days.
   * @param {string} device
   * @param {{since: Time, until: Time, timeZone?: string}} period
   * @returns {Promise<Record<string, number>>}
   */
  async days(device, { timeZone = "UTC", ...period }) {
    const { days } = await this.get(ofDevice(device, "days", { tz: timeZone, ...between(period) }));
    return Object.fromEntries(days.map((/** @type {{date: string, fixes: number}} */ day) => [day.date, day.fixes]));
  }

  /**
   * Totals of days, weeks, months or years.
   * @param {string} device
   * @param {{since: Time, until: Time, by?: "day" | "week" | "month" | "year", timeZone?: string}} period
   * @returns {Promise<any[]>}
   */
  async statistics(device, { by = "day", timeZone = "UTC", ...period }) {
    return (await this.get(ofDevice(device, "statistics", { by, tz: timeZone, ...between(period) }))).totals;
  }

  /**
   * Where the fixes of a day are.
   * @param {string} device
   * @param {{day?: string, timeZone?: string}} [options] YYYY-MM-DD, today or yesterday
   * @returns {Promise<any>}
   */
  receipt(device, { day = "today", timeZone = "UTC" } = {}) {
    return this.get(ofDevice(device, "receipts", { day, tz: timeZone }));
  }

  /**
   * The user's devices that have tokens of their own.
   * @returns {Promise<{device: string, tokens: number, newest: number}[]>}
   */
  deviceTokens() {
    return this.get("/v1/device-tokens");
  }

  /**
   * A token for a device, and what sets up an app such as `owntracks_mqtt`; nothing tells it again.
   * @param {string} name
   * @param {string} app
   * @returns {Promise<{device: string, token: string, setup: any}>}
   */
  createDeviceToken(name, app) {
    return this.request("POST", "/v1/device-tokens", { name, app });
  }

  /**
   * Revoke all tokens of a device.
   * @param {string} name
   */
  async revokeDeviceTokens(name) {
    await this.success("DELETE", `/v1/device-tokens/${encodeURIComponent(name)}`);
  }

  /**
   * The answer of any path of /openapi.json; null for one without a body.
   * @param {string} method
   * @param {string} path
   * @param {unknown} [body]
   * @returns {Promise<any>}
   */
  async request(method, path, body) {
    const answer = await this.success(method, path, body === undefined ? undefined : JSON.stringify(body));
    const text = await answer.text();
    return text ? JSON.parse(text) : null;
  }

  /**
   * @param {string} path
   * @returns {Promise<any>}
   */
  get(path) {
    return this.request("GET", path);
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {string} [body]
   */
  async success(method, path, body) {
    const answer = await this.fetch(method, path, body);
    if (!answer.ok) throw await errorOf(answer);
    return answer;
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {string} [body]
   */
  async fetch(method, path, body) {
    try {
      return await fetch(this.base + path, {
        method, redirect: "error", signal: AbortSignal.timeout(this.timeoutMs), body: body ?? null,
        headers: { ...this.headers, ...(body === undefined ? {} : { "content-type": "application/json" }) },
      });
    } catch (error) {
      throw this.unreachable(error);
    }
  }

  /** @param {unknown} error */
  unreachable(error) {
    const { message, cause } = error instanceof Error ? error : new Error(String(error));
    // Node says in the cause what has happened.
    const why = cause instanceof Error && cause.message ? `${message}: ${cause.message}` : message;
    return new Unreachable(`${this.base}: ${why}`, { cause: error });
  }
}

/**
 * @typedef {object} ServerEvent
 * @property {string} id the last one, "" before there was any
 * @property {string} event
 * @property {string} data
 */

/** Takes a stream of server-sent events apart, however it was cut. */
export class ServerEventParser {
  rest = "";
  id = "";
  event = "";
  /** @type {string[]} */
  data = [];

  /**
   * @param {string} text
   * @returns {Generator<ServerEvent, void, void>}
   */
  *feed(text) {
    this.rest += text;
    for (;;) {
      const found = /\r\n|\n|\r(?!$)/.exec(this.rest);
      if (!found) return;
      const line = this.rest.slice(0, found.index);
      this.rest = this.rest.slice(found.index + found[0].length);
      if (line) this.take(line);
      else {
        const { id, event, data } = this;
        this.event = "";
        this.data = [];
        yield { id, event: event || "message", data: data.join("\n") };
      }
    }
  }

  /** @param {string} line */
  take(line) {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.data.push(value);
    else if (name === "event") this.event = value;
    else if (name === "id" && !value.includes("\0")) this.id = value;
  }
}

/**
 * @param {string | undefined} user
 * @param {string} token
 */
function authorization(user, token) {
  if (user === undefined) return `Bearer ${token}`;
  if (user.includes(":")) throw new TypeError("a user's name has no colon");
  const bytes = new TextEncoder().encode(`${user}:${token}`);
  return `Basic ${btoa(String.fromCharCode(...bytes))}`;
}

/**
 * Positions as bodies (NDJSON) of requests, with the index of the first one.
 * @param {Iterable<Position>} positions
 * @returns {Generator<{first: number, body: string}, void, void>}
 */
function* batches(positions) {
  /** @type {string[]} */
  let lines = [];
  let units = 0, first = 0;
  for (const position of positions) {
    position.id ??= newId();
    const line = JSON.stringify(position.time instanceof Date ? { ...position, time: milliseconds(position.time) } : position);
    if (lines.length && (lines.length === BATCH_POSITIONS || units + line.length > BATCH_UNITS)) {
      yield { first, body: lines.join("\n") };
      first += lines.length;
      lines = [];
      units = 0;
    }
    lines.push(line);
    units += line.length + 1;
  }
  if (lines.length) yield { first, body: lines.join("\n") };
}

function newId() {
  // Not randomUUID, which pages have over https alone.
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** @param {Time} time */
function milliseconds(time) {
  const found = typeof time === "number" ? time : time.getTime();
  if (!Number.isFinite(found)) throw new TypeError(`${time} is no time`);
  return Math.round(found);
}

/** @param {Period} [period] */
function between({ since, until } = {}) {
  return { from: since === undefined ? undefined : milliseconds(since), to: until === undefined ? undefined : milliseconds(until) };
}

/**
 * @param {string} device
 * @param {string} [what]
 * @param {Record<string, string | number | undefined>} [query]
 */
function ofDevice(device, what, query = {}) {
  const path = `/v1/devices/${encodeURIComponent(device)}`;
  return withQuery(what ? `${path}/${what}` : path, query);
}

/**
 * @param {string} path
 * @param {Record<string, string | number | undefined>} query
 */
function withQuery(path, query) {
  const given = Object.entries(query).flatMap(([name, value]) => (value === undefined ? [] : [[name, String(value)]]));
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

/** @param {Response} answer */
function retryAfterMs(answer) {
  const header = answer.headers.get("retry-after") ?? "";
  return /^\d+$/.test(header) ? Number(header) * 1000 : PAUSE_MS;
}

/** @param {Response} answer a refusal */
async function errorOf(answer) {
  const text = await answer.text().catch(() => "");
  let reason;
  try {
    const { error } = JSON.parse(text);
    reason = typeof error === "object" ? error?.message : error;
  } catch { /* it is told as it is */ }
  return new ApiError(answer.status, typeof reason === "string" && reason ? reason : text.trim().slice(0, REASON_CHARACTERS) || "no reason given");
}

/**
 * The points of a track in GeoJSON.
 * @param {{features: {geometry: {type: string, coordinates: any}, properties: Record<string, any>}[]}} track
 * @returns {TrackPoint[]}
 */
function trackPoints({ features }) {
  return features.flatMap(({ geometry, properties }) => {
    const coordinates = geometry.type === "Point" ? [geometry.coordinates] : geometry.coordinates;
    return properties.times.map((/** @type {number} */ time, /** @type {number} */ at) => ({
      time, lat: coordinates[at][1], lon: coordinates[at][0], altitude: coordinates[at][2] ?? null,
      accuracy: properties.accuracies?.[at] ?? null, speed: properties.speeds?.[at] ?? null, course: properties.courses?.[at] ?? null,
    }));
  });
}

/**
 * @param {[west: number, south: number, east: number, north: number]} box west > east across the antimeridian
 * @param {number} lat
 * @param {number} lon
 */
function isWithin([west, south, east, north], lat, lon) {
  return south <= lat && lat <= north && (west <= east ? west <= lon && lon <= east : lon >= west || lon <= east);
}

/**
 * @param {number} ms
 * @param {AbortSignal} [signal] ends it early
 * @returns {Promise<void>}
 */
function sleep(ms, signal) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener("abort", end);
  });
}
