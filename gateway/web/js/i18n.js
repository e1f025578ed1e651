// The texts of the page in the viewer's language, from a catalogue of locales/. A module that
// imports this one runs once the catalogue is there.

import { settings } from "./settings.js";

/** @typedef {keyof typeof import("../locales/en.json")} Key */
/** @typedef {string | Partial<Record<Intl.LDMLPluralRule, string>>} Message plural forms are chosen by the value `count` */

/** Each language in its own words; a catalogue locales/CODE.json belongs to each. */
export const LANGUAGES = { en: "English", de: "Deutsch" };

/**
 * The first language of a list that has a catalogue.
 * @param {readonly string[]} wanted
 * @returns {string}
 */
export function bestLanguage(wanted) {
  for (const tag of wanted) {
    const [code = ""] = tag.toLowerCase().split("-");
    if (code in LANGUAGES) return code;
  }
  return "en";
}

const wanted = settings.current.language === "auto" ? navigator.languages : [settings.current.language];

/** The language of the texts. */
export const language = bestLanguage(wanted);

/** How numbers and dates are written: as in the browser's region where that speaks the language. */
export const locale = navigator.languages.find((tag) => tag.toLowerCase().split("-")[0] === language) ?? language;

/** @type {Record<string, Message>} */
const catalogue = await load(language);
const plurals = new Intl.PluralRules(locale);

/** @param {string} code */
async function load(code) {
  const answer = await fetch(new URL(`../locales/${code}.json`, import.meta.url));
  if (!answer.ok) throw new Error(`locales/${code}.json: ${answer.status}`);
  return answer.json();
}

/**
 * The text of a key; `{name}` in it becomes the value of that name.
 * @param {Key} key
 * @param {Record<string, string | number> & {count?: number, shown?: string}} [values] `count` chooses the
 *   plural form, and is written as `shown` where that is given
 * @returns {string}
 */
export function t(key, values = {}) {
  const message = catalogue[key] ?? key;
  const text = typeof message === "string" ? message
    : message[plurals.select(values.count ?? 0)] ?? message.other ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => {
    const value = name === "count" && values.shown !== undefined ? values.shown : values[name];
    return value === undefined ? whole : typeof value === "number" ? value.toLocaleString(locale) : value;
  });
}

/**
 * Write the texts that the page's own markup asks for: `data-text`, `data-label` (the accessible
 * name) and `data-title` (the same, as a tooltip too) name keys.
 * @param {ParentNode} root
 */
export function translate(root) {
  for (const element of root.querySelectorAll("[data-text], [data-label], [data-title]")) {
    const { text, label, title } = /** @type {HTMLElement} */ (element).dataset;
    if (text) element.textContent = t(/** @type {Key} */ (text));
    if (label ?? title) element.setAttribute("aria-label", t(/** @type {Key} */ (label ?? title)));
    if (title) element.setAttribute("title", t(/** @type {Key} */ (title)));
  }
}
