// Sortable tables: a real button in every head, aria-sort on the column, holes always last.
// Without this script the tables stand in the order in which they were published.
(() => {
  const cellAt = (row, column) => {
    let index = 0;
    for (const cell of row.cells) {
      index += cell.colSpan;
      if (column < index) return cell;
    }
    return null;
  };

  const keyOf = (row, column) => {
    const cell = cellAt(row, column);
    const text = cell === null ? "" : cell.dataset.sort ?? cell.textContent.trim();
    if (text === "") return null;
    const number = Number(/^-?[\d,]+(\.\d+)?$/.test(text) ? text.replaceAll(",", "") : text);
    return Number.isNaN(number) ? text : number;
  };

  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  };

  const sort = (table, head, column) => {
    const down = head.getAttribute("aria-sort") === "ascending";
    const body = table.tBodies[0];
    const rows = Array.from(body.rows, (row) => ({ row, key: keyOf(row, column) }));
    rows.sort((a, b) => {
      if (a.key === null || b.key === null) return (a.key === null) - (b.key === null);
      return down ? compare(b.key, a.key) : compare(a.key, b.key);
    });
    for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows.map((entry) => entry.row));
  };

  const prepare = (table) => {
    if (table.dataset.nsReady !== undefined) return;
    table.dataset.nsReady = "";
    Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => sort(table, head, column));
    });
  };

  // The theme boxes the tables of hand-written pages; what scrolls has to be reached by keys.
  const reach = (box) => { box.tabIndex = 0; };

  const start = () => {
    document.querySelectorAll("table[data-ns-sortable]").forEach(prepare);
    document.querySelectorAll(".md-typeset__scrollwrap").forEach(reach);
  };
  if (typeof document$ === "undefined") start();
  else document$.subscribe(start);
})();
