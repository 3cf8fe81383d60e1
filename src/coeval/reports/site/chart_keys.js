// Pictures without a pointer: a sentence made of the table that is shown, and arrows that go from mark to mark.

const placeRead = "place read"; // of a row in its table, which a drawn mark keeps
const LISTED = 6; // so many marks are named in a sentence; of more, the least and the most

// The columns that a mark's note tells, names before numbers; a note's own fields are made of the table's.
function toldColumns(spec, columns) {
  const fields = new Set();
  const walk = (part) => {
    if (part === null || typeof part !== "object") return;
    for (const tip of [part.tooltip ?? []].flat()) if (tip.field) fields.add(tip.field.replace(/^shown_(?=.)/, "").replace(/_(low|high|n)$/, ""));
    Object.values(part).forEach(walk);
  };
  walk(spec);
  const spoken = JSON.stringify(spec);
  const told = columns.filter(({ name }) => fields.has(name));
  if (!told.some(({ kind }) => kind !== "text")) told.push(...columns.filter(({ name, kind }) => kind !== "text" && spoken.includes(name)));
  return [...told.filter(({ kind }) => kind === "text"), ...told.filter(({ kind }) => kind !== "text")];
}

function markTexts(rows, columns) {
  const names = columns.filter(({ kind }) => kind === "text");
  const figures = columns.filter(({ kind, name }) => kind !== "text" && rows.some((row) => typeof row[name] === "number"));
  const known = (row, of) => of.filter(({ name }) => row[name] !== null && row[name] !== undefined);
  const cell = (row, column) => shownText(cellText(row, column));
  return {
    value: (row) => row[figures[0]?.name],
    called: figures[0]?.title.toLowerCase() ?? "",
    name: (row) => known(row, names).map((column) => cell(row, column)).filter((text) => !/^\d/.test(text)).join(", "),
    figure: (row) => (figures.length ? cell(row, figures[0]) : ""),
    whole: (row) =>
      known(row, [...names, ...figures])
        .map((column) => [column, cell(row, column)])
        .map(([{ kind, title }, text]) => (kind === "text" && !/^\d/.test(text) ? text : `${title.toLowerCase()} ${text}`))
        .join(", "),
  };
}

function chartSentence(title, rows, texts) {
  const told = (row) => `${texts.name(row)} ${texts.figure(row)}`.trim();
  const scored = rows.filter((row) => typeof texts.value(row) === "number");
  const head = `${title.split(". ")[0].replace(/\.$/, "")}: `;
  if (!scored.length) return `${head}${many(rows.length, "mark")}.`;
  if (scored.length <= LISTED) return `${head}${scored.map(told).join("; ")}.`;
  const ordered = [...scored].sort((one, other) => texts.value(one) - texts.value(other));
  return `${head}${many(scored.length, "mark")}, ${texts.called} from ${told(ordered[0])} to ${told(ordered.at(-1))}.`;
}

// Drawn elements by the place of their row: points and their lines, else cells and bars.
function marksByPlace(place) {
  const found = new Map();
  const drawnAs = (...kinds) => {
    for (const element of place.querySelectorAll(kinds.map((kind) => `svg .mark-${kind}.role-mark > *`).join(", "))) {
      const at = element.__data__?.datum?.[placeRead];
      if (at !== undefined) found.set(at, [...(found.get(at) ?? []), element]);
    }
  };
  drawnAs("symbol");
  if (found.size) drawnAs("rule");
  else drawnAs("rect", "arc", "text");
  return found;
}

// `rows` as they are drawn, each with its place; `links` by place.
function readByKeys(figure, { title, spec, columns, rows, links }) {
  const place = figure.querySelector(".drawing");
  const marks = marksByPlace(place);
  const order = marks.size ? rows.filter((row) => marks.has(row[placeRead])) : rows;
  const texts = markTexts(order, toldColumns(spec, columns));
  const readout = figure.querySelector(".readout");
  place.ariaLabel = `${chartSentence(title, order, texts)} Arrow keys read ${order.length === 1 ? "it" : "them"}.`;
  readout.textContent = "";
  let at = -1;
  const go = (to) => {
    for (const element of place.querySelectorAll(".at")) element.classList.remove("at");
    at = Math.max(-1, Math.min(order.length - 1, to));
    const row = order[at];
    if (row) for (const element of marks.get(row[placeRead]) ?? []) element.classList.add("at");
    readout.textContent = row ? `${texts.whole(row)} (${at + 1} of ${order.length})${links[row[placeRead]] ? " · Enter: items" : ""}` : "";
  };
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
  place.onkeydown = (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const link = links[order[at]?.[placeRead]];
    if (event.key in steps) go(Math.max(0, at + steps[event.key]));
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(order.length - 1);
    else if (event.key === "Escape" && at >= 0) go(-1);
    else if (event.key === "Enter" && link && document.getElementById("items-body")) location.hash = itemsAddress(link);
    else return;
    event.preventDefault();
  };
  place.onblur = () => go(-1);
}
