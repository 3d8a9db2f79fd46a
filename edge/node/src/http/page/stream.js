// Follows the snapshots of /v1/events, and says when they stop coming. An EventSource could not send the token.

import { listen } from "./api.js";

/** A snapshot comes every second. */
const SILENCE_MS = 5_000;
const AGAIN_MS = 2_000;

/**
 * `onSnapshot(snapshot)` for each; `onState("live", null)` with each, `onState("lost", why)` when they stop; `why` is
 * null when there was no answer at all. While the token is missing or wrong nothing is asked until `again()`.
 */
export function follow(onSnapshot, onState) {
  let stop = new AbortController();
  let isOpen = false;
  let isLocked = false;
  let heard = 0;
  let opened = 0;

  async function open() {
    stop.abort();
    const own = new AbortController();
    stop = own;
    isOpen = true;
    opened = Date.now();
    let why = null;
    let status = 0;
    try {
      await read(await listen("v1/events", own.signal));
    } catch (error) {
      status = error.status ?? 0;
      why = status > 0 ? error.message : null;
    }
    // Another one may have been begun because this one was silent.
    if (stop !== own) {
      return;
    }
    isOpen = false;
    isLocked = status === 401;
    if (heard > opened) {
      // The other side ends a stream now and then: that alone is no loss.
      open();
    } else {
      onState("lost", why);
    }
  }

  /** Events end with an empty line, and have their data in one line. */
  async function read(reader) {
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) {
        return;
      }
      const events = (text + value).split("\n\n");
      text = events.pop();
      // A fault of the page is reported as such, and not taken for one of the stream.
      events.forEach((event) => queueMicrotask(() => told(event)));
    }
  }

  function told(event) {
    const data = event.split("\n").find((line) => line.startsWith("data: "));
    if (data !== undefined) {
      heard = Date.now();
      onState("live", null);
      onSnapshot(JSON.parse(data.slice("data: ".length)));
    }
  }

  // Nobody tells of a peer that vanished: so we look ourselves.
  setInterval(() => {
    const now = Date.now();
    const isSilent = isOpen && now - Math.max(heard, opened) >= SILENCE_MS;
    if (isSilent) {
      onState("lost", null);
    }
    if (!isLocked && (isSilent || (!isOpen && now - opened >= AGAIN_MS))) {
      open();
    }
  }, 1_000);
  open();
  return {
    again() {
      isLocked = false;
      open();
    },
  };
}
