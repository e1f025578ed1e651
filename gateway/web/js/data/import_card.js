// One import as a card: how far it is, what became of each file, and what can be done with it.

import { make } from "../dom.js";
import { dayRange, moment, number, percent } from "../format.js";
import { t } from "../i18n.js";
import { bytes } from "./bytes.js";

/** @import { ImportedFile, OwnImport } from "../types/api.js" */

const FILES_SHOWN = 20;

/**
 * What can be done with an import, by a name.
 * @typedef {{run: () => void, go_on: () => void, undo: () => void, forget: () => void, diary: () => void}} Actions
 */

/** @param {OwnImport} found */
export function isRunning({ state }) {
  return state === "waiting" || state === "reading" || state === "storing";
}

/** @param {OwnImport} found */
export function isUploaded({ files }) {
  return files.every((file) => file.received === file.bytes);
}

/**
 * @param {OwnImport} found
 * @param {number | null} sent bytes that this page has uploaded; null: it does not upload
 * @param {Actions} actions
 */
export function importCard(found, sent, actions) {
  const name = found.device.slice(found.device.indexOf("/") + 1);
  const share = progressOf(found, sent);
  const bar = make("progress", { max: "100", "aria-label": t("import.progress", { device: name }), ...(share === null ? {} : { value: String(Math.round(share * 100)) }) });
  const buttons = make("div", { className: "actions" });
  const act = (/** @type {string} */ key, /** @type {string} */ text, /** @type {() => void} */ does, danger = false) => {
    const button = make("button", { type: "button", className: "plain", text, "data-key": `${key} ${found.id}`, "aria-label": `${text}: ${name}` });
    button.classList.toggle("danger", danger);
    button.addEventListener("click", does);
    buttons.append(button);
  };
  if (found.state === "done" && found.stored) act("diary", t("import.diary"), actions.diary);
  if (sent === null && found.state === "uploading") act("go", t("import.go_on"), isUploaded(found) ? actions.run : actions.go_on);
  if (found.state === "interrupted" || found.state === "failed") act("run", t("import.again"), actions.run);
  if (found.undoable) act("undo", isRunning(found) || !found.stored ? t("import.cancel") : t("import.undo"), actions.undo, true);
  if (found.stored && !isRunning(found)) act("forget", t("import.forget"), actions.forget);
  else if (!found.undoable) act("forget", t("import.stop"), actions.forget);
  return make("li", { className: `import ${found.state}`, "data-import": found.id },
    make("h2", { text: name }),
    make("p", { className: "state", text: stateOf(found, sent) }),
    (sent !== null || isRunning(found)) && bar,
    found.reason && make("p", { className: found.state === "failed" ? "refusal" : "hint", text: found.reason }),
    found.from !== null && found.to !== null && make("p", { className: "hint", text: dayRange(found.from, found.to) }),
    Object.keys(found.refused).length > 0 && reasons(found.refused),
    make("details", { "data-key": `files ${found.id}` }, make("summary", { text: t("import.files", { count: found.files.length }) }),
      make("ul", { className: "files" }, ...found.files.slice(0, FILES_SHOWN).map(fileItem),
        found.files.length > FILES_SHOWN && make("li", { text: t("import.more_files", { count: found.files.length - FILES_SHOWN }) }))),
    found.undo_refusal && !isRunning(found) && make("p", { className: "hint", text: found.undo_refusal }),
    buttons);
}

/**
 * @param {OwnImport} found
 * @param {number | null} sent
 * @returns {number | null} null: nobody knows
 */
function progressOf(found, sent) {
  const all = found.files.reduce((sum, file) => sum + file.bytes, 0);
  if (sent !== null) return all ? sent / all : 1;
  if (found.state === "storing") return found.found ? found.stored / found.found : null;
  if (found.state === "reading" && found.of_bytes) return Math.min(1, found.read_bytes / found.of_bytes);
  return null;
}

/**
 * @param {OwnImport} found
 * @param {number | null} sent
 */
function stateOf(found, sent) {
  const all = found.files.reduce((sum, file) => sum + file.bytes, 0);
  if (sent !== null) return t("import.sending", { sent: bytes(sent), all: bytes(all), percent: percent(all ? 100 * sent / all : 100) });
  switch (found.state) {
    case "uploading": return isUploaded(found) ? t("import.uploaded") : t("import.part_uploaded");
    case "waiting": return t("import.waiting");
    case "reading": return t("import.reading", { count: found.found, shown: number(found.found) });
    case "storing": return t("import.storing", { stored: number(found.stored), all: number(found.found) });
    case "interrupted": return t("import.interrupted");
    case "failed": return t("import.failed");
    default: return found.stored ? t("import.done", { count: found.stored, shown: number(found.stored), time: moment(found.finished ?? found.created) }) : t("import.nothing");
  }
}

/** @param {ImportedFile} file */
function fileItem(file) {
  return make("li", {}, make("span", { className: "name", text: file.name }),
    make("span", { className: "size", text: bytes(file.bytes) }),
    file.fixes > 0 && make("span", { className: "found", text: t("import.positions", { count: file.fixes, shown: number(file.fixes) }) }),
    Object.keys(file.skipped).length > 0 && reasons(file.skipped),
    file.damage.length > 0 && make("ul", { className: "refused" }, ...file.damage.map((text) => make("li", { text }))));
}

/** @param {Record<string, number>} found how often for which reason */
function reasons(found) {
  return make("ul", { className: "skipped" }, ...Object.entries(found).map(([reason, times]) => (
    make("li", { text: t("import.left_out", { count: times, shown: number(times), reason }) }))));
}
