// The page: every snapshot goes to each of its parts.

import { setLive } from "./ask.js";
import { showCell } from "./cell.js";
import { showLoad } from "./charts.js";
import { byId, setAttribute, setText } from "./dom.js";
import { startFiles } from "./files.js";
import { clock, span } from "./format.js";
import { showHealth, showTiles, showUnknown } from "./health.js";
import { showJob } from "./job.js";
import { startLock, unlock } from "./lock.js";
import { showRing } from "./ring.js";
import { showServers } from "./servers.js";
import { follow } from "./stream.js";

let last = null;

function show(snapshot) {
  unlock();
  if (last === null) {
    startFiles();
  }
  last = snapshot;
  const { self, store } = snapshot;
  setText(byId("self"), `${self.kind} ${self.address}, version ${snapshot.version}`);
  document.body.classList.toggle("no-store", store === null);
  showHealth(snapshot.health);
  showTiles(snapshot);
  if (store !== null) {
    showRing(store);
    showServers(store);
    showJob(store, snapshot.at);
    showLoad(store, snapshot.at);
  }
  showCell(snapshot);
  setLive(true);
  // A link carries no token.
  setAttribute(byId("json"), "href", self.access === "open" ? "v1/cluster" : null);
  setText(byId("stream-text"), "live");
  setText(byId("stream-time"), clock(snapshot.at));
}

function showStream(state, why) {
  setAttribute(document.body, "data-stream", state);
  if (state === "live") {
    return;
  }
  showUnknown(last, why);
  setLive(false);
  setText(byId("stream-text"), "disconnected, trying again");
  setText(byId("stream-time"), last === null ? "" : `(this is ${age(last.at)} old)`);
}

function age(at) {
  return span(Math.max(0, Math.round((Date.now() - at) / 1000) * 1000));
}

const stream = follow(show, showStream);
startLock(stream.again);
