// Who stands where: by all chosen scores, and without those that students gave themselves; as
// coeval.analysis.measures.ranking has it.

const ALPHA = 0.05;
const SAME = 1e-9;
const [ALL, WITHOUT_OWN] = ["all scores", "without own"];

// Sums of scores over the chosen factors of one task: of each item that stays and student.
class TaskSums {
  // ``units``: all scores, and where among an answer's the chosen factors, judges and checks stand.
  constructor({ name, items, factors, checks, without }, { students }, judges, units) {
    Object.assign(this, { name, judges, units, without, students: students.length, kept: 0 });
    this.scores = factors.length + checks.length > 0; // else it has labels alone
    this.bases = new Uint32Array(items);
    this.clusters = new Uint32Array(items);
    if (!units.weights) {
      this.totals = new Float64Array(items * this.students * judges.length);
      this.counts = new Uint16Array(this.totals.length);
    }
  }

  // A place for one more item, the ``at``-th of the task; items that are alike share a ``cluster``.
  next(at, cluster) {
    this.bases[this.kept] = at;
    this.clusters[this.kept] = cluster;
    this.kept += 1;
    return this.kept - 1;
  }

  put(place, student, nth, [total, count]) {
    if (!this.totals) return;
    const at = (place * this.students + student) * this.judges.length + nth;
    this.totals[at] = total;
    this.counts[at] = count;
  }

  // Of each item the sums of a student's scores by some judges and by checks: of the scores, of their shares,
  // and how many there are; ``beside``: only where this student has one too.
  sums(student, counts, beside = student) {
    const nths = this.judges.map((_, nth) => nth).filter((nth) => counts(this.judges[nth]));
    const of = (place) => (this.totals ? this.flat(place, student, beside, nths) : this.weighed(place, student, beside, nths));
    return Array.from({ length: this.kept }, (_, place) => of(place));
  }

  // Where all scores count alike.
  flat(place, student, beside, nths) {
    const whole = this.units.lines.length;
    const [first, other] = [student, beside].map((one) => (place * this.students + one) * this.judges.length);
    let [total, count] = [0, 0];
    for (const nth of nths) {
      const [own, theirs] = [this.counts[first + nth], this.counts[other + nth]];
      if (student === beside || theirs === whole || !own) {
        total += this.totals[first + nth];
        count += own;
      } else if (theirs) {
        this.units.lines.forEach((_, line) => {
          const [sum, many] = this.shared(place, student, beside, line, [nth]);
          total += sum;
          count += many;
        });
      }
    }
    return [total, count, count];
  }

  // Where each factor counts by its weight, once, if each has a score.
  weighed(place, student, beside, nths) {
    const { lines, checks, weights } = this.units;
    const found = [0, 0, 0];
    let lacks = false;
    const add = ([sum, many], weight) => {
      if (!many) {
        lacks = true;
        return;
      }
      found[0] += (weight * sum) / many;
      found[1] += weight;
      found[2] += many;
    };
    lines.forEach((_, line) => add(this.shared(place, student, beside, line, nths), weights.lines[line]));
    checks.forEach((_, nth) => {
      const [own, other] = [student, beside].map((one) => this.units.checked(this.bases[place], one, nth));
      add(isKnown(own) && isKnown(other) ? [own, 1] : [0, 0], weights.checks[nth]);
    });
    return lacks ? [0, 0, 0] : found;
  }

  shared(place, student, beside, line, nths) {
    let [total, count] = [0, 0];
    for (const nth of nths) {
      const [own, other] = [student, beside].map((one) => this.units.level(this.bases[place], one, line, nth));
      if (own === NO_LEVEL || other === NO_LEVEL) continue;
      total += this.units.scale[own];
      count += 1;
    }
    return [total, count];
  }

  // The mean of each item, NaN where there is none.
  means(...of) {
    return this.sums(...of).map(([total, share]) => (share ? total / share : NaN));
  }

  // What each of some judges gave a student, by item: a mean over factors; NaN where it gave nothing.
  cells(student, nths) {
    return nths.map((nth) =>
      Array.from({ length: this.kept }, (_, place) => {
        if (this.totals) {
          const at = (place * this.students + student) * this.judges.length + nth;
          return this.counts[at] ? this.totals[at] / this.counts[at] : NaN;
        }
        let [total, share] = [0, 0];
        this.units.lines.forEach((_, line) => {
          const [sum, many] = this.shared(place, student, student, line, [nth]);
          total += this.units.weights.lines[line] * sum;
          share += this.units.weights.lines[line] * many;
        });
        return share ? total / share : NaN;
      }),
    );
  }

  // What each judge gave one student, or gave it more than the other; judges who ``counts`` says.
  byJudge(counts, student, other = null) {
    const nths = this.judges.map((_, nth) => nth).filter((nth) => counts(this.judges[nth]));
    const mine = this.cells(student, nths);
    const theirs = other === null ? null : this.cells(other, nths);
    const values = theirs ? mine.map((own, nth) => own.map((value, item) => value - theirs[nth][item])) : mine;
    return { judges: nths.map((nth) => this.judges[nth]), values, share: this.judgedShare() };
  }

  // How much of an item's score judges give.
  judgedShare() {
    const { lines, weights } = this.units;
    if (!lines.length || !this.judges.length) return 0;
    if (!weights) return 1;
    const of = summed(weights.lines);
    return of / (of + summed(weights.checks));
  }

  clustersOf(places) {
    return sharedClusters(places.map((place) => this.clusters[place]));
  }

  // Whether there can be any score.
  isAsked() {
    return this.kept > 0 && ((this.units.lines.length && this.judges.length) || this.units.checks.length);
  }
}

const isKnown = (value) => !Number.isNaN(value);

// By how much the one is ahead of the other, tasks counting alike.
const gapOver = ({ one, other, tasks }) => ({
  one,
  other,
  difference: summed(tasks.map(({ a, b }) => summed(b) / b.length - summed(a) / a.length)) / tasks.length,
  items: summed(tasks.map(({ a }) => a.length)),
});

function standingsOf(design, sums) {
  const ways = [new Standing(ALL, design, sums)];
  if (design.own) {
    const others = new Standing(WITHOUT_OWN, design, sums);
    if (others.pairs.length || others.units === ways[0].units) ways.push(others);
  }
  return ways;
}

// How far each mean moves so that means differ as students do on the scores that they share: least squares over
// all pairs, weighted by items (conjugate gradients); whoever has the most scores keeps its mean.
function panelShifts(levels, gaps) {
  const lacking = gaps.map(({ one, other, difference }) => difference - (levels.get(one).mean - levels.get(other).mean));
  const found = new Map([...levels.keys()].map((at) => [at, 0]));
  if (!lacking.some((lack) => Math.abs(lack) >= SAME)) return found;
  const places = [...levels.keys()];
  const place = new Map(places.map((at, nth) => [at, nth]));
  const over = (take) => {
    const sums = places.map(() => 0);
    gaps.forEach(({ one, other, items }, nth) => {
      const part = items * take(place.get(one), place.get(other), nth);
      sums[place.get(one)] += part;
      sums[place.get(other)] -= part;
    });
    return sums;
  };
  let x = places.map(() => 0);
  let rest = over((one, other, nth) => lacking[nth]);
  let way = rest;
  const start = dotted(rest, rest);
  for (let step = 0; step < 20 * places.length && dotted(rest, rest) > 1e-30 * start; step += 1) {
    const pulled = over((one, other) => way[one] - way[other]);
    const size = dotted(rest, rest) / dotted(way, pulled);
    x = x.map((each, at) => each + size * way[at]);
    const next = rest.map((each, at) => each - size * pulled[at]);
    const turn = dotted(next, next) / dotted(rest, rest);
    way = next.map((each, at) => each + turn * way[at]);
    rest = next;
  }
  const most = Math.max(...[...levels.values()].map(({ units }) => units));
  const whole = places.map((_, nth) => nth).filter((nth) => levels.get(places[nth]).units === most);
  const kept = summed(whole.map((nth) => x[nth])) / whole.length;
  places.forEach((at, nth) => found.set(at, x[nth] - kept));
  return found;
}

// `meanOverStrata`, moved within the scale.
function movedMean(arrays, shift, clusters) {
  const found = meanOverStrata(arrays, clusters);
  if (!shift || found.value === null) return found;
  const by = Math.min(Math.max(found.value + shift, 0), 1) - found.value;
  return meanOverStrata(arrays.map((values) => values.map((x) => x + by)), clusters);
}

class Standing {
  constructor(name, design, sums) {
    Object.assign(this, { name, design, sums });
    const everyone = design.students.map((_, at) => at);
    const own = everyone.map((at) => sums.map((task) => task.sums(at, this.judges(at))));
    const known = own.map((tasks) => tasks.map((items) => items.filter(([, share]) => share).map(([total, share]) => total / share)));
    const clusters = own.map((tasks) => tasks.map((items, task) => sums[task].clustersOf(items.map((_, place) => place).filter((place) => items[place][1]))));
    const units = own.map((tasks) => tasks.map((items) => summed(items.map(([, , units]) => units))));
    this.units = summed(units.map(summed));
    const scored = everyone.filter((at) => known[at].some((values) => values.length));
    const common = scored.flatMap((one, place) => scored.slice(place + 1).map((other) => this.shared(one, other)));
    const levels = (values, counts) =>
      new Map(scored.filter((at) => values(at).some((of) => of.length)).map((at) => [at, { mean: meanOverStrata(values(at)).value, units: counts(at) }]));
    const overall = levels((at) => known[at], (at) => summed(units[at]));
    const shifts = panelShifts(overall, common.filter(({ tasks }) => tasks.length).map(gapOver));
    this.scores = everyone.map((at) => movedMean(known[at], shifts.get(at), clusters[at]));
    this.overJudges = name === ALL ? this.scoresOver(known) : everyone.map(() => null);
    const asked = sums.map((task, at) => at).filter((at) => sums[at].isAsked());
    this.tasks = asked.map((task) => {
      const of = common.map(({ tasks, ...pair }) => ({ ...pair, tasks: tasks.filter((each) => each.task === task) }));
      const moves = panelShifts(levels((at) => [known[at][task]], (at) => units[at][task]), of.filter(({ tasks }) => tasks.length).map(gapOver));
      return { name: sums[task].name, scores: everyone.map((at) => movedMean([known[at][task]], moves.get(at), [clusters[at][task]])) };
    });
    const rounded = (at) => Math.round((overall.get(at).mean + shifts.get(at)) * 1e9);
    const { students } = design;
    this.partial = new Set(scored.filter((at) => asked.some((task) => sums[task].without.includes(at))));
    const late = (at) => Number(this.partial.has(at));
    this.names = [...scored].sort((a, b) => late(a) - late(b) || rounded(b) - rounded(a) || (students[a] < students[b] ? -1 : 1));
    const paired = common.filter(({ tasks }) => tasks.length).map((pair) => this.turned(pair));
    paired.sort((a, b) => this.names.indexOf(a.one) - this.names.indexOf(b.one) || this.names.indexOf(a.other) - this.names.indexOf(b.other));
    const family = paired.filter(({ tasks }) => summed(tasks.map(({ a }) => a.length)) > 1).length;
    this.pairs = paired.map(({ tasks, ...pair }) => ({ ...pair, ...pairedDifference(tasks, Math.max(family, 1)) }));
    this.addOver(paired);
    for (const pair of this.pairs) {
      pair.p = pAtAnyLook(pair.p, design.looks);
      pair.detectable = detectableAtAnyLook(pair.detectable, design.looks, Math.max(family, 1));
    }
    holm(this.pairs.map((pair) => pair.p)).forEach((p, at) => {
      const pair = this.pairs[at];
      const [low, high] = adjustedBounds(pair.difference, pair, p, family, design.looks);
      Object.assign(pair, { adjusted: p, sure: p !== null && p < ALPHA, low, high });
    });
  }

  // Of each student, its score with judges as a sample too.
  scoresOver(known) {
    const of = (at) => this.sums.filter((_, task) => known[at][task].length).map((task) => task.byJudge(() => true, at));
    return scoresOverJudges(this.scores.map((score, at) => ({ tasks: of(at), score })));
  }

  addOver(paired) {
    const judged = paired.map(({ one, other, tasks }, at) => ({
      tasks: tasks.map(({ task }) => this.sums[task].byJudge(this.judges(one, other), one, other)),
      found: this.pairs[at],
    }));
    const names = new Set(paired.flatMap(({ one, other }) => [one, other]));
    const { looks } = this.design;
    const found = addOverJudges(judged, names.size - 1).map((over) => over && { ...over, p: pAtAnyLook(over.p, looks) });
    const tests = found.filter((over) => over && over.p !== null).length;
    holm(found.map((over) => over?.p ?? null)).forEach((p, at) => {
      const over = found[at];
      if (!over) return void (this.pairs[at].over = null);
      const [low, high] = adjustedBounds(over.value, over, p, tests, looks);
      this.pairs[at].over = { ...over, low, high, adjusted: p, sure: p !== null && p < ALPHA };
    });
  }

  // Which judges count where these students are scored.
  judges(...students) {
    const { judges, students: names } = this.design;
    if (this.name === ALL) return () => true;
    const own = students.map((student) => judges.indexOf(names[student]));
    return (judge) => !own.includes(judge);
  }

  // What two have in common, by task: b is the one, a the other.
  shared(one, other) {
    const judges = this.judges(one, other);
    const tasks = this.sums
      .map((task, at) => {
        const [mine, theirs] = [[one, other], [other, one]].map(([of, beside]) => task.means(of, judges, beside));
        const both = mine.map((_, item) => item).filter((item) => isKnown(mine[item]) && isKnown(theirs[item]));
        return { task: at, a: both.map((item) => theirs[item]), b: both.map((item) => mine[item]), clusters: task.clustersOf(both) };
      })
      .filter(({ a }) => a.length);
    return { one, other, tasks };
  }

  // With whoever stands first as the one; a difference turned round has the same p-value.
  turned(pair) {
    if (this.names.indexOf(pair.one) < this.names.indexOf(pair.other)) return pair;
    return { one: pair.other, other: pair.one, tasks: pair.tasks.map(({ a, b, ...rest }) => ({ ...rest, a: b, b: a })) };
  }

  // Best first; those without a score are left out.
  best(scores) {
    const { students } = this.design;
    const names = students.map((_, at) => at).filter((at) => scores[at].value !== null);
    return names.sort((a, b) => scores[b].value - scores[a].value || (students[a] < students[b] ? -1 : 1));
  }

  // After those who are significantly better, before those who are significantly worse, of those who do all tasks.
  range(student) {
    let [better, worse] = [0, 0];
    for (const pair of this.pairs) {
      if (!pair.sure || (pair.one !== student && pair.other !== student)) continue;
      if (this.partial.has(pair.one) || this.partial.has(pair.other)) continue;
      const ahead = pair.difference > 0 ? pair.one : pair.other;
      if (ahead === student) worse += 1;
      else better += 1;
    }
    return [1 + better, this.names.length - this.partial.size - worse];
  }

  rank(student) {
    if (!this.names.includes(student) || this.partial.has(student)) return null;
    const [low, high] = this.range(student);
    return low === high ? `${low}` : `${low}–${high}`;
  }

  // Of the table `standings`.
  rows() {
    const { students } = this.design;
    const of = (task, scores) => {
      const names = task === null ? this.names : this.best(scores);
      const order = [...names, ...students.map((_, at) => at).filter((at) => !names.includes(at))];
      return order.map((at) => ({
        scores: this.name, task, student: students[at], ranks: task === null ? this.rank(at) : null,
        ...measured("score", scores[at]), n: scores[at].n,
      }));
    };
    const tasks = this.sums.length > 1 ? this.tasks : [];
    return [...of(null, this.scores), ...tasks.flatMap((task) => of(task.name, task.scores))];
  }
}

// Whose judgments of which items they are.
function standingLink({ scores, task, student }, { judges }) {
  const query = [["student", student], ...(task === null ? [] : [["task", task]])];
  if (scores === WITHOUT_OWN && judges.includes(student)) {
    query.push(...judges.filter((judge) => judge !== student).map((judge) => ["judge", judge]));
  }
  return query;
}
