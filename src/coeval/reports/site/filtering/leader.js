// Who leads, what would change that, and what judges who differ mean, in the sentences of
// coeval.analysis.measures.leaders.

const many = (count, noun) => `${count.toLocaleString("en-US")} ${noun}${count === 1 ? "" : "s"}`;
const chance = (p) => (p < 0.001 ? "p < 0.001" : `p = ${fixed(p, 3)}`);
const listed = (texts) => texts.slice(0, 8).join(", ") + (texts.length > 8 ? ` and ${texts.length - 8} more` : "");

// Of a `Standing` over all scores, beside the order ``withoutOwn``; ``bounds``: by student, what missing scores
// make of its own. What an item of a choice costs is not known.
function openingSentences(standing, { withoutOwn, bounds, atAnyLook }) {
  const { names, scores, pairs, partial, design: { students } } = standing;
  const [first] = names;
  const shown = (at) => points(scores[at].value);
  if (first === undefined) return ["No student has a score yet."];
  if (names.length < 2) {
    const more = students.length > 1 ? ", the only student with a score so far." : ", the only student: add another to compare.";
    return [`${students[first]} scores ${shown(first)}${more}`];
  }
  if (partial.has(first)) return ["No student leads over all tasks: none does all of them. Compare students by task."];
  if (standing.range(first)[0] > 1) return ["No student leads: pairs of students, on the scores that both have, contradict each other."];
  const between = (one, other) => pairs.find((pair) => pair.one === one && pair.other === other);
  // Its rival: the best that it is tied with, so that both may have rank 1, or leads by these judges alone.
  const verdict = (found) => {
    if (!found?.sure) return "tied";
    if (!found.over || (found.over.sure && found.over.judges > 2)) return "leads";
    return found.over.judges === 1 ? "leads by this judge" : "leads by these judges";
  };
  const whole = names.slice(1).filter((at) => !partial.has(at));
  const second = whole.find((at) => !between(first, at)?.sure) ?? whole.find((at) => verdict(between(first, at)) !== "leads") ?? names[1];
  const [name, next] = [students[first], students[second]];
  const pair = between(first, second);
  if (!pair) return [`${name} has the highest score (${shown(first)}); ${next} shares no scored items with it.`];
  const behind = pair.difference < -SAME;
  const apart = ({ difference, low, high }) => `${difference < 0 ? differenceText(-difference, -high, -low) : differenceText(difference, low, high)} points`;
  return [who(), missing() || elsewhere() || settling() || neighbours() || steady(), panel()].filter(Boolean);

  function who() {
    const [by, shared] = [apart(pair), many(pair.n, "shared item")];
    const both = `${name} (${shown(first)}) and ${next} (${shown(second)})`;
    if (pair.sure) return `${name} ${verdict(pair)}: ${by} ahead of ${next} on ${shared} (${chance(pair.adjusted)}${atAnyLook ? " at any look" : ""}).`;
    if (behind) return `${both} are tied: on ${shared}, ${next} is ahead by ${by}.`;
    const odds = pair.adjusted !== null && (pair.low > 0 || pair.high < 0) ? ` (${chance(pair.adjusted)})` : "";
    return `${both} are tied: the gap is ${by} on ${shared}${odds}.`;
  }

  function missing() {
    const [own, ...rest] = names.filter((at) => !partial.has(at)).map((at) => ({ name: students[at], ...bounds(at) }));
    const turns = (other) => other.most > own.least && Math.max(own.most - own.least, other.most - other.least) >= SHOWN;
    const other = rest.find(turns);
    if (!other) return "";
    const [one, two] = [own, other].map(({ name: whose, least, most }) => `${whose} ${points(least) !== points(most) ? `between ${points(least)} and ${points(most)}` : `at ${points(least)}`}`);
    return `Missing scores could change the leader: counted as 0 or 100, they put ${one} and ${two}.`;
  }

  function elsewhere() {
    const other = withoutOwn[0] ?? first;
    return other === first ? "" : `Without the scores that students gave themselves, ${students[other]} has the highest score.`;
  }

  // How many items would settle a gap of this size, by these judges if there are any.
  function settling() {
    const { detectable, difference, n } = pair;
    const by = Math.abs(difference);
    if (pair.sure) return "";
    if (detectable === null) return "One shared item cannot show a gap: more are needed.";
    if (by < LEAST_GAP) return "The gap is too small to settle with more items.";
    const times = (detectable / by) ** 2;
    if (times > MOST_TIMES) return `The gap is too small to settle with more items: ${MOST_TIMES} times as many would not be enough.`;
    const needed = Math.max(Math.trunc(Number((n * times).toPrecision(2))), n + 1);
    const byWhom = pair.over ? " with these judges" : "";
    return `If the gap is real, about ${needed.toLocaleString("en-US")} items would show it${byWhom} (now ${n.toLocaleString("en-US")}).`;
  }

  // Whether what judges add to the interval leaves zero in it even with so many times the items.
  function judgesMust() {
    const { over, low, high, difference } = pair;
    if (Math.abs(difference) < LEAST_GAP || !over || over.low === null) return false;
    const [items, both] = [(high - low) / 2, (over.high - over.low) / 2];
    return difference ** 2 <= both ** 2 - items ** 2 * (1 - 1 / MOST_TIMES);
  }

  function neighbours() {
    for (let place = 1; place < names.length - 1; place += 1) {
      const [one, other] = names.slice(place, place + 2);
      const found = between(one, other);
      if (partial.has(other)) break;
      if (!found) return `The order behind the leader is open: ${students[one]} and ${students[other]} share no scored items.`;
      if (!found.sure) {
        return `The order behind the leader could change: ${students[one]} and ${students[other]} are ${apart(found)} apart.`;
      }
    }
    return "";
  }

  function steady() {
    if (!withoutOwn.length) return "Every gap to the next student is significant: more items are unlikely to change the order.";
    const same = withoutOwn.join() === names.join();
    return `${same ? "The order stays the same" : `${name} stays first`} without the scores that students gave themselves.`;
  }

  function panel() {
    const { over } = pair;
    if (!over) return "";
    if (over.value === null) {
      const who = new Set(standing.sums.flatMap((task) => task.judges)).size === 1 ? "was used" : `scored both ${name} and ${next}`;
      return over.judges === 1 ? `Only one judge ${who}, so agreement cannot be measured.` : "Too few items have scores from two judges for both students, so agreement cannot be measured.";
    }
    const { judges, agreeing } = over;
    const number = judges.toLocaleString("en-US");
    const ahead = `judges put ${behind ? next : name} ahead`;
    const some = Math.abs(pair.difference) <= SAME ? `The ${number} judges together put neither ahead` : `${agreeing.toLocaleString("en-US")} of ${number} ${ahead}`;
    const said = agreeing === judges ? `${judges === 2 ? "Both" : `All ${number}`} ${ahead}` : some;
    const must = judgesMust() ? ": more items cannot settle it, more judges can" : "";
    const end = verdict(pair) === "leads" ? ` (${chance(over.adjusted)})` : must;
    const guess = judges === 2 ? "; two judges give only a rough idea" : "";
    const by = apart({ difference: over.value, low: over.low, high: over.high });
    return `${said}; allowing for other judges, the ${pair.sure ? "lead" : "gap"} is ${by}${end}${guess}.`;
  }
}

const SHOWN = 0.01; // bounds that are nearer would read as one number
const [LEAST_GAP, MOST_TIMES] = [0.001, 20];

// Whose means are over some of the tasks only, and who therefore do not lead.
function partialSentences({ partial, names, design: { students } }) {
  if (!partial.size || partial.size === names.length) return [];
  const [verb, them] = partial.size === 1 ? ["is", "it"] : ["are", "them"];
  const some = listed(names.filter((at) => partial.has(at)).map((at) => students[at]));
  return [`${some} ${verb} to do some of the tasks only, so nobody is compared with ${them} over all tasks.`];
}

// Of tasks with labels alone, of which no score is: `coeval.analysis.run_results.label_tasks_sentence`.
function labelTasksSentences(tasks) {
  const count = (of) => summed(of.map(({ kept }) => kept));
  const alone = tasks.filter(({ scores }) => !scores);
  const [left, over] = [count(alone), count(tasks.filter(({ scores, judges, units }) => scores && (judges.length || units.checks.length)))];
  if (!left || !over) return [];
  const number = (value) => value.toLocaleString("en-US");
  const named = listed(alone.filter(({ kept }) => kept).map(({ name }) => name));
  return [`Scores are over ${number(over)} of ${number(over + left)} items; the other ${number(left)} (${named}) have labels, reported as accuracy.`];
}

// The order without scores that students gave themselves; empty where nobody scored itself or nothing is left.
function orderWithoutOwn([all, others]) {
  return others && others.units !== all.units ? others.names : [];
}
