// Who leads, in the sentences of coeval.analysis.measures.leaders.

const many = (count, noun) => `${count.toLocaleString("en-US")} ${noun}${count === 1 ? "" : "s"}`;
const chance = (p) => (p < 0.001 ? "p < 0.001" : `p = ${fixed(p, 3)}`);
const listed = (texts) => texts.slice(0, 8).join(", ") + (texts.length > 8 ? ` and ${texts.length - 8} more` : "");
const points = (share) => fixed(summedPoints(100 * share), 1);
const summedPoints = (number) => Math.round(number * 1e9) / 1e9; // however it was summed
const bracketed = ({ value, low, high }) => `${points(value)} [${points(low)}, ${points(high)}]`;

// In points; both bounds where the interval is lopsided.
const differenceText = (middle, low, high) => `${points(middle)} ${intervalText(middle, low, high)}`;

function intervalText(middle, low, high) {
  const lopsided = Math.abs(100 * high - 100 * middle - (100 * middle - 100 * low)) >= 0.06;
  return lopsided ? `[${points(low)}, ${points(high)}]` : `± ${fixed(summedPoints((100 * high - 100 * low) / 2), 1)}`;
}

// Of a pair whose first is ahead: for whom its lead holds, as `coeval.analysis.comparison.over_judges` says it.
function leadSentence({ over, n, adjusted, difference, low, high }, name, score, next) {
  const gap = `${differenceText(difference, low, high)} points`;
  const paired = many(n, "shared item");
  const interval = over && over.value !== null ? intervalText(over.value, over.low, over.high) : "";
  if (over && !over.sure) {
    const panel = over.judges === 1 ? "by this judge" : "by this panel";
    return `${name} leads ${panel} with ${score}: ahead of ${next}, the next, by ${gap} (${paired}, ${chance(adjusted)}); ${doubt(over, interval)}.`;
  }
  const guess = over?.judges === 2 ? ", a guess from two judges" : "";
  const both = over ? ` over items, ${interval} over items and judges${guess}` : "";
  return `${name} leads with ${score}: ahead of ${next}, the next, by ${gap}${both} (${paired}, ${chance(over ? over.adjusted : adjusted)}).`;
}

function doubt({ judges, agreeing }, interval) {
  const others = "whether other judges would agree";
  if (!interval) return `${others} is not known${judges === 1 ? " with one judge" : ": no items have scores of two judges of both"}`;
  const seen = `(${interval}; ${agreeing} of ${judges} judges see it so)`;
  return `${others} ${judges === 2 ? "can only be guessed from two" : "is open"} ${seen}`;
}

// Of a `Standing`.
function leaderSentences(standing) {
  const { names, scores, pairs, partial, design: { students } } = standing;
  const between = (one, other) => pairs.find((pair) => pair.one === one && pair.other === other);
  return [...leader(), ...places(), ...partly()];

  function leader() {
    const [first, second] = names;
    if (first === undefined) return ["Nobody has a score yet."];
    const [name, score] = [students[first], bracketed(scores[first])];
    if (partial.has(first) && second !== undefined) {
      return ["No student leads over all tasks: none is to do all of them. Compare students in each task."];
    }
    if (second === undefined) {
      const unscored = students.filter((_, at) => at !== first).sort();
      if (unscored.length) return [`${name} is the only student with a score, ${score}; none yet: ${listed(unscored)}.`];
      return [`${name} is the only student, with ${score}.`];
    }
    if (standing.range(first)[0] > 1) return ["No student leads: pairs of students, on the scores that both have, contradict each other."];
    const next = students[second];
    const pair = between(first, second);
    if (!pair) return [`${name} has the highest score, ${score}; ${next}, the next, shares no scored items with it.`];
    const turned = pair.difference < 0;
    if (pair.sure) return [leadSentence(pair, name, score, next)];
    const gap = `${turned ? differenceText(-pair.difference, -pair.high, -pair.low) : differenceText(pair.difference, pair.low, pair.high)} points`;
    const paired = many(pair.n, "shared item");
    const but = pair.difference < -SAME ? `on the scores that both have, ${next} is ahead, though not significantly: by` : `is not significantly better than ${next}: by`;
    const said = [`${name} has the highest score, ${score}, but ${but} ${gap} (${paired}${thoughApart(pair)}).`];
    if (pair.detectable !== null) said.push(`With ${many(pair.n, "item")}, a true gap of ${points(pair.detectable)} points would be detected four times in five.`);
    return said;
  }

  // An interval that leaves zero out knows nothing of the other pairs.
  function thoughApart({ adjusted, low, high }) {
    if (adjusted === null || (low <= 0 && high >= 0)) return "";
    const allowing = pairs.length > 1 ? ` after adjusting for ${many(pairs.length, "pair")}` : "";
    return `; the interval excludes zero, but ${chance(adjusted)}${allowing}`;
  }

  function places() {
    if (names.length < 3 || !pairs.length) return [];
    const sure = pairs.filter((pair) => pair.sure).length;
    const all = (names.length * (names.length - 1)) / 2; // those that share no score too: nothing is sure of them
    const [found, among] = [sure, all].map((count) => count.toLocaleString("en-US"));
    const over = overJudges(sure, all);
    if (!sure || sure === all) return [`${sure ? "All" : "None of the"} ${among} pairwise differences between students are significant${over}.`];
    const said = [`${found} of ${among} pairwise differences between students ${sure === 1 ? "is" : "are"} significant${over}.`];
    const near = names.map((_, at) => at + 1).filter((place) => place > 1 && !partial.has(names[place - 1]) && !between(names[0], names[place - 1])?.sure);
    if (near.length > 1) said.push(`Not significantly behind ${students[names[0]]}: ${runsOf(near)}.`);
    return said;
  }

  // Whose means are over some of the tasks only, and who therefore do not lead.
  function partly() {
    if (!partial.size || partial.size === names.length) return [];
    const [verb, them] = partial.size === 1 ? ["is", "it"] : ["are", "them"];
    const some = listed(names.filter((at) => partial.has(at)).map((at) => students[at]));
    return [`${some} ${verb} to do some of the tasks only, so nobody is compared with ${them} over all tasks.`];
  }

  function overJudges(sure, all) {
    if (!sure || !pairs.some(({ over }) => over && over.value !== null)) return "";
    const both = pairs.filter((pair) => pair.sure && pair.over?.sure).length;
    const number = both ? (both === all ? "all" : both.toLocaleString("en-US")) : "none";
    return ` over items, ${number} over items and judges`;
  }

  // "places 2 to 4, 6"
  function runsOf(found) {
    const runs = [];
    for (const place of found) {
      if (runs.at(-1)?.at(-1) === place - 1) runs.at(-1).push(place);
      else runs.push([place]);
    }
    return `places ${listed(runs.map((run) => (run.length > 1 ? `${run[0]} to ${run.at(-1)}` : `${run[0]}`)))}`;
  }
}

// Of tasks with labels alone, of which no score is: `coeval.analysis.run_results.label_tasks_sentence`.
function labelTasksSentences(tasks) {
  const count = (of) => summed(of.map(({ kept }) => kept));
  const alone = tasks.filter(({ scores }) => !scores);
  const [left, over] = [count(alone), count(tasks.filter(({ scores, judges, units }) => scores && (judges.length || units.checks.length)))];
  if (!left || !over) return [];
  const number = (value) => value.toLocaleString("en-US");
  const names = listed(alone.filter(({ kept }) => kept).map(({ name }) => name));
  return [`Scores are over ${number(over)} of ${number(over + left)} items; the other ${number(left)} (${names}) have labels, reported as accuracy.`];
}

const SHOWN = 0.01; // bounds that are nearer would read as one number

// Of students in their order: whose places depend on what is missing, as coeval.analysis.run_results has it.
function missingSentences([leader, ...others]) {
  if (!leader) return [];
  const turns = (one, other) => other.most > one.least && Math.max(one.most - one.least, other.most - other.least) >= SHOWN;
  const place = ({ name, least, most }) => `${name} ${least < most ? `between ${fixed(least, 2)} and ${fixed(most, 2)}` : `at ${fixed(least, 2)}`}`;
  const said = (what, students) =>
    `${what} depends on scores that failed or are missing: counting them as 0 or as 1 puts ${listed(students.map(place))}.`;
  const leading = others.filter((one) => turns(leader, one));
  const rest = others.filter((one, at) => others.some((other, nth) => (nth > at && turns(one, other)) || (nth < at && turns(other, one))));
  const order = `the order of ${listed(rest.map(({ name }) => name))}`;
  const more = leading.length ? `So does ${order}.` : said(`T${order.slice(1)}`, rest);
  return [...(leading.length ? [said("Who leads", [leader, ...leading])] : []), ...(rest.some((one) => !leading.includes(one)) ? [more] : [])];
}
