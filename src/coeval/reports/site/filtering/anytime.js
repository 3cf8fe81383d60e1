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

function boundsAtAnyLook(middle, low, high, degrees, share) {
  const most = mixtureQuantile(ALPHA, share);
  const near = Math.min(most, FARTHEST);
  const far = (-tQuantile(degrees, normalBelow(-near)) * most) / near;
  const wider = far / tQuantile(degrees, (1 + LEVEL) / 2);
  return [Math.max(middle - (middle - low) * wider, -1), Math.min(middle + (high - middle) * wider, 1)];
}

// Of a difference over items and judges, null where there is none.
function overAtAnyLook(over, share) {
  if (over === null || over.p === null || share === null) return over;
  const [low, high] = boundsAtAnyLook(over.value, over.low, over.high, over.degrees, share);
  return { ...over, low, high, p: pAtAnyLook(over.p, share) };
}
