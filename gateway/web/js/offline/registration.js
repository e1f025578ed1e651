// The service worker of the page: one for the whole site, since a browser has one for each scope.

import * as api from "../api.js";
import { language } from "../i18n.js";

/** Where versions before had a worker of its own for Web Push. */
const FORMER_SCOPE = "/static/js/";

/**
 * Register the worker. Browsers have none on plain http, localhost excepted, and the page needs none.
 * @returns {Promise<ServiceWorkerRegistration | null>}
 */
export async function registerWorker() {
  // Without a version the page does not come from a gateway that has the worker.
  if (!("serviceWorker" in navigator) || !document.documentElement.dataset.shell) return null;
  try {
    const made = await navigator.serviceWorker.register(`/service-worker.js?${new URLSearchParams({ language })}`, { updateViaCache: "none" });
    // A browser looks for another version at its leisure; this page may be of one.
    made.update().catch(() => { /* the gateway has gone */ });
    return made;
  } catch {
    return null; // storage is switched off, or the gateway is an older one
  }
}

/** Load the page anew if the gateway has another version of it by now: files of this one may be gone. */
export async function reloadIfUpgraded() {
  const own = document.documentElement.dataset.shell;
  if (!own) return;
  const answer = await fetch("/", { cache: "no-store" });
  if (answer.ok && !(await answer.text()).includes(`data-shell="${own}"`)) location.reload();
}

/** The worker once it can take pushes; null where there is none. */
export async function activeWorker() {
  return (await registerWorker()) && navigator.serviceWorker.ready;
}

/** Let the one worker have what the former worker of Web Push was subscribed to. */
export async function adoptFormerSubscription() {
  if (!("serviceWorker" in navigator)) return;
  const former = await navigator.serviceWorker.getRegistration(FORMER_SCOPE);
  if (former?.scope !== new URL(FORMER_SCOPE, location.origin).href) return;
  const subscription = await former.pushManager?.getSubscription();
  const key = subscription && await api.pushKey().catch(() => null);
  if (key) {
    const worker = await activeWorker();
    if (!worker) return;
    await api.subscribeToPush(await worker.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key }));
    await subscription.unsubscribe();
  }
  await former.unregister();
}
