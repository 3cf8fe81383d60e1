// Intervals of means, as coeval.analysis.intervals makes them; docs/intervals.md explains them.

const AT_EACH_END = 0.5;
const LENT = 4;
const UNSEEN = 1 / 3;
const LEVEL = 0.95;

// ``strata``: [{items, squares}]; a mean of scores from 0 to 1 over strata that count alike.
function meanBounds(mean, strata) {
  const over = (take) => strata.reduce((sum, stratum) => sum + take(stratum), 0);
  const count = strata.length;
  const largest = mean * (1 - mean);
  const freedom = over((stratum) => stratum.items - 1);
  const seen = over((stratum) => stratum.squares);
  const squares = Math.max(seen, largest * UNSEEN);
  const common = freedom ? squares / freedom : largest;
  const items = count ** 2 / over((stratum) => 1 / stratum.items);
  const raw = over((stratum) => stratum.squares / stratum.items ** 2);
  const most = Math.max(largest, (items * raw) / count ** 2);
  const lent = over(
    (stratum) =>
      (stratum.squares + (squares - seen) / count + LENT * common) / (stratum.items - 1 + LENT) / stratum.items,
  );
  const variance = Math.min((items * lent) / count ** 2, most);
  const far = Math.max(mean, 1 - mean) ** 4;
  const ends = AT_EACH_END * Math.min((seen + far) / (freedom * largest + far), 1);
  const share = largest > 0 ? Math.min(variance / largest, 1) : 1;
  let stretch = 1;
  if (seen > 0 && share < 1) {
    const more = (squares + ends * (mean ** 2 + (1 - mean) ** 2)) / seen;
    const degrees = (Math.max(freedom, 1) / (1 - share)) * more ** 2;
    stretch = tQuantile(degrees, (1 + LEVEL) / 2) / normalQuantile((1 + LEVEL) / 2);
  }
  return betaBounds(mean, variance, items, ends, stretch);
}

function betaBounds(mean, variance, items, ends, stretch) {
  const total = items + 2 * ends;
  const centre = (items * mean + ends) / total;
  const square = (items * (variance + mean ** 2) + ends) / total;
  const size = (centre * (1 - centre)) / (((square - centre ** 2) / (total + 1)) * stretch ** 2) - 1;
  if (size <= 0) return [0, 1];
  const [a, b] = [centre * size, (1 - centre) * size];
  const low = betaQuantile((1 - LEVEL) / 2, a, b);
  const high = betaQuantile((1 + LEVEL) / 2, a, b);
  return [mean > 0 ? Math.min(low, mean) : 0, mean < 1 ? Math.max(high, mean) : 1];
}

const NO_MEAN = { value: null, low: null, high: null, n: 0 };

// Sums over the items of each cluster, the values themselves where there are none (``clusters`` null).
function clustered(values, clusters) {
  if (!clusters) return values;
  const sums = new Map();
  values.forEach((x, at) => sums.set(clusters[at], (sums.get(clusters[at]) ?? 0) + x));
  return [...sums.values()];
}

// Of some items, which of them share a cluster; null: none do.
function sharedClusters(clusters) {
  return new Set(clusters).size < clusters.length ? clusters : null;
}

// The mean of the means of arrays of numbers; empty ones are left out. ``of``: their items' clusters.
function meanOverStrata(arrays, of = arrays.map(() => null)) {
  const strata = arrays.map((values, at) => ({ values, clusters: of[at] })).filter(({ values }) => values.length);
  if (!strata.length) return NO_MEAN;
  const means = strata.map(({ values }) => values.reduce((sum, x) => sum + x, 0) / values.length);
  const mean = means.reduce((sum, x) => sum + x, 0) / means.length;
  const scatter = strata.map(({ values, clusters }, at) => {
    const far = clustered(values.map((x) => x - means[at]), clusters);
    return { items: far.length, squares: far.reduce((sum, x) => sum + x ** 2, 0) * (far.length / values.length) ** 2 };
  });
  const [low, high] = meanBounds(mean, scatter);
  return { value: mean, low, high, n: strata.reduce((sum, { values }) => sum + values.length, 0) };
}

// Units of one item, or of items that are alike, depend on each other: sums over these, of which a mean with
// its interval is made.
class Clusters {
  items = 0;
  clusters = 0;
  units = 0;
  shares = 0;
  total = 0;
  squares = 0;
  cross = 0;
  sizes = 0;

  // ``sums``: of an item's scores, of their shares in its mean, and how many there are; ``alike``: the group of
  // items that it belongs to, null where it is alone.
  add([total, share, units], alike = null) {
    if (!units) return;
    this.items += 1;
    this.units += units;
    this.shares += share;
    if (alike === null) {
      this.put(total, share);
      return;
    }
    this.groups ??= new Map();
    const [sum, many] = this.groups.get(alike) ?? [0, 0];
    this.groups.set(alike, [sum + total, many + share]);
  }

  put(total, share) {
    this.clusters += 1;
    this.total += total;
    this.squares += total * total;
    this.cross += total * share;
    this.sizes += share * share;
  }

  mean() {
    if (!this.units) return NO_MEAN;
    for (const group of this.groups?.values() ?? []) this.put(...group);
    this.groups = null;
    const mean = this.total / this.shares;
    const squares = Math.max(this.squares - 2 * mean * this.cross + mean ** 2 * this.sizes, 0);
    const scatter = { items: this.clusters, squares: squares * (this.clusters / this.shares) ** 2 };
    const [low, high] = meanBounds(Math.min(Math.max(mean, 0), 1), [scatter]);
    return { value: mean, low, high, n: this.items };
  }
}
