// What the page shows, as its address has it: `#where?task=triage&by=by+task`. Beside a choice of items the same
// stands under the key `report`: `#items?student=ann&task=triage&report=task%3Dtriage`.

const DIMENSIONS = ["task", "judge", "teacher", "factor", "variant", "attribute"];
const OF_ITEMS = DIMENSIONS.filter((name) => name !== "variant"); // those by which items are chosen too
const TOGGLES = ["by", "scores", "baseline", "of"];

let chosen = {}; // by dimension, a set of names; none: all
let toggled = {}; // by parameter of a picture, a value; none: the usual one

// Whether a row of a table is among those that toggles choose; `usual`: by column, the value without a choice.
const isChosen = (row, usual = {}) => Object.entries(usual).every(([name, value]) => row[name] === (toggled[name] ?? value));

const filterPairs = () => DIMENSIONS.flatMap((name) => [...(chosen[name] ?? [])].map((value) => [name, value]));
const itemPairs = () => filterPairs().filter(([name]) => OF_ITEMS.includes(name));
const pageQuery = () => new URLSearchParams([...filterPairs(), ...Object.entries(toggled)]).toString();

function placeInAddress() {
  const [anchor, ...query] = location.hash.slice(1).split("?");
  return { anchor, query: new URLSearchParams(query.join("?")) };
}

// Whether it says something else than before.
function readAddress() {
  const { anchor, query } = placeInAddress();
  const told = anchor === "items" ? new URLSearchParams(query.get("report") ?? "") : query;
  const before = pageQuery();
  chosen = choicesIn(told);
  toggled = Object.fromEntries(TOGGLES.filter((name) => told.get(name)).map((name) => [name, told.get(name)]));
  return before !== pageQuery();
}

function choicesIn(query) {
  return Object.fromEntries(DIMENSIONS.map((name) => [name, new Set(query.getAll(name))]).filter(([, values]) => values.size));
}

// A place in the page that shows what is shown now.
function pageAddress(anchor, query = pageQuery()) {
  return query ? `#${anchor || "filter"}?${query}` : `#${anchor}`;
}

// The address of a choice of items: its own, and the filter where it says nothing of that; each attribute is a
// dimension of its own.
function itemsAddress(link) {
  const query = new URLSearchParams(link);
  const named = new Set([...query].map(([name, value]) => dimensionOf(name, value)));
  for (const [name, value] of itemPairs()) if (!named.has(dimensionOf(name, value))) query.append(name, value);
  return withReport(query);
}

const dimensionOf = (name, value) => (name === "attribute" ? `attribute ${value.split("=")[0]}` : name);

function withReport(query) {
  if (pageQuery()) query.set("report", pageQuery());
  else query.delete("report");
  return query.size ? `#items?${query}` : "#items";
}

// Take over what is chosen now; `before` are the filter's pairs until then. A choice of items that followed
// the filter follows it on.
function tellAddress(before) {
  const { anchor, query } = placeInAddress();
  if (anchor !== "items") return history.pushState(null, "", pageAddress(anchor === "filter" ? "" : anchor));
  const values = (pairs, name) => pairs.filter(([of]) => of === name).map(([, value]) => value).sort().join("\n");
  for (const name of OF_ITEMS) {
    if (values([...query], name) !== values(before, name)) continue;
    query.delete(name);
    for (const value of chosen[name] ?? []) query.append(name, value);
  }
  for (const name of ["open", "in", "from"]) query.delete(name);
  return history.pushState(null, "", withReport(query));
}

// Links within the page lead to what is shown now, but for what they choose themselves.
function handOn(within = document) {
  for (const link of within.querySelectorAll('a[href^="#"]')) {
    if (link.closest("#items-body")) continue;
    link.dataset.own ??= link.getAttribute("href");
    const [anchor, ...query] = link.dataset.own.slice(1).split("?");
    const shown = new URLSearchParams(pageQuery());
    for (const [name, value] of new URLSearchParams(query.join("?"))) shown.set(name, value);
    link.setAttribute("href", anchor === "items" ? itemsAddress(query.join("?")) : pageAddress(anchor, shown.toString()));
  }
}
