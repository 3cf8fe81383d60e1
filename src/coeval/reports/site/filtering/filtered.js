// The tables of chosen scores, computed anew from all of them: the same figures as Python's of such a run.

const NO_LEVEL = 255;

// ``chosen``: by dimension, a set of names; none: all. Values of one attribute are a union, attributes a cut.
async function filteredTables(chosen) {
  const [design, levels, checkedBytes, teacherBytes, memberBytes, spentBytes] = await Promise.all([
    jsonBlock("design"), byteBlock("levels"), byteBlock("checked"), byteBlock("teachers"), byteBlock("members"), byteBlock("spent"),
  ]);
  const spent = new Spent(spentBytes, design.students.length);
  const checked = new DataView(checkedBytes.buffer, checkedBytes.byteOffset, checkedBytes.byteLength);
  const { scale } = design;
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
  const alike = new Map(design.alike); // of items that nearly repeat another one, the first
  for (const first of [...alike.values()]) alike.set(first, first);
  const stays = (item) =>
    keeps("teacher", design.teachers[teacherOf(item)]) &&
    [...wanted.values()].every((values) => values.some((value) => has(value, item)));

  const found = design.students.map(() => ({
    overall: new Clusters(), bounds: new Bounds(), parts: new Map(), checks: new Map(), values: new Map(), judges: new Map(), teachers: new Map(),
    levels: design.levels.map(() => 0), units: 0, possible: 0,
  }));
  const sums = []; // of each task
  const judgeLevels = design.judges.map(() => design.levels.map(() => 0));
  const into = (map, key) => {
    if (!map.has(key)) map.set(key, new Clusters());
    return map.get(key);
  };
  const all = design.values.map((_, at) => at);
  let first = 0;
  let [start, checksStart] = [0, 0];
  let kept = 0;
  for (const task of design.tasks) {
    const width = task.factors.length * task.judges.length;
    const chosenOf = (places) => places.filter((at) => keeps("factor", design.factors[at]));
    const [factors, checks] = [chosenOf(task.factors), chosenOf(task.checks)];
    const judges = task.judges.filter((at) => keeps("judge", design.judges[at]));
    const rows = factors.map((factor) => task.factors.indexOf(factor));
    const lines = rows.map((at) => at * task.judges.length);
    const columns = judges.map((judge) => task.judges.indexOf(judge));
    const places = checks.map((check) => task.checks.indexOf(check));
    const [begin, checksBegin] = [start, checksStart];
    const weights = task.weights && { lines: rows.map((at) => task.weights[at]), checks: places.map((at) => task.weights[task.factors.length + at]) };
    const units = {
      scale, lines, checks, weights,
      level: (at, student, line, nth) => levels[begin + (at * found.length + student) * width + lines[line] + columns[nth]],
      checked: (at, student, nth) => checked.getFloat64(8 * (checksBegin + (at * found.length + student) * task.checks.length + places[nth]), true),
    };
    const ofTask = new TaskSums(task, design, factors.length ? judges : [], units);
    sums.push(ofTask);
    const scoredBy = { judges: new Set(), factors: new Map() };
    const before = kept;
    for (let at = 0; keeps("task", task.name) && at < task.items; at += 1) {
      const item = first + at;
      if (!stays(item)) continue;
      kept += 1;
      spent.add(item);
      const asked = factors.length * judges.length + checks.length;
      const group = alike.get(item) ?? null;
      const place = ofTask.next(at, group ?? item);
      const values = all.filter((value) => has(value, item));
      for (let student = 0; student < found.length; student += 1) {
        if (!task.without.includes(student)) found[student].possible += asked;
        const ofJudge = judges.map(() => [0, 0, 0]);
        const known = [0, 0, 0];
        let lacks = Boolean(weights) && factors.length > 0 && !judges.length;
        // The scores of a factor: in a task with weights it counts once.
        const put = (factor, sum, many, weight) => {
          const key = `${task.name}\n${design.factors[factor]}`;
          into(found[student].parts, key).add([sum, many, many], group);
          if (!many) {
            lacks ||= Boolean(weights);
            return key;
          }
          const share = weight === null ? 1 : weight / many;
          scoredBy.factors.set(factor, weight);
          known[0] += sum * share;
          known[1] += many * share;
          known[2] += many;
          return key;
        };
        if (judges.length) factors.forEach((factor, of) => {
          const weight = weights ? weights.lines[of] : null;
          let [sum, many] = [0, 0];
          judges.forEach((judge, nth) => {
            const level = units.level(at, student, of, nth);
            if (level === NO_LEVEL) return;
            scoredBy.judges.add(judge);
            sum += scale[level];
            many += 1;
            ofJudge[nth][0] += (weight ?? 1) * scale[level];
            ofJudge[nth][1] += weight ?? 1;
            ofJudge[nth][2] += 1;
            const named = task.levels[rows[of]][level];
            found[student].levels[named] += 1;
            judgeLevels[judge][named] += 1;
          });
          put(factor, sum, many, weight);
        });
        checks.forEach((check, nth) => {
          const value = units.checked(at, student, nth);
          const key = put(check, isKnown(value) ? value : 0, isKnown(value) ? 1 : 0, weights.checks[nth]);
          found[student].checks.set(key, found[student].parts.get(key));
        });
        judges.forEach((judge, nth) => {
          if (!factors.length) return;
          into(found[student].judges, judge).add(ofJudge[nth], group);
          ofTask.put(place, student, nth, ofJudge[nth]);
        });
        if (!asked) continue;
        const whole = lacks ? [0, 0, 0] : known;
        into(found[student].teachers, teacherOf(item)).add(whole, group);
        for (const value of values) into(found[student].values, value).add(whole, group);
        found[student].overall.add(whole, group);
        found[student].bounds.add(known);
        found[student].units += known[2];
      }
    }
    const each = task.weights ? summed([...scoredBy.factors.values()]) : scoredBy.judges.size * scoredBy.factors.size;
    found.forEach(({ bounds }, at) => bounds.close(task.without.includes(at) ? 0 : (kept - before) * each));
    first += task.items;
    start += task.items * found.length * width;
    checksStart += task.items * found.length * task.checks.length;
  }
  return tablesOf({ design, found, sums, judgeLevels, kept, items, spent });
}

function tablesOf({ design, found, sums, judgeLevels, kept, items, spent }) {
  const ways = standingsOf(design, sums);
  const { names, scores, overJudges, pairs } = ways[0];
  const order = [...names, ...design.students.map((_, at) => at).filter((at) => !names.includes(at))];
  const label = (at) => design.students[at];
  const students = order.map((at) => ({
    student: label(at),
    ranks: ways[0].rank(at),
    ...measured("score", scores[at]),
    ...measured("over_judges", overJudges[at] ?? NO_MEAN),
    n: scores[at].n,
    valid_evals: found[at].units,
    failed: null,
    missing: found[at].possible - found[at].units,
    ...boundsOf(found[at]),
  }));
  const valued = students.map(({ student, score, score_low, score_high, score_n, ranks }, nth) => ({
    student, score, score_low, score_high, score_n, ranks, ...spent.of(order[nth]),
  }));
  const differences = pairs.map((pair) => ({
    better: label(pair.one),
    other: label(pair.other),
    ...measured("difference", { value: pair.difference, low: pair.low, high: pair.high, n: pair.n }),
    p: pair.adjusted,
    sure: pair.sure,
    ...measured("over_judges", { ...(pair.over ?? NO_MEAN), n: pair.n }),
    p_over_judges: pair.over?.adjusted ?? null,
    agreeing: pair.over?.agreeing ?? null,
    n: pair.n,
    could_be_seen: pair.detectable,
  }));
  const partName = (key) => (design.tasks.length > 1 ? key.replace("\n", " · ") : key.split("\n")[1]);
  const part = (field, name) =>
    partRows(order.flatMap((at) => [...found[at][field]].map(([key, sums]) => ({ student: label(at), part: name(key), ...measured("score", sums.mean()) }))));
  const levelRows = (rows) =>
    rows.flatMap(([name, counts]) => {
      const total = summed(counts);
      return design.levels.map((level, at) => ({ name, level, share: counts[at] / total, count: counts[at] })).reverse().filter(() => total);
    });
  return {
    order: order.map(label),
    kept,
    items,
    sentences: openingSentences(ways[0], {
      withoutOwn: orderWithoutOwn(ways), bounds: (at) => found[at].bounds.mean(), atAnyLook: design.looks !== null,
    }),
    notes: [...partialSentences(ways[0]), ...labelTasksSentences(sums)],
    keepsSpent: spent.bytes.length > 0,
    tables: {
      students,
      front: valued,
      "quality-cost": onLines(valued),
      standings: ways.flatMap((way) => way.rows()),
      differences,
      parts: part("parts", partName),
      checks: part("checks", partName),
      values: part("values", (at) => design.values[at]),
      "by-judge": part("judges", (at) => design.judges[at]),
      "by-teacher": part("teachers", (at) => design.teachers[at]),
      levels: levelRows(order.map((at) => [label(at), found[at].levels])),
      "judge-levels": levelRows(design.judges.map((name, at) => [name, judgeLevels[at]])),
    },
  };
}

// What the chosen answers cost and took: halves, 1,000 times the dollars and the seconds of each item and student.
class Spent {
  constructor(bytes, students) {
    Object.assign(this, { bytes, students, found: Array.from({ length: students }, () => [[], []]) });
  }

  add(item) {
    if (!this.bytes.length) return;
    this.found.forEach((figures, student) => figures.forEach((known, which) => {
      const at = 2 * (2 * (item * this.students + student) + which);
      const half = this.bytes[at] + 256 * this.bytes[at + 1];
      const [power, rest] = [(half >> 10) & 31, half & 1023];
      if (power !== 31) known.push(power ? 2 ** (power - 15) * (1 + rest / 1024) : 2 ** -24 * rest);
    }));
  }

  of(student) {
    const [usd, seconds] = this.found[student];
    seconds.sort((a, b) => a - b);
    const middle = (seconds[(seconds.length - 1) >> 1] + seconds[seconds.length >> 1]) / 2;
    return { usd: usd.length ? summed(usd) / usd.length : null, seconds: seconds.length ? middle : null };
  }
}

// Whom nobody beats in score for the same or less (Pareto), by price and by time.
function onLines(rows) {
  const lines = ["usd", "seconds"].map((name) => {
    let best = -Infinity;
    const known = rows.filter((row) => row[name] !== null && row.score !== null && row.ranks !== null);
    known.sort((a, b) => a[name] - b[name] || b.score - a.score || (a.student < b.student ? -1 : 1));
    return known.filter(({ score }) => score > best && (best = score) !== null);
  });
  return rows.map((row) => ({
    ...row,
    usd_line: row.usd === null ? null : lines[0].includes(row),
    seconds_line: row.seconds === null ? null : lines[1].includes(row),
  }));
}

// Of a student's score over tasks: what it would be with all that is missing at 0, and at 1.
class Bounds {
  constructor() {
    Object.assign(this, { total: 0, count: 0, tasks: [] });
  }

  add([total, share]) {
    this.total += total;
    this.count += share;
  }

  // A task ends, in which so many scores might be; none where nobody has any.
  close(possible) {
    const lacking = Math.abs(possible - this.count) > SAME * possible ? possible - this.count : 0;
    if (possible) this.tasks.push([this.total / possible, (this.total + lacking) / possible]);
    Object.assign(this, { total: 0, count: 0 });
  }

  mean() {
    const [least, most] = [0, 1].map((end) => summed(this.tasks.map((task) => task[end])) / this.tasks.length);
    return { least, most };
  }
}

function boundsOf({ bounds, overall }) {
  const { least, most } = bounds.mean();
  return overall.units === 0 || least === most ? { least: null, most: null } : { least, most };
}

const measured = (name, { value, low, high, n }) => ({
  [name]: value, [`${name}_low`]: low, [`${name}_high`]: high, [`${name}_n`]: n,
});

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
