// A server's colour and mark. They stay while the page is open, whoever comes or goes; the mark is for those who cannot tell colours apart.

import { element, setAttribute, setText } from "./dom.js";

/** As many as style.css has of `.server-N`. */
const COLOURS = 8;

const known = new Map();

/** Call with all servers in order before asking for one, so that two pages opened together agree. */
export function meet(addresses) {
  addresses.filter((address) => !known.has(address)).forEach((address) => known.set(address, known.size));
}

export function colourClass(address) {
  return `server-${number(address) % COLOURS}`;
}

/** A, B, …, Z, A2, B2, … */
export function mark(address) {
  const index = number(address);
  const turn = Math.floor(index / 26);
  return String.fromCharCode(65 + (index % 26)) + (turn > 0 ? turn + 1 : "");
}

export function swatch() {
  return element("span", { class: "swatch" });
}

export function paintSwatch(node, address, isFault) {
  setText(node, mark(address));
  setAttribute(node, "class", `swatch ${colourClass(address)}${isFault ? " hatched" : ""}`);
}

function number(address) {
  meet([address]);
  return known.get(address);
}
