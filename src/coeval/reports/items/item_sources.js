// Where a list of items comes from: a server of ours, or the items that a page holds.

(() => {
  "use strict";

  const { opening } = window.coevalItems;
  const VALUE = { High: 1, Medium: 0.5, Low: 0 };

  async function asked(address, settings = {}) {
    const response = await fetch(address, settings);
    const told = await response.json();
    if (!response.ok) throw new Error(told.error ?? `${response.status}`);
    return told;
  }

  // `base` is the address of a folder's api, with a slash. `others`, {number, name, base}, are folders that can
  // stand beside it, `beside` the numbers of those that do.
  function served(base, facets) {
    const source = {
      facets,
      others: [],
      beside: [],
      rows(query, first, most) {
        const page = new URLSearchParams({ first, most });
        if (source.beside.length) page.set("beside", source.beside.join(","));
        return asked(`${base}items?${[query, page].filter(String).join("&")}`);
      },
      async detail(item, task) {
        const wanted = new URLSearchParams({ item, task });
        const own = await asked(`${base}item?${wanted}`);
        if (own === null) return [];
        const sets = [{ where: source.name ?? "here", detail: own }];
        for (const number of source.beside) {
          const there = source.others.find((other) => other.number === number);
          const query = new URLSearchParams({ item: own.item, task: own.task });
          const found = await asked(`${there.base}item?${query}`);
          if (found) sets.push({ where: there.name, detail: found });
        }
        return sets;
      },
      marks: () => asked(`${base}marks`),
      mark: (mark) => asked(`${base}mark`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(mark) }),
    };
    return source;
  }

  const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);

  // `selection`: {rows, details, total, facets} as coeval.reports.items.item_selection makes it.
  function held(selection) {
    const whole = new Map(selection.details.map((detail) => [`${detail.task} ${detail.item}`, detail]));
    const texts = new Map();
    const text = (row) => {
      const key = `${row.task} ${row.item}`;
      if (!texts.has(key)) {
        const detail = whole.get(key);
        texts.set(key, [row.item, detail.prompt, detail.reference, ...detail.answers.map((answer) => answer.text)].filter(Boolean).join("\n").toLowerCase());
      }
      return texts.get(key);
    };

    // A row as a choice of students, judges and factors sees it.
    function seen(row, students, judges, factors) {
      if (!students.length && !judges.length && !factors.length) return row;
      const scores = {};
      const spreads = [];
      let failed = 0;
      for (const answer of whole.get(`${row.task} ${row.item}`).answers) {
        if (students.length && !students.includes(answer.student)) continue;
        if (!judges.length && !factors.length) {
          scores[answer.student] = row.scores[answer.student] ?? null;
          failed += answer.failed ? 1 : 0;
          continue;
        }
        const values = [];
        const byFactor = new Map();
        for (const judgment of answer.judgments ?? []) {
          if (judges.length && !judges.includes(judgment.judge)) continue;
          for (const [factor, level] of Object.entries(judgment.scores ?? {})) {
            if (factors.length && !factors.includes(factor)) continue;
            if (level === null) failed += 1;
            else {
              const value = judgment.values?.[factor] ?? VALUE[level];
              values.push(value);
              if (judgment.judge !== "check") byFactor.set(factor, [...(byFactor.get(factor) ?? []), value]);
            }
          }
        }
        for (const factor of factors) {
          const label = answer.labels?.[factor];
          if (label && (!judges.length || judges.includes("exact_match"))) values.push(label.match ? 1 : 0);
          if (answer.metrics?.[factor] !== undefined) values.push(answer.metrics[factor]);
        }
        scores[answer.student] = mean(values.filter((value) => value !== null));
        const apart = [...byFactor.values()].filter((of) => of.length > 1).map((of) => Math.max(...of) - Math.min(...of));
        if (apart.length) spreads.push(mean(apart));
      }
      const known = Object.values(scores).filter((value) => value !== null);
      return { ...row, scores, failed, difficulty: known.length ? 1 - mean(known) : null, disagreement: judges.length || factors.length ? mean(spreads) : row.disagreement };
    }

    const opened = (row) => ({ ...row, opening: opening(whole.get(`${row.task} ${row.item}`).prompt) });

    function chosen(query) {
      const choice = new URLSearchParams(query);
      const all = (key) => choice.getAll(key);
      const among = (key, value) => !all(key).length || all(key).includes(value);
      const attributes = new Map();
      for (const pair of all("attribute")) {
        const [name] = pair.split("=", 1);
        attributes.set(name, [...(attributes.get(name) ?? []), pair.slice(name.length + 1)]);
      }
      const words = (choice.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
      const lost = choice.get("lost") ? [choice.get("lost").split(",", 1)[0], choice.get("lost").slice(choice.get("lost").indexOf(",") + 1)] : null;
      const students = all("student").length ? all("student") : lost ?? [];
      let rows = selection.rows
        .filter((row) => among("task", row.task) && among("teacher", row.teacher) && among("item", row.item))
        .filter((row) => [...attributes].every(([name, values]) => values.includes(row.attributes[name])))
        .filter((row) => !all("flag").length || all("flag").some((flag) => row.flags.includes(flag)))
        .filter((row) => words.every((word) => text(row).includes(word)))
        .map((row) => seen(row, students, all("judge"), all("factor")));
      if (students.length || all("judge").length || all("factor").length) rows = rows.filter((row) => Object.keys(row.scores).length);
      if (choice.get("failed") === "1") rows = rows.filter((row) => row.failed);
      const margin = (row) => (row.scores[lost[1]] ?? NaN) - (row.scores[lost[0]] ?? NaN);
      if (lost) rows = rows.filter((row) => margin(row) > 0);
      const least = (row) => Math.min(...Object.values(row.scores).filter((value) => value !== null), Infinity);
      const keys = {
        worst: least,
        highest: (row) => -(row.scores[choice.get("by")] ?? -Infinity),
        lowest: (row) => row.scores[choice.get("by")] ?? Infinity,
        difficulty: (row) => mean(Object.values(row.scores).filter((value) => value !== null)) ?? Infinity,
        disagreement: (row) => (row.disagreement === null ? Infinity : -row.disagreement),
        id: lost ? (row) => -margin(row) : (row) => row.row,
      };
      const key = keys[choice.get("order") ?? "id"] ?? keys.id;
      return rows.map((row) => [key(row), row]).sort((one, other) => one[0] - other[0] || one[1].row - other[1].row).map(([, row]) => row);
    }

    const left = selection.total - selection.rows.length;
    const said = left > 0 ? `this page holds ${selection.rows.length.toLocaleString("en-US")} of ${selection.total.toLocaleString("en-US")} items; coeval view shows all` : "";
    return {
      facets: selection.facets,
      isWhole: left <= 0,
      async rows(query, first, most) {
        const rows = chosen(query);
        return { rows: rows.slice(first, first + most).map(opened), total: rows.length, held: said };
      },
      async detail(item, task) {
        const found = selection.details.find((detail) => detail.item === item && (!task || detail.task === task));
        return found ? [{ where: "", detail: found }] : [];
      },
    };
  }

  window.coevalItems = { ...window.coevalItems, asked, served, held };
})();
