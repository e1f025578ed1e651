// Before the first paint, so that a dark page never flashes white. A classic script of its own:
// the content security policy allows no inline code.
(() => {
  let chosen = "auto";
  try { chosen = JSON.parse(localStorage.getItem("waylog.settings") ?? "{}").theme ?? "auto"; } catch { /* storage is switched off */ }
  const dark = chosen === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : chosen === "dark";
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
