// The tables of chosen scores, computed anew from all of them: the same figures as Python's of such a run.

const DIMENSIONS = ["task", "teacher", "judge", "factor", "attribute"];
const NO_LEVEL = 3;
const ALPHA = 0.05;

// ``chosen``: by dimension, a set of names; none: all. Values of one attribute are a union, attributes a cut.
async function filteredTables(chosen) {
  const [design, levels, teacherBytes, memberBytes] = await Promise.all([
    jsonBlock("design"), byteBlock("levels"), byteBlock("teachers"), byteBlock("members"),
  ]);
  const items = design.tasks.reduce((sum, task) => sum + task.items, 0);
  const keeps = (dimension, name) => !chosen[dimension]?.size || chosen[dimension].has(name);
  const teacherOf = (item) => teacherBytes[2 * item] + 256 * teacherBytes[2 * item + 1];
  const row = Math.ceil(items / 8);
  const has = (value, item) => (memberBytes[value * row + (item >> 3)] >> (7 - (item & 7))) & 1;
  const wanted = new Map();
  design.values.forEach((value, at) => {
    if (!chosen.attribute?.has(value)) return;
    const name = value.split("=")[0];
    wanted.set(name, [...(wanted.get(name) ?? []), at]);
  });
  const stays = (item) =>
    keeps("teacher", design.teachers[teacherOf(item)]) &&
    [...wanted.values()].every((values) => values.some((value) => has(value, item)));

  const found = design.students.map(() => ({
    strata: [], overall: new Clusters(), parts: new Map(), values: new Map(), judges: new Map(),
    teachers: new Map(), levels: [0, 0, 0], means: [],
  }));
  const judgeLevels = design.judges.map(() => [0, 0, 0]);
  const into = (map, key) => {
    if (!map.has(key)) map.set(key, new Clusters());
    return map.get(key);
  };
  const all = design.values.map((_, at) => at);
  let first = 0;
  let start = 0;
  let kept = 0;
  let possible = 0;
  for (const task of design.tasks) {
    const width = task.factors.length * task.judges.length;
    const factors = task.factors.map((at) => at).filter((at) => keeps("factor", design.factors[at]));
    const judges = task.judges.map((at) => at).filter((at) => keeps("judge", design.judges[at]));
    const strata = design.students.map(() => []);
    for (let at = 0; keeps("task", task.name) && at < task.items; at += 1) {
      const item = first + at;
      if (!stays(item)) continue;
      kept += 1;
      possible += factors.length * judges.length;
      const values = all.filter((value) => has(value, item));
      for (let student = 0; student < found.length; student += 1) {
        const base = start + (at * found.length + student) * width;
        const ofJudge = judges.map(() => [0, 0]);
        let total = 0;
        let count = 0;
        for (const factor of factors) {
          const line = base + task.factors.indexOf(factor) * task.judges.length;
          let [sum, many] = [0, 0];
          judges.forEach((judge, place) => {
            const level = levels[line + task.judges.indexOf(judge)];
            if (level === NO_LEVEL) return;
            sum += level;
            many += 1;
            ofJudge[place][0] += level;
            ofJudge[place][1] += 1;
            found[student].levels[level] += 1;
            judgeLevels[judge][level] += 1;
          });
          into(found[student].parts, `${task.name}\n${design.factors[factor]}`).add(sum, many);
          total += sum;
          count += many;
        }
        judges.forEach((judge, place) => into(found[student].judges, judge).add(...ofJudge[place]));
        into(found[student].teachers, teacherOf(item)).add(total, count);
        for (const value of values) into(found[student].values, value).add(total, count);
        found[student].overall.add(total, count);
        strata[student].push(count ? total / count / 2 : NaN);
      }
    }
    found.forEach((each, student) => each.means.push(strata[student]));
    first += task.items;
    start += task.items * found.length * width;
  }
  return tablesOf({ design, found, judgeLevels, kept, items, possible });
}

function tablesOf({ design, found, judgeLevels, kept, items, possible }) {
  const scores = found.map((each) => meanOverStrata(each.means.map((values) => values.filter((x) => x === x))));
  const names = design.students.map((_, at) => at).filter((at) => scores[at].value !== null);
  names.sort((a, b) => scores[b].value - scores[a].value || (design.students[a] < design.students[b] ? -1 : 1));
  const pairs = [];
  names.forEach((one, place) => {
    for (const other of names.slice(place + 1)) {
      // Python names pairs in order of their names; a difference turned round has the same p-value.
      const strata = found[one].means
        .map((values, task) => {
          const both = values.map((_, at) => at).filter((at) => values[at] === values[at] && found[other].means[task][at] === found[other].means[task][at]);
          return { a: both.map((at) => found[other].means[task][at]), b: both.map((at) => values[at]) };
        })
        .filter(({ a }) => a.length);
      if (strata.length) pairs.push({ one, other, ...pairedDifference(strata) });
    }
  });
  holm(pairs.map((pair) => pair.p)).forEach((p, at) => {
    pairs[at].adjusted = p;
    pairs[at].sure = p !== null && p < ALPHA;
  });
  const rank = (student) => {
    let [better, worse] = [0, 0];
    for (const pair of pairs) {
      if (!pair.sure || (pair.one !== student && pair.other !== student)) continue;
      const ahead = pair.difference > 0 ? pair.one : pair.other;
      if (ahead === student) worse += 1;
      else better += 1;
    }
    return [1 + better, names.length - worse];
  };
  const measured = (name, { value, low, high, n }) => ({
    [name]: value, [`${name}_low`]: low, [`${name}_high`]: high, [`${name}_n`]: n,
  });
  const order = [...names, ...design.students.map((_, at) => at).filter((at) => !names.includes(at))];
  const label = (at) => design.students[at];
  const students = order.map((at) => {
    const [low, high] = names.includes(at) ? rank(at) : [null, null];
    return {
      student: label(at),
      ranks: low === null ? null : low === high ? `${low}` : `${low}–${high}`,
      ...measured("score", scores[at]),
      ...measured("units", found[at].overall.mean()),
      ...measured("robust", { value: null, low: null, high: null, n: null }),
      n: scores[at].n,
      scores: found[at].overall.units,
      failed: null,
      missing: possible - found[at].overall.units,
    };
  });
  const differences = pairs.map((pair) => ({
    better: label(pair.one),
    other: label(pair.other),
    ...measured("difference", { value: pair.difference, low: pair.low, high: pair.high, n: pair.n }),
    p: pair.adjusted,
    sure: pair.sure,
    n: pair.n,
    could_be_seen: pair.detectable,
  }));
  const partName = (key) => (design.tasks.length > 1 ? key.replace("\n", " · ") : key.split("\n")[1]);
  const part = (field, name) =>
    partRows(order.flatMap((at) => [...found[at][field]].map(([key, sums]) => ({ student: label(at), part: name(key), ...measured("score", sums.mean()) }))));
  const levelRows = (rows) =>
    rows.flatMap(([name, counts]) => {
      const total = counts[0] + counts[1] + counts[2];
      return ["High", "Medium", "Low"].map((level, at) => ({ name, level, share: counts[2 - at] / total, count: counts[2 - at] })).filter(() => total);
    });
  return {
    order: order.map(label),
    kept,
    items,
    tables: {
      students,
      differences,
      parts: part("parts", partName),
      values: part("values", (at) => design.values[at]),
      "by-judge": part("judges", (at) => design.judges[at]),
      "by-teacher": part("teachers", (at) => design.teachers[at]),
      levels: levelRows(order.map((at) => [label(at), found[at].levels])),
      "judge-levels": levelRows(design.judges.map((name, at) => [name, judgeLevels[at]])),
    },
  };
}

// What each cell has beyond the mean of its part, and beyond that of its student as well.
function partRows(rows) {
  const known = rows.filter((row) => row.score !== null);
  const means = (key) => {
    const sums = new Map();
    for (const row of known) {
      const [sum, count] = sums.get(row[key]) ?? [0, 0];
      sums.set(row[key], [sum + row.score, count + 1]);
    }
    return new Map([...sums].map(([name, [sum, count]]) => [name, sum / count]));
  };
  const [ofPart, ofStudent] = [means("part"), means("student")];
  const grand = known.reduce((sum, row) => sum + row.score, 0) / known.length;
  return rows.map((row) => ({
    ...row,
    beyond: row.score === null ? null : row.score - ofPart.get(row.part),
    unexpected: row.score === null ? null : row.score - ofPart.get(row.part) - ofStudent.get(row.student) + grand,
    n: row.score_n,
  }));
}
