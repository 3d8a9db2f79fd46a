// A file's content, a piece at a time: text as it is, other bytes in hexadecimal.

import { ask } from "./api.js";
import { byId, setText } from "./dom.js";
import { count } from "./format.js";

const PIECE = 4096;
const HEX_LINE = 16;

let path = null;
/** Where the pieces up to this one begin. */
let offsets = [];
let next = null;

export function openFile(name) {
  path = name;
  offsets = [0];
  return read();
}

async function read() {
  const [asked, offset] = [path, offsets[offsets.length - 1]];
  setText(byId("preview-title"), asked);
  try {
    const piece = await ask("v1/fs/read", { path: asked, offset, length: PIECE });
    if (asked === path && offset === offsets[offsets.length - 1]) {
      show(piece);
    }
  } catch (error) {
    setText(byId("preview-facts"), `Not read: ${error.message}.`);
    byId("preview-text").hidden = true;
    byId("preview-buttons").hidden = true;
  }
}

function show(piece) {
  const end = piece.offset + piece.length;
  next = piece.more ? end : null;
  const range = piece.length === 0 ? "empty" : `bytes ${count(piece.offset)} to ${count(end - 1)}`;
  const kind = piece.encoding === "utf-8" ? "text" : "bytes, in hexadecimal";
  setText(byId("preview-facts"), `Version ${piece.version}, ${range}, ${kind}${piece.more ? "; it goes on" : ""}`);
  const text = byId("preview-text");
  text.hidden = false;
  text.classList.toggle("hex", piece.encoding !== "utf-8");
  text.textContent = piece.encoding === "utf-8" ? piece.data : hexadecimal(piece.data, piece.offset);
  text.scrollTop = 0;
  byId("preview-buttons").hidden = offsets.length === 1 && next === null;
  byId("preview-back").disabled = offsets.length === 1;
  byId("preview-more").disabled = next === null;
}

function hexadecimal(base64, from) {
  const data = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const lines = [];
  for (let start = 0; start < data.length; start += HEX_LINE) {
    const line = data.subarray(start, start + HEX_LINE);
    const numbers = [...line].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = [...line].map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${(from + start).toString(16).padStart(8, "0")}  ${numbers.padEnd(HEX_LINE * 3)} ${letters}`);
  }
  return lines.join("\n");
}

byId("preview-more").addEventListener("click", () => {
  if (next !== null) {
    offsets.push(next);
    read();
  }
});
byId("preview-back").addEventListener("click", () => {
  offsets.pop();
  read();
});
