// The page: ties the store, the live stream, the map and the elements together.

import * as api from "./api.js";
import { DeviceStore } from "./device_store.js";
import { agePhrase } from "./format.js";
import { LiveConnection } from "./live_connection.js";
import { MapView } from "./map_view.js";
import { makeSheet } from "./sheet.js";
import { readState, takeSignInCode, writeState } from "./url_state.js";
import "./elements/svg_icon.js";
import "./elements/connection_dot.js";
import "./elements/device_list.js";
import "./elements/device_panel.js";
import { PipelineReader } from "./elements/pipeline_strip.js";
import "./elements/start_guide.js";
import "./elements/sign_in.js";

const ANNOUNCE_MS = 10000;
const IDENTIFY_AGAIN_MS = 2000;
const element = (id) => document.getElementById(id);
const root = document.documentElement;
const store = new DeviceStore();
const live = new LiveConnection();
const signInCode = takeSignInCode();
const state = readState();
const list = element("list");
const panel = element("device");
const guide = element("guide");
const dot = document.querySelector("connection-dot");
let selected = null;
let wanted = state.device; // named in the URL, but not yet heard of
let listStale = true;
let snapshotTaken = false;
let framed = Boolean(state.view);

const view = new MapView(element("map"), store, { theme: root.dataset.theme, view: state.view });
const hooks = {
  ready: false,
  store, view, live,
  get map() { return view.map; },
  get deviceCount() { return store.size; },
  get updates() { return store.fixCount; },
  get frames() { return view.points.frames; },
  get moving() { return view.map.isMoving() || view.points.gliding; },
  positionOf: (device) => view.positionOf(device),
  select: (device) => select(store.get(device) ?? null),
};
globalThis.waylog = hooks;

// --- what comes in -------------------------------------------------------------------------

const pushTimes = [];

live.addEventListener("message", ({ detail: { kind, data } }) => {
  if (kind === "fix") store.applyFix(data);
  else if (store.applyAddress(data) && data.resolved) {
    const took = Date.now() - (store.get(data.device).received ?? data.resolved);
    if (took >= 0 && took < 60000) pushTimes.push(took);
  }
});
live.addEventListener("opened", () => takeSnapshot());
live.addEventListener("state", ({ detail }) => {
  root.dataset.connection = detail;
  dot.show(detail, live.retryAt);
});
dot.addEventListener("retry", () => live.retryNow());

// --- who is looking ------------------------------------------------------------------------

let session = null;

function askToSignIn(refusal) {
  live.stop();
  element("sign-in").ask(refusal);
}

async function begin(known) {
  session = known;
  const button = element("sign-out-button");
  button.hidden = session.open;
  button.title = session.user ? `Sign out ${session.user}` : "Sign out";
  live.start();
  guide.setPlatform(session, await api.entrances().catch(() => null));
}

/** Sign in by the link that was opened, or go on as whoever has a session here already. */
async function identify() {
  let refusal;
  try {
    if (signInCode) {
      try {
        await begin(await api.signIn({ code: signInCode }));
        return;
      } catch (error) {
        if (!(error instanceof api.SignInRefused)) throw error;
        refusal = error.message;
      }
    }
    await begin(await api.session());
  } catch (error) {
    if (error instanceof api.SignInNeeded) askToSignIn(refusal);
    else setTimeout(identify, IDENTIFY_AGAIN_MS);
  }
}

element("sign-in").addEventListener("signed-in", ({ detail }) => begin(detail));
element("sign-out-button").addEventListener("click", async () => {
  await api.signOut();
  location.reload();
});
// A session may end, by a revocation as well, while the page is open.
live.addEventListener("refused", () => {
  api.session().catch((error) => { if (error instanceof api.SignInNeeded) askToSignIn(); });
});

// Everything known so far, and again after each interruption: what was missed is in it.
async function takeSnapshot() {
  try {
    for (const row of await api.devices()) store.applyRow(row);
    snapshotTaken = true;
  } catch (error) {
    if (error instanceof api.SignInNeeded) askToSignIn();
  }
  guide.setEmpty(snapshotTaken && store.size === 0);
  listStale = true;
}

store.onFix = (record) => {
  listStale = true;
  if (record === selected) {
    panel.moved(record);
    if (following()) view.follow(record);
  } else if (record.device === wanted) select(record, { fly: !framed });
};
store.onAddress = (record) => {
  listStale = true;
  if (record === selected) {
    panel.refresh();
    announce(`${record.name}: ${record.address.display_name}`);
  }
};

// --- selection -----------------------------------------------------------------------------

function select(record, { fly = true } = {}) {
  if (record === selected) {
    if (record && fly) view.focus(record);
    return;
  }
  selected = record;
  wanted = null;
  if (record) document.body.dataset.device = record.device;
  else delete document.body.dataset.device;
  view.setDetails({ track: null, accuracy: null, places: [] });
  list.select(record);
  panel.show(record, state.track);
  view.points.select(record);
  if (!record) setFollowing(false);
  else if (fly) view.focus(record);
  if (record) announce(`${record.name}, ${agePhrase((Date.now() - record.time) / 1000)}${record.address ? `, ${record.address.display_name}` : ""}`, true);
  remember();
}

const following = () => state.follow;

function setFollowing(on) {
  state.follow = on;
  panel.setFollow(on);
  if (on && selected) view.focus(selected);
  remember();
}

list.addEventListener("pick", ({ detail }) => select(detail));
list.addEventListener("filter", ({ detail }) => {
  view.points.setFilter(detail);
  state.query = list.query;
  remember();
});
list.addEventListener("place", ({ detail }) => {
  setFollowing(false);
  view.show(detail);
});
panel.addEventListener("close", () => select(null));
panel.addEventListener("follow", ({ detail }) => setFollowing(detail));
panel.addEventListener("range", ({ detail }) => { state.track = detail; remember(); });
panel.addEventListener("details", ({ detail }) => view.setDetails(detail));
panel.addEventListener("focus-map", ({ detail }) => view.fly({ center: [detail.lon, detail.lat], zoom: Math.max(view.map.getZoom(), 14), offset: view.freeCentre() }));
view.addEventListener("pick", ({ detail }) => select(detail, { fly: false }));
view.addEventListener("dragged", () => { if (following()) setFollowing(false); });
view.addEventListener("moved", () => remember());

const tooltip = element("tooltip");
view.addEventListener("hover", ({ detail: { record, point } }) => {
  tooltip.hidden = !record;
  if (!record) return;
  tooltip.replaceChildren(Object.assign(document.createElement("b"), { textContent: record.name }),
    ` ${agePhrase((Date.now() - record.time) / 1000)}`);
  tooltip.style.transform = `translate(${Math.round(point.x + 14)}px, ${Math.round(point.y - 34)}px)`;
});

// --- buttons and keys ----------------------------------------------------------------------

element("zoom-in").addEventListener("click", () => view.map?.zoomIn());
element("zoom-out").addEventListener("click", () => view.map?.zoomOut());
element("fit").addEventListener("click", () => { setFollowing(false); view.fit(list.shown); });
element("guide-button").addEventListener("click", () => guide.open());
element("theme-button").addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark", true));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", ({ matches }) => {
  let chosen = null;
  try { chosen = localStorage.getItem("waylog.theme"); } catch { /* storage is switched off */ }
  if (!chosen) setTheme(matches ? "dark" : "light", false);
});

function setTheme(theme, keep) {
  root.dataset.theme = theme;
  if (keep) { try { localStorage.setItem("waylog.theme", theme); } catch { /* for this visit only */ } }
  view.setTheme(theme);
  panel.drawChart();
}

addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "Escape" && !document.querySelector("dialog:modal")) {
    if (typing) event.target.blur();
    else if (selected) select(null);
  } else if (event.key === "/" && !typing) {
    event.preventDefault();
    list.search.focus();
  }
});
makeSheet([{ panel: element("panel"), handle: element("handle") }, { panel, handle: panel.handle }]);

// --- the clock of the page -----------------------------------------------------------------

let rememberTimer;
function remember() {
  clearTimeout(rememberTimer);
  rememberTimer = setTimeout(() => {
    if (!view.map) return;
    writeState({ view: view.view(), device: selected?.device ?? wanted, track: state.track, follow: state.follow, query: state.query });
  }, 200);
}

let announcedAt = 0;
function announce(text, atOnce = false) {
  const now = Date.now();
  if (!atOnce && now - announcedAt < ANNOUNCE_MS) return;
  announcedAt = now;
  element("announce").textContent = text;
}

/** Positions go to the map with each frame: any number of fixes costs one upload. */
function frame() {
  view.points.update();
  requestAnimationFrame(frame);
}

let listDrawn = 0;
setInterval(() => {
  if (document.hidden) return;
  root.dataset.devices = String(store.size);
  if (!framed && view.map && snapshotTaken && store.size) {
    framed = true;
    if (!selected) view.fit(store.records, false);
  }
  if (guide.empty && store.size) guide.setEmpty(false);
  const now = performance.now();
  // Thousands of rows are sorted once a second, a handful as soon as something changes.
  if ((listStale && (store.size < 500 || now - listDrawn > 1000)) || now - listDrawn > 1000) {
    list.refresh();
    panel.refresh();
    listStale = false;
    listDrawn = now;
  }
}, 250);

const reader = new PipelineReader();
async function pollPipeline() {
  if (!document.hidden && live.state === "live" && session?.oversees) {
    try {
      const body = await api.pipeline();
      if (body) {
        const figures = reader.read(body);
        pushTimes.sort((a, b) => a - b);
        const push = pushTimes.length ? pushTimes[pushTimes.length >> 1] : undefined;
        pushTimes.length = 0;
        element("pipeline").show({ ...figures, push });
      }
    } catch { /* the connection dot says what there is to say */ }
  }
  setTimeout(pollPipeline, 1000);
}

async function main() {
  list.setStore(store);
  if (state.query) list.setQuery(state.query);
  identify();
  pollPipeline();
  await view.ready;
  requestAnimationFrame(frame);
  if (wanted && store.get(wanted)) select(store.get(wanted), { fly: !framed });
  hooks.ready = true;
  root.dataset.ready = "true";
}

main().catch((error) => {
  root.dataset.failed = "true";
  element("map").textContent = `The map could not start: ${error.message}`;
  console.error(error);
});
