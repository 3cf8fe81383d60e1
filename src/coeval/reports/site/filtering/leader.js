// Who leads, in the sentences of coeval.analysis.measures.conclusions.

const many = (count, noun) => `${count.toLocaleString("en-US")} ${noun}${count === 1 ? "" : "s"}`;
const listed = (texts) => texts.slice(0, 8).join(", ") + (texts.length > 8 ? ` and ${texts.length - 8} more` : "");
const bracketed = ({ value, low, high }) => `${fixed(value, 2)} [${fixed(low, 2)}, ${fixed(high, 2)}]`;

// Both bounds where the interval is lopsided.
function differenceText(middle, low, high) {
  const lopsided = Math.abs(high - middle - (middle - low)) >= 0.0006;
  return `${fixed(middle, 3)} ${lopsided ? `[${fixed(low, 3)}, ${fixed(high, 3)}]` : `± ${fixed((high - low) / 2, 3)}`}`;
}

// Of a `Standing`.
function leaderSentences({ names, scores, pairs, design: { students } }) {
  const between = (one, other) => pairs.find((pair) => pair.one === one && pair.other === other);
  return [...leader(), ...places()];

  function leader() {
    const [first, second] = names;
    if (first === undefined) return ["Nobody has a score yet."];
    const [name, score] = [students[first], bracketed(scores[first])];
    if (second === undefined) {
      const unscored = students.filter((_, at) => at !== first).sort();
      if (unscored.length) return [`${name} is the only student with a score, ${score}; none yet: ${listed(unscored)}.`];
      return [`${name} is the only student, with ${score}.`];
    }
    const next = students[second];
    const pair = between(first, second);
    if (!pair) return [`${name} has the highest score, ${score}; ${next}, the next, has none of the same datapoints.`];
    const turned = pair.difference < 0;
    const gap = turned ? differenceText(-pair.difference, -pair.high, -pair.low) : differenceText(pair.difference, pair.low, pair.high);
    const paired = many(pair.n, "paired datapoint");
    if (pair.sure) {
      const chance = pair.adjusted < 0.001 ? "p < 0.001" : `p = ${fixed(pair.adjusted, 3)}`;
      return [`${name} leads with ${score}: better than ${next}, the next, by ${gap} (${paired}, ${chance}).`];
    }
    const said = [`${name} has the highest score, ${score}, but is not surely better than ${next}: by ${gap} (${paired}).`];
    if (pair.detectable !== null) said.push(`The smallest difference between them that this run could have found is ${fixed(pair.detectable, 3)}.`);
    return said;
  }

  function places() {
    const runs = [];
    names.slice(1).forEach((other, at) => {
      const pair = between(names[at], other);
      if (!pair || pair.sure) return;
      if (runs.at(-1)?.[1] === at + 1) runs.at(-1)[1] = at + 2;
      else runs.push([at + 1, at + 2]);
    });
    if (!runs.length || names.length < 3) return [];
    return [`Neighbours that cannot be told apart: places ${listed(runs.map(([from, to]) => `${from} to ${to}`))}.`];
  }
}
