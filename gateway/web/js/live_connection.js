// The live stream: WebSocket, or server-sent events where something between refuses WebSockets.
// After a loss it comes back: 1 s, doubling to 30 s, with jitter so that viewers do not return as one.

/** @typedef {"connecting" | "live" | "lost"} ConnectionState */
/**
 * @typedef {object} Look
 * @property {[number, number, number, number]} bbox west, south, east, north
 * @property {number} zoom
 * @property {string[]} devices that are shown wherever they are
 */

const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 30000;
const PING_MS = 20000;
const SILENCE_MS = 45000;

export class LiveConnection extends EventTarget {
  /**
   * @param {() => number} [random]
   * @param {{path: string, headers: Record<string, string>}} [events] server-sent events from there alone
   */
  constructor(random = Math.random, events) {
    super();
    this.events = events;
    /** @type {ConnectionState} */
    this.state = "connecting";
    /** @type {number | null} when the next attempt is made, ms */
    this.retryAt = null;
    /** @type {number | undefined} */
    this.timer = undefined;
    this.random = random;
    this.losses = 0;
    this.socketRefusals = 0;
    this.stopped = false;
    /** @type {Look | null} what part of the map is looked at; null for all devices as they come */
    this.area = null;
    /** @type {WebSocket | null} while it is open */
    this.socket = null;
    /** Close what is open. */
    this.close = () => {};
    addEventListener("online", () => this.retryNow());
  }

  /** Events: `state` (detail: connecting, live, lost), `opened`, `refused`, `narrowed`, `message` (detail: kind, data),
   * `frame` (detail: bytes of the map by area). */
  start() {
    this.stopped = false;
    this.connect();
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
    this.close();
  }

  /** Do not wait for the rest of the pause. */
  retryNow() {
    if (this.state === "live" || this.stopped) return;
    clearTimeout(this.timer);
    this.close();
    this.connect();
  }

  connect() {
    this.setState(this.losses ? "lost" : "connecting");
    if (this.events || this.socketRefusals >= 2) this.connectEvents();
    else this.connectSocket();
  }

  /**
   * @param {ConnectionState} state
   * @param {number | null} [retryAt]
   */
  setState(state, retryAt = null) {
    this.retryAt = retryAt;
    this.state = state;
    this.dispatchEvent(new CustomEvent("state", { detail: state }));
  }

  opened() {
    this.losses = 0;
    this.setState("live");
    this.dispatchEvent(new Event("opened"));
  }

  lost() {
    if (this.stopped) return;
    const wait = Math.min(FIRST_WAIT_MS * 2 ** this.losses, LONGEST_WAIT_MS) * (0.5 + this.random() / 2);
    this.losses += 1;
    this.setState("lost", Date.now() + wait);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.connect(), wait);
  }

  /**
   * Look at a part of the map alone: frames come in place of messages. Needs the socket.
   * @param {Look | null} area null for messages of all devices
   */
  look(area) {
    const began = Boolean(area) !== Boolean(this.area);
    this.area = area;
    const { socket } = this;
    if (!socket) return;
    if (!area) socket.send(JSON.stringify({ type: "view" }));
    if (began) this.listen(socket);
    if (area) socket.send(JSON.stringify({ type: "view", ...area }));
  }

  /** @param {WebSocket} socket */
  listen(socket) {
    socket.send(JSON.stringify(this.area ? { type: "unsubscribe" }
      : { type: "subscribe", topics: ["location", "address"], batch: true }));
  }

  connectSocket() {
    const url = new URL("/v1/ws", location.href);
    url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(url);
    socket.binaryType = "arraybuffer";
    let wasOpen = false;
    let ended = false;
    /** @type {number | undefined} */
    let watchdog;
    const ping = setInterval(() => { if (wasOpen) socket.send('{"type":"ping"}'); }, PING_MS);
    // A connection can die without a word, as when a laptop wakes up elsewhere.
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => { socket.close(); end(); }, SILENCE_MS);
    };
    const quiet = () => { clearTimeout(watchdog); clearInterval(ping); };
    const end = () => {
      if (ended) return;
      ended = true;
      this.socket = null;
      quiet();
      if (!wasOpen) {
        this.socketRefusals += 1;
        this.dispatchEvent(new Event("refused"));
      }
      this.lost();
    };
    this.close = () => { ended = true; this.socket = null; quiet(); socket.close(); };
    socket.onopen = () => {
      wasOpen = true;
      this.socketRefusals = 0;
      this.socket = socket;
      this.listen(socket);
      if (this.area) socket.send(JSON.stringify({ type: "view", ...this.area }));
      alive();
      this.opened();
    };
    socket.onmessage = (event) => {
      alive();
      if (ended) return;
      if (typeof event.data === "string") this.receive(event.data);
      else this.dispatchEvent(new CustomEvent("frame", { detail: event.data }));
    };
    socket.onclose = end;
    socket.onerror = end;
  }

  async connectEvents() {
    const control = new AbortController();
    /** @type {number | undefined} */
    let watchdog;
    let ended = false;
    this.close = () => { ended = true; control.abort(); };
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => control.abort(), SILENCE_MS);
    };
    try {
      alive();
      const path = this.events?.path ?? "/v1/stream";
      const answer = await fetch(path, {
        headers: { accept: "text/event-stream", ...this.events?.headers }, signal: control.signal, cache: "no-store",
      });
      if (answer.status === 401 || answer.status === 404) this.dispatchEvent(new Event("refused"));
      if (!answer.ok || !answer.body) throw new Error(`${path}: ${answer.status}`);
      this.opened();
      const parser = new EventParser((kind, data) => this.receive(data, kind));
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        alive();
        parser.feed(value);
      }
    } catch { /* a loss like any other */ } finally {
      clearTimeout(watchdog);
      if (!ended) this.lost();
    }
  }

  /**
   * @param {string} text
   * @param {string | null} [kind]
   */
  receive(text, kind = null) {
    let data;
    try { data = JSON.parse(text); } catch { return; }
    if ((kind ?? data?.type) === "narrowed") this.dispatchEvent(new Event("narrowed"));
    for (const [found, content] of classify(data, kind)) {
      this.dispatchEvent(new CustomEvent("message", { detail: { kind: found, data: content } }));
    }
  }
}

/**
 * What a message is: pairs of "fix" or "address" with the Fix or Address itself.
 * @param {any} data
 * @param {string | null} [kind]
 * @returns {Generator<["fix" | "address", any]>}
 */
export function* classify(data, kind = null) {
  if (Array.isArray(data)) {
    for (const one of data) yield* classify(one, kind);
    return;
  }
  if (data === null || typeof data !== "object") return;
  const said = kind ?? data.event ?? data.type ?? data.topic;
  const inner = data.data ?? data.fix ?? data.address_record ?? data.value;
  if (inner && typeof inner === "object") {
    yield* classify(inner, said);
    return;
  }
  for (const several of ["fixes", "addresses"]) {
    if (Array.isArray(data[several])) yield* classify(data[several], several === "fixes" ? "fix" : "address");
  }
  if (typeof data.device !== "string") return;
  if (typeof data.display_name === "string") yield ["address", data];
  else if (Number.isFinite(data.lat)) yield ["fix", data];
}

/** Cuts a text stream into server-sent events (WHATWG HTML, section 9.2.6). */
export class EventParser {
  /** @param {(kind: string, data: string) => void} deliver */
  constructor(deliver) {
    this.deliver = deliver;
    this.rest = "";
    this.kind = "message";
    /** @type {string[]} */
    this.lines = [];
  }

  /** @param {string} text */
  feed(text) {
    this.rest += text;
    const lines = this.rest.split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") {
        if (this.lines.length) this.deliver(this.kind, this.lines.join("\n"));
        this.kind = "message";
        this.lines = [];
        continue;
      }
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "data") this.lines.push(value);
      else if (field === "event") this.kind = value;
    }
  }
}
