// The banner: how the cluster stands, and why; and the few numbers to see first.

import { byId, element, keyed, setAttribute, setText, showFacts } from "./dom.js";
import { clock, count, counted, latency, short, span } from "./format.js";

/** A shape for each level, so that nobody needs the colour. */
const MARKS = {
  healthy: "M4 12.500 9.500 18 20 6.500",
  under_replicated: "M12 3 22 20H2ZM12 9v5M12 16.500v1",
  one_loss: "M12 2 22 12 12 22 2 12ZM12 7v6M12 15.500v1",
  stopped: "M8 3h8l5 5v8l-5 5H8l-5-5V8ZM9 9l6 6M15 9l-6 6",
  unknown: "M12 3a9 9 0 1 0 .01 0M9.500 9.500a2.500 2.500 0 1 1 3.500 2.500q-1 .5-1 2M12 16.500v1",
};

export function showHealth(health) {
  show(health.level, health.summary, health.reasons);
}

/** What was seen last is no news of now. `why`: what the manager said instead; null when it said nothing. */
export function showUnknown(last, why) {
  const reasons = last === null ? [] : [{ level: "unknown", text: `It was ${last.health.summary} at ${clock(last.at)}.` }];
  const silence = last === null ? "no answer yet" : "not known: disconnected, trying again";
  show("unknown", why === null ? silence : `not known: ${why}`, reasons);
}

function show(level, summary, reasons) {
  const known = level in MARKS ? level : "unknown";
  setAttribute(byId("banner"), "data-level", known);
  setAttribute(byId("banner-mark").firstElementChild, "d", MARKS[known]);
  setText(byId("banner-summary"), summary);
  keyed(byId("banner-reasons"), reasons, (reason) => reason.text, () => element("li"), (node, reason) => {
    setAttribute(node, "data-level", reason.level);
    setText(node, reason.text);
  });
  document.title = known === "healthy" ? "kumo" : `${summary} – kumo`;
}

export function showTiles(snapshot) {
  const { store, cell } = snapshot;
  const tiles = [];
  if (store !== null) {
    const active = store.servers.filter((server) => server.state === "active" && server.place !== "joining").length;
    const back = store.servers.filter((server) => server.state === "returned").length;
    const inRing = store.servers.filter((server) => server.place === "attached" || server.place === "leaving").length;
    const waiting = store.servers.filter((server) => server.place === "none").length;
    const { rates } = store;
    const operations = rates === null ? null : rates.gets + rates.sets + rates.deletes;
    tiles.push(
      ["Operations a second", short(operations)],
      ["Latency p99", latency(rates?.p99_ms), `p50 ${latency(rates?.p50_ms)}`],
      ["Servers active", `${active} of ${inRing}${back > 0 ? `, ${back} back` : ""}${waiting > 0 ? `, ${waiting} waiting` : ""}`],
    );
  }
  if (cell !== null) {
    tiles.push(["Voters", `${cell.voting} of ${cell.voters}`, `${cell.majority} are needed`]);
    tiles.push(["Master", cell.master ?? "none"]);
  }
  if (store !== null) {
    const age = span(Math.max(0, snapshot.at - store.space.made_at));
    tiles.push(["Hash space", store.space.number, `made ${age} ago`], ["Gateways", count(store.gateways)]);
  } else if (cell !== null) {
    tiles.push(["Sessions", count(cell.sessions)], ["Files", counted(cell.usage.files, "file")]);
  }
  showFacts(byId("tiles"), tiles);
}
