// Pictures are drawn when they come into view, and all others once the page has been painted, so that
// screenshots, archives and paper have them.

const drawn = new Map();
const manyRows = 1500;
const itemsBehind = "items behind";
const NOTHING_DRAWN = { finalize: () => {}, view: null }; // stays among those that a filter draws anew

async function draw(figure) {
  const report = await jsonBlock("report");
  await scriptBlock("vega");
  const { spec: written, table } = report.pictures[figure.dataset.picture];
  const { rows: own, links, columns, chosen: usual = {} } = report.tables[table];
  const linked = own.map((row, at) => ({ ...plainRow(row), ...(links[at] ? { [itemsBehind]: links[at] } : {}), [placeRead]: at }));
  const place = figure.querySelector(".drawing");
  const spec = report.order ? inOrder(written, report.students.map(chartText), report.order.map(chartText)) : { ...written };
  const { row, step, needs } = spec.usermeta ?? {};
  const inPlay = Object.keys(usual).length ? chosenRows(spec, linked, own, usual) : inView(spec, linked);
  const rows = inPlay.filter((each) => !needs || (each[needs] !== null && each.score !== null));
  if (row) spec.height = Math.min(new Set(rows.map((each) => each[row])).size * step, written.height);
  else if (step) spec.height = rows.length * step;
  if (!rows.length || report.tables[table].empty) {
    drawn.get(figure)?.finalize();
    place.replaceChildren("Nothing selected.");
    drawn.set(figure, NOTHING_DRAWN);
    return;
  }
  if (spec.usermeta?.width) place.style.maxWidth = `${spec.usermeta.width}px`;
  const scrolls = spec.usermeta?.least > place.clientWidth;
  place.classList.toggle("scrolls", scrolls);
  if (scrolls) {
    Object.assign(spec, { width: spec.usermeta.least, autosize: { type: "fit-x", contains: "padding" } });
  }
  const scheme = isDark() ? "dark" : "light";
  const result = await window.vegaEmbed(place, spec, {
    actions: false,
    ast: true,
    renderer: rows.length > manyRows ? "canvas" : "svg",
    defaultStyle: false,
    config: report.themes[scheme],
    tooltip: { disableDefaultStyle: true },
    patch: (vega) => {
      for (const data of vega.data) if (data.name === table) data.values = rows;
      return vega;
    },
  });
  place.querySelector("svg")?.setAttribute("aria-hidden", "true"); // its marks are read by keys
  if (document.getElementById("items-body")) {
    result.view.addEventListener("click", (_, mark) => {
      const query = mark?.datum?.[itemsBehind];
      if (query) location.hash = itemsAddress(query);
    });
    if (Object.keys(links).length) place.classList.add("leads-on");
  }
  drawn.get(figure)?.finalize();
  drawn.set(figure, result);
  readByKeys(figure, { title: figure.querySelector("figcaption").textContent, spec: written, columns, rows, links });
  figure.dataset.drawn = scheme;
  if (scheme !== (isDark() ? "dark" : "light")) await draw(figure); // it changed meanwhile
}

// The rows that a picture's toggles choose, as its specification does with the values that it is given.
function inView(spec, rows) {
  if (!spec.params) return rows;
  spec.params = spec.params.map((each) => ({ ...each, value: toggled[each.name] ?? each.value }));
  const { by, scores } = Object.fromEntries(spec.params.map(({ name, value }) => [name, value]));
  return rows.filter((row) => row.scores === scores && (by === "overall") === (row.task === null) && row.score !== null);
}

// Those of a table that has toggles of its own.
function chosenRows(spec, rows, own, usual) {
  spec.params = spec.params?.map((each) => ({ ...each, value: chartText(toggled[each.name] ?? each.value) }));
  return rows.filter((_, at) => isChosen(own[at], usual)).slice(0, spec.usermeta?.most);
}

// As coeval.reports.charts.chart_spec has names in specifications.
const chartText = (text) => (text in {} ? `${text}\u200d` : plain(text));

function plainRow(row) {
  return Object.fromEntries(Object.entries(row).map(([name, value]) => [name, typeof value === "string" ? chartText(value) : value]));
}

// Buttons above a picture that choose what it shows.
function showToggles() {
  for (const group of document.querySelectorAll(".toggles [data-toggle]")) {
    const buttons = [...group.querySelectorAll("button, option")];
    const name = group.dataset.toggle;
    if (!buttons.some((button) => button.value === toggled[name])) delete toggled[name];
    const now = toggled[name] ?? buttons[0].value;
    if (group.matches("select")) group.value = now;
    else for (const button of buttons) button.ariaPressed = String(button.value === now);
  }
}

function buildToggles() {
  for (const select of document.querySelectorAll("select[data-toggle]")) {
    select.addEventListener("change", () => choose(() => {
      toggled[select.dataset.toggle] = select.value;
    }));
  }
  for (const button of document.querySelectorAll(".toggles button")) {
    const name = button.closest("[data-toggle]").dataset.toggle;
    button.addEventListener("click", () => choose(() => {
      toggled[name] = button.value;
    }));
  }
}

const redraw = (wanted = () => true) => Promise.all([...drawn.keys()].filter(wanted).map(draw));

// Students stand in the order of the scores that are shown.
function inOrder(part, students, order) {
  if (Array.isArray(part)) {
    const at = students.indexOf(part[0]); // a matrix has all but the last in rows, all but the first in columns
    const some = at >= 0 && part.every((name, place) => name === students[at + place]);
    return some ? order.slice(at, at + part.length) : part.map((each) => inOrder(each, students, order));
  }
  if (part === null || typeof part !== "object") return part;
  const found = {};
  for (const [name, value] of Object.entries(part)) {
    found[name] = name === "domain" ? value : inOrder(value, students, order);
  }
  return found;
}

function save(name, url) {
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  if (url.startsWith("blob:")) setTimeout(() => URL.revokeObjectURL(url), 1000);
}

const blobUrl = (text, type) => URL.createObjectURL(new Blob([text], { type }));

// As a picture for a document; where the clipboard takes none, as a file.
async function copyPicture(view, name, button) {
  const canvas = await view.toCanvas(2);
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  try {
    await navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]);
    flash(button, "Copied");
  } catch {
    save(`${name}.png`, URL.createObjectURL(blob));
    flash(button, "Saved");
  }
}

async function saveAs(figure, kind, button) {
  const report = await jsonBlock("report");
  const name = figure.dataset.picture;
  if (kind === "CSV") {
    const table = report.tables[report.pictures[name].table];
    save(`${name}.csv`, blobUrl(csvText(table), "text/csv"));
    return;
  }
  if (!drawn.has(figure)) await draw(figure);
  const { view } = drawn.get(figure);
  if (view === null) return;
  if (kind === "Copy") await copyPicture(view, name, button);
  else if (kind === "SVG") save(`${name}.svg`, blobUrl(await view.toSVG(), "image/svg+xml"));
  else save(`${name}.png`, await view.toImageURL("png", 3));
}

// Say for a moment on a button what it has done.
function flash(button, told) {
  button.dataset.usual ??= button.textContent;
  button.textContent = told;
  setTimeout(() => {
    button.textContent = button.dataset.usual;
  }, 1500);
}

const requested = new Set();

async function drawOnce(figure) {
  if (requested.has(figure)) return;
  requested.add(figure);
  await draw(figure);
}

// One after another, each while nothing else is to be done.
async function drawRest() {
  const idle = window.requestIdleCallback ?? ((then) => setTimeout(then, 50));
  for (const figure of document.querySelectorAll("figure[data-picture]")) {
    await new Promise((then) => idle(then));
    await drawOnce(figure);
  }
  document.documentElement.dataset.pictures = "drawn";
}

function watchPictures() {
  const watcher = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) if (isIntersecting) drawOnce(target);
    },
    { rootMargin: "300px" },
  );
  for (const figure of document.querySelectorAll("figure[data-picture]")) {
    const place = figure.querySelector(".drawing");
    place.style.minHeight = `${Number(place.dataset.height) + 50}px`; // so that nothing moves when it is drawn
    const saves = document.createElement("div");
    saves.className = "saves";
    const readout = document.createElement("span");
    readout.className = "readout";
    readout.role = "status";
    saves.append(readout);
    for (const kind of ["Copy", "SVG", "PNG", "CSV"]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = kind;
      const title = figure.querySelector("b").textContent;
      button.ariaLabel = kind === "Copy" ? `Copy ${title} as a picture` : `Save ${title} as ${kind}`;
      button.addEventListener("click", () => saveAs(figure, kind, button));
      saves.append(button);
    }
    figure.append(saves);
    watcher.observe(figure);
  }
  // After the first paint, which waits for nothing that is drawn later.
  window.addEventListener("load", () => requestAnimationFrame(() => setTimeout(drawRest, 0)));
}
