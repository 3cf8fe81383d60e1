// Tables as the page's text has them, of whatever rows there are now: sorted, searched, copied.

const FIRST_ROWS = 60;
const FIRST_CARDS = 12; // where each row is a card of many lines
const MORE_ROWS = 1000; // in one step, which takes some tenths of a second
const SEARCHED_FROM = 12;

const asCards = window.matchMedia("(max-width: 40rem)");
const wordsOrder = new Intl.Collator("en", { numeric: true });
const tableViews = new Map(); // by table, how somebody wants to see it, with the place of a column; it stays when a filter changes the rows

function viewOf(name) {
  if (!tableViews.has(name)) tableViews.set(name, { column: null, descending: false, words: [], most: null, texts: null, of: null });
  return tableViews.get(name);
}

const tableElement = (name) => document.querySelector(`table[data-table="${CSS.escape(name)}"]`);
const isMissing = (value) => value === null || value === undefined;

// Places of the rows that are shown, in their order: what is missing stands last, what is equal as it was.
function placesShown({ columns, rows, chosen: usual }, view) {
  let places = rows.map((_, at) => at).filter((at) => isChosen(rows[at], usual));
  if (view.words.length) {
    if (view.of !== rows) {
      view.texts = rows.map((row) => columns.flatMap((column) => [cellText(row, column), shownText(cellText(row, column))]).join("\n").toLowerCase());
      view.of = rows;
    }
    places = places.filter((at) => view.words.every((word) => view.texts[at].includes(word)));
  }
  if (view.column === null) return places;
  const values = rows.map((row) => row[columns[view.column].name]);
  const order = (one, other) => (typeof one === "string" && typeof other === "string" ? wordsOrder.compare(one, other) : one - other);
  const sign = view.descending ? -1 : 1;
  const known = places.filter((at) => !isMissing(values[at])).sort((one, other) => sign * order(values[one], values[other]));
  return [...known, ...places.filter((at) => isMissing(values[at]))];
}

function renderTable(name, data) {
  const table = tableElement(name);
  if (!table) return;
  const { columns, rows, links } = data;
  const view = viewOf(name);
  const places = placesShown(data, view);
  const most = view.most ?? (asCards.matches ? FIRST_CARDS : FIRST_ROWS);
  const lines = places.slice(0, most).map((place) => {
    const line = document.createElement("tr");
    columns.forEach((column, at) => {
      const cell = document.createElement("td");
      cell.className = `k-${column.kind}`;
      const text = cellText(rows[place], column);
      if (at === 0 && links[place]) {
        const link = document.createElement("a");
        link.href = `#items?${links[place]}`;
        link.textContent = shownText(text);
        cell.append(link);
      } else {
        cell.textContent = shownText(text);
      }
      if (shownText(text) !== text) cell.title = text;
      line.append(cell);
    });
    return line;
  });
  table.tBodies[0].replaceChildren(...lines);
  const whole = rows.filter((row) => isChosen(row, data.chosen)).length;
  table.dataset.rows = whole;
  handOn(table);
  const details = table.closest("details");
  const all = whole.toLocaleString("en-US");
  details.querySelector(".count").textContent = places.length < whole ? `${places.length.toLocaleString("en-US")} of ${all}` : all;
  offerMore(name, places.length, lines.length);
  if (details.querySelector(".table-tools")) dressTable(table);
}

function offerMore(name, all, now) {
  const details = tableElement(name).closest("details");
  details.querySelector(".more")?.remove();
  if (all <= now) return;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "more";
  const step = all - now > MORE_ROWS ? `${MORE_ROWS.toLocaleString("en-US")} more of ${all.toLocaleString("en-US")}` : `all ${all.toLocaleString("en-US")}`;
  button.textContent = `Show ${step} rows`;
  button.addEventListener("click", () => changeView(name, { most: now + MORE_ROWS }));
  details.append(button);
}

// Tables whose rows a toggle chooses.
async function renderChosen() {
  for (const [name, data] of Object.entries((await jsonBlock("report")).tables)) {
    if (Object.keys(data.chosen ?? {}).length) renderTable(name, data);
  }
}

async function changeView(name, change) {
  Object.assign(viewOf(name), change);
  renderTable(name, (await jsonBlock("report")).tables[name]);
}

// Numbers begin with the largest, texts with the first; the third time they stand as they did.
function sortBy(name, column, isText) {
  const view = viewOf(name);
  if (view.column !== column) return changeView(name, { column, descending: !isText });
  if (view.descending === !isText) return changeView(name, { descending: isText });
  return changeView(name, { column: null });
}

// --- Heads that sort, and above a table: search, order on a telephone, copies

// Heads say how it is sorted; cells carry their column's title, which a card shows beside them. What a table is
// made of is said in words, since cards take its display away.
function dressTable(table) {
  const view = viewOf(table.dataset.table);
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, at) => {
    head.ariaSort = view.column !== at ? "none" : view.descending ? "descending" : "ascending";
  });
  for (const line of table.tBodies[0].rows) {
    line.role = "row";
    heads.forEach((head, at) => {
      line.cells[at].role = "cell";
      line.cells[at].dataset.label = head.textContent;
    });
  }
  const tools = table.closest("details").querySelector(".table-tools");
  tools.querySelector("select").value = view.column === null ? "" : `${view.descending ? "-" : "+"}${view.column}`;
  tools.querySelector("input").hidden = Number(table.dataset.rows) < SEARCHED_FROM && !view.words.length;
}

// At once and of the page's own text, so that nothing moves while the page is read.
function buildTools(details) {
  const table = details.querySelector("table[data-table]");
  if (!table || details.querySelector(".table-tools")) return;
  const { make } = window.coevalItems;
  const name = table.dataset.table;
  const place = table.closest(".scroll");
  const title = place.ariaLabel;
  const search = make("input", { type: "search", placeholder: "Search", "aria-label": `Search in ${title}` });
  search.addEventListener("input", () => changeView(name, { words: search.value.toLowerCase().split(/\s+/).filter(Boolean), most: null }));
  const heads = [...table.tHead.rows[0].cells];
  const orders = heads.flatMap((head, at) => (isTexts(head) ? "+-" : "-+").split("").map((sign) => [`${sign}${at}`, `${head.textContent} ${sign === "+" ? "↑" : "↓"}`]));
  const order = make("select", { "aria-label": `Order of ${title}` }, make("option", { value: "" }, "Sort by …"), orders.map(([value, text]) => make("option", { value }, text)));
  order.addEventListener("change", () => changeView(name, { column: order.value ? Number(order.value.slice(1)) : null, descending: order.value.startsWith("-") }));
  const said = make("span", { role: "status" });
  const copies = Object.keys(COPIES).map((kind) => make("button", { type: "button", "aria-label": `Copy ${title} as ${kind}`, click: () => copyTable(name, kind, said) }, kind));
  details.querySelector("summary").after(make("div", { class: "table-tools" }, search, order, said, make("span", { class: "copies" }, "Copy as ", copies)));
  table.role = "table";
  for (const part of [table.tHead, table.tBodies[0]]) part.role = "rowgroup";
  table.tHead.rows[0].role = "row";
  heads.forEach((head, at) => {
    const button = make("button", { type: "button", click: () => sortBy(name, at, isTexts(head)) });
    button.append(...head.childNodes);
    head.role = "columnheader";
    head.append(button);
  });
  if (asCards.matches) {
    for (const line of [...table.tBodies[0].rows].slice(FIRST_CARDS)) line.remove();
    offerMore(name, Number(table.dataset.rows), table.tBodies[0].rows.length);
  }
  dressTable(table);
  watchEdges(place);
}

const isTexts = (head) => head.classList.contains("k-text");

async function copyTable(name, kind, said) {
  const table = (await jsonBlock("report")).tables[name];
  const rows = placesShown(table, viewOf(name)).map((at) => table.rows[at]);
  const text = COPIES[kind]({ ...table, rows });
  const tools = said.closest(".table-tools");
  tools.querySelector("textarea")?.remove();
  if (await copyText(text)) {
    said.textContent = `Copied ${many(rows.length, "row")} as ${kind}.`;
    return;
  }
  said.textContent = "The browser blocks copying: press Ctrl+C, or ⌘C.";
  const place = window.coevalItems.make("textarea", { readonly: true, rows: "6", "aria-label": `${table.title} as ${kind}` });
  place.value = text;
  tools.append(place);
  place.select();
}

function offerTools() {
  for (const table of document.querySelectorAll("table[data-rows]")) offerMore(table.dataset.table, Number(table.dataset.rows), table.tBodies[0].rows.length);
  for (const details of document.querySelectorAll("details.table[open]")) buildTools(details);
  document.addEventListener("toggle", ({ target }) => target.matches("details.table[open]") && buildTools(target), true);
  asCards.addEventListener("change", () => {
    for (const name of tableViews.keys()) changeView(name, {});
  });
}

// A figure of a sentence leads to the first row that has it, of somebody the sentence names if there is one.
document.addEventListener("click", async ({ target }) => {
  const link = target.closest?.('.said a[href^="#"]');
  const table = link && tableElement(link.hash.slice(1));
  if (!table) return;
  const [said, wanted] = [link.parentElement.textContent, link.textContent.replace(/^[±$]\s*/, "")];
  table.closest("details").open = true;
  await new Promise(requestAnimationFrame); // the browser has gone to the table
  if (table.closest("details").querySelector(".more")) await changeView(table.dataset.table, { most: MORE_ROWS });
  const found = [...table.tBodies[0].rows].filter((line) => [...line.cells].some((cell) => cell.textContent.includes(wanted)));
  const named = found.find((line) => said.includes(line.cells[0].textContent));
  document.querySelector("tr.found")?.classList.remove("found");
  (named ?? found[0])?.classList.add("found");
  (named ?? found[0])?.scrollIntoView({ block: "center" });
});
