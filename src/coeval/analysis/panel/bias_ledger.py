"""Biases of each judge, compared with the other judges of the same answers.

``severity`` is how much lower a judge scores than the others do, over the (answer, factor) that it has in
common with them: the others' mean less its own. ``family`` and ``self`` are those of
`coeval.analysis.panel.panel_reading`. ``position`` needs pairs, of which a run has none
(`coeval.analysis.measures.compute`). All are in units of a score from 0 to 1. What judges think of
long answers is a matter between two of them (`length_contrasts`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from itertools import combinations
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from coeval.analysis.comparison.paired_difference import holm_adjust_by_name
from coeval.analysis.intervals import ALPHA, LEVEL, Floats
from coeval.analysis.measures.measure_tree import Entity, Measured, Record, ShownAs
from coeval.analysis.measures.score_grid import Codes, ScoreGrid, renumber_codes
from coeval.core.figures import format_points, score_text

# Clusters: with fewer, t's quantile exceeds 2.7 and the error itself is hardly known.
FEWEST_ITEMS = 6
# Errors and deviations below this are rounding: nothing differs.
NEARLY = 1e-6


class Bias(NamedTuple):
    """A bias with its 95% interval and p-value: None where there is no verdict, and the value where nothing
    is known. ``usual``: what a favour is held against, the scatter of judges about a family without any."""

    value: float | None
    low: float | None
    high: float | None
    p: float | None
    usual: float | None = None


UNKNOWN = Bias(None, None, None, None)


class Leaning(Record, frozen=True):
    """A bias as files hold it; all None where nothing can be told."""

    value: Annotated[float | None, ShownAs("In units of a score from 0 to 1", elsewhere="biases")]
    ci95: Annotated[tuple[float, float] | None, ShownAs("Its 95% interval", elsewhere="biases")]
    p_adjusted: Annotated[
        float | None,
        ShownAs("Holm's p-value, over all of whom it can be told", kind="probability", elsewhere="biases"),
    ]

    @property
    def measured(self) -> Measured | None:
        """None where nothing can be told."""
        return None if self.ci95 is None else Measured(self.value, *self.ci95, None, None)

    @property
    def is_named(self) -> bool:
        """By Holm's p-value too, where several might be named: no honest one is in 95 of 100 runs."""
        if self.p_adjusted is None or self.ci95 is None:
            return False
        low, high = self.ci95
        return self.p_adjusted < ALPHA and (low > 0 or high < 0)

    @property
    def size(self) -> float:
        """0 where nothing can be told."""
        return self.value or 0.0

    @property
    def size_text(self) -> str:
        """``12.0 [8.0, 16.0] points``, without a sign."""
        low, high = sorted(abs(bound) for bound in self.ci95 or (0.0, 0.0))
        return f"{score_text(abs(self.size), low, high)} points"


class Favour(Leaning, frozen=True):
    """Without an interval and a p-value where there is no verdict: fewer than three families."""

    usual: Annotated[
        float | None, ShownAs("What judges differ by about a family without any favour", "Usual scatter")
    ]

    @property
    def measured(self) -> Measured | None:
        low, high = self.ci95 or (None, None)
        return None if self.value is None else Measured(self.value, low, high, None, None)


_MORE = "How much more it gives to it than the other judges do, beside how they see other families"


class JudgeBiases(Record, frozen=True):
    """Each in order of `BIASES`."""

    severity: Annotated[Leaning, ShownAs("How much lower it scores than others", "strictness")]
    family: Annotated[Favour, ShownAs(_MORE, "its family's answers")]
    own: Annotated[Favour, ShownAs(_MORE, "its own answers")] = msgspec.field(name="self")
    position: Annotated[Leaning, ShownAs("More of a win if shown first", "the first of two")]


BIASES = tuple(field.encode_name for field in msgspec.structs.fields(JudgeBiases))

_Name = TypeVar("_Name", bound=Hashable)


def adjusted(biases: Mapping[_Name, Bias]) -> dict[_Name, Leaning]:
    """With Holm's p-values, over those of whom it can be told."""
    p = holm_adjust_by_name({name: bias.p for name, bias in biases.items()})
    return {
        name: Leaning(
            bias.value, None if bias.low is None or bias.high is None else (bias.low, bias.high), p.get(name)
        )
        for name, bias in biases.items()
    }


def judge_biases(ledger: Mapping[str, Mapping[str, Bias]]) -> dict[str, JudgeBiases]:
    """Of a ledger by judge and name of a bias; what it does not hold is unknown."""
    found = {
        name: adjusted({judge: biases.get(name, UNKNOWN) for judge, biases in ledger.items()})
        for name in BIASES
    }

    def favour(name: str, judge: str) -> Favour:
        one = found[name][judge]
        return Favour(one.value, one.ci95, one.p_adjusted, ledger[judge].get(name, UNKNOWN).usual)

    return {
        judge: JudgeBiases(
            found["severity"][judge],
            favour("family", judge),
            favour("self", judge),
            found["position"][judge],
        )
        for judge in ledger
    }


def severities(grid: ScoreGrid) -> dict[str, Bias]:
    """Estimate how much lower each judge scores than the others of the same units, by judge."""
    valid = grid.valid
    judges, total = np.zeros(len(valid), np.int64), np.zeros(len(valid))
    for place in range(len(grid.judges)):  # by column: sums over short rows take four times as long
        judges += valid[:, place]
        total += grid.values[grid.levels[:, place]]
    measured = {}
    for place, judge in enumerate(grid.judges):
        rows = (judges > 1) & valid[:, place]
        own = grid.values[grid.levels[rows, place]]
        others = (total[rows] - own) / (judges[rows] - 1)
        measured[judge] = _severity(others - own, renumber_codes(grid.cluster[rows]))
    return measured


def _severity(lower: Floats, cluster: Codes) -> Bias:
    """Return the mean over units, clustered by datapoint, or group of such (Liang and Zeger 1986)."""
    clusters = int(cluster.max(initial=-1)) + 1
    if clusters < FEWEST_ITEMS:
        return UNKNOWN
    value = float(lower.mean())
    distances = np.bincount(cluster, lower - value)
    error = float(np.sqrt((distances @ distances) * clusters / (clusters - 1))) / len(cluster)
    return bias_of(value, error, clusters - 1)


def bias_of(value: float, error: float, degrees: float) -> Bias:
    """With t's interval and p-value; unknown where nothing differs, and so no spread is there to judge by."""
    if error < NEARLY:
        return UNKNOWN
    half = float(stdtrit(degrees, (1 + LEVEL) / 2)) * error
    return Bias(value, value - half, value + half, 2 * float(stdtr(degrees, -abs(value) / error)))


# --- How much more one judge gives to an answer of twice the length than another one does
#
# Judges who score the same answers can differ in what length is worth to them; which of two is right, they
# cannot say, and neither can a third one: two may share a mistake. So there is a contrast for each two
# judges, and nobody is named alone. Of each answer the difference of the two is taken, less its mean over the
# answers of a student to a task, and fitted by the binary logarithm of the length. The standard error is a
# jackknife over items; where longer answers are better, judges of different sharpness differ by length too.


class LengthContrast(Entity, frozen=True):
    """Of two judges."""

    more: Annotated[
        Measured,
        ShownAs(
            "What the first gives more than the second", "Twice the length", "twice the length", "points"
        ),
    ]
    p_adjusted: Annotated[
        float | None, ShownAs("Holm's p-value, over all pairs of judges", "p", "p", "probability")
    ]

    @property
    def is_named(self) -> bool:
        return self.p_adjusted is not None and self.p_adjusted < ALPHA

    @property
    def size_text(self) -> str:
        low, high = sorted(abs(bound or 0.0) for bound in (self.more.low, self.more.high))
        return f"{score_text(abs(self.more.value or 0.0), low, high)} points"


def length_contrasts(grid: ScoreGrid, lengths: Floats) -> dict[tuple[str, str], LengthContrast]:
    """By two judges, of whom it can be told; ``lengths`` (C,) are the characters of the answer of each row,
    NaN where they are not known."""
    found, items = {}, {}
    for first, second in combinations(range(len(grid.judges)), 2):
        bias, of = _contrast(grid, lengths, first, second)
        if bias.value is not None:
            pair = grid.judges[first], grid.judges[second]
            found[pair], items[pair] = bias, of
    return {
        pair: LengthContrast(Measured(*found[pair][:3], items[pair], None), one.p_adjusted)
        for pair, one in adjusted(found).items()
    }


def _contrast(grid: ScoreGrid, lengths: Floats, first: int, second: int) -> tuple[Bias, int]:
    """And over how many items."""
    both = grid.valid[:, first] & grid.valid[:, second] & np.isfinite(lengths)
    if not both.any():
        return UNKNOWN, 0
    answer = renumber_codes(grid.answer[both])
    start = np.empty(int(answer.max()) + 1, np.int64)
    start[answer[::-1]] = np.arange(len(answer))[::-1]  # of each answer the first row
    more = grid.values[grid.levels[both, first]] - grid.values[grid.levels[both, second]]
    apart = np.bincount(answer, more) / np.bincount(answer)
    task, student = grid.task[both][start].astype(np.int64), grid.student[both][start]
    group = renumber_codes(task * len(grid.students) + student)
    cluster = renumber_codes(grid.cluster[both][start])
    longer = _center_by_group(np.log2(lengths[both][start] + 1), group)
    apart = _center_by_group(apart, group)
    both_ways, squares = np.bincount(cluster, longer * apart), np.bincount(cluster, longer**2)
    items = int((squares > NEARLY).sum())
    if items < FEWEST_ITEMS:
        return UNKNOWN, items
    left = squares.sum() - squares
    without = ((both_ways.sum() - both_ways) / np.maximum(left, NEARLY))[squares > NEARLY]
    error = float(np.sqrt(((without - without.mean()) ** 2).sum() * (items - 1) / items))
    return bias_of(float(both_ways.sum() / squares.sum()), error, items - 1), items


def _center_by_group(values: Floats, group: NDArray[np.integer[Any]]) -> Floats:
    """Subtract from each value the mean of its group."""
    means = np.bincount(group, values) / np.bincount(group)
    return np.asarray(values - means[group], np.float64)


def length_findings(contrasts: Mapping[tuple[str, str], LengthContrast]) -> Iterator[str]:
    """A sentence for all whom the same judges exceed; both sides of a contrast are named."""
    below: dict[str, dict[str, LengthContrast]] = {}
    for (first, second), found in contrasts.items():
        if found.is_named:
            more, less = (first, second) if (found.more.value or 0.0) > 0 else (second, first)
            below.setdefault(less, {})[more] = found
    sides: dict[tuple[str, ...], list[str]] = {}
    for less, exceeding in below.items():
        sides.setdefault(tuple(sorted(exceeding)), []).append(less)
    for above, less_than in sides.items():
        sizes = [below[less][more] for less in less_than for more in above]
        gaps = sorted(abs(one.more.value or 0.0) for one in sizes)
        who, others = " and ".join(above), " and ".join(less_than)
        by = (
            sizes[0].size_text
            if len(sizes) == 1
            else f"{format_points(gaps[0])} to {format_points(gaps[-1])} points"
        )
        score = "scores" if len(above) == 1 else "score"
        does = "does" if len(less_than) == 1 else "do"
        yield (
            f"{who} {score} answers of twice the length {by} higher than {others} {does}: "
            "either side may be the biased one."
        )
