// A list of the cell that is read page by page, and only while it is open.

import { ask } from "./api.js";
import { element, setText } from "./dom.js";
import { count } from "./format.js";
import { Table } from "./table.js";

const PAGE = 50;
/** Not with every snapshot: a list costs the replica more than a number. */
const AGAIN_MS = 3_000;

export class List {
  constructor(details, name, columns, key, empty) {
    this.name = name;
    this.details = details;
    // What to ask `after` for each page up to this one; the first has none.
    this.pages = [null];
    this.next = null;
    this.asked = 0;
    this.asking = false;
    const table = element("table", {}, element("caption", { class: "unseen" }, details.firstElementChild.textContent));
    this.text = element("span", { class: "muted", role: "status" });
    this.back = element("button", { type: "button", click: () => this.turn(-1) }, "Page before");
    this.forth = element("button", { type: "button", click: () => this.turn(1) }, "Next page");
    const buttons = element("div", { class: "buttons" }, this.back, this.forth, this.text);
    details.append(element("div", {}, table), buttons);
    this.table = new Table(table, columns, key, empty);
    details.addEventListener("toggle", () => this.refresh(true));
  }

  turn(step) {
    if (step > 0 && this.next !== null) {
      this.pages.push(this.next);
    } else if (step < 0 && this.pages.length > 1) {
      this.pages.pop();
    }
    this.refresh(true);
  }

  async refresh(isNow = false) {
    const isDue = isNow || Date.now() - this.asked >= AGAIN_MS;
    if (!this.details.open || !isDue || (this.asking && !isNow)) {
      return;
    }
    this.asked = Date.now();
    this.asking = true;
    const after = this.pages[this.pages.length - 1];
    try {
      const answer = await ask(`v1/${this.name}`, after === null ? { count: PAGE } : { after, count: PAGE });
      // By then another page may have been turned to.
      if (after === this.pages[this.pages.length - 1]) {
        this.show(answer);
      }
    } catch (error) {
      setText(this.text, `Not read: ${error.message}.`);
    } finally {
      this.asking = false;
    }
  }

  show(answer) {
    const rows = answer[this.name];
    this.next = answer.next;
    this.table.show(rows);
    this.back.disabled = this.pages.length === 1;
    this.forth.disabled = this.next === null;
    const total = answer.total === undefined ? "" : ` of ${count(answer.total)}`;
    setText(this.text, `Page ${this.pages.length}: ${count(rows.length)}${total}`);
  }
}
