// Shows what Web Push brings while the page is closed. A service worker: it runs apart from the page.
// @ts-nocheck: its global scope is another one than the page's.

const language = new URLSearchParams(self.location.search).get("language") === "de" ? "de" : "en";
const TEXTS = fetch(`../locales/${language}.json`).then((answer) => answer.json()).catch(() => ({}));

const KEYS = {
  enter: "event.enter", leave: "event.leave", dwell: "event.dwell", silence: "event.silence", speeding: "event.speeding", arrival: "event.arrival",
};

self.addEventListener("push", (event) => event.waitUntil(show(event.data)));

async function show(data) {
  let message = {};
  try { message = data.json(); } catch { /* shown without words: a push has to show something */ }
  const texts = await TEXTS;
  const kind = message.transition ?? message.type;
  const words = { device: String(message.device ?? "").split("/").slice(1).join("/"), zone: message.fence ?? message.place ?? "" };
  const text = (texts[KEYS[kind]] ?? "{device} {zone}").replace(/\{(\w+)\}/g, (_, name) => words[name] ?? "");
  await self.registration.showNotification("Waylog", { body: text.trim(), tag: `${message.device} ${kind} ${words.zone}`, icon: "/static/icon.svg" });
}

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(self.clients.openWindow("/#view=places&zone=all"));
});
