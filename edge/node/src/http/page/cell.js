// The cell: who leads, how far each replica is, and the sessions, locks and queues in it.

import { byId, setAttribute, setText, showFacts } from "./dom.js";
import { bytes, count, counted, date, span } from "./format.js";
import { List } from "./lists.js";
import { Table } from "./table.js";

const SIGNS = { voting: "●", learning: "◐", down: "✕" };

const REPLICAS = [
  { label: "Replica", head: true, fill: (_, replica) => `${replica.id} · ${replica.address}` },
  { label: "Role", fill: (_, replica) => (replica.isMaster ? `${replica.role}, master` : replica.role) },
  { label: "State", name: "state", fill: fillState },
  { label: "Decided", number: true, fill: (_, replica) => count(replica.decided) },
  { label: "Executed", number: true, fill: (_, replica) => count(replica.executed) },
  { label: "Lag", number: true, fill: (_, replica) => count(replica.lag) },
  { label: "Age", number: true, fill: (_, replica) => span(replica.age_ms) },
  { label: "Load", number: true, fill: (_, replica) => count(replica.load) },
];

const SESSIONS = [
  { label: "Session", head: true, fill: (_, session) => session.id },
  { label: "From", fill: (_, session) => `${session.address}, pid ${session.pid}` },
  { label: "Opened", fill: (_, session) => date(session.opened_at) },
  { label: "Requests", number: true, fill: (_, session) => count(session.requests) },
  { label: "Parked", number: true, fill: (_, session) => count(session.parked) },
  { label: "Silent", number: true, fill: (_, session) => span(session.silent_ms) },
];

const LOCKS = [
  { label: "Lock", head: true, fill: (_, lock) => lock.name },
  { label: "Kind", fill: (_, lock) => (lock.exclusive ? "exclusive" : "shared") },
  { label: "Fencing number", number: true, fill: (_, lock) => lock.number },
  { label: "Held by", fill: (_, lock) => some(lock.holders, lock.holders_total) },
  { label: "Waiting", fill: (_, lock) => some(lock.waiters, lock.waiters_total) },
];

const QUEUES = [
  { label: "Queue", head: true, fill: (_, queue) => queue.name },
  { label: "Ready", number: true, fill: (_, queue) => count(queue.ready) },
  { label: "Hidden", number: true, fill: (_, queue) => count(queue.hidden) },
  { label: "Waiting clients", number: true, fill: (_, queue) => count(queue.waiting) },
];

const replicas = new Table(byId("replicas-table"), REPLICAS, (replica) => replica.id, "No replica is known.");
const lists = [
  new List(byId("sessions"), "sessions", SESSIONS, (session) => session.id, "There is no session."),
  new List(byId("locks"), "locks", LOCKS, (lock) => lock.name, "No lock is held."),
  new List(byId("queues"), "queues", QUEUES, (queue) => queue.name, "There is no queue."),
];

export function showCell(snapshot) {
  const { cell } = snapshot;
  const error = snapshot.cell_error ?? cell?.trouble ?? null;
  byId("cell-error").hidden = error === null;
  setText(byId("cell-error"), error ?? "");
  if (cell === null) {
    return;
  }
  const round = cell.round === null ? "–" : `${cell.round.sequence} of replica ${cell.round.id}`;
  const usage = cell.usage ?? {};
  showFacts(byId("cell-facts"), [
    ["Master", cell.master ?? "none"],
    ["Round", round],
    ["Vote", `${cell.voting} of ${cell.voters}, ${cell.majority} needed`],
    ["Sessions", count(cell.sessions)],
    ["Session timeout", span(cell.session_timeout_ms)],
    ["Kept", `${counted(usage.files ?? 0, "file")}, ${counted(usage.directories ?? 0, "directory", "directories")}, ${bytes(usage.bytes)}`],
    ["Messages", count(usage.messages)],
    ["Cell", `${cell.cell_id.slice(0, 8)}, generation ${cell.generation}`, cell.cell_id],
  ]);
  replicas.show(cell.replicas.map((replica) => ({ ...replica, isMaster: replica.address === cell.master })));
  lists.forEach((list) => list.refresh());
}

function fillState(cell, replica) {
  setAttribute(cell.parentElement, "data-state", replica.state);
  return `${SIGNS[replica.state] ?? "?"} ${replica.state}`;
}

/** The first few, and how many there are beyond. */
function some(names, total) {
  if (total === 0) {
    return "–";
  }
  const shown = names.slice(0, 5);
  const rest = total - shown.length;
  return shown.join(", ") + (rest > 0 ? ` and ${count(rest)} more` : "");
}
