// Uploads the files of an import in parts, one after the other; what fails on the way is tried again.

import { uploadPart } from "./data_api.js";

/** @import { OwnImport } from "../types/api.js" */

/** The gateway takes 8 MiB in a request, within a minute. */
const PART_BYTES = 2 ** 22;
const PART_BYTES_MIN = 2 ** 16;
const SLOW_MS = 20e3;
const AGAIN_MS = [1e3, 2e3, 5e3, 10e3, 20e3];

/** @typedef {{name: string, file: File}} ChosenFile */

/**
 * Upload what is missing of each file. Throws what the gateway refuses, and an AbortError.
 * @param {OwnImport} found
 * @param {ChosenFile[]} files in the order of the import's
 * @param {(sent: number) => void} progress is told the bytes that are there, of all files
 * @param {AbortSignal} signal
 */
export async function upload(found, files, progress, signal) {
  let before = 0;
  let partBytes = PART_BYTES;
  for (const [number, { file }] of files.entries()) {
    let offset = found.files[number]?.received ?? 0;
    progress(before + offset);
    for (let failed = 0; offset < file.size;) {
      const begun = performance.now();
      try {
        offset = await uploadPart(found.id, number, offset, file.slice(offset, offset + partBytes), signal);
        failed = 0;
        // A slow line gets parts that come within the time of a request.
        const slow = performance.now() - begun > SLOW_MS;
        partBytes = slow ? Math.max(PART_BYTES_MIN, partBytes / 2) : Math.min(PART_BYTES, partBytes * 2);
      } catch (error) {
        // TypeError: there was no answer, or none for now.
        if (!(error instanceof TypeError) || failed >= AGAIN_MS.length) throw error;
        partBytes = Math.max(PART_BYTES_MIN, partBytes / 2);
        await pause(AGAIN_MS[failed] ?? 0, signal);
        failed += 1;
      }
      progress(before + offset);
    }
    before += file.size;
  }
}

/**
 * @param {number} ms
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
  });
}

/**
 * The files that were dropped, those of folders too, with their paths.
 * @param {DataTransfer} dropped
 * @param {number} most
 * @returns {Promise<ChosenFile[]>} one more than `most` where there are more
 */
export async function droppedFiles(dropped, most) {
  // The entries have to be taken before the first pause: afterwards the list is empty.
  const entries = [...dropped.items].filter((item) => item.kind === "file").map((item) => ({ entry: item.webkitGetAsEntry(), file: item.getAsFile() }));
  /** @type {ChosenFile[]} */
  const found = [];
  for (const { entry, file } of entries) {
    if (entry) await collect(entry, found, most);
    else if (file) found.push({ name: file.name, file });
  }
  return found;
}

/**
 * @param {FileSystemEntry} entry
 * @param {ChosenFile[]} found
 * @param {number} most
 */
async function collect(entry, found, most) {
  if (found.length > most) return;
  if (entry.isFile) {
    /** @type {File} */
    const file = await new Promise((resolve, reject) => { /** @type {FileSystemFileEntry} */ (entry).file(resolve, reject); });
    found.push({ name: entry.fullPath.replace(/^\/+/, ""), file });
    return;
  }
  const reader = /** @type {FileSystemDirectoryEntry} */ (entry).createReader();
  for (;;) {
    // A browser gives a hundred at a time.
    /** @type {FileSystemEntry[]} */
    const some = await new Promise((resolve, reject) => { reader.readEntries(resolve, reject); });
    if (!some.length) return;
    for (const each of some) await collect(each, found, most);
  }
}
