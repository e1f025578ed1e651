// Files of tracks, dropped or chosen, become positions of a device: uploaded, read, undone.

import { attempt, complain } from "../complaints.js";
import { drawAnew, make, setText } from "../dom.js";
import { t } from "../i18n.js";
import { bytes } from "./bytes.js";
import { announceImport, forgetImport, imports, runImport, undoImport } from "./data_api.js";
import { importCard, isRunning } from "./import_card.js";
import { droppedFiles, upload } from "./upload.js";

/** @import { OwnImport } from "../types/api.js" */
/** @import { ChosenFile } from "./upload.js" */

const POLL_MS = 1000;
const FILES_MAX = 1000;
const FILES_SHOWN = 8;

export class ImportPanel extends HTMLElement {
  /** Events: `announce` (detail: a text for screen readers), `diary` (detail: {device, from}). */
  /** @type {OwnImport[]} */
  imports = [];
  /** @type {ChosenFile[]} */
  chosen = [];
  /** @type {OwnImport | null} whose missing files are being chosen */
  continued = null;
  /** @type {Map<string, {sent: number, abort: AbortController}>} what this page uploads, by import */
  uploads = new Map();
  /** @type {number | undefined} */
  timer;
  drawn = "";
  input = make("input", { type: "file", multiple: true, className: "visually-hidden", tabindex: "-1", "aria-hidden": "true" });
  choose = make("button", { type: "button", className: "primary", text: t("import.choose") });
  zone = make("div", { className: "drop-zone" }, make("svg-icon", { name: "data" }), make("p", { text: t("import.drop") }), this.choose, this.input);
  note = make("p", { className: "hint", text: t("import.formats") });
  files = make("ul", { className: "files" });
  device = make("input", { name: "device", maxlength: "128", autocomplete: "off", placeholder: t("import.device_default") });
  submit = make("button", { className: "primary", type: "submit", text: t("import.start") });
  cancel = make("button", { className: "plain", type: "button", text: t("import.drop_choice") });
  heading = make("h2", { tabindex: "-1", text: t("import.new") });
  /** @type {HTMLFormElement} */
  form = make("form", { className: "add-form box", hidden: true }, this.heading, this.files,
    make("label", {}, make("span", { text: t("import.device") }), this.device),
    make("div", { className: "actions" }, this.cancel, this.submit));
  error = make("p", { className: "refusal", role: "alert", hidden: true });
  list = make("ul", { className: "imports" });
  confirmation = make("dialog", { className: "guide confirm", "aria-labelledby": "undo-title" });

  connectedCallback() {
    if (this.firstChild) return;
    this.append(this.zone, this.note, this.form, this.error, this.list);
    document.body.append(this.confirmation);
    this.choose.addEventListener("click", () => { this.continued = null; this.input.click(); });
    this.input.addEventListener("change", () => {
      this.take([...(this.input.files ?? [])].map((file) => ({ name: file.webkitRelativePath || file.name, file })));
      this.input.value = ""; // the same files may be chosen again
    });
    for (const name of ["dragenter", "dragover"]) {
      this.addEventListener(name, (event) => {
        const items = /** @type {DragEvent} */ (event).dataTransfer?.items ?? [];
        if (![...items].some(({ kind }) => kind === "file")) return;
        event.preventDefault();
        this.zone.classList.add("over");
      });
    }
    this.addEventListener("dragleave", (event) => {
      if (!(event.relatedTarget instanceof Node && this.contains(event.relatedTarget))) this.zone.classList.remove("over");
    });
    this.addEventListener("drop", async (event) => {
      event.preventDefault();
      this.zone.classList.remove("over");
      this.continued = null;
      const { dataTransfer } = event;
      if (dataTransfer) await attempt(this.error, async () => this.take(await droppedFiles(dataTransfer, FILES_MAX)));
    });
    this.cancel.addEventListener("click", () => { this.forget(); this.choose.focus(); });
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.begin();
    });
    addEventListener("beforeunload", (event) => { if (this.uploads.size) event.preventDefault(); });
  }

  /** Show what there is, and follow it until `rest`. */
  async load() {
    clearTimeout(this.timer);
    const found = await attempt(this.error, imports, false);
    if (found === null) {
      this.zone.hidden = true;
      setText(this.note, t("import.off"));
      return;
    }
    if (found) this.imports = found;
    this.draw();
    clearTimeout(this.timer);
    if (this.imports.some(isRunning)) this.timer = window.setTimeout(() => this.load(), POLL_MS);
  }

  /** Ask no more; what is being uploaded goes on. */
  rest() {
    clearTimeout(this.timer);
    this.forget();
  }

  /** Forget the files that were chosen. */
  forget() {
    this.chosen = [];
    this.form.hidden = true;
  }

  /** @param {ChosenFile[]} files */
  take(files) {
    this.error.hidden = true;
    if (!files.length) return;
    if (this.continued) {
      this.goOn(this.continued, files);
      return;
    }
    if (files.length > FILES_MAX) {
      complain(this.error, new Error(t("import.too_many", { count: FILES_MAX })));
      return;
    }
    this.chosen = files;
    const size = files.reduce((sum, { file }) => sum + file.size, 0);
    this.files.replaceChildren(...files.slice(0, FILES_SHOWN).map(({ name, file }) => (
      make("li", {}, make("span", { className: "name", text: name }), make("span", { className: "size", text: bytes(file.size) })))));
    if (files.length > FILES_SHOWN) this.files.append(make("li", { text: t("import.more_files", { count: files.length - FILES_SHOWN }) }));
    setText(this.heading, t("import.chosen", { count: files.length, size: bytes(size) }));
    this.device.value = "";
    this.form.hidden = false;
    this.heading.focus();
  }

  /** Announce the chosen files, and upload them. */
  async begin() {
    const files = this.chosen;
    if (!files.length) return;
    this.submit.disabled = true;
    const names = files.map(({ name, file }) => ({ name, bytes: file.size }));
    const found = await attempt(this.error, () => announceImport(names, this.device.value.trim()));
    this.submit.disabled = false;
    if (!found) return;
    this.forget();
    this.imports = [found, ...this.imports];
    this.announce(t("import.begun"));
    await this.send(found, files);
  }

  /**
   * Upload what is missing of an import, from the same files as before.
   * @param {OwnImport} found
   * @param {ChosenFile[]} files
   */
  goOn(found, files) {
    const own = found.files.map(({ name, bytes: size }) => (
      files.find((each) => each.file.size === size && (each.name === name || name.endsWith(`/${each.file.name}`)))));
    const missing = found.files.find((file, index) => !own[index] && file.received < file.bytes);
    if (missing) {
      complain(this.error, new Error(t("import.other_files", { name: missing.name })));
      return;
    }
    const empty = new File([], "");
    this.send(found, own.map((each, index) => each ?? { name: found.files[index]?.name ?? "", file: empty }));
  }

  /**
   * @param {OwnImport} found
   * @param {ChosenFile[]} files
   */
  async send(found, files) {
    const state = { sent: 0, abort: new AbortController() };
    this.uploads.set(found.id, state);
    try {
      await upload(found, files, (sent) => { state.sent = sent; this.draw(); }, state.abort.signal);
      await runImport(found.id);
    } catch (error) {
      if (!state.abort.signal.aborted) complain(this.error, error);
    } finally {
      this.uploads.delete(found.id);
    }
    await this.load();
  }

  draw() {
    const sent = Object.fromEntries([...this.uploads].map(([id, state]) => [id, state.sent]));
    const drawn = JSON.stringify([this.imports, sent]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    // What was unfolded is left as it is.
    drawAnew(this.list, () => {
      const unfolded = new Set([...this.list.querySelectorAll("details[open]")].map((each) => each.getAttribute("data-key")));
      this.list.replaceChildren(...this.imports.map((found) => importCard(found, sent[found.id] ?? null, {
        run: () => this.change(() => runImport(found.id)),
        go_on: () => { this.continued = found; this.input.click(); },
        undo: () => this.askToUndo(found),
        forget: () => this.end(found, () => forgetImport(found.id)),
        diary: () => this.dispatchEvent(new CustomEvent("diary", { detail: { device: found.device, from: found.to ?? found.created } })),
      })));
      for (const each of this.list.querySelectorAll("details")) each.open = unfolded.has(each.getAttribute("data-key"));
    });
  }

  /** @param {OwnImport} found */
  askToUndo(found) {
    if (!found.stored && !isRunning(found)) {
      this.end(found, () => undoImport(found.id));
      return;
    }
    const keep = make("button", { type: "button", className: "plain", text: t("import.keep") });
    const undo = make("button", { type: "button", className: "primary danger", text: t("import.undo") });
    keep.addEventListener("click", () => this.confirmation.close());
    undo.addEventListener("click", () => {
      this.confirmation.close();
      this.end(found, () => undoImport(found.id));
    });
    this.confirmation.replaceChildren(
      make("h2", { id: "undo-title", text: t("import.undo_title", { device: found.device }) }),
      make("p", { className: "lead", text: t("import.undo_lead") }),
      make("footer", {}, keep, undo));
    this.confirmation.showModal();
  }

  /**
   * @param {OwnImport} found
   * @param {() => Promise<unknown>} does
   */
  async end(found, does) {
    this.uploads.get(found.id)?.abort.abort();
    await this.change(does);
    this.announce(t("import.ended", { device: found.device }));
  }

  /** @param {() => Promise<unknown>} does */
  async change(does) {
    await attempt(this.error, does);
    const { hidden, textContent } = this.error;
    await this.load();
    if (!hidden) complain(this.error, new Error(textContent ?? ""));
  }

  /** @param {string} text */
  announce(text) {
    this.dispatchEvent(new CustomEvent("announce", { detail: text }));
  }
}
customElements.define("import-panel", ImportPanel);
