// A table whose rows stay in place while their numbers change, and whose roles hold when narrow screens stack its cells.

import { element, keyed, setText } from "./dom.js";

/** `columns`: `{ label, number, head, name, fill(cell, row) }`, where `fill` sets text or children; `key(row)` names a row. */
export class Table {
  constructor(table, columns, key, empty) {
    this.columns = columns;
    this.key = key;
    table.setAttribute("role", "table");
    const heads = columns.map((column) =>
      element("th", { scope: "col", role: "columnheader", class: column.number ? "number" : null }, column.label),
    );
    const head = element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...heads));
    this.body = element("tbody", { role: "rowgroup" });
    this.empty = element("p", { class: "muted empty", hidden: true }, empty);
    table.append(head, this.body);
    table.after(this.empty);
  }

  show(rows) {
    keyed(this.body, rows, this.key, () => this.row(), (node, row) => {
      this.columns.forEach((column, index) => {
        const cell = node.children[index];
        const text = column.fill(cell, row);
        if (typeof text === "string") {
          setText(cell, text);
        }
      });
    });
    this.empty.hidden = rows.length > 0;
    this.body.parentElement.hidden = rows.length === 0;
  }

  row() {
    const cells = this.columns.map((column) =>
      column.head
        ? element("th", { scope: "row", role: "rowheader", "data-label": column.label })
        : element("td", { role: "cell", "data-label": column.label, class: column.name ?? (column.number ? "number" : null) }),
    );
    return element("tr", { role: "row" }, ...cells);
  }
}
