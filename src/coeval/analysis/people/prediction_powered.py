"""Means on the human scale, from few labels and the judged scores of all answers (PPI++).

A judged score that leans is corrected by the labelled answers, and a label that costs is stretched by the
judged scores of the others: ``λ·mean of judged + mean of (label − λ·judged)``, with λ from the data, so that
judges without worth are left aside (Angelopoulos, Duchi and Zrnic 2023, PPI++, arXiv 2311.01453). Labels are
drawn at random within strata; answers to one item depend on each other. ``python -m perf.people`` measures
coverage.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, stdtr, stdtrit

from coeval.analysis.intervals import LEVEL, Bounds, Floats, Scatter, mean_bounds

# Labels of one student: below, λ and the scatter are guesses.
FEWEST = 5
# Of the largest variance of a difference, at least so much is taken to be unseen, as in `mean_bounds`.
_UNSEEN = 1 / 3


class LabelledStratum(NamedTuple):
    """The answers of one stratum, (N,): the ``people``'s values (NaN where none was drawn), those of the
    judges, and the item (or cluster of near-duplicates) that each answer belongs to. Values run from 0 to
    1."""

    people: Floats
    judged: Floats
    cluster: NDArray[np.integer]

    @property
    def labelled(self) -> NDArray[np.bool_]:
        return np.isfinite(self.people)

    @property
    def estimable(self) -> bool:
        return int(self.labelled.sum()) >= 2


class LinearParts(NamedTuple):
    """An estimate as a line in λ. ``alone`` and ``judged`` are its values ``alone + λ·judged``; the cluster
    distances ``from_alone`` and ``from_judged`` (G,) add up likewise, and their squares to its variance.
    ``known`` (G,): the clusters with a label; ``labels`` counts labelled answers, ``means`` those that were
    estimated."""

    alone: float
    judged: float
    from_alone: Floats
    from_judged: Floats
    known: NDArray[np.bool_]
    labels: int
    means: int

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the variance, at least 1."""
        return max(int(self.known.sum()) - self.means, 1)

    def at(self, weight: float) -> float:
        return self.alone + weight * self.judged

    def variance(self, weight: float) -> float:
        distances = self.from_alone + weight * self.from_judged
        return float(distances @ distances)

    def __sub__(self, other: LinearParts) -> LinearParts:
        """The difference of two students: what they got on one item stays together. Over clusters that both
        share, only the mean difference is estimated, in place of two means."""
        both, either = int((self.known & other.known).sum()), int((self.known | other.known).sum())
        shared = round(min(self.means, other.means) * both / max(either, 1))
        return LinearParts(
            self.alone - other.alone,
            self.judged - other.judged,
            self.from_alone - other.from_alone,
            self.from_judged - other.from_judged,
            self.known | other.known,
            self.labels + other.labels,
            self.means + other.means - shared,
        )


class Powered(NamedTuple):
    """A mean on the human scale, its 95% bounds, the weight λ of the judged scores, its standard error; and
    the mean of the ``labels`` by themselves."""

    value: float
    bounds: Bounds
    weight: float
    error: float
    alone: float
    alone_bounds: Bounds
    alone_error: float
    labels: int


class PoweredDifference(NamedTuple):
    """A difference on the human scale, with its 95% bounds and two-sided p-value by Student's t."""

    value: float
    bounds: Bounds
    p: float
    weight: float
    labels: int


def best_weight(strata: Sequence[LabelledStratum]) -> float:
    """λ of strata that count alike: ``Σ cov_h/n_h / Σ var_h (1/n_h + 1/N_h)``, clipped to 0–1.

    Of one stratum that is ``cov / var / (1 + n/N)``, with the covariance over n labelled answers and the
    variance of judged scores over all n + N.
    """
    shared = spread = 0.0
    for one in strata:
        known = one.labelled
        n, others = int(known.sum()), int((~known).sum())
        if not others:
            return 0.0  # all is labelled: judges add nothing
        people, judged = one.people[known], one.judged[known]
        shared += float((people - people.mean()) @ (judged - judged.mean())) / n / n
        spread += float(one.judged.var(ddof=1)) * (1 / n + 1 / others)
    return float(np.clip(shared / spread, 0.0, 1.0)) if spread > 0 else 0.0


def parts_of(strata: Sequence[LabelledStratum], clusters: int, *, plain: bool = False) -> LinearParts:
    """The mean over strata that count alike, each with two labels or more.

    ``clusters``: how many there are, all of which the strata number below it. ``plain``: distances as
    ppi-python takes them, without the correction for few labels.
    """
    alone = judged = 0.0
    from_alone, from_judged = np.zeros(clusters), np.zeros(clusters)
    labelled = np.zeros(clusters, bool)
    for one in strata:
        known = one.labelled
        n, others = int(known.sum()), int((~known).sum())
        items = len(np.unique(one.cluster[known]))
        few = 1.0 if plain else float(np.sqrt(items / max(items - 1, 1)))
        weight = 1 / len(strata)
        people, own = one.people[known], one.judged[known]
        rest = one.judged[~known] if others else own
        alone += weight * float(people.mean())
        judged += weight * float(rest.mean() - own.mean())
        at = one.cluster[known]
        from_alone += np.bincount(at, weight * few * (people - people.mean()) / n, clusters)
        from_judged -= np.bincount(at, weight * few * (own - own.mean()) / n, clusters)
        if others:
            distances = weight * (rest - rest.mean()) / others
            from_judged += np.bincount(one.cluster[~known], distances, clusters)
        labelled[at] = True
    labels = sum(int(one.labelled.sum()) for one in strata)
    return LinearParts(alone, judged, from_alone, from_judged, labelled, labels, len(strata))


def parts_as_judged(strata: Sequence[LabelledStratum], clusters: int) -> LinearParts:
    """`parts_of` judged scores, as if people had given them to all answers."""
    return parts_of(
        [one._replace(people=one.judged, judged=np.zeros(len(one.judged))) for one in strata], clusters
    )


def powered_mean(strata: Sequence[LabelledStratum], clusters: int) -> Powered:
    """The mean on the human scale; where judged scores would widen it, by the labels alone."""
    parts = parts_of(strata, clusters)
    weight = best_weight(strata)
    alone, alone_variance = _bounded(parts.alone), _variance(parts, 0.0)
    alone_bounds = _bounds(alone, alone_variance, parts.freedom)
    value, variance = _bounded(parts.at(weight)), _variance(parts, weight)
    bounds = _bounds(value, variance, parts.freedom)
    if variance >= alone_variance or bounds.high - bounds.low > alone_bounds.high - alone_bounds.low:
        value, bounds, weight, variance = alone, alone_bounds, 0.0, alone_variance
    errors = float(np.sqrt(variance)), float(np.sqrt(alone_variance))
    return Powered(value, bounds, weight, errors[0], alone, alone_bounds, errors[1], parts.labels)


def _bounded(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _variance(parts: LinearParts, weight: float) -> float:
    """With the degree of freedom that an estimated λ takes."""
    lost = parts.freedom / max(parts.freedom - 1, 1) if weight else 1.0
    return parts.variance(weight) * lost


def _bounds(value: float, variance: float, freedom: int) -> Bounds:
    """`mean_bounds` of as many items as there are labels to tell the scatter."""
    items = freedom + 1
    return mean_bounds(value, [Scatter(items, variance * items * freedom)])


def powered_difference(first: LinearParts, second: LinearParts) -> PoweredDifference:
    """How much more the first one has. λ is that of the difference, which has the least variance:
    ``−Σ a·b / Σ b²`` over clusters, with the distances a of the labels and b of the judged scores."""
    parts = first - second
    squares = float(parts.from_judged @ parts.from_judged)
    weight = -float(parts.from_alone @ parts.from_judged) / squares if squares > 0 else 0.0
    weight = float(np.clip(weight, 0.0, 1.0))
    if _variance(parts, weight) >= _variance(parts, 0.0):
        weight = 0.0
    items = parts.freedom + 1
    variance = max(_variance(parts, weight), _UNSEEN / items / parts.freedom)
    value = min(max(parts.at(weight), -1.0), 1.0)
    error, freedom = float(np.sqrt(variance)), max(parts.freedom - bool(weight), 1)
    half = float(stdtrit(freedom, (1 + LEVEL) / 2)) * error
    p = float(2 * stdtr(freedom, -abs(value) / error))
    bounds = Bounds(max(value - half, -1.0), min(value + half, 1.0))
    return PoweredDifference(value, bounds, p, weight, parts.labels)


def labels_needed(strata: Sequence[LabelledStratum], half_width: float) -> int | None:
    """How many labels of a student make a 95% interval of ± ``half_width``, given how labels and judged
    scores scatter so far; None: more than there are answers. The interval is that of `powered_mean`, which
    has a width where all labels are alike."""
    weight = best_weight(strata)
    value = spread = imputed = 0.0
    answers = 0
    for one in strata:
        known = one.labelled
        residual = one.people[known] - weight * one.judged[known]
        value += (float(residual.mean()) + weight * float(one.judged.mean())) / len(strata)
        spread += float(residual.var(ddof=1)) / len(strata)
        imputed += weight**2 * float(one.judged.var(ddof=1)) / len(one.judged) / len(strata) ** 2
        answers += len(one.judged)
    value = _bounded(value)

    def wide(labels: int) -> bool:
        low, high = _bounds(value, spread / labels + imputed, labels - len(strata))
        return (high - low) / 2 > half_width

    least = max(FEWEST, 2 * len(strata))
    needed = bisect_left(
        range(answers + 1), True, lo=min(least, answers + 1), key=lambda labels: not wide(labels)
    )
    return needed if needed <= answers else None


class Transported(NamedTuple):
    """A score corrected by others' labels, and how likely their corrections differ by chance alone."""

    value: float
    bounds: Bounds
    p: float


def transported_mean(
    own: Sequence[LabelledStratum], others: Sequence[Sequence[LabelledStratum]], clusters: int
) -> Transported | None:
    """The mean of a student without labels: its judged score, and what people gave others more or less.

    That correction is a draw from those of other students: its variance is that between them (k of them, t
    with k − 1 degrees of freedom). p: of Cochran's test that they are all the same. None: fewer than three
    others.
    """
    shifts = [_shift(strata, clusters) for strata in others]
    if len(shifts) < 3:
        return None
    found = np.array([shift for shift, _ in shifts])
    variances = np.maximum([variance for _, variance in shifts], 1e-12)
    precision = 1 / variances
    q = float(precision @ (found - (precision @ found) / precision.sum()) ** 2)
    judged = float(np.mean([one.judged.mean() for one in own]))
    error = parts_as_judged(own, clusters).variance(0.0)
    k = len(found)
    between = max(float(found.var(ddof=1)), float(variances.mean())) * (1 + 1 / k)
    half = float(stdtrit(k - 1, (1 + LEVEL) / 2)) * float(np.sqrt(between + error))
    value = min(max(judged + float(found.mean()), 0.0), 1.0)
    bounds = Bounds(max(value - half, 0.0), min(value + half, 1.0))
    return Transported(value, bounds, float(chdtrc(k - 1, q)))


def _shift(strata: Sequence[LabelledStratum], clusters: int) -> tuple[float, float]:
    """What people gave more than judges on the labelled answers, and its variance."""
    known = [
        LabelledStratum(
            one.people[one.labelled] - one.judged[one.labelled],
            np.zeros(int(one.labelled.sum())),
            one.cluster[one.labelled],
        )
        for one in strata
    ]
    parts = parts_of(known, clusters)
    return parts.alone, parts.variance(0.0)
