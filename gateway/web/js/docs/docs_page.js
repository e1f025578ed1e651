// The HTTP interface as a page: /openapi.json by Swagger UI. What is tried there is done, in the
// viewer's own session: the browser adds its cookie, and the page has no credentials.

import { byId } from "../dom.js";
import { locale, t } from "../i18n.js";

const root = document.documentElement;

root.lang = locale;
document.title = t("docs.title");
byId("docs-how", "p").textContent = t("docs.how");
// Swagger UI has colours of its own for both themes.
root.classList.toggle("dark-mode", root.dataset.theme === "dark");

globalThis.SwaggerUIBundle({
  url: "/openapi.json",
  domNode: byId("docs", "div"),
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  filter: true,
  validatorUrl: null, // it would ask another machine
  queryConfigEnabled: false, // a link may not lead the page to another document
  persistAuthorization: false,
  onComplete: () => { root.dataset.ready = "true"; },
});
