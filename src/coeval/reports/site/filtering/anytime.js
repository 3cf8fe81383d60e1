// Tests that hold at any look at a run that grows, as coeval.analysis.intervals makes them; ``share`` is that of the
// planned items that have scores, null where there is one look only.

const FARTHEST = 8;
const TUNED = -2 * Math.log(ALPHA) + Math.log(1 - 2 * Math.log(ALPHA));

function pAtAnyLook(p, share) {
  if (p === null || share === null) return p;
  const r = TUNED * share;
  const z = -normalQuantile(Math.max(p, 1e-40) / 2);
  return Math.max(p, Math.min(1, Math.exp(0.5 * Math.log1p(r) - (z ** 2 * r) / (2 * (1 + r)))));
}

function mixtureQuantile(alpha, share) {
  const r = TUNED * share;
  return Math.sqrt(((1 + r) / r) * (Math.log1p(r) - 2 * Math.log(alpha)));
}

function detectableAtAnyLook(least, share, family) {
  if (least === null || share === null) return least;
  const alpha = ALPHA / family;
  const more = normalQuantile(POWER);
  return Math.min((least * (mixtureQuantile(alpha, share) + more)) / (more - normalQuantile(alpha / 2)), 1);
}

// From a 95% interval, at another level; ``share`` null: at one look.
function boundsAtLevel(middle, [low, high], degrees, alpha, share) {
  const wider = twoSidedQuantile(degrees, alpha, share) / twoSidedQuantile(degrees, ALPHA, null);
  return [Math.max(middle - (middle - low) * wider, -1), Math.min(middle + (high - middle) * wider, 1)];
}

function twoSidedQuantile(degrees, alpha, share) {
  if (share === null) return tQuantile(degrees, 1 - alpha / 2);
  const most = mixtureQuantile(alpha, share);
  const near = Math.min(most, FARTHEST);
  return (-tQuantile(degrees, normalBelow(-near)) * most) / near;
}

// The interval that leaves 0 out where the p-value adjusted for so many ``tests`` is below 0.05.
function adjustedBounds(middle, { low, high, p, degrees }, adjusted, tests, share) {
  if (low === null || p === null || adjusted === null) return [low, high];
  let times = p > 0 ? adjusted / p : tests;
  if (adjusted < ALPHA) times = Math.min(times, tests);
  else if (adjusted >= 1) times = Math.max(times, tests);
  return boundsAtLevel(middle, [low, high], degrees, ALPHA / times, share);
}
