// Makes and changes elements. Text is only ever set as text: nothing that a server says becomes markup.

const SVG = "http://www.w3.org/2000/svg";

export function byId(id) {
  return document.getElementById(id);
}

/** An element with attributes (a function is a listener, true an empty attribute) and children (strings are text). */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      node.addEventListener(name, value);
    } else if (value !== null && value !== false) {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
  node.append(...children);
  return node;
}

/** Only when it differs: readers of the screen speak changes, and a selection is lost by them. */
export function setText(node, text) {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}

export function setAttribute(node, name, value) {
  if (value === null || value === false) {
    node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) {
    node.setAttribute(name, String(value));
  }
}

/** Makes the children of `parent` those of `items`, keeping the nodes of keys that stay, and with them the focus. */
export function keyed(parent, items, key, create, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let node = known.get(name);
    known.delete(name);
    if (node === undefined) {
      node = create(item);
      node.dataset.key = name;
    }
    if (node === place) {
      place = place.nextElementSibling;
    } else {
      parent.insertBefore(node, place);
    }
    update(node, item);
  }
  known.forEach((node) => node.remove());
}

/** Terms and their descriptions, `[[term, text, title?], …]`. */
export function showFacts(list, facts) {
  keyed(
    list,
    facts,
    ([term]) => term,
    ([term]) => element("div", {}, element("dt", {}, term), element("dd")),
    (node, [, text, title]) => {
      setText(node.lastElementChild, text);
      setAttribute(node.lastElementChild, "title", title ?? null);
    },
  );
}
