// PFS as a tree: directories open in place, a page at a time.

import { ask } from "./api.js";
import { byId, element, setText } from "./dom.js";
import { bytes, count, counted, date } from "./format.js";
import { openFile } from "./preview.js";

const PAGE = 100;

/** Directories that are open, so that a reload leaves them open. */
const open = new Set();
let root = "/";

export function startFiles() {
  byId("files-go").addEventListener("submit", (event) => {
    event.preventDefault();
    go(byId("files-path").value.trim() || "/");
  });
  byId("files-reload").addEventListener("click", () => plant(root));
  plant(root);
}

async function go(path) {
  try {
    const found = await ask("v1/fs/stat", { path });
    if (found.directory) {
      open.clear();
      await plant(path);
    } else {
      showError(null);
      openFile(path);
    }
  } catch (error) {
    showError(error.message);
  }
}

/** Makes a directory the root of the tree. */
async function plant(path) {
  root = path;
  byId("files-path").value = path;
  const list = element("ul", { class: "tree" });
  showError(null);
  try {
    await grow(list, path, 0);
    byId("files-tree").replaceChildren(list);
  } catch (error) {
    showError(error.message);
  }
}

/** Adds a page of a directory's entries to a list. */
async function grow(list, path, index) {
  const page = await ask("v1/fs/list", { path, index, count: PAGE });
  page.entries.forEach((entry) => list.append(leaf(path, entry)));
  if (page.total === 0) {
    list.append(element("li", { class: "muted" }, "empty"));
  }
  if (page.next !== null) {
    list.append(further(list, path, page));
  }
  const opened = [...list.children].filter((item) => open.has(item.dataset.path) && item.lastElementChild.tagName !== "UL");
  await Promise.all(opened.map((item) => unfold(item)));
}

function further(list, path, page) {
  const shown = page.index + page.entries.length;
  const item = element("li");
  const more = async () => {
    try {
      const before = list.children.length;
      await grow(list, path, page.next);
      item.remove();
      list.children[before - 1]?.querySelector("button")?.focus();
    } catch (error) {
      showError(error.message);
    }
  };
  const text = `Next ${PAGE} (${count(shown)} of ${count(page.total)} shown)`;
  item.append(element("button", { type: "button", class: "more", click: more }, text));
  return item;
}

function leaf(parent, entry) {
  const path = parent === "/" ? `/${entry.name}` : `${parent}/${entry.name}`;
  const name = element("span", { class: "name" }, entry.directory ? `${entry.name}/` : entry.name);
  const size = entry.directory ? counted(entry.length, "entry", "entries") : bytes(entry.length);
  const facts = [size, `version ${entry.version}`, date(entry.modified_at)];
  if (entry.ephemeral !== null) {
    facts.push(`ends with session ${entry.ephemeral}`);
  }
  const button = element("button", { type: "button", class: entry.directory ? "directory" : "file" }, name);
  const item = element("li", { "data-path": path }, button, element("span", { class: "muted facts-line" }, ` ${facts.join(" · ")}`));
  if (entry.directory) {
    button.setAttribute("aria-expanded", "false");
    button.addEventListener("click", () => (open.has(path) ? fold(item) : unfold(item)));
  } else {
    button.addEventListener("click", () => openFile(path));
  }
  return item;
}

async function unfold(item) {
  const { path } = item.dataset;
  open.add(path);
  const list = element("ul");
  try {
    await grow(list, path, 0);
  } catch (error) {
    open.delete(path);
    showError(error.message);
    return;
  }
  // Two answers may come for two presses.
  item.querySelector(":scope > ul")?.remove();
  item.append(list);
  item.firstElementChild.setAttribute("aria-expanded", "true");
}

function fold(item) {
  open.delete(item.dataset.path);
  item.querySelector(":scope > ul")?.remove();
  item.firstElementChild.setAttribute("aria-expanded", "false");
}

function showError(text) {
  byId("files-error").hidden = text === null;
  setText(byId("files-error"), text ?? "");
}
