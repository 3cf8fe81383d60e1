// A choice of scores: its figures come from Python, with the page or from `coeval view`.

const choiceList = document.getElementById("choices");
const servedAt = document.getElementById("items-body")?.dataset.servedAt;
const NOT_HELD = "This page shows one choice at a time. For combinations, run coeval view.";

let whole = null; // tables and first screen of the run, as they were written
let choiceAsked = 0;

const heldChoice = (query) => [...(choiceList?.options ?? [])].find(({ value }) => value && new URLSearchParams(value).toString() === query);
const canShow = (query) => Boolean(choiceList && (servedAt || heldChoice(query)));

// What Python says of a choice, as its query has it; null: this page does not hold it.
async function choiceFigures(query) {
  if (servedAt) return window.coevalItems.asked(`${servedAt}figures?${query}`);
  const held = heldChoice(query);
  return held ? jsonBlock(held.dataset.block) : null;
}

// A row as an object by column: a measure is written as its value, ends and n.
function recordOf(columns, cells) {
  return Object.fromEntries(columns.flatMap(({ name }, at) => {
    const cell = cells[at];
    if (!Array.isArray(cell)) return [[name, cell]];
    return ["", "_low", "_high", "_n"].map((end, nth) => [`${name}${end}`, cell[nth]]);
  }));
}

const firstScreen = () => [...document.getElementById("lead").children].filter((part) => part.matches(".said, .forest"));

async function applyChoice() {
  if (!choiceList) return;
  const report = await jsonBlock("report");
  whole ??= {
    tables: Object.fromEntries(Object.entries(report.tables).map(([name, { rows, links }]) => [name, { rows, links }])),
    lead: firstScreen(),
  };
  const query = new URLSearchParams(filterPairs()).toString();
  const asked = (choiceAsked += 1);
  tellChoice(query && servedAt ? "Computing …" : "", query);
  let [found, told] = [null, ""];
  try {
    found = query ? await choiceFigures(query) : null;
    told = found?.status ?? (query ? NOT_HELD : "");
  } catch (error) {
    told = error.message;
  }
  if (asked !== choiceAsked) return; // another choice was made meanwhile
  tellChoice(told, query);
  document.body.classList.toggle("filtered", found !== null);
  showFirstScreen(found);
  report.order = found?.tables.students.rows.map(([name]) => name) ?? report.students;
  const changed = new Set();
  for (const [name, own] of Object.entries(whole.tables)) {
    const table = report.tables[name];
    const chosenTable = found?.tables[name];
    const rows = chosenTable ? chosenTable.rows.map((cells) => recordOf(table.columns, cells)) : own.rows;
    if (rows === table.rows) continue;
    Object.assign(table, { rows, links: (chosenTable ?? own).links, empty: Boolean(chosenTable && !found.tables.front.rows.length) });
    changed.add(name);
    renderTable(name, table);
  }
  await redraw((figure) => changed.has(report.pictures[figure.dataset.picture].table));
}

function showFirstScreen(found) {
  const box = document.createElement("template");
  if (found) box.innerHTML = found.lead;
  for (const part of firstScreen()) part.remove();
  document.getElementById("filter-status").after(...(found ? [...box.content.children] : whole.lead));
  handOn(document.getElementById("lead"));
}

function tellChoice(told, query) {
  const status = document.getElementById("filter-status");
  status.textContent = told;
  choiceList.selectedIndex = query ? [...choiceList.options].indexOf(heldChoice(query)) : 0;
  const chips = filterPairs().map(([dimension, name]) => {
    const button = document.createElement("button");
    button.type = "button";
    showIn(button, `${dimension} ${plain(name)}`);
    button.append(" ×");
    button.addEventListener("click", () => choose(() => chosen[dimension].delete(name)));
    const chip = document.createElement("li");
    chip.append(button);
    return chip;
  });
  document.getElementById("chips").replaceChildren(...chips);
}

// Somebody chose: `change` says what.
async function choose(change) {
  const before = filterPairs();
  change();
  tellAddress(before);
  await showAddress();
  (await itemsShown)?.follow();
}

// Where Python answers, a choice adds to those before it; elsewhere it takes their place.
choiceList?.addEventListener("change", () => choose(() => {
  const added = choicesIn(new URLSearchParams(choiceList.value));
  if (!servedAt || !choiceList.value) chosen = added;
  else for (const [dimension, names] of Object.entries(added)) chosen[dimension] = new Set([...(chosen[dimension] ?? []), ...names]);
}));
