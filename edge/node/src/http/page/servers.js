// The table of servers, and the buttons that bring them into the ring or take them out.

import { askFirst } from "./ask.js";
import { meet, paintSwatch, swatch } from "./colours.js";
import { byId, element, setAttribute, setText } from "./dom.js";
import { bytes, count, counted, latency, percent, short, span } from "./format.js";
import { pointOut } from "./ring.js";
import { Table } from "./table.js";

const SIGNS = { active: "●", fault: "✕", returned: "◐", waiting: "○" };

const COLUMNS = [
  { label: "Server", head: true, fill: fillName },
  { label: "State", name: "state", fill: fillState },
  { label: "Ring", number: true, fill: (_, server) => percent(server.share) },
  { label: "Items", number: true, fill: fillItems },
  { label: "Bytes (files)", number: true, fill: (_, server) => `${bytes(server.bytes)} (${bytes(server.file_bytes)})` },
  { label: "Ops/s", number: true, fill: fillRates },
  { label: "p99", number: true, fill: fillLatency },
  { label: "Lease", number: true, fill: (_, server) => span(server.lease_ms) },
  { label: "Lag", number: true, fill: fillLag },
  { label: "Order", name: "order", fill: fillButtons },
];

const table = new Table(byId("servers-table"), COLUMNS, (server) => server.address, "No server is known to the managers.");
let now = null;

export function showServers(store) {
  now = store;
  meet(store.servers.map((server) => server.address));
  table.show(store.servers);
  const coming = store.servers.filter(canAttach);
  const lost = store.servers.filter((server) => server.state === "fault");
  byId("attach-all").hidden = coming.length === 0;
  byId("detach-all").hidden = lost.length === 0;
  setText(byId("attach-all"), `Attach all that wait (${coming.length}) …`);
  setText(byId("detach-all"), `Detach all fault (${lost.length}) …`);
  const silent = store.servers.filter((server) => server.error !== null);
  setText(byId("servers-note"), silent.map((server) => `${server.address}: ${server.error}.`).join(" "));
}

/** Connected and not in the ring, or lost and back. */
function canAttach(server) {
  const isBack = server.connected && (server.state === "fault" || server.state === "returned");
  return server.place === "none" || isBack;
}

function fillName(cell, server) {
  if (cell.firstElementChild === null) {
    cell.append(swatch(), " ", element("span"));
    const row = cell.parentElement;
    row.addEventListener("mouseenter", () => pointOut(row.dataset.key));
    row.addEventListener("mouseleave", () => pointOut(null));
    row.addEventListener("focusin", () => pointOut(row.dataset.key));
    row.addEventListener("focusout", () => pointOut(null));
  }
  paintSwatch(cell.firstElementChild, server.address, server.state === "fault" || server.state === "returned");
  setText(cell.lastElementChild, server.address);
  setAttribute(cell.parentElement, "data-state", server.state);
  const about = server.pid === null ? null : `pid ${server.pid}, version ${server.version}, up ${span(server.uptime_ms)}`;
  setAttribute(cell, "title", about);
}

function fillState(cell, server) {
  const words = [server.state];
  if (server.place === "joining" || server.place === "leaving") {
    words.push(server.place);
  }
  if (!server.connected && server.state !== "fault") {
    words.push("not connected");
  } else if (server.connected && server.state === "fault") {
    words.push("back");
  }
  setAttribute(cell, "title", server.error);
  return `${SIGNS[server.state] ?? "?"} ${words.join(", ")}`;
}

function fillItems(cell, server) {
  setAttribute(cell, "title", `${count(server.tombstones)} tombstones`);
  return count(server.items);
}

function fillRates(cell, server) {
  const { rates } = server;
  setAttribute(cell, "title", rates && `gets ${short(rates.gets)}, sets ${short(rates.sets)}, deletes ${short(rates.deletes)}`);
  return short(rates && rates.gets + rates.sets + rates.deletes);
}

function fillLatency(cell, server) {
  setAttribute(cell, "title", `p50 ${latency(server.rates?.p50_ms)}`);
  return latency(server.rates?.p99_ms);
}

/** What is usual is not said: nothing pending, and the newest hash space. */
function fillLag(cell, server) {
  const { heard_ms, behind, pending, dirty } = server.lag;
  const words = [span(heard_ms)];
  if (behind) {
    words.push("behind");
  }
  if (pending > 0) {
    words.push(`${count(pending)} pending`);
  }
  const title = `heard ${span(heard_ms)} ago; ${count(pending)} writes wait for copies; ${count(dirty)} records not known everywhere`;
  setAttribute(cell, "title", title);
  return words.join(", ");
}

function fillButtons(cell, server) {
  if (cell.firstElementChild === null) {
    const { address } = server;
    const attach = () => attachAsk(find(address));
    const detach = () => detachAsk([find(address)]);
    cell.append(
      element("button", { type: "button", class: "write attach", "aria-label": `Attach ${address}`, click: attach }, "Attach …"),
      element("button", { type: "button", class: "write detach", "aria-label": `Detach ${address}`, click: detach }, "Detach …"),
    );
  }
  const [attach, detach] = cell.children;
  attach.hidden = !canAttach(server);
  detach.hidden = server.place !== "attached";
}

function find(address) {
  return now.servers.find((server) => server.address === address);
}

function addresses(servers) {
  return servers.map((server) => server.address);
}

/** One that returned is in the ring already, and comes back with whoever else waits. */
function attachAsk(server) {
  if (server.state === "returned") {
    attachAll();
  } else {
    attachSome([server], addresses([server]));
  }
}

function attachAll() {
  const coming = now.servers.filter(canAttach);
  attachSome(coming, coming.some((server) => server.state === "returned") ? [] : addresses(coming));
}

function attachSome(servers, named) {
  const checks = [{ name: "replace", label: "Move the data at once (otherwise the next replace does)", checked: true }];
  if (now.servers.some((server) => server.state === "fault")) {
    const label = "Accept data loss: give up what only lost servers had, and take them out of the ring";
    checks.push({ name: "accept_data_loss", label, checked: false });
  }
  askFirst({
    title: `Attach ${counted(servers.length, "server")}?`,
    text: `${addresses(servers).join(", ")} will be brought into the ring.`,
    confirm: "Attach",
    path: "v1/attach",
    body: { servers: named },
    checks,
    plan: { attach: addresses(servers.filter((server) => server.state !== "returned")).join(",") },
    done: `The managers have agreed: attach ${addresses(servers).join(", ")}.`,
  });
}

function detachAsk(servers) {
  askFirst({
    title: `Detach ${counted(servers.length, "server")}?`,
    text: `${addresses(servers).join(", ")} will be taken out of the ring, and what it had is copied to others.`,
    confirm: "Detach",
    danger: true,
    path: "v1/detach",
    body: { servers: addresses(servers) },
    checks: [{ name: "replace", label: "Move the data at once (otherwise the next replace does)", checked: true }],
    plan: { detach: addresses(servers).join(",") },
    done: `The managers have agreed: detach ${addresses(servers).join(", ")}.`,
  });
}

byId("attach-all").addEventListener("click", attachAll);
byId("detach-all").addEventListener("click", () => detachAsk(now.servers.filter((server) => server.state === "fault")));
