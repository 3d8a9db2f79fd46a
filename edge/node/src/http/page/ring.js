// Draws the ring: the stretch before each point in its server's colour, those of lost servers hatched, and inside how many copies act.

import { ask } from "./api.js";
import { colourClass, mark, meet, paintSwatch, swatch } from "./colours.js";
import { byId, element, keyed, setAttribute, setText, svg } from "./dom.js";
import { counted, percent } from "./format.js";

/** Radii of the drawing; its box is 320 wide. */
const BAND = [112, 150];
const JOINING = [152, 158];
const COPIES = [98, 107];

let ring = null;
let asking = false;
let drawn = null;

export function showRing(store) {
  meet(store.servers.map((server) => server.address));
  if (ring?.number !== store.space.number && !asking) {
    asking = true;
    ask("v1/ring")
      .then((answer) => {
        ring = answer;
        draw(store);
      })
      // The next snapshot asks again; that it cannot be asked is said there.
      .catch(() => {})
      .finally(() => (asking = false));
  }
  if (ring !== null) {
    draw(store);
  }
}

/** Lets one server stand out; null: none. */
export function pointOut(address) {
  for (const path of byId("ring-drawing").querySelectorAll(".stretch")) {
    path.classList.toggle("dim", address !== null && path.dataset.server !== address);
  }
}

/** States of the snapshot: they are newer than the ring's. */
function draw(store) {
  const news = new Map(store.servers.map((server) => [server.address, server]));
  const servers = ring.servers.map((server) => ({ ...server, ...news.get(server.address), points: server.points }));
  const name = `${ring.number} ${servers.map((server) => `${server.address} ${server.state} ${server.place}`)}`;
  showLegend(servers);
  if (name === drawn) {
    return;
  }
  drawn = name;
  const owning = servers.filter((server) => server.place !== "joining");
  const joining = servers.filter((server) => server.place === "joining");
  const coverage = covered(ring.coverage);
  const drawing = byId("ring-drawing");
  drawing.replaceChildren(
    svg("defs", {}, ...owning.filter(isLost).map(hatching)),
    ...stretches(owning),
    ...joining.map(ticks),
    ...coverage.map(({ from, to, copies }) => {
      const level = Math.min(copies, 3);
      return svg("path", { class: `copies copies-${copies >= ring.copies ? "all" : level}`, d: sector(from, to, COPIES) });
    }),
    ...middle(coverage, owning.length),
  );
  describe(servers, coverage);
}

function isLost(server) {
  return server.state === "fault" || server.state === "returned";
}

/** All points in order, as `{ at, server }`. */
function ordered(servers) {
  const points = servers.flatMap((server) => server.points.map((at) => ({ at, server })));
  return points.sort((one, other) => one.at - other.at);
}

/** One path a server, however many points it has. */
function stretches(servers) {
  const points = ordered(servers);
  const paths = new Map(servers.map((server) => [server, ""]));
  points.forEach(({ at, server }, index) => {
    const before = index === 0 ? points[points.length - 1].at - 1 : points[index - 1].at;
    paths.set(server, paths.get(server) + sector(before, at, BAND));
  });
  return [...paths].map(([server, d]) =>
    svg("path", {
      class: `stretch ${colourClass(server.address)}${isLost(server) ? " hatched" : ""}`,
      "data-server": server.address,
      fill: isLost(server) ? `url(#hatch-${mark(server.address)})` : null,
      d,
    }, svg("title", {}, `${server.address}, ${server.state}`)),
  );
}

/** One that is being brought in owns nothing yet: its points stand outside. */
function ticks(server) {
  const d = server.points.map((at) => `M${spot(at, JOINING[0])}L${spot(at, JOINING[1])}`).join("");
  return svg("path", { class: `tick ${colourClass(server.address)}`, d }, svg("title", {}, `${server.address}, joining`));
}

function hatching(server) {
  const size = { width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" };
  return svg(
    "pattern",
    { id: `hatch-${mark(server.address)}`, class: colourClass(server.address), ...size },
    svg("rect", { class: "hatch-ground", width: 5, height: 5 }),
    svg("rect", { class: "hatch-line", width: 2, height: 5 }),
  );
}

/** Stretches with the number of their copies that act; each begins where the one before it ends. */
function covered(stretches) {
  return stretches.map((stretch, index) => ({ ...stretch, from: index === 0 ? 0 : stretches[index - 1].to }));
}

/** How much of the ring has how many copies, the fewest first. */
function sums(coverage) {
  const parts = new Map();
  coverage.forEach(({ from, to, copies }) => parts.set(copies, (parts.get(copies) ?? 0) + to - from));
  return [...parts].sort(([one], [other]) => one - other);
}

function middle(coverage, servers) {
  const parts = sums(coverage);
  const line = (y, name, text) => svg("text", { y, class: name }, text);
  if (parts.length === 0) {
    return [line(5, "small", "no server is attached")];
  }
  const [copies, part] = parts[0];
  const of = part > 0.9995 ? "everywhere" : `on ${percent(part)}`;
  return [
    line(-22, "large", String(copies)),
    line(4, "medium", copies === 1 ? "copy" : "copies"),
    line(26, "small", of),
    line(48, "small", counted(servers, "server")),
  ];
}

function describe(servers, coverage) {
  const parts = sums(coverage).map(([copies, part]) => `${counted(copies, "acting copy", "acting copies")} of ${percent(part)}`);
  const lost = servers.filter(isLost).map((server) => server.address);
  const joining = servers.filter((server) => server.place === "joining").map((server) => server.address);
  const sentences = [
    `${counted(servers.length, "server")} with ${ring.points_per_server} points each.`,
    parts.length > 0 ? `The inner band: ${parts.join(", ")} of the ring.` : "",
    lost.length > 0 ? `Hatched: ${lost.join(", ")}.` : "",
    joining.length > 0 ? `Marks outside: ${joining.join(", ")}, on the way in.` : "",
  ];
  setText(byId("ring-alt"), sentences.filter(Boolean).join(" "));
}

function showLegend(servers) {
  keyed(
    byId("ring-legend"),
    servers,
    (server) => server.address,
    () => element("li", {}, swatch(), " ", element("span")),
    (node, server) => {
      paintSwatch(node.firstElementChild, server.address, isLost(server));
      const place = server.place === "attached" ? server.state : `${server.state}, ${server.place}`;
      setText(node.lastElementChild, `${server.address} ${place}, ${percent(server.share)}`);
      setAttribute(node, "data-state", server.state);
    },
  );
}

function sector(from, to, [inner, outer]) {
  if (to - from > 0.9999) {
    // An arc of a whole turn begins where it ends, and would be nothing.
    return sector(from, from + 0.5, [inner, outer]) + sector(from + 0.5, to, [inner, outer]);
  }
  const large = to - from > 0.5 ? 1 : 0;
  return (
    `M${spot(from, outer)}A${outer} ${outer} 0 ${large} 1 ${spot(to, outer)}` +
    `L${spot(to, inner)}A${inner} ${inner} 0 ${large} 0 ${spot(from, inner)}Z`
  );
}

/** 0 is at the top, and the ring goes on clockwise. */
function spot(at, radius) {
  const angle = (at - 0.25) * 2 * Math.PI;
  return `${(Math.cos(angle) * radius).toFixed(2)} ${(Math.sin(angle) * radius).toFixed(2)}`;
}
