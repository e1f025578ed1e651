// Keeps the shell of the page, so that the page opens while the gateway cannot be reached, and shows
// what Web Push brings while the page is closed. It keeps nothing of a user: the page does that.
// The gateway puts `const SHELL`, the version and the files' SHA-256, before the first line.
// @ts-nocheck: its global scope is another one than the page's.

const PREFIX = "waylog-shell-";
const OWN = PREFIX + SHELL.version;
/** The shell before this one stays: a page of it may still be open. */
const SHELLS_MAX = 2;
const FETCHED_AT_ONCE = 6;
const NAVIGATION_MS = 6000;
/** What a proxy answers while the gateway behind it is down. */
const UNREACHABLE = [502, 503, 504];

self.addEventListener("install", (event) => event.waitUntil(install()));
self.addEventListener("activate", (event) => event.waitUntil(forgetOlder()));
self.addEventListener("fetch", (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method !== "GET" || url.origin !== location.origin) return;
  if (request.mode === "navigate" && url.pathname === "/" && !url.search) event.respondWith(page(request));
  else if (url.pathname.startsWith("/static/v-")) event.respondWith(file(request));
});

/** All files or none: a file of another version has another hash, and the browser tries again later. */
async function install() {
  try {
    const cache = await caches.open(OWN);
    const waiting = Object.entries(SHELL.files);
    const work = async () => {
      for (let next = waiting.pop(); next; next = waiting.pop()) await keep(cache, ...next);
    };
    await Promise.all(Array.from({ length: FETCHED_AT_ONCE }, work));
  } catch (error) {
    await caches.delete(OWN);
    throw error;
  }
  await self.skipWaiting();
}

async function keep(cache, path, expected) {
  const answer = await fetch(path, { cache: "no-cache", credentials: "same-origin" });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  const copy = answer.clone();
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", await answer.arrayBuffer()));
  const found = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  if (found !== expected) throw new Error(`${path}: another version`);
  await cache.put(path, copy);
}

async function forgetOlder() {
  const names = (await caches.keys()).filter((name) => name.startsWith(PREFIX) && name !== OWN);
  const older = names.slice(0, Math.max(0, names.length - (SHELLS_MAX - 1)));
  await Promise.all(older.map((name) => caches.delete(name)));
}

/** The page as the gateway has it, so that an upgrade is taken at once; as it was kept where there is no gateway. */
async function page(request) {
  const asked = fetch(request);
  asked.catch(() => {});
  const late = new Promise((resolve) => { setTimeout(resolve, NAVIGATION_MS); });
  try {
    const answer = await Promise.race([asked, late]);
    if (answer && !UNREACHABLE.includes(answer.status)) return answer;
  } catch { /* there is no gateway */ }
  return (await caches.match("/", { cacheName: OWN })) ?? asked;
}

/** The version in the URL says which shell it is of. */
async function file(request) {
  return (await caches.match(request.url)) ?? fetch(request);
}

const LANGUAGES = ["en", "de"];
const KEYS = {
  enter: "event.enter", leave: "event.leave", dwell: "event.dwell", silence: "event.silence", speeding: "event.speeding", arrival: "event.arrival",
  friend_request: "friends.asks_you",
};

self.addEventListener("push", (event) => event.waitUntil(show(event.data)));

async function texts() {
  const wanted = new URLSearchParams(location.search).get("language");
  const language = LANGUAGES.includes(wanted) ? wanted : LANGUAGES[0];
  const path = `/static/${SHELL.version}/locales/${language}.json`;
  try {
    return await ((await caches.match(path)) ?? await fetch(path)).json();
  } catch {
    return {};
  }
}

async function show(data) {
  let message = {};
  try { message = data.json(); } catch { /* shown without words: a push has to show something */ }
  const catalogue = await texts();
  const kind = message.transition ?? message.type;
  const words = { device: String(message.device ?? "").split("/").slice(1).join("/"), zone: message.fence ?? message.place ?? "", user: message.user ?? "" };
  const text = (catalogue[KEYS[kind]] ?? "{device} {zone}").replace(/\{(\w+)\}/g, (_, name) => words[name] ?? "");
  await self.registration.showNotification("Waylog", { body: text.trim(), tag: `${message.device ?? words.user} ${kind} ${words.zone}`, icon: "/static/icons/192.png" });
}

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(self.clients.openWindow("/#view=places&zone=all"));
});
