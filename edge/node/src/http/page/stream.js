// Follows the snapshots of /v1/events, and says when they stop coming.

/** A snapshot comes every second. */
const SILENCE_MS = 5_000;
const AGAIN_MS = 2_000;

/** `onSnapshot(snapshot)` for each; `onState("live" | "lost")` with each, and every second while lost. */
export function follow(onSnapshot, onState) {
  let source = null;
  let heard = Date.now();
  let opened = 0;

  function open() {
    opened = Date.now();
    source?.close();
    source = new EventSource("v1/events");
    source.addEventListener("snapshot", (event) => {
      heard = Date.now();
      onState("live");
      onSnapshot(JSON.parse(event.data));
    });
    source.addEventListener("error", () => onState("lost"));
  }

  // A browser gives up for good after some errors, and never notices a peer that vanished: so we look ourselves.
  setInterval(() => {
    const now = Date.now();
    if (now - heard < SILENCE_MS) {
      return;
    }
    onState("lost");
    if (now - opened >= (source.readyState === EventSource.CLOSED ? AGAIN_MS : SILENCE_MS)) {
      open();
    }
  }, 1_000);
  open();
}
