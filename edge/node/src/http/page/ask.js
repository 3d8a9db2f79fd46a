// Asks before an order is given, in a dialog that shows what it would move.

import { ask, write } from "./api.js";
import { byId, element, setAttribute, setText } from "./dom.js";
import { bytes, count, percent } from "./format.js";

/** More rows do not help a decision. */
const PLAN_ROWS_MAX = 20;

const dialog = byId("ask");
let isLive = false;
let order = null;

/** `live`: what the page shows is of now. Otherwise nothing can be ordered. */
export function setLive(live) {
  isLive = live;
  // Not disabled: who stands on a button would lose their place, and nobody would say why.
  document.querySelectorAll("button.write").forEach((button) => setAttribute(button, "aria-disabled", !live || null));
}

/** An empty text takes the notice away. What is spoken must have been there before, so it is never hidden altogether. */
export function notify(text) {
  setText(byId("notice-text"), text);
  byId("notice").classList.toggle("unseen", text === "");
  byId("notice-close").hidden = text === "";
}

/** `{ title, text, confirm, danger, path, body, checks, plan, done }`; checks become fields of the body. */
export function askFirst(wanted) {
  if (!isLive) {
    notify("Disconnected: nothing can be ordered before the page shows the cluster as it is.");
    return;
  }
  order = wanted;
  setText(byId("ask-title"), order.title);
  setText(byId("ask-text"), order.text);
  setText(byId("ask-yes"), order.confirm);
  byId("ask-yes").classList.toggle("danger", order.danger === true);
  byId("ask-yes").disabled = false;
  byId("ask-checks").replaceChildren(...(order.checks ?? []).map(check));
  showError(null);
  showPlan(order);
  dialog.showModal();
  byId("ask-no").focus();
}

function check({ name, label, checked }) {
  const box = element("input", { type: "checkbox", name });
  box.checked = checked;
  return element("label", { class: "check" }, box, ` ${label}`);
}

async function showPlan(asked) {
  const place = byId("ask-plan");
  place.replaceChildren();
  if (asked.plan === undefined) {
    return;
  }
  place.append(element("p", { class: "muted" }, "Asking what this would move …"));
  let parts;
  try {
    parts = planned(await ask("v1/plan", asked.plan));
  } catch (error) {
    parts = [element("p", { class: "muted" }, `What this would move is not known: ${error.message}.`)];
  }
  // By then another question may be open.
  if (order === asked) {
    place.replaceChildren(...parts);
  }
}

function planned(plan) {
  const text = plan.bytes === 0 ? "Without data to move." : `About ${bytes(plan.bytes)} in ${count(plan.records)} records would be moved.`;
  const cell = (name, content) => element(name, name === "th" ? { scope: "col" } : {}, content);
  const rows = plan.servers.slice(0, PLAN_ROWS_MAX).map((server) =>
    element("tr", {}, ...shares(server).map((text) => cell("td", text))),
  );
  const heads = ["Server", "Share now", "Share then", "Gains"].map((label) => cell("th", label));
  const table = element("table", { class: "plan" }, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows));
  const parts = [element("p", {}, text), table];
  if (plan.servers.length > PLAN_ROWS_MAX) {
    parts.push(element("p", { class: "muted" }, `and ${count(plan.servers.length - PLAN_ROWS_MAX)} more servers`));
  }
  return parts;
}

function shares({ address, share_before, share_after, share_gained }) {
  return [address, percent(share_before), percent(share_after), percent(share_gained)];
}

async function give(event) {
  event.preventDefault();
  const asked = order;
  const boxes = [...byId("ask-checks").querySelectorAll("input")];
  const body = { ...asked.body, ...Object.fromEntries(boxes.map((box) => [box.name, box.checked])) };
  showError(null);
  byId("ask-yes").disabled = true;
  try {
    await write(asked.path, body);
    if (order === asked) {
      dialog.close();
    }
    notify(asked.done);
  } catch (error) {
    refused(asked, error);
  }
}

function refused(asked, error) {
  if (order !== asked) {
    notify(`Refused: ${error.message}.`);
    return;
  }
  byId("ask-yes").disabled = false;
  showError(error.status === 504 ? `${error.message}: it may still be done` : error.message);
}

function showError(text) {
  byId("ask-error").hidden = text === null;
  setText(byId("ask-error"), text ?? "");
}

byId("ask-form").addEventListener("submit", give);
byId("ask-no").addEventListener("click", () => dialog.close());
dialog.addEventListener("close", () => {
  order = null;
});
byId("notice-close").addEventListener("click", () => notify(""));
