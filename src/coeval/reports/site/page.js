// What the page does once it is there.

const darkSystem = window.matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;

const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : darkSystem.matches);

document.getElementById("theme").addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  redraw();
});
darkSystem.addEventListener("change", () => redraw());

// On paper everything is light and all pictures are there: a brief, or the whole page with its tables open.
async function print(whole) {
  const theme = root.dataset.theme;
  root.dataset.theme = "light";
  root.dataset.print = whole ? "whole" : "brief";
  await Promise.all([...document.querySelectorAll("figure[data-picture]")].map(draw));
  window.print();
  delete root.dataset.print;
  if (theme) root.dataset.theme = theme;
  else delete root.dataset.theme;
  if (isDark()) redraw();
}
document.getElementById("print").addEventListener("click", () => print(false));
document.getElementById("print-all").addEventListener("click", () => print(true));
document.getElementById("view-link").addEventListener("click", async ({ currentTarget }) => {
  flash(currentTarget, (await copyText(location.href)) ? "Copied" : "See the address bar");
});
// A command; where nothing can be copied it is selected, so that the keyboard copies it.
for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", async () => {
    const copied = await copyText(button.dataset.copy);
    if (!copied) getSelection().selectAllChildren(button.previousElementSibling);
    flash(button, copied ? "Copied" : "Selected");
  });
}
document.addEventListener("keydown", (event) => {
  if (event.key !== "p" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
  event.preventDefault();
  print(false);
});

let openedForPaper = [];
window.addEventListener("beforeprint", () => {
  const shut = root.dataset.print === "whole" ? "main details.table:not([open])" : ".brief details.table:first-of-type:not([open])";
  openedForPaper = [...document.querySelectorAll(shut)];
  for (const each of openedForPaper) each.open = true;
});
window.addEventListener("afterprint", () => {
  for (const each of openedForPaper) each.open = false;
});

let anchored = "";

function openTarget() {
  const { anchor, query } = placeInAddress();
  const target = document.getElementById(anchor);
  if (target instanceof HTMLDetailsElement) target.open = true;
  if (target && query.size && anchor !== anchored) target.scrollIntoView();
  anchored = anchor;
}

let applied = ""; // what of the address the figures follow
let toggledBefore = "{}";

// The address says what is shown.
async function showAddress() {
  readAddress();
  showToggles();
  handOn();
  const filter = new URLSearchParams(filterPairs()).toString();
  const toggles = JSON.stringify(toggled);
  const [filters, toggling] = [filter !== applied, toggles !== toggledBefore];
  [applied, toggledBefore] = [filter, toggles];
  if (filters) await applyChoice();
  if (filters || !linesTold) tellLost();
  if (!toggling) return;
  await redraw((figure) => figure.querySelector(".toggles"));
  await renderChosen();
}
window.addEventListener("hashchange", () => {
  openTarget();
  showAddress();
});

// The items behind the numbers: those that this page holds, or those of the server that it came from.
const itemsPlace = document.getElementById("items-body");
let itemsShown = null;
let itemsRead = null;

const itemsSource = () => (itemsRead ??= readSource());

async function readSource() {
  const { served, held, asked } = window.coevalItems;
  const at = itemsPlace.dataset.servedAt;
  const source = at ? served(at, (await asked(`${at}state`)).facets) : held(await jsonBlock("items"));
  source.usual = () => new URLSearchParams(itemPairs()).toString();
  source.figures = figuresOf;
  return source;
}

// On how many items one student lost to another, as a filter has it; null where the page holds too few to tell.
async function lostCount(lost) {
  const filter = new URLSearchParams(itemPairs()).toString();
  if (!filter && document.getElementById("data-lost")) {
    const found = (await jsonBlock("lost")).find(([loser, winner]) => `${loser},${winner}` === lost);
    return found ? found[2] : 0;
  }
  const source = await itemsSource();
  if (source.isWhole === false) return null;
  return (await source.rows(`${new URLSearchParams({ lost })}${filter && `&${filter}`}`, 0, 1)).total;
}

// Best first; where no judge scored, by labels or by comparisons.
function leadersOf({ order, students, tables }) {
  if (students.length) return order ?? students;
  const rows = (tables.labels ?? tables.strengths)?.rows ?? [];
  return [...new Set(rows.map((row) => row.student))];
}

let linesTold = 0;

// Below the headline: the items where the leader lost to the next, and the other way round.
async function tellLost() {
  const place = document.getElementById("read");
  if (!place || !document.getElementById("data-report")) return;
  const told = (linesTold += 1);
  const report = await jsonBlock("report");
  const [first, second] = leadersOf(report);
  if (second === undefined) return;
  const parts = [];
  for (const [loser, winner] of [[second, first], [first, second]]) {
    const found = await lostCount(`${loser},${winner}`);
    if (found === 0) continue;
    const link = document.createElement("a");
    link.href = itemsAddress(new URLSearchParams({ lost: `${loser},${winner}` }).toString());
    showIn(link, `${found === null ? "Items" : many(found, "item")} where ${plain(loser)} lost to ${plain(winner)}`);
    parts.push(link);
  }
  if (told !== linesTold) return; // the filter changed meanwhile
  place.replaceChildren(...parts.flatMap((part, at) => (at ? [" · ", part] : [part])));
  place.hidden = !parts.length;
}

// Where the page shows figures of a choice of items; null where all are chosen, or it has none.
function figuresOf(choice) {
  const query = new URLSearchParams([...choice].filter(([name]) => DIMENSIONS.includes(name)));
  if (!query.size || !canShow(query.toString())) return null;
  for (const [name, value] of Object.entries(toggled)) query.set(name, value);
  return pageAddress("leads", query.toString());
}

function showItems() {
  itemsShown ??= itemsSource().then((source) => window.coevalItems.mount(itemsPlace, source));
}

function watchItems() {
  if (itemsPlace === null) return;
  const watcher = new IntersectionObserver(
    ([{ isIntersecting }]) => {
      if (isIntersecting) showItems();
    },
    { rootMargin: "300px" },
  );
  watcher.observe(itemsPlace);
  const follow = () => {
    if (!location.hash.startsWith("#items?")) return;
    showItems();
  };
  window.addEventListener("hashchange", follow);
  follow();
}

// For whoever wants the figures of a choice by program.
window.coevalPage = { fixed, figure, figures: choiceFigures };

readAddress();
watchPictures();
openTarget();
watchItems();
offerTools();
buildToggles();
showAddress();
