// The page: every snapshot goes to each of its parts.

import { setWrites } from "./ask.js";
import { showCell } from "./cell.js";
import { showLoad } from "./charts.js";
import { byId, setAttribute, setText } from "./dom.js";
import { startFiles } from "./files.js";
import { clock, span } from "./format.js";
import { showHealth, showTiles, showUnknown } from "./health.js";
import { showJob } from "./job.js";
import { showRing } from "./ring.js";
import { showServers } from "./servers.js";
import { follow } from "./stream.js";

let last = null;

function show(snapshot) {
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
  setWrites(self.writes, true);
  setText(byId("stream-text"), "live");
  setText(byId("stream-time"), clock(snapshot.at));
}

function showStream(state) {
  setAttribute(document.body, "data-stream", state);
  if (state === "live") {
    return;
  }
  showUnknown(last);
  setWrites(last?.self.writes ?? "refused", false);
  setText(byId("stream-text"), "disconnected, trying again");
  setText(byId("stream-time"), last === null ? "" : `(this is ${age(last.at)} old)`);
}

function age(at) {
  return span(Math.max(0, Math.round((Date.now() - at) / 1000) * 1000));
}

follow(show, showStream);
startFiles();
