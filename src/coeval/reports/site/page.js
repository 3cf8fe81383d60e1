// What the page does once it is there.

const darkSystem = window.matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;

const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : darkSystem.matches);

document.getElementById("theme").addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  redraw();
});
darkSystem.addEventListener("change", redraw);

// On paper everything is light and open, and all pictures are there.
async function print() {
  const theme = root.dataset.theme;
  root.dataset.theme = "light";
  const closed = [...document.querySelectorAll("details:not([open])")];
  for (const each of closed) each.open = true;
  await Promise.all([...document.querySelectorAll("figure[data-picture]")].map(draw));
  window.print();
  if (theme) root.dataset.theme = theme;
  else delete root.dataset.theme;
  for (const each of closed) each.open = false;
  if (isDark()) redraw();
}
document.getElementById("print").addEventListener("click", print);

function openTarget() {
  const [anchor, query] = location.hash.slice(1).split("?");
  const target = document.getElementById(anchor);
  if (target instanceof HTMLDetailsElement) target.open = true;
  if (target && query !== undefined) target.scrollIntoView();
}
window.addEventListener("hashchange", () => {
  openTarget();
  if (readFilter()) applyFilter();
});
openTarget();

// The items behind the numbers: those that this page holds, or those of the server that it came from.
const itemsPlace = document.getElementById("items-body");
let itemsShown = null;

async function itemsSource() {
  const { served, held, asked } = window.coevalItems;
  const at = itemsPlace.dataset.servedAt;
  return at ? served(at, (await asked(`${at}state`)).facets) : held(await jsonBlock("items"));
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

// The figures of a choice, for whoever wants them by program: the same that the filters show.
window.coevalPage = {
  tables: (query) => filteredTables(Object.fromEntries(
    DIMENSIONS.map((name) => [name, new Set(new URLSearchParams(query).getAll(name))]),
  )),
};

watchPictures();
openTarget();
watchItems();
offerAllRows();
buildFilters();
