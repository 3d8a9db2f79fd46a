// The replace under way, or the last one that this page saw: bars, rate, time left, and orders to it.

import { askFirst } from "./ask.js";
import { paintSwatch, swatch } from "./colours.js";
import { byId, element, keyed, setAttribute, setText, showFacts } from "./dom.js";
import { bytes, clock, count, span } from "./format.js";

/** `{ job, moving, ended_at, is_done }` of the last replace. */
let last = null;
let now = null;

export function showJob(store, at) {
  const { job } = store;
  const isUnseen = now !== null && job === null && now.job === null && members(now) !== members(store);
  now = store;
  // While a fault is only being told to the servers nothing moves: that is no replace to remember.
  if (job !== null && (!job.switching || job.copies > 0)) {
    const known = last !== null && last.ended_at === null ? last.moving : new Map();
    last = { job, moving: new Map([...known, ...moving(store)]), ended_at: null, is_done: false };
  } else if (job === null && last !== null && last.ended_at === null) {
    last.is_done = isDone(last, store);
    last.ended_at = at;
  } else if (isUnseen) {
    last = { job: UNSEEN, moving: new Map(), ended_at: at, is_done: true };
  }
  byId("job-replace").hidden = job !== null;
  byId("job-pause").hidden = job === null || job.switching || job.paused;
  byId("job-resume").hidden = job === null || !job.paused;
  byId("job-cancel").hidden = job === null || job.switching;
  setText(byId("job-text"), sentence(job));
  const shown = job ?? (last?.is_done ? whole(last.job) : null);
  showBars(shown);
  showFacts(byId("job-facts"), shown === null ? [] : facts(shown, job === null));
  setText(byId("job-wanted"), wanted(store));
}

/** Who is in the ring. That changes only by a replace, which may need less time than there is between two snapshots. */
function members(store) {
  return String(store.servers.filter(({ place }) => place !== "none").map(({ address }) => address));
}

/** Servers on their way in or out. */
function moving(store) {
  const onTheWay = store.servers.filter(({ place }) => place === "joining" || place === "leaving");
  return onTheWay.map(({ address, place }) => [address, place]);
}

/** A replace that was cancelled leaves servers where they were. */
function isDone({ job, moving }, store) {
  if (job.switching || job.percent >= 100) {
    return true;
  }
  const places = new Map(store.servers.map((server) => [server.address, server.place]));
  const arrived = ([address, place]) => (places.get(address) === "attached") === (place === "joining");
  return moving.size > 0 && [...moving].every(arrived);
}

/** As it stood when it was done: between two snapshots it may have gone the rest of its way. */
function whole(job) {
  const done = (part) => ({ ...part, percent: 100, copies_done: part.copies, bytes_left: 0, bytes_per_second: null });
  return { ...done(job), left_ms: null, servers: job.servers.map(done) };
}

function sentence(job) {
  if (job !== null) {
    const name = job.kind === "full-replace" ? "A full replace" : "A replace";
    if (job.switching) {
      return "All data is where it belongs; the servers are being told.";
    }
    return job.paused ? `${name} is paused.` : `${name} is under way.`;
  }
  if (last === null) {
    return "No replace is under way.";
  }
  if (last.job === UNSEEN) {
    return `No replace is under way. The last one was done within a second, ${clock(last.ended_at)}.`;
  }
  const ending = last.is_done ? "is done" : "has ended before its end, or unseen";
  return `No replace is under way. The last one ${ending}, ${clock(last.ended_at)}.`;
}

function wanted({ auto_replace, attach_wanted, detach_wanted }) {
  const parts = [
    auto_replace
      ? "Auto replace is on: new servers are attached and lost ones detached without being asked."
      : "Auto replace is off.",
  ];
  if (attach_wanted.length > 0) {
    parts.push(`The next replace attaches ${attach_wanted.join(", ")}.`);
  }
  if (detach_wanted.length > 0) {
    parts.push(`The next replace detaches ${detach_wanted.join(", ")}.`);
  }
  return parts.join(" ");
}

function showBars(job) {
  const bars = job === null ? [] : [{ ...job, address: null }, ...job.servers];
  keyed(byId("job-bars"), bars, (bar) => bar.address ?? "all", makeBar, (node, bar) => {
    const [label, progress, percent, detail] = node.children;
    const name = bar.address ?? "All servers";
    if (bar.address !== null) {
      paintSwatch(label.firstElementChild, bar.address, false);
    }
    setText(label.lastElementChild, name);
    setAttribute(progress, "aria-label", `${name}: ranges done`);
    setAttribute(progress, "value", bar.percent.toFixed(1));
    setText(percent, `${bar.percent >= 100 ? 100 : Math.floor(bar.percent)} %`);
    const speed = bar.bytes_per_second === null ? "" : `, ${bytes(bar.bytes_per_second)}/s`;
    const left = bar.bytes_left > 0 ? `, ${bytes(bar.bytes_left)} left` : "";
    const ranges = `${count(bar.copies_done)} of ${count(bar.copies)} ranges, ${bytes(bar.bytes_sent)} sent${left}${speed}`;
    setText(detail, bar.copies === 0 ? "" : ranges);
  });
}

function makeBar(bar) {
  const label = element("span", { class: "bar-label" }, element("span"));
  if (bar.address !== null) {
    label.prepend(swatch(), " ");
  }
  return element(
    "div",
    { class: bar.address === null ? "bar whole" : "bar" },
    label,
    element("progress", { max: 100 }),
    element("span", { class: "bar-percent" }),
    element("span", { class: "bar-detail muted" }),
  );
}

function facts(job, hasEnded) {
  if (hasEnded && job.copies === 0) {
    return [];
  }
  const all = [["Records sent", count(job.records_sent)], ["Sent", bytes(job.bytes_sent)]];
  if (!hasEnded) {
    all.push(
      ["Left", bytes(job.bytes_left)],
      ["Rate", job.bytes_per_second === null ? "–" : `${bytes(job.bytes_per_second)}/s`],
      ["Time left", job.left_ms === null ? "–" : `about ${span(Math.ceil(job.left_ms / 1000) * 1000)}`],
      ["Limit a server", job.rate_limit === 0 ? "none" : `${bytes(job.rate_limit)}/s`],
    );
  }
  return all;
}

/** A replace that came and went between two snapshots: that it is done is all we know. */
const UNSEEN = { percent: 100, copies: 0, bytes_sent: 0, bytes_left: 0, bytes_per_second: null, servers: [] };

function order(name, what, text) {
  const wanted = {
    title: `${what}?`,
    text,
    confirm: what,
    danger: name === "cancel",
    path: "v1/job",
    body: { order: name },
    done: `The managers have agreed: ${name}.`,
  };
  byId(`job-${name}`).addEventListener("click", () => askFirst(wanted));
}

order("pause", "Pause the replace", "No more data is moved until it is resumed. Reads and writes go on.");
order("resume", "Resume the replace", "Data is moved again.");
order("cancel", "Cancel the replace", "The ring stays as it was. What was copied already spares the next replace the work.");

byId("job-replace").addEventListener("click", () => {
  const [attach, detach] = [now.attach_wanted.join(","), now.detach_wanted.join(",")];
  askFirst({
    title: "Replace?",
    text: "Data is moved to where the attached servers say. Reads and writes go on.",
    confirm: "Replace",
    path: "v1/replace",
    body: {},
    checks: [{ name: "full", label: "Full: compare all copies, and repair what differs", checked: false }],
    // A plan of nothing would be that of attaching whoever waits.
    plan: attach + detach === "" ? undefined : { attach, detach },
    done: "The managers have agreed: replace.",
  });
});
