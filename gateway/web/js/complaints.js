// Lines of the page that say why something has failed.

/**
 * @param {HTMLElement} line
 * @param {unknown} error
 */
export function complain(line, error) {
  line.textContent = error instanceof Error ? error.message : String(error);
  line.hidden = false;
}

/**
 * @template Answer
 * @param {HTMLElement} line
 * @param {() => Promise<Answer>} does
 * @param {boolean} [anew] whether an earlier complaint is over
 * @returns {Promise<Answer | undefined>} undefined where it failed, which is shown
 */
export async function attempt(line, does, anew = true) {
  if (anew) line.hidden = true;
  try {
    return await does();
  } catch (error) {
    complain(line, error);
    return undefined;
  }
}
