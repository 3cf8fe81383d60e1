// The list of folders: sorted, searched, ticked to be compared; the checkpoints of a sweep are one line with a curve.

"use strict";

window.coevalOverview = ({ place, count, dollars, stateOf, scored }) => {
  const { make, asked, score } = window.coevalItems;
  const ticked = new Set();
  const opened = new Set(); // sweeps whose checkpoints are shown
  let [sorted, descending, words, folders, drawn] = ["changed", true, [], [], ""];

  const COLUMNS = [
    { key: "name", title: "folder", text: true },
    { key: "changed", title: "changed", text: true },
    { key: "state", title: "state", text: true },
    { key: "students", title: "students" },
    { key: "items", title: "items" },
    { key: "best", title: "best so far", text: true, sort: (row) => row.score },
    { key: "judged", title: "judged" },
    { key: "cost", title: "cost" },
  ];
  const DESCENDING = new Set(["changed", "students", "items", "best", "judged", "cost"]);

  const summed = (values) => {
    const known = values.filter((value) => value !== null && value !== undefined);
    return known.length ? known.reduce((sum, value) => sum + value, 0) : null;
  };

  function rowOf(one) {
    const judged = one.status?.phases?.evaluation;
    const best = one.summary?.best ?? null;
    return {
      id: `f${one.number}`, one, members: [one], best, name: one.name, path: one.path, changed: one.changed,
      state: one.error ? "cannot be read" : stateOf(one) || "…", trouble: Boolean(one.error),
      students: one.summary?.students ?? null, items: one.summary?.items ?? null, score: best?.score ?? null,
      judged: judged?.good ?? null, planned: judged?.planned ?? null,
      // A sweep keeps the accounts of its checkpoints, whose own folders have none.
      cost: one.sweep ? null : one.status?.budget?.total?.spent_usd ?? null,
    };
  }

  function sweepRow(name, members) {
    const rows = members.map(rowOf);
    const tasks = Math.max(...rows.map(({ best }) => best?.tasks ?? 0));
    const known = rows.filter(({ best }) => best?.tasks === tasks); // the mean of fewer tasks is another figure
    const top = known.reduce((best, row) => (best === null || row.score > best.score ? row : best), null);
    const running = rows.filter(({ state }) => state.startsWith("running")).length;
    return {
      id: `s${name}`, sweep: name, members, rows, name, path: members[0].path.replace(/[\\/][^\\/]*$/, ""),
      changed: rows.map((row) => row.changed).sort().at(-1), state: running ? `running (${running})` : rows.some((row) => row.trouble) ? "cannot be read" : "", trouble: rows.some((row) => row.trouble),
      students: members.length, items: summed(rows.map((row) => row.items)), judged: summed(rows.map((row) => row.judged)),
      cost: summed(rows.map((row) => row.cost)), score: top?.score ?? null, best: top && { ...top.best, short: top.one.name.split("/").at(-1), name: top.path }, curve: rows.map((row) => (known.includes(row) ? row.score : null)),
    };
  }

  function rows() {
    const sweeps = new Map();
    const found = [];
    for (const one of folders) {
      if (!one.sweep) found.push(rowOf(one));
      else sweeps.set(one.sweep, [...(sweeps.get(one.sweep) ?? []), one]);
    }
    for (const [name, members] of sweeps) found.push(sweepRow(name, members));
    const text = (row) => [row.name, row.path, row.state, row.best?.name, row.best?.short].join("\n").toLowerCase();
    const column = COLUMNS.find(({ key }) => key === sorted);
    const value = column.sort ?? ((row) => row[sorted]);
    const missing = (row) => value(row) === null || value(row) === undefined || value(row) === "";
    const order = (one, other) => (typeof one === "string" ? one.localeCompare(other, "en", { numeric: true }) : one - other);
    const kept = found.filter((row) => words.every((word) => text(row).includes(word)));
    const known = kept.filter((row) => !missing(row)).sort((one, other) => (descending ? -1 : 1) * order(value(one), value(other)));
    return [...known, ...kept.filter(missing)].flatMap((row) => (row.sweep && opened.has(row.sweep) ? [row, ...row.rows] : [row]));
  }

  // Scores over checkpoints, from the lowest to the highest; what has none is left out of the line.
  function sparkline(values) {
    const known = values.map((value, at) => [at, value]).filter(([, value]) => value !== null);
    if (known.length < 2) return "";
    const [low, high] = [Math.min(...known.map(([, value]) => value)), Math.max(...known.map(([, value]) => value))];
    const point = ([at, value]) => `${((96 * at) / (values.length - 1) + 2).toFixed(1)},${(18 - 16 * (high > low ? (value - low) / (high - low) : 0.5)).toFixed(1)}`;
    const space = "http://www.w3.org/2000/svg";
    const picture = document.createElementNS(space, "svg");
    for (const [key, text] of Object.entries({ viewBox: "0 0 100 20", class: "spark", role: "img", "aria-label": `from ${score(known[0][1])} to ${score(known.at(-1)[1])} over ${values.length} checkpoints, at most ${score(high)}` })) picture.setAttribute(key, text);
    const line = document.createElementNS(space, "polyline");
    line.setAttribute("points", known.map(point).join(" "));
    const dot = document.createElementNS(space, "circle");
    const [x, y] = point(known.find(([, value]) => value === high)).split(",");
    for (const [key, text] of Object.entries({ cx: x, cy: y, r: 2.5 })) dot.setAttribute(key, text);
    picture.append(line, dot);
    return picture;
  }

  function cells(row) {
    const { best } = row;
    const name = row.sweep
      ? make("button", { type: "button", class: "sweep", title: row.path, "aria-expanded": String(opened.has(row.sweep)), click: () => toggle(row.sweep) }, opened.has(row.sweep) ? "▾ " : "▸ ", make("bdi", {}, row.name))
      : make("a", { href: `/f/${row.one.number}/`, title: row.path }, make("bdi", {}, row.name));
    const figure = best ? `${scored(best.score, best.low, best.high)}${best.what ? ` ${best.what}` : ""}` : "";
    return [
      name,
      row.changed ? make("time", { datetime: row.changed, title: row.changed }, row.changed.slice(0, 16).replace("T", " ")) : "",
      make("span", { class: row.trouble ? "trouble" : null, title: row.one?.error }, row.state),
      row.sweep ? `${count(row.students)} checkpoints` : row.students === null ? "" : count(row.students),
      row.items === null ? "" : count(row.items),
      best ? make("span", {}, make("bdi", { title: best.name }, best.short), ` ${figure} `, row.curve ? sparkline(row.curve) : null) : "–",
      row.judged === null ? "" : row.planned === null || row.planned === undefined ? count(row.judged) : `${count(row.judged)} of ${count(row.planned)}`,
      row.cost === null ? "" : dollars(row.cost),
    ];
  }

  function toggle(sweep) {
    if (!opened.delete(sweep)) opened.add(sweep);
    draw(true);
  }

  function line(row) {
    const box = row.sweep ? "" : make("input", { type: "checkbox", "aria-label": `compare ${row.name}`, checked: ticked.has(row.one.number) });
    if (box) {
      box.addEventListener("change", () => {
        if (box.checked) ticked.add(row.one.number);
        else ticked.delete(row.one.number);
        drawChosen();
      });
    }
    const within = !row.sweep && row.one.sweep ? "within" : null;
    return make("tr", { class: within }, make("td", { class: "tick" }, box), cells(row).map((cell, at) => make(at ? "td" : "th", { scope: at ? null : "row", "data-label": COLUMNS[at].title, class: COLUMNS[at].text ? "k-text" : "k-score" }, cell)));
  }

  function head({ key, title, text }) {
    const state = sorted === key ? (descending ? "descending" : "ascending") : "none";
    const sort = () => {
      [sorted, descending] = [key, sorted === key ? !descending : DESCENDING.has(key)];
      draw(true);
      place("folders-body").querySelector(`th[data-key="${key}"] button`)?.focus();
    };
    return make("th", { scope: "col", "data-key": key, "aria-sort": state, class: text ? "k-text" : "k-score" }, make("button", { type: "button", click: sort }, title));
  }

  function drawChosen() {
    const go = place("compare");
    go.disabled = ticked.size < 2;
    go.textContent = ticked.size < 2 ? "Tick two or more to compare" : `Compare ${ticked.size}`;
  }

  async function compare() {
    const address = `/compare?${[...ticked].map((number) => `f=${number}`).join("&")}`;
    place("said").textContent = "Comparing …";
    try {
      const answer = await fetch(address);
      if (!answer.ok) throw new Error((await answer.json()).error);
      place("said").textContent = "";
      location.href = address;
    } catch (error) {
      place("said").textContent = error.message;
    }
  }

  // Only where something differs, so that nothing moves under a pointer.
  function draw(now = false) {
    const shown = rows();
    const text = JSON.stringify([sorted, descending, shown.map((row) => [row.id, row.name, row.changed, row.state, row.students, row.items, row.best, row.judged, row.planned, row.cost, row.curve])]);
    if (text === drawn && !now) return;
    drawn = text;
    const focused = document.activeElement?.closest("tr")?.dataset.id;
    const lines = shown.map((row) => {
      const made = line(row);
      made.dataset.id = row.id;
      return made;
    });
    place("folders-body").replaceChildren(
      make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "folders" }, make("table", { class: "cards" }, make("thead", {}, make("tr", {}, make("td"), COLUMNS.map(head))), make("tbody", {}, lines))),
      shown.length ? "" : make("p", { class: "note" }, "No folder matches."),
    );
    if (focused) place("folders-body").querySelector(`tr[data-id="${CSS.escape(focused)}"] :is(a, button, input)`)?.focus();
    drawChosen();
  }

  const search = make("input", { type: "search", id: "search", placeholder: "Search folders ( / )", "aria-label": "Search folders" });
  search.addEventListener("input", () => {
    words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    draw(true);
  });
  place("folders-tools").replaceChildren(search, make("button", { type: "button", id: "compare", disabled: true, click: compare }, ""), make("span", { id: "said", role: "status" }));
  drawChosen();

  // j and k go from line to line, x ticks, c compares, / searches.
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.matches("input[type=search]")) return;
    const lines = [...place("folders-body").querySelectorAll("tbody tr")];
    const at = lines.indexOf(document.activeElement?.closest("tbody tr"));
    if (event.key === "/") search.focus();
    else if (event.key === "c" && ticked.size > 1) compare();
    else if (event.key === "x" && at >= 0) lines[at].querySelector("input")?.click();
    else if (event.key === "j" || event.key === "k") lines[Math.max(0, Math.min(lines.length - 1, at + (event.key === "j" ? 1 : -1)))]?.querySelector("a, button")?.focus();
    else return;
    event.preventDefault();
  });

  return (found) => {
    folders = found;
    draw();
  };
};
