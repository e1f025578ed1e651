// The gateway's interface for administrators, /v1/admin.

import { SignInNeeded, unanswered } from "../api.js";

/** @import * as types from "../types/operations.js" */

/**
 * How often a question is asked again, by the status of its answer: who leaves a page asks another one while the
 * first is still being answered (429), and a log that is busy once may answer the next time.
 * @type {Record<number, number>}
 */
const AGAIN = { 429: 5, 503: 1 };
const PAUSE_S = 2;

/**
 * Ask, or change something. Throws what the gateway has against it.
 * @param {string} path
 * @param {"GET" | "POST" | "PATCH" | "DELETE"} [method]
 * @param {unknown} [body]
 */
async function ask(path, method = "GET", body) {
  const send = () => fetch(`/v1/admin/${path}`, {
    method, ...(body === undefined ? {} : { headers: { "content-type": "application/json" }, body: JSON.stringify(body) }),
  });
  let answer = await send();
  for (let tries = 1; method === "GET" && tries <= (AGAIN[answer.status] ?? 0); tries += 1) {
    const pauseS = Number(answer.headers.get("retry-after")) || PAUSE_S;
    await new Promise((resolve) => { setTimeout(resolve, 1000 * pauseS); });
    answer = await send();
  }
  if (answer.status === 401) throw new SignInNeeded(path);
  if (!answer.ok) throw await unanswered(answer);
  return answer.status === 204 ? null : answer.json();
}

/** @param {string} name */
const topicPath = (name) => `topics/${encodeURIComponent(name)}`;

/** @returns {Promise<types.Overview>} */
export const overview = () => ask("overview");

/** @returns {Promise<types.Cluster>} */
export const brokers = () => ask("brokers");

/**
 * @param {number} after
 * @returns {Promise<types.LogLine[]>}
 */
export const log = (after) => ask(`log?after=${after}`);

/**
 * @param {string} name a text that the names have
 * @param {string} after
 * @returns {Promise<types.TopicList>}
 */
export const topics = (name, after) => ask(`topics?${new URLSearchParams({ name, after })}`);

/**
 * @param {string} name
 * @param {number} start the first partition
 * @returns {Promise<types.Topic>}
 */
export const topic = (name, start) => ask(`${topicPath(name)}?start=${start}`);

/** @param {types.NewTopic} body */
export const createTopic = (body) => ask("topics", "POST", body);

/**
 * @param {string} name
 * @param {types.TopicChanges} body
 */
export const changeTopic = (name, body) => ask(topicPath(name), "PATCH", body);

/** @param {string} name */
export const deleteTopic = (name) => ask(`${topicPath(name)}?${new URLSearchParams({ confirm: name })}`, "DELETE");

/**
 * @param {string} name
 * @returns {Promise<types.Election[]>}
 */
export const electLeaders = (name) => ask(`${topicPath(name)}/elections`, "POST", { confirm: name });

/**
 * @param {string} name
 * @param {types.Reassignment} body
 * @returns {Promise<types.Move[]>}
 */
export const reassign = (name, body) => ask(`${topicPath(name)}/reassignments`, "POST", body);

/**
 * @param {string} name
 * @param {Record<string, string>} query
 * @returns {Promise<types.Records>}
 */
export const records = (name, query) => ask(`${topicPath(name)}/records?${new URLSearchParams(query)}`);

/**
 * Where all bytes of a value are.
 * @param {string} name
 * @param {number} partition
 * @param {number} offset
 */
export const valueUrl = (name, partition, offset) => `/v1/admin/${topicPath(name)}/records/${partition}/${offset}`;

/** @returns {Promise<types.GroupRow[]>} */
export const groups = () => ask("groups");

/**
 * @param {string} name
 * @returns {Promise<types.Group>}
 */
export const group = (name) => ask(`groups/${encodeURIComponent(name)}`);

/**
 * @param {string} name
 * @param {{topic: string, to: string, confirm?: string, dry_run?: boolean}} body
 * @returns {Promise<types.NewOffset[]>}
 */
export const resetOffsets = (name, body) => ask(`groups/${encodeURIComponent(name)}/offsets`, "POST", body);

/**
 * @param {number | null} before
 * @returns {Promise<types.RefusedList>}
 */
export const refused = (before) => ask(before === null ? "refused" : `refused?before=${before}`);

/**
 * @param {string} place
 * @returns {Promise<types.RefusedBytes>}
 */
export const refusedRecord = (place) => ask(`refused/${encodeURIComponent(place)}`);

/**
 * @param {{places: string[], to?: string, dry_run?: boolean}} body
 * @returns {Promise<types.Retried[]>}
 */
export const retry = (body) => ask("refused/retries", "POST", body);
