// The state of the page in the URL's fragment, so that a view can be kept and shared:
// #5.20/47.1410/9.5209&device=demo/phone&track=6h

/** The code of a one-time link, #sign-in=CODE, which is taken out of the URL at once; null without. */
export function takeSignInCode() {
  const found = location.hash.match(/^#sign-in=([^&]+)&?/);
  if (!found) return null;
  const rest = location.hash.slice(found[0].length);
  history.replaceState(null, "", `${location.pathname}${location.search}${rest ? `#${rest}` : ""}`);
  return found[1];
}

export function readState(fragment = location.hash) {
  const state = { view: null, device: null, track: null, follow: false, query: "" };
  for (const [index, part] of fragment.replace(/^#/, "").split("&").entries()) {
    if (index === 0 && part.split("/").length === 3 && !part.includes("=")) {
      const [zoom, lat, lon] = part.split("/").map(Number);
      if ([zoom, lat, lon].every(Number.isFinite)) state.view = { zoom, lat, lon };
      continue;
    }
    const [key, value = ""] = part.split("=");
    let text;
    try { text = decodeURIComponent(value); } catch { continue; }
    if (key === "device") state.device = text || null;
    else if (key === "track") state.track = text || null;
    else if (key === "follow") state.follow = text === "1";
    else if (key === "q") state.query = text;
  }
  return state;
}

export function writeState({ view, device, track, follow, query }) {
  const text = (value) => encodeURIComponent(value).replaceAll("%2F", "/");
  const parts = [];
  if (view) parts.push(`${view.zoom.toFixed(2)}/${view.lat.toFixed(4)}/${view.lon.toFixed(4)}`);
  if (device) parts.push(`device=${text(device)}`);
  if (device && track) parts.push(`track=${text(track)}`);
  if (device && follow) parts.push("follow=1");
  if (query) parts.push(`q=${text(query)}`);
  history.replaceState(null, "", `${location.pathname}${location.search}#${parts.join("&")}`);
}
