// Who stands where: by all chosen scores, without those that students gave themselves, and over the robust set;
// as coeval.analysis has it in ranking, own_judgments and robust_set.

const ALPHA = 0.05;
const [ALL, WITHOUT_OWN, ROBUST] = ["all scores", "without own", "robust set"];

// Sums of levels over the chosen factors of one task: of each item that stays, student and chosen judge.
class TaskSums {
  constructor({ name, items, factors }, { students }, judges) {
    this.name = name;
    this.judges = judges;
    this.students = students.length;
    this.scores = factors.length > 0; // else it has labels alone
    this.kept = 0;
    this.robust = new Uint8Array(items);
    this.totals = new Uint16Array(items * this.students * judges.length);
    this.counts = new Uint16Array(this.totals.length);
  }

  // A place for one more item.
  next(robust) {
    this.robust[this.kept] = robust ? 1 : 0;
    this.kept += 1;
    return this.kept - 1;
  }

  put(place, student, nth, [total, count]) {
    const at = (place * this.students + student) * this.judges.length + nth;
    this.totals[at] = total;
    this.counts[at] = count;
  }

  // Of each item the mean of a student's scores by some judges, NaN where there is none.
  means(student, counts, robust) {
    const nths = this.judges.map((_, nth) => nth).filter((nth) => counts(this.judges[nth]));
    return Array.from({ length: this.kept }, (_, place) => {
      if (robust && !this.robust[place]) return NaN;
      const first = (place * this.students + student) * this.judges.length;
      let [total, count] = [0, 0];
      for (const nth of nths) {
        total += this.totals[first + nth];
        count += this.counts[first + nth];
      }
      return count ? total / count / 2 : NaN;
    });
  }

  // Whether there can be any score.
  isAsked(counts, robust) {
    return this.judges.some(counts) && (robust ? this.robust.some(Boolean) : this.kept > 0);
  }
}

const isKnown = (value) => !Number.isNaN(value);

function standingsOf(design, sums) {
  const ways = [new Standing(ALL, design, sums)];
  if (design.own) ways.push(new Standing(WITHOUT_OWN, design, sums));
  if (design.robust !== null) ways.push(new Standing(ROBUST, design, sums));
  return ways;
}

class Standing {
  constructor(name, design, sums) {
    Object.assign(this, { name, design, sums, robust: name === ROBUST });
    const means = design.students.map((_, at) => this.means(at, at));
    const known = means.map((tasks) => tasks.map((values) => values.filter(isKnown)));
    this.scores = known.map(meanOverStrata);
    const asked = sums.map((task, at) => at).filter((at) => sums[at].isAsked(this.robust ? this.judges() : () => true, this.robust));
    this.tasks = asked.map((at) => ({ name: sums[at].name, scores: known.map((tasks) => meanOverStrata([tasks[at]])) }));
    this.names = this.best(this.scores);
    const couples = this.robust ? [] : this.names.flatMap((one, place) => this.names.slice(place + 1).map((other) => [one, other]));
    const paired = couples.map(([one, other]) => this.paired(one, other, means)).filter(({ strata }) => strata.length);
    const family = paired.filter(({ strata }) => summed(strata.map(({ a }) => a.length)) > 1).length;
    this.pairs = paired.map(({ strata, ...pair }) => ({ ...pair, ...pairedDifference(strata, Math.max(family, 1)) }));
    holm(this.pairs.map((pair) => pair.p)).forEach((p, at) => {
      this.pairs[at].adjusted = p;
      this.pairs[at].sure = p !== null && p < ALPHA;
    });
  }

  // Which judges count where these students are scored.
  judges(...students) {
    const { judges, students: names, robust } = this.design;
    if (this.name === ROBUST) return (judge) => robust.judges.includes(judge);
    if (this.name === ALL) return () => true;
    const own = students.map((student) => judges.indexOf(names[student]));
    return (judge) => !own.includes(judge);
  }

  means(of, ...students) {
    return this.sums.map((task) => task.means(of, this.judges(...students), this.robust));
  }

  // Python names pairs in order of their names; a difference turned round has the same p-value.
  paired(one, other, means) {
    const [mine, theirs] = this.name === WITHOUT_OWN ? [this.means(one, one, other), this.means(other, one, other)] : [means[one], means[other]];
    const strata = mine
      .map((values, task) => {
        const both = values.map((_, at) => at).filter((at) => isKnown(values[at]) && isKnown(theirs[task][at]));
        return { a: both.map((at) => theirs[task][at]), b: both.map((at) => values[at]) };
      })
      .filter(({ a }) => a.length);
    return { one, other, strata };
  }

  // Best first; those without a score are left out.
  best(scores) {
    const { students } = this.design;
    const names = students.map((_, at) => at).filter((at) => scores[at].value !== null);
    return names.sort((a, b) => scores[b].value - scores[a].value || (students[a] < students[b] ? -1 : 1));
  }

  // After those who are surely better, before those who are surely worse. The robust set was chosen by its
  // own scores, and has no tests.
  rank(student) {
    if (this.robust || !this.names.includes(student)) return null;
    let [better, worse] = [0, 0];
    for (const pair of this.pairs) {
      if (!pair.sure || (pair.one !== student && pair.other !== student)) continue;
      const ahead = pair.difference > 0 ? pair.one : pair.other;
      if (ahead === student) worse += 1;
      else better += 1;
    }
    const [low, high] = [1 + better, this.names.length - worse];
    return low === high ? `${low}` : `${low}–${high}`;
  }

  // Of the table `standings`.
  rows() {
    const { students } = this.design;
    const of = (task, scores) => {
      const names = this.best(scores);
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
function standingLink({ scores, task, student }, { judges, robust }) {
  const query = [["student", student], ...(task === null ? [] : [["task", task]])];
  if (scores === ROBUST) {
    query.push(...robust.judges.map((at) => ["judge", judges[at]]), ...robust.teachers.map((name) => ["teacher", name]));
  }
  if (scores === WITHOUT_OWN && judges.includes(student)) {
    query.push(...judges.filter((judge) => judge !== student).map((judge) => ["judge", judge]));
  }
  return query;
}
