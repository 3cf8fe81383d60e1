// Paired differences, as coeval.analysis.comparison.paired_difference makes them; docs/compare.md explains them.

const POWER = 0.8;
const FEWEST_DIFFERING = 5;
const ENOUGH = 20;
const OPPOSITE = 0.5;
const END = 0.1;
const FEW_AT_END = 6;
const ALL_FLIPS = 14;
const NO_TAIL = 0.05;
const FINEST = 5040;
const EQUAL = 1e-9;
const OF_AN_ITEM = 0.5;
const APPROACHES = 60;

const summed = (values) => values.reduce((sum, x) => sum + x, 0);
const dotted = (a, b) => a.reduce((sum, x, at) => sum + x * b[at], 0);

// ``strata``: [{a: [scores], b: [scores], clusters: [those of the items] or null}], paired by item; b − a.
// ``family``: how many comparisons are made at once.
function pairedDifference(strata, family = 1) {
  const parts = strata.map(({ a, b, clusters }) => {
    const [meanA, meanB] = [summed(a) / a.length, summed(b) / b.length];
    const far = (values, mean) => clustered(values.map((x) => x - mean), clusters);
    const each = far(a, meanA).length / a.length;
    const [fromA, fromB] = [far(a, meanA), far(b, meanB)].map((sums) => sums.map((x) => x * each));
    return { meanA, meanB, items: fromA.length, fromA, fromB };
  });
  const meanA = summed(parts.map((part) => part.meanA)) / parts.length;
  const meanB = summed(parts.map((part) => part.meanB)) / parts.length;
  const difference = meanB - meanA;
  const n = summed(parts.map((part) => part.items));
  const apart = strata.map(({ a, b, clusters }) => clustered(a.map((x, at) => b[at] - x), clusters));
  const differing = summed(apart.map((differences) => differences.filter((x) => Math.abs(x) > EQUAL).length));
  const binary = strata.length === 1 && !strata[0].clusters && [...strata[0].a, ...strata[0].b].every((x) => x === 0 || x === 1);
  const near = parts.some((part) => {
    const room = Math.min(part.meanA, 1 - part.meanA, part.meanB, 1 - part.meanB);
    return room < END && part.items * room < FEW_AT_END;
  });
  let spread = spreadOf(parts, near ? meanA * (1 - meanA) + meanB * (1 - meanB) : 0);
  const few = near ? Math.abs(difference) > OPPOSITE + EQUAL : n >= ENOUGH;
  const carried = summed(apart.map(carrying));
  const scarce = (few ? Math.min(differing, carried) : differing) < FEWEST_DIFFERING - EQUAL || spread.error === 0;
  const { error, degrees: free } = spreadOf(parts, 0);
  const seen = { error: error * (1 + OF_AN_ITEM / Math.max(carried, 1)), degrees: free };
  let bounds;
  if (scarce) {
    bounds = mover(parts, meanA, meanB);
    const degrees = Math.max(n - 1, 1);
    spread = { error: (bounds[1] - bounds[0]) / 2 / tQuantile(degrees, (1 + LEVEL) / 2), degrees };
  } else {
    const half = tQuantile(spread.degrees, (1 + LEVEL) / 2) * spread.error;
    bounds = [Math.max(difference - half, -1), Math.min(difference + half, 1)];
  }
  const test = binary ? "exact McNemar" : near || scarce ? "sign flips" : "paired t";
  const detectable = detectableOf(parts, [meanA, meanB], seen.error ? seen : spread, family) + (binary ? 1 / n : 0);
  return {
    difference,
    low: bounds[0],
    high: bounds[1],
    ...spread,
    n: summed(strata.map(({ a }) => a.length)),
    p: n > 1 ? pValue(test, strata, difference, spread) : null,
    detectable: n > 1 ? Math.min(detectable, 1) : null,
  };
}

// How many items carry the scatter of differences around their median.
function carrying(differences) {
  const sorted = [...differences].sort((a, b) => a - b);
  const middle = (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
  const squares = differences.map((x) => (x - middle) ** 2);
  const total = summed(squares);
  return total > 0 ? total ** 2 / dotted(squares, squares) : 0;
}

// Found with 80 % power, with the scatter that there would be if one mean were so much nearer to the middle.
function detectableOf(parts, [meanA, meanB], { error, degrees }, family) {
  const r = correlationOf(parts);
  const middle = (meanA + meanB) / 2;
  const varianceAt = (p, q) => p * (1 - p) + q * (1 - q) - 2 * r * Math.sqrt(Math.max(p * (1 - p) * q * (1 - q), 0));
  const least = (tQuantile(degrees, 1 - (1 - LEVEL) / 2 / family) + tQuantile(degrees, POWER)) * error;
  const here = varianceAt(meanA, meanB);
  let found = least;
  for (let step = 0; here > 0 && step < APPROACHES; step += 1) {
    const other = middle > 0.5 ? middle - found : middle + found;
    const more = varianceAt(middle, Math.min(Math.max(other, 0), 1)) / here;
    found = Math.min(least * Math.sqrt(Math.max(more, 1)), 1);
  }
  return found;
}

function correlationOf(parts) {
  const over = (take) => summed(parts.map((part) => take(part) / part.items ** 2));
  const both = over((part) => dotted(part.fromA, part.fromB));
  const squareA = over((part) => dotted(part.fromA, part.fromA) + 0.25);
  const squareB = over((part) => dotted(part.fromB, part.fromB) + 0.25);
  return both / Math.sqrt(squareA * squareB);
}

function spreadOf(parts, lent) {
  const squares = parts.map((part) => summed(part.fromB.map((x, at) => (x - part.fromA[at]) ** 2)));
  const freedom = parts.map((part) => part.items - 1);
  const more = lent ? 1 / parts.length : 0;
  const pooled = (summed(squares) + lent) / (summed(freedom) + (lent ? 1 : 0) || 1);
  const variances = parts.map((part, at) => {
    const own = freedom[at] ? (squares[at] + lent * more) / (freedom[at] + more) : pooled;
    return own / part.items / parts.length ** 2;
  });
  const total = summed(variances);
  if (total <= 0) return { error: 0, degrees: Math.max(summed(freedom), 1) };
  const spent = summed(variances.map((v, at) => v ** 2 / Math.max(freedom[at], 1)));
  return { error: Math.sqrt(total), degrees: total ** 2 / spent };
}

function mover(parts, meanA, meanB) {
  const scatter = (from) => parts.map((part) => ({ items: part.items, squares: dotted(part[from], part[from]) }));
  const [lowA, highA] = meanBounds(meanA, scatter("fromA"));
  const [lowB, highB] = meanBounds(meanB, scatter("fromB"));
  const r = correlationOf(parts);
  const combined = (one, other) => Math.sqrt(Math.max(one ** 2 + other ** 2 - 2 * r * one * other, 0));
  return [
    Math.max(meanB - meanA - combined(meanB - lowB, highA - meanA), -1),
    Math.min(meanB - meanA + combined(highB - meanB, meanA - lowA), 1),
  ];
}

function pValue(test, strata, difference, spread) {
  if (test === "paired t") return 2 * tBelow(spread.degrees, -Math.abs(difference) / spread.error);
  if (test === "exact McNemar") {
    const [{ a, b }] = strata;
    return mcnemar(a.filter((x, at) => x > b[at]).length, a.filter((x, at) => x < b[at]).length);
  }
  const n = summed(strata.map(({ a }) => a.length));
  return signFlips(strata.flatMap(({ a, b, clusters }) => clustered(a.map((x, at) => ((b[at] - x) / a.length) * n), clusters)));
}

function mcnemar(onlyA, onlyB) {
  const discordant = onlyA + onlyB;
  if (!discordant) return 1;
  const few = Math.min(onlyA, onlyB);
  return Math.min(1, 2 * betaShare(0.5, discordant - few, few + 1));
}

function signFlips(differences) {
  const d = differences.map(Math.abs).filter((x) => x > EQUAL);
  const seen = Math.abs(summed(differences));
  if (d.length <= ALL_FLIPS) {
    let sums = [0];
    for (const each of d) sums = [...sums.map((x) => x - each), ...sums.map((x) => x + each)];
    return sums.filter((x) => Math.abs(x) >= seen * (1 - EQUAL)).length / sums.length;
  }
  if (seen >= summed(d) * (1 - EQUAL)) return 2 ** (1 - d.length);
  const most = d.reduce((a, b) => Math.max(a, b), 0);
  return Math.min(1, 2 * flipTail(d.map((x) => x / most), Math.max(seen - stepOf(d), 0) / most));
}

// The largest number that all are multiples of; 0 where it is too small to matter.
function stepOf(d) {
  let common = 0;
  for (const x of d) {
    const scaled = Math.round(x * FINEST);
    if (Math.abs(x * FINEST - scaled) > EQUAL * FINEST) return 0;
    let [a, b] = [common, scaled];
    while (b) [a, b] = [b, a % b];
    common = a;
  }
  return common / FINEST;
}

function flipTail(d, total) {
  const z = total / Math.sqrt(dotted(d, d));
  if (z < NO_TAIL) return normalBelow(-z);
  const pull = (s) => summed(d.map((x) => x * Math.tanh(s * x)));
  let [low, high] = [0, 1];
  while (pull(high) < total) high *= 2;
  let s = 0;
  for (let step = 0; step < 60; step += 1) {
    s = (low + high) / 2;
    if (pull(s) < total) low = s;
    else high = s;
  }
  const cumulant = summed(d.map((x) => s * x + Math.log1p(Math.exp(-2 * s * x)) - Math.LN2));
  const w = Math.sqrt(2 * (s * total - cumulant));
  const u = s * Math.sqrt(summed(d.map((x) => (x / Math.cosh(Math.min(s * x, 300))) ** 2)));
  return normalBelow(-w) + (Math.exp(-(w ** 2) / 2) / Math.sqrt(2 * Math.PI)) * (1 / u - 1 / w);
}

// Adjusted for the number of comparisons (Holm 1979); null stays null.
function holm(values) {
  const order = values.map((p, at) => at).filter((at) => values[at] !== null);
  order.sort((a, b) => values[a] - values[b]);
  const adjusted = values.map(() => null);
  let most = 0;
  order.forEach((at, place) => {
    most = Math.max(most, values[at] * (order.length - place));
    adjusted[at] = Math.min(most, 1);
  });
  return adjusted;
}
