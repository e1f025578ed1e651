// Before the first paint, so that a dark page never flashes white. A classic script of its own:
// the content security policy allows no inline code.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("waylog.theme"); } catch { /* storage is switched off */ }
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
