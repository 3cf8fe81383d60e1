// Tables as the page's text has them, of whatever rows there are now.

const FIRST_ROWS = 60;

function renderTable(name, { columns, rows, links }, most = FIRST_ROWS) {
  const table = document.querySelector(`table[data-table="${CSS.escape(name)}"]`);
  if (!table) return;
  const digits = columns.map((column) => columnDigits(rows, column.name));
  const lines = rows.slice(0, most).map((row, place) => {
    const line = document.createElement("tr");
    columns.forEach((column, at) => {
      const cell = document.createElement("td");
      cell.className = `k-${column.kind}`;
      const text = cellText(row, column, digits[at]);
      if (at === 0 && links[place]) {
        const link = document.createElement("a");
        link.href = `#items?${links[place]}`;
        link.textContent = text;
        cell.append(link);
      } else {
        cell.textContent = text;
      }
      line.append(cell);
    });
    return line;
  });
  table.tBodies[0].replaceChildren(...lines);
  handOn(table);
  const details = table.closest("details");
  details.querySelector(".count").textContent = rows.length.toLocaleString("en-US");
  details.querySelector(".more")?.remove();
  if (rows.length > most) details.append(moreButton(name, rows.length));
}

function moreButton(name, all) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "more";
  button.textContent = `Show all ${all.toLocaleString("en-US")} rows`;
  button.addEventListener("click", async () => renderTable(name, (await jsonBlock("report")).tables[name], Infinity));
  return button;
}

function offerAllRows() {
  for (const table of document.querySelectorAll("table[data-rows]")) {
    const all = Number(table.dataset.rows);
    if (all > table.tBodies[0].rows.length) {
      table.closest("details").append(moreButton(table.dataset.table, all));
    }
  }
}
