// What judges add to the error of a mean, and the second interval, as coeval.analysis.panel.mean_squares and
// coeval.analysis.comparison.paired_difference make them.

const COVERED = 0.5;
const FEWEST_JUDGES = 2;

// ``tasks``: [{judges: [their numbers], values: [of each, its scores by item, NaN where there is none], share}].
function judgeScatter(tasks) {
  const judged = tasks.filter(({ share }) => share > 0);
  if (!judged.length) return null;
  const moved = new Map();
  let [chance, freedom, fewest] = [0, 0, Infinity];
  for (const { judges, values, share } of judged) {
    const { n, kept, of } = blockOf(values);
    const k = kept.length;
    if (k < FEWEST_JUDGES || !n) return null;
    fewest = Math.min(fewest, k);
    const part = share / tasks.length;
    const byJudge = of.map((own) => summed(own) / n);
    const mean = summed(byJudge) / k;
    kept.forEach((at, nth) => {
      const step = (part * (byJudge[nth] - mean)) / Math.sqrt(k * (k - 1));
      moved.set(judges[at], (moved.get(judges[at]) ?? 0) + step);
    });
    if (n === 1) continue;
    let rest = 0;
    for (let item = 0; item < n; item += 1) {
      const ofItem = summed(of.map((own) => own[item])) / k;
      of.forEach((own, nth) => { rest += (own[item] - ofItem - byJudge[nth] + mean) ** 2; });
    }
    chance += (part ** 2 * rest) / ((n - 1) * (k - 1)) / (n * k);
    freedom += (n - 1) * (k - 1);
  }
  const between = summed([...moved.values()].map((step) => step ** 2)) * fewest;
  return { between, within: chance * fewest, judges: fewest, freeBetween: fewest - 1, freeWithin: freedom };
}

// The items that all judges have scored, of those judges who scored at least half as many as anybody.
function blockOf(values) {
  const counts = values.map((own) => own.filter(isKnown).length);
  const most = Math.max(0, ...counts);
  const kept = counts.map((_, at) => at).filter((at) => counts[at] && counts[at] >= COVERED * most);
  const items = (values[0] ?? []).map((_, item) => item).filter((item) => kept.every((at) => isKnown(values[at][item])));
  return { n: items.length, kept, of: kept.map((at) => items.map((item) => values[at][item])) };
}

// What each judge by itself gave, the mean over the tasks in which it scored anything.
function ownMeans(tasks) {
  const means = new Map();
  for (const { judges, values } of tasks.filter(({ share }) => share > 0)) {
    values.forEach((own, at) => {
      const known = own.filter(isKnown);
      if (known.length) means.set(judges[at], [...(means.get(judges[at]) ?? []), summed(known) / known.length]);
    });
  }
  return [...means.values()].map((of) => summed(of) / of.length);
}

function pooledScatter(scatters, things) {
  const known = scatters.filter(Boolean);
  if (!known.length) return null;
  const mean = (take) => summed(known.map(take)) / known.length;
  const fewest = Math.min(...known.map(({ judges }) => judges));
  return {
    between: mean((one) => one.between),
    within: mean((one) => one.within),
    judges: fewest,
    freeBetween: things * (fewest - 1),
    freeWithin: things * mean((one) => one.freeWithin),
  };
}

function judgeSpread(vItems, degrees, { between, within, judges, freeBetween, freeWithin }) {
  const v = vItems + Math.max(between - within, 0) / judges;
  const ofJudges = (between / judges) ** 2 / freeBetween;
  let spent = vItems ** 2 / Math.max(degrees, 1) + ofJudges;
  if (freeWithin) spent += (within / judges) ** 2 / freeWithin;
  const found = spent > 0 ? v ** 2 / spent : degrees;
  const careful = spent > 0 ? v ** 2 / (spent + (ofJudges * 2) / freeBetween) : degrees;
  return { error: Math.sqrt(v), degrees: Math.max(Math.min(found, Math.max(careful, freeBetween)), judges - 1) };
}

// Of [{tasks, found: the difference over items}], all that are compared: adds ``over`` to each, null where no
// judge scored it.
function addOverJudges(pairs, others) {
  const own = pairs.map(({ tasks }) => judgeScatter(tasks));
  const pooled = pooledScatter(own.filter((_, at) => isJudged(pairs[at].tasks)), others);
  return pairs.map(({ tasks, found }, at) => {
    if (!isJudged(tasks)) return null;
    const means = ownMeans(tasks);
    const agreeing = means.filter((mean) => mean * (found.difference > 0 ? 1 : -1) > SAME).length;
    const said = { judges: means.length, agreeing: Math.abs(found.difference) > SAME ? agreeing : 0 };
    if (!own[at] || found.p === null) return { value: null, low: null, high: null, p: null, ...said };
    const spread = judgeSpread(found.error ** 2, found.degrees, { ...pooled, judges: own[at].judges });
    const [low, high] = widened(found.difference, [found.low, found.high], spread, [-1, 1]);
    const p = spread.error ? 2 * tBelow(spread.degrees, -Math.abs(found.difference) / spread.error) : 1;
    return { value: found.difference, low, high, p: Math.max(p, found.p), degrees: spread.degrees, ...said };
  });
}

const isJudged = (tasks) => tasks.some(({ share }) => share > 0);

// Of students' own scores [{tasks, score}]: the second interval of each, null where no judge scored it.
function scoresOverJudges(scored) {
  const own = scored.map(({ tasks }) => (isJudged(tasks) ? judgeScatter(tasks) : null));
  const pooled = pooledScatter(own, 1);
  return scored.map(({ tasks, score }, at) => {
    if (!isJudged(tasks) || score.value === null) return null;
    if (!own[at]) return { value: null, low: null, high: null, n: score.n };
    const degrees = Math.max(score.n - 1, 1);
    const error = (score.high - score.low) / 2 / tQuantile(degrees, (1 + LEVEL) / 2);
    const spread = judgeSpread(error ** 2, degrees, { ...pooled, judges: own[at].judges });
    const [low, high] = widened(score.value, [score.low, score.high], spread, [0, 1]);
    return { value: score.value, low, high, n: score.n };
  });
}

function widened(middle, [low, high], { error, degrees }, [least, most]) {
  const half = tQuantile(degrees, (1 + LEVEL) / 2) * error;
  return [Math.max(Math.min(middle - half, low), least), Math.min(Math.max(middle + half, high), most)];
}
