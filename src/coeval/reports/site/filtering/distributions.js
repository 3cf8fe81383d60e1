// Distributions that intervals and p-values are made of, to some 1e-12.

const LANCZOS = [
  0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
  12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
];

// Lanczos (1964); by Stirling's series where arguments are large.
function lnGamma(x) {
  if (x > 15) {
    const z = 1 / (x * x);
    const series = (1 / 12 - z * (1 / 360 - z * (1 / 1260 - z * (1 / 1680 - z / 1188)))) / x;
    return (x - 0.5) * Math.log(x) - x + 0.5 * Math.log(2 * Math.PI) + series;
  }
  if (x < 0.5) return Math.log(Math.PI / Math.sin(Math.PI * x)) - lnGamma(1 - x);
  let sum = LANCZOS[0];
  for (let at = 1; at < 9; at += 1) sum += LANCZOS[at] / (x - 1 + at);
  const t = x + 6.5;
  return 0.5 * Math.log(2 * Math.PI) + (x - 0.5) * Math.log(t) - t + Math.log(sum);
}

// The continued fraction of the incomplete beta function, after Lentz.
function betaFraction(x, a, b) {
  const tiny = 1e-300;
  let c = 1;
  let d = 1 - ((a + b) * x) / (a + 1);
  d = 1 / (Math.abs(d) < tiny ? tiny : d);
  let h = d;
  for (let m = 1; m < 20000; m += 1) {
    for (const factor of [
      (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m)),
      (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1)),
    ]) {
      d = 1 + factor * d;
      d = 1 / (Math.abs(d) < tiny ? tiny : d);
      c = 1 + factor / c;
      if (Math.abs(c) < tiny) c = tiny;
      h *= d * c;
    }
    if (Math.abs(d * c - 1) < 1e-15) break;
  }
  return h;
}

// I_x(a, b)
function betaShare(x, a, b) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const front = Math.exp(
    lnGamma(a + b) - lnGamma(a) - lnGamma(b) + a * Math.log(x) + b * Math.log1p(-x),
  );
  if (x < (a + 1) / (a + b + 2)) return (front * betaFraction(x, a, b)) / a;
  return 1 - (front * betaFraction(1 - x, b, a)) / b;
}

// x where I_x(a, b) = p: Newton's steps, within brackets that close.
function betaQuantile(p, a, b) {
  let low = 0;
  let high = 1;
  let x = a / (a + b);
  const ln = lnGamma(a + b) - lnGamma(a) - lnGamma(b);
  for (let step = 0; step < 200; step += 1) {
    const off = betaShare(x, a, b) - p;
    if (off > 0) high = x;
    else low = x;
    const density = Math.exp(ln + (a - 1) * Math.log(x) + (b - 1) * Math.log1p(-x));
    let next = x - off / density;
    if (!(next > low && next < high)) next = (low + high) / 2;
    if (Math.abs(next - x) <= 1e-15 * x || next === x) return next;
    x = next;
  }
  return x;
}

// Student's t: the quantile of p, and the share below t. Of many degrees, by the expansion around the normal
// quantile (Cornish and Fisher 1938), whose error falls with their fourth power.
function tQuantile(degrees, p) {
  if (p < 0.5) return -tQuantile(degrees, 1 - p);
  if (degrees > 1e4) {
    const z = normalQuantile(p);
    const terms = [
      (z ** 3 + z) / 4,
      (5 * z ** 5 + 16 * z ** 3 + 3 * z) / 96,
      (3 * z ** 7 + 19 * z ** 5 + 17 * z ** 3 - 15 * z) / 384,
    ];
    return z + terms[0] / degrees + terms[1] / degrees ** 2 + terms[2] / degrees ** 3;
  }
  const y = betaQuantile(2 * p - 1, 0.5, degrees / 2);
  return Math.sqrt((degrees * y) / (1 - y));
}

function tBelow(degrees, t) {
  const half = betaShare(degrees / (degrees + t * t), degrees / 2, 0.5) / 2;
  return t < 0 ? half : 1 - half;
}

function normalQuantile(p) {
  let z = 0;
  for (let step = 0; step < 100; step += 1) {
    const density = Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI);
    const next = z - Math.max(-1, Math.min(1, (normalBelow(z) - p) / density));
    if (Math.abs(next - z) < 1e-15) return next;
    z = next;
  }
  return z;
}

// The normal distribution's share below z: a series near 0, a continued fraction in the tails.
function normalBelow(z) {
  const density = Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI);
  if (Math.abs(z) < 3) {
    let term = z;
    let sum = z;
    for (let k = 1; k < 200 && Math.abs(term) > 1e-18; k += 1) {
      term *= (z * z) / (2 * k + 1);
      sum += term;
    }
    return 0.5 + sum * density;
  }
  let fraction = 0;
  for (let k = 120; k > 0; k -= 1) fraction = k / (Math.abs(z) + fraction);
  const tail = density / (Math.abs(z) + fraction);
  return z < 0 ? tail : 1 - tail;
}
