// Asks this process over HTTP, as docs/api.md describes it; keeps the token for writes in memory only.

let token = null;

export function setToken(text) {
  token = text;
}

export function hasToken() {
  return token !== null;
}

/** What a refused request said. Status 0: there was no answer. */
export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

export function ask(path, parameters = {}) {
  const query = new URLSearchParams(parameters).toString();
  return answer(fetch(query ? `${path}?${query}` : path, { cache: "no-store", signal: limit() }));
}

export function write(path, body) {
  const headers = { "Content-Type": "application/json", "X-Kumo": "write" };
  if (token !== null) {
    headers.Authorization = `Bearer ${token}`;
  }
  return answer(fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal: limit() }));
}

async function answer(request) {
  let response;
  try {
    response = await request;
  } catch (error) {
    throw new Refused(0, error.name === "TimeoutError" ? "no answer in time" : "this manager does not answer");
  }
  let value = null;
  try {
    value = await response.json();
  } catch {
    throw new Refused(response.status, `an answer that is not understood (status ${response.status})`);
  }
  if (!response.ok) {
    throw new Refused(response.status, value.error ?? `status ${response.status}`);
  }
  return value;
}

/** A little more than the 30 s that the other side gives itself. */
function limit() {
  return AbortSignal.timeout(35_000);
}
