// Filters: they stand in the address, and hold for all that can be computed of the scores in the page.

let chosen = {};
let whole = null; // the report's own tables, as they were written

const isFiltered = () => DIMENSIONS.some((name) => chosen[name]?.size);

function filterQuery() {
  const query = new URLSearchParams();
  for (const name of DIMENSIONS) for (const value of chosen[name] ?? []) query.append(name, value);
  return query.toString();
}

// The address of a choice of items: its own, and the filter where it says nothing of that.
function itemsAddress(link) {
  const query = new URLSearchParams(link);
  for (const name of DIMENSIONS) {
    if (!query.has(name)) for (const value of chosen[name] ?? []) query.append(name, value);
  }
  return `#items?${query}`;
}

function readFilter() {
  const [anchor, query] = location.hash.slice(1).split("?");
  if (anchor === "items") return false;
  const wanted = new URLSearchParams(query ?? "");
  const next = {};
  for (const name of DIMENSIONS) {
    const values = wanted.getAll(name);
    if (values.length) next[name] = new Set(values);
  }
  const before = filterQuery();
  chosen = next;
  return before !== filterQuery();
}

const LINKS = {
  students: (row) => ({ student: row.student }),
  differences: (row) => ({ lost: `${row.better},${row.other}` }),
  parts: (row, several) => {
    const [task, factor] = several ? row.part.split(" · ") : [null, row.part];
    return task === null ? { student: row.student, factor } : { student: row.student, task, factor };
  },
  values: (row) => ({ student: row.student, attribute: row.part }),
  "by-judge": (row) => ({ student: row.student, judge: row.part }),
  "by-teacher": (row) => ({ student: row.student, teacher: row.part }),
};

async function applyFilter() {
  const report = await jsonBlock("report");
  if (!document.getElementById("data-design")) return;
  whole ??= Object.fromEntries(Object.entries(report.tables).map(([name, { rows, links }]) => [name, { rows, links }]));
  const names = [];
  let order = report.students;
  if (isFiltered()) {
    const found = await filteredTables(chosen);
    const several = (await jsonBlock("design")).tasks.length > 1;
    order = found.order;
    for (const [name, rows] of Object.entries(found.tables)) {
      if (!report.tables[name]) continue;
      const link = LINKS[name];
      const links = Object.fromEntries(link ? rows.map((row, at) => [at, new URLSearchParams(link(row, several)).toString()]) : []);
      Object.assign(report.tables[name], { rows, links });
      names.push(name);
    }
    tellFilter(found);
  } else {
    for (const [name, own] of Object.entries(whole)) {
      if (report.tables[name].rows === own.rows) continue;
      Object.assign(report.tables[name], own);
      names.push(name);
    }
    tellFilter(null);
  }
  report.order = order;
  for (const name of names) renderTable(name, report.tables[name]);
  for (const link of document.querySelectorAll("nav ul a, h2 a")) {
    link.hash = link.hash.split("?")[0] + (isFiltered() ? `?${filterQuery()}` : "");
  }
  const of = new Set(names);
  await redraw((figure) => of.has(report.pictures[figure.dataset.picture].table));
}

function tellFilter(found) {
  document.body.classList.toggle("filtered", found !== null);
  const status = document.getElementById("filter-status");
  status.textContent = found === null ? "" : filterSentence(found);
  for (const box of document.querySelectorAll("#filters input")) {
    box.checked = chosen[box.name]?.has(box.value) ?? false;
  }
  for (const group of document.querySelectorAll("#filters details")) {
    const values = [...(chosen[group.dataset.dimension] ?? [])];
    group.querySelector("span").textContent = values.length ? values.join(", ") : "all";
    group.classList.toggle("set", values.length > 0);
  }
  document.getElementById("filter-clear").hidden = found === null;
}

// What the leader's sentence says of the scores that are chosen.
function filterSentence({ kept, items, tables }) {
  const some = `${kept.toLocaleString("en-US")} of ${items.toLocaleString("en-US")} items`;
  const [first, second] = tables.students.filter((row) => row.score !== null);
  if (!first) return `${some}: nobody has a score there.`;
  const score = cellText(first, { name: "score", kind: "score" }, 2);
  if (!second) return `${some}: ${first.student} is the only student, with ${score}.`;
  const pair = tables.differences.find((row) => row.better === first.student && row.other === second.student);
  if (!pair) return `${some}: ${first.student} has the highest score, ${score}.`;
  const by = differenceText(pair.difference, pair.difference_low, pair.difference_high);
  const p = pair.p === null ? "" : pair.p < 0.001 ? ", p < 0.001" : `, p = ${pair.p.toFixed(3)}`;
  return pair.sure
    ? `${some}: ${first.student} leads with ${score}, better than ${second.student}, the next, by ${by}${p}.`
    : `${some}: ${first.student} has the highest score, ${score}, but is not surely better than ${second.student}: by ${by}${p}.`;
}

// As Python's difference_text: both bounds where the interval is lopsided.
function differenceText(middle, low, high) {
  const shown = (number) => (Number(number.toFixed(3)) ? number.toFixed(3).replace("-", "−") : "0.000");
  const lopsided = Math.abs(high - middle - (middle - low)) >= 0.0006;
  return `${shown(middle)} ${lopsided ? `[${shown(low)}, ${shown(high)}]` : `± ${shown((high - low) / 2)}`}`;
}

function setFilter() {
  const anchor = location.hash.slice(1).split("?")[0];
  const query = filterQuery();
  const place = anchor && anchor !== "items" ? anchor : "filter";
  history.replaceState(null, "", query ? `#${place}?${query}` : `#${place === "filter" ? "" : place}`);
  return applyFilter();
}

async function buildFilters() {
  const bar = document.getElementById("filters");
  if (!bar || !document.getElementById("data-design")) return;
  const design = await jsonBlock("design");
  const names = {
    task: design.tasks.map((task) => task.name), teacher: design.teachers, judge: design.judges,
    factor: design.factors, attribute: design.values,
  };
  for (const [dimension, values] of Object.entries(names)) {
    if (values.length < 2) continue;
    const group = document.createElement("details");
    group.dataset.dimension = dimension;
    const summary = document.createElement("summary");
    const words = document.createElement("span");
    words.textContent = "all";
    summary.append(`${dimension}s `, words);
    const list = document.createElement("div");
    list.className = "choices";
    for (const value of values) {
      const label = document.createElement("label");
      const box = document.createElement("input");
      Object.assign(box, { type: "checkbox", name: dimension, value });
      box.addEventListener("change", () => {
        const set = (chosen[dimension] ??= new Set());
        if (box.checked) set.add(value);
        else set.delete(value);
        setFilter();
      });
      label.append(box, " ", value);
      list.append(label);
    }
    group.append(summary, list);
    bar.insertBefore(group, document.getElementById("filter-clear"));
  }
  document.getElementById("filter-clear").addEventListener("click", () => {
    chosen = {};
    setFilter();
  });
  document.addEventListener("click", (event) => {
    for (const group of bar.querySelectorAll("details[open]")) if (!group.contains(event.target)) group.open = false;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const group of bar.querySelectorAll("details[open]")) {
      group.open = false;
      group.querySelector("summary").focus();
    }
  });
  bar.hidden = false;
  if (readFilter()) await applyFilter();
}
