// Asks this process over HTTP, as docs/api.md describes it; keeps the token for as long as this tab is open.

const KEY = "kumo-token";

let token = sessionStorage.getItem(KEY);
let onLocked = () => {};

export function setToken(text) {
  token = text;
  if (text === null) {
    sessionStorage.removeItem(KEY);
  } else {
    sessionStorage.setItem(KEY, text);
  }
}

/** `tell(sentence)` whenever an answer was that the token is missing or wrong; the token is forgotten then. */
export function whenLocked(tell) {
  onLocked = tell;
}

/** What a refused request said. Status 0: there was no answer. */
export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

export async function ask(path, parameters = {}) {
  const query = new URLSearchParams(parameters).toString();
  return json(await answer(query ? `${path}?${query}` : path, { cache: "no-store", signal: limit() }));
}

export async function write(path, body) {
  const headers = { "Content-Type": "application/json", "X-Kumo": "write" };
  return json(await answer(path, { method: "POST", headers, body: JSON.stringify(body), signal: limit() }));
}

/** An answer that goes on until the signal ends it, as text. */
export async function listen(path, signal) {
  const response = await answer(path, { cache: "no-store", signal });
  return response.body.pipeThrough(new TextDecoderStream()).getReader();
}

async function answer(path, request) {
  const headers = { ...request.headers, ...(token === null ? {} : { Authorization: `Bearer ${token}` }) };
  const given = token;
  let response;
  try {
    response = await fetch(path, { ...request, headers });
  } catch (error) {
    throw new Refused(0, error.name === "TimeoutError" ? "no answer in time" : "this manager does not answer");
  }
  if (response.ok) {
    return response;
  }
  const sentence = (await json(response)).error ?? `status ${response.status}`;
  // Another answer may have been to the token before.
  if (response.status === 401 && given === token) {
    setToken(null);
    onLocked(given === null ? null : sentence);
  }
  throw new Refused(response.status, sentence);
}

async function json(response) {
  try {
    return await response.json();
  } catch {
    throw new Refused(response.status, `an answer that is not understood (status ${response.status})`);
  }
}

/** A little more than the 30 s that the other side gives itself. */
function limit() {
  return AbortSignal.timeout(35_000);
}
