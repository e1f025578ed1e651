// What the pages of operations are made of: tables, figures, values of records.

import { make } from "../dom.js";
import { number } from "../format.js";
import { t } from "../i18n.js";

/** @import { Value } from "../types/operations.js" */
/** @typedef {string | number | Node | null | undefined} Cell */

const KIBIBYTE = 1024;

/**
 * "812 B", "3.4 MiB"; a dash where it is not known.
 * @param {number | null | undefined} value
 */
export function bytes(value) {
  if (value === null || value === undefined || value < 0) return "–";
  const units = [t("unit.byte"), t("unit.kibibyte"), t("unit.mebibyte"), t("unit.gibibyte"), t("unit.tebibyte")];
  let size = value;
  let index = 0;
  while (size >= KIBIBYTE && index < units.length - 1) { size /= KIBIBYTE; index += 1; }
  return `${number(size, index && size < 100 ? 1 : 0)} ${units[index]}`;
}

/**
 * A table in a box that scrolls, by the keyboard too. The first cell of a row names it.
 * @param {string} caption
 * @param {string[]} heads
 * @param {Cell[][]} rows
 * @param {{numeric?: number[]}} [options] the columns of numbers
 */
export function table(caption, heads, rows, { numeric = [] } = {}) {
  if (!rows.length) return make("p", { className: "none", text: t("operations.nothing") });
  const isNumeric = new Set(numeric);
  const head = make("tr", {}, ...heads.map((text, index) => make("th", { scope: "col", text, className: isNumeric.has(index) ? "number" : "" })));
  const body = rows.map((row) => make("tr", {}, ...row.map((cell, index) => {
    const element = index === 0 ? make("th", { scope: "row" }) : make("td");
    if (isNumeric.has(index)) element.classList.add("number");
    element.append(cell instanceof Node ? cell : typeof cell === "number" ? number(cell) : cell ?? "–");
    return element;
  })));
  return make("div", { className: "operations-table", role: "region", tabindex: "0", "aria-label": caption },
    make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
}

/**
 * @param {string} text
 * @param {() => void} does
 * @param {{className?: string, label?: string}} [options]
 */
export function button(text, does, { className = "plain", label } = {}) {
  const made = make("button", { type: "button", className, text, "aria-label": label });
  made.addEventListener("click", does);
  return made;
}

/**
 * A part of a page with its heading.
 * @param {string} title
 * @param {...(Node | false | null)} children
 */
export function section(title, ...children) {
  return make("section", {}, make("h3", { text: title }), ...children);
}

/**
 * @param {string} title
 * @param {HTMLElement} field
 */
export function labelled(title, field) {
  return make("label", {}, make("span", { text: title }), field);
}

/**
 * Names and values.
 * @param {[title: string, value: string][]} pairs
 */
export function facts(pairs) {
  return make("dl", { className: "operations-facts" }, ...pairs.map(([title, value]) => make("div", {}, make("dt", { text: title }), make("dd", { text: value }))));
}

/** @type {Record<Value["kind"], string>} */
const KINDS = {
  null: t("operations.kind_null"), json: t("operations.kind_json"), text: t("operations.kind_text"),
  schema: t("operations.kind_schema"), bytes: t("operations.kind_bytes"), sealed: t("operations.kind_sealed"),
};

/** @param {Value} value in one line */
export function brief(value) {
  if (value.kind === "null" || value.kind === "sealed" || !value.text) return KINDS[value.kind];
  const first = value.kind === "bytes" ? value.text.slice(10, 57) : value.text;
  return first.length > 120 ? `${first.slice(0, 120)}…` : first;
}

/** @param {Value} value with all that came of it */
export function whole(value) {
  const size = value.kind === "null" ? "" : ` · ${bytes(value.bytes ?? 0)}`;
  const about = `${KINDS[value.kind]}${size}${value.cut ? ` · ${t("operations.cut")}` : ""}${value.note ? ` · ${value.note}` : ""}`;
  return make("div", { className: "operations-value" }, make("p", { text: about }),
    value.text ? make("pre", { tabindex: "0", text: laidOut(value) }) : null);
}

/** @param {Value} value */
function laidOut({ kind, text = "", cut }) {
  if (cut || (kind !== "json" && kind !== "schema")) return text;
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}
