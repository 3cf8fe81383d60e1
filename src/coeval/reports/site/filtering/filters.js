// Filters hold for all that can be computed of the scores in the page.

let whole = null; // the report's own tables, as they were written

const LINKS = {
  front: (row) => ({ student: row.student }),
  "quality-cost": (row) => ({ student: row.student }),
  students: (row) => ({ student: row.student }),
  standings: standingLink,
  differences: (row) => ({ lost: `${row.better},${row.other}` }),
  parts: (row, { tasks }) => {
    const [task, factor] = tasks.length > 1 ? row.part.split(" · ") : [null, row.part];
    return task === null ? { student: row.student, factor } : { student: row.student, task, factor };
  },
  checks: (row, design) => LINKS.parts(row, design),
  values: (row) => ({ student: row.student, attribute: row.part }),
  "by-judge": (row) => ({ student: row.student, judge: row.part }),
  "by-teacher": (row) => ({ student: row.student, teacher: row.part }),
};

async function applyFilter() {
  const report = await jsonBlock("report");
  if (!document.getElementById("data-design")) return;
  const design = await jsonBlock("design");
  whole ??= Object.fromEntries(Object.entries(report.tables).map(([name, { rows, links }]) => [name, { rows, links }]));
  const names = [];
  const found = isFiltered() ? await filteredTables(chosen) : null;
  const empty = found !== null && found.tables.students.every((row) => row.score === null);
  for (const [name, own] of Object.entries(whole)) {
    const rows = found ? found.tables[name] : own.rows;
    if (!rows || report.tables[name].rows === rows) continue;
    const linked = (row) => new URLSearchParams(LINKS[name](row, design)).toString();
    const links = !found ? own.links : LINKS[name] ? rows.map(linked) : {};
    Object.assign(report.tables[name], { rows, links, empty });
    names.push(name);
  }
  report.order = found?.order ?? report.students;
  tellFilter(found);
  tellFront(report, found);
  for (const name of names) renderTable(name, report.tables[name]);
  const of = new Set(names);
  await redraw((figure) => of.has(report.pictures[figure.dataset.picture].table));
}

function tellFilter(found) {
  document.body.classList.toggle("filtered", found !== null);
  const status = document.getElementById("filter-status");
  showIn(status, found === null ? "" : plain(filterSentence(found)));
  for (const box of document.querySelectorAll("#filters input")) {
    box.checked = chosen[box.name]?.has(box.value) ?? false;
  }
  for (const group of document.querySelectorAll("#filters details")) {
    const values = [...(chosen[group.dataset.dimension] ?? [])];
    showIn(group.querySelector("span"), values.length ? plain(values.map(shownText).join(", ")) : "all");
    group.classList.toggle("set", values.length > 0);
  }
  document.getElementById("filter-clear").hidden = found === null;
}

const filterSentence = ({ kept, items, notes, keepsSpent }) =>
  [`Filtered: ${kept.toLocaleString("en-US")} of ${many(items, "item")}.`, ...notes, ...(whole["quality-cost"] && !keepsSpent ? [NOT_KEPT] : [])].join(" ");

// Somebody chose: `change` says what.
async function choose(change) {
  const before = filterPairs();
  change();
  tellAddress(before);
  await showAddress();
  (await itemsShown)?.follow();
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
        choose(() => {
          const set = (chosen[dimension] ??= new Set());
          if (box.checked) set.add(value);
          else set.delete(value);
        });
      });
      label.append(box, " ", shownText(plain(value)));
      if (shownText(value) !== value) label.title = plain(value);
      list.append(label);
    }
    group.append(summary, list);
    bar.insertBefore(group, document.getElementById("filter-clear"));
  }
  document.getElementById("filter-clear").addEventListener("click", () => {
    choose(() => {
      chosen = {};
    });
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
}
