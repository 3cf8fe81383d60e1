"""Biases of each judge, compared with the other judges of the same answers.

``severity`` is how much lower a judge scores than the others do, over the (answer, factor) that it has in
common with them: the others' mean less its own. ``family`` and ``self`` are those of
`coeval.analysis.panel.panel_reading`. ``position`` needs pairs, of which a run has none
(`coeval.analysis.measures.compute`). All are in units of a score from 0 to 1. What judges think of
long answers is a matter between two of them (`judge_pair_contrasts`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from itertools import combinations
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from coeval.analysis.comparison.paired_difference import holm_adjust_by_name
from coeval.analysis.intervals import ALPHA, LEVEL, Floats
from coeval.analysis.measures.measure_tree import Entity, Measured, Record, ShownAs
from coeval.analysis.measures.score_grid import Codes, ScoreGrid, unique_codes
from coeval.analysis.panel.mean_squares import jackknife_error
from coeval.analysis.special import stdtr, stdtrit
from coeval.core.figures import format_points, score_text

# Clusters: with fewer, t's quantile exceeds 2.7 and the error itself is hardly known.
FEWEST_ITEMS = 6
# Errors and deviations below this are rounding: nothing differs.
NEARLY = 1e-6


class Bias(NamedTuple):
    """A bias with its 95% interval and p-value; None without a verdict, the value too if it is unknown.
    ``usual``: the scatter of judges about a family, which a family bias is tested against."""

    value: float | None
    low: float | None
    high: float | None
    p: float | None
    usual: float | None = None


UNKNOWN = Bias(None, None, None, None)


class AdjustedBias(Record, frozen=True):
    """A bias as files hold it; all None if it is unknown."""

    value: Annotated[float | None, ShownAs("On the score scale, 0 to 1", elsewhere="biases")]
    ci95: Annotated[tuple[float, float] | None, ShownAs("Its 95% interval", elsewhere="biases")]
    p_adjusted: Annotated[
        float | None,
        ShownAs("Holm-adjusted p-value, over all that can be tested", kind="probability", elsewhere="biases"),
    ]

    @property
    def measured(self) -> Measured | None:
        """Return the bias with its interval, or None if it is unknown."""
        return None if self.ci95 is None else Measured(self.value, *self.ci95, None, None)

    @property
    def is_significant(self) -> bool:
        """Check whether the bias is significant: in 95 of 100 runs no honest judge is named."""
        if self.p_adjusted is None or self.ci95 is None:
            return False
        low, high = self.ci95
        return self.p_adjusted < ALPHA and (low > 0 or high < 0)

    @property
    def size(self) -> float:
        """Return the signed size, 0 if it is unknown."""
        return self.value or 0.0

    @property
    def unsigned_size_text(self) -> str:
        """Return the size without its sign: ``12.0 [8.0, 16.0] points``."""
        low, high = sorted(abs(bound) for bound in self.ci95 or (0.0, 0.0))
        return f"{score_text(abs(self.size), low, high)} points"


class FamilyBias(AdjustedBias, frozen=True):
    """A bias for a family; without interval, p-value and verdict if there are fewer than three families."""

    usual: Annotated[
        float | None, ShownAs("Usual spread of judges on a family, without favouritism", "Usual scatter")
    ]

    @property
    def measured(self) -> Measured | None:
        low, high = self.ci95 or (None, None)
        return None if self.value is None else Measured(self.value, low, high, None, None)


_MORE = "How much more it gives than other judges do, relative to how they score other families"


class JudgeBiases(Record, frozen=True):
    """The biases of a judge, in the order of `BIASES`."""

    severity: Annotated[AdjustedBias, ShownAs("How much lower it scores than the others", "strictness")]
    family: Annotated[FamilyBias, ShownAs(_MORE, "its family's answers")]
    own: Annotated[FamilyBias, ShownAs(_MORE, "its own answers")] = msgspec.field(name="self")
    position: Annotated[AdjustedBias, ShownAs("Extra win share if shown first", "the first of two")]


BIASES = tuple(field.encode_name for field in msgspec.structs.fields(JudgeBiases))

_Name = TypeVar("_Name", bound=Hashable)


def adjust_biases(biases: Mapping[_Name, Bias]) -> dict[_Name, AdjustedBias]:
    """Add Holm's p-values, over the biases that have a p-value."""
    p = holm_adjust_by_name({name: bias.p for name, bias in biases.items()})
    return {
        name: AdjustedBias(
            bias.value, None if bias.low is None or bias.high is None else (bias.low, bias.high), p.get(name)
        )
        for name, bias in biases.items()
    }


def adjust_biases_by_judge(ledger: Mapping[str, Mapping[str, Bias]]) -> dict[str, JudgeBiases]:
    """Adjust a ledger (by judge, then name of a bias) over the judges; a bias that it lacks is unknown."""
    adjusted_by_name = {
        name: adjust_biases({judge: biases.get(name, UNKNOWN) for judge, biases in ledger.items()})
        for name in BIASES
    }

    def family_bias(name: str, judge: str) -> FamilyBias:
        bias = adjusted_by_name[name][judge]
        return FamilyBias(bias.value, bias.ci95, bias.p_adjusted, ledger[judge].get(name, UNKNOWN).usual)

    return {
        judge: JudgeBiases(
            adjusted_by_name["severity"][judge],
            family_bias("family", judge),
            family_bias("self", judge),
            adjusted_by_name["position"][judge],
        )
        for judge in ledger
    }


def estimate_severities(grid: ScoreGrid) -> dict[str, Bias]:
    """Estimate how much lower each judge scores than the others of the same units, by judge."""
    valid = grid.valid
    judges, total = np.zeros(len(valid), np.int64), np.zeros(len(valid))
    for code in range(len(grid.judges)):  # by column: sums over short rows take four times as long
        judges += valid[:, code]
        total += grid.values[grid.levels[:, code]]
    biases = {}
    for code, judge in enumerate(grid.judges):
        rows = (judges > 1) & valid[:, code]
        own = grid.values[grid.levels[rows, code]]
        others = (total[rows] - own) / (judges[rows] - 1)
        biases[judge] = _clustered_severity(others - own, unique_codes(grid.cluster[rows])[1])
    return biases


def _clustered_severity(lower: Floats, cluster: Codes) -> Bias:
    """Return the mean over units, clustered by datapoint, or group of such (Liang and Zeger 1986)."""
    clusters = int(cluster.max(initial=-1)) + 1
    if clusters < FEWEST_ITEMS:
        return UNKNOWN
    value = float(lower.mean())
    distances = np.bincount(cluster, lower - value)
    error = float(np.sqrt((distances @ distances) * clusters / (clusters - 1))) / len(cluster)
    return bias_from_error(value, error, clusters - 1)


def bias_from_error(value: float, error: float, degrees: float) -> Bias:
    """Return a bias with its t interval and p-value; unknown if nothing differs."""
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
    """How much more one of two judges gives to longer answers than the other does."""

    more: Annotated[
        Measured,
        ShownAs(
            "How much more the first gives than the second", "Twice the length", "twice the length", "points"
        ),
    ]
    p_adjusted: Annotated[
        float | None, ShownAs("Holm-adjusted p-value, over all pairs of judges", "p", "p", "probability")
    ]

    @property
    def is_significant(self) -> bool:
        return self.p_adjusted is not None and self.p_adjusted < ALPHA

    @property
    def unsigned_size_text(self) -> str:
        low, high = sorted(abs(bound or 0.0) for bound in (self.more.low, self.more.high))
        return f"{score_text(abs(self.more.value or 0.0), low, high)} points"


def judge_pair_contrasts(grid: ScoreGrid, answer_lengths: Floats) -> dict[tuple[str, str], LengthContrast]:
    """Estimate the contrast of each pair of judges with enough items; ``answer_lengths`` (C,): characters of
    each row's answer, NaN if unknown."""
    biases, items = {}, {}
    for first, second in combinations(range(len(grid.judges)), 2):
        bias, count = _estimate_length_contrast(grid, answer_lengths, first, second)
        if bias.value is not None:
            pair = grid.judges[first], grid.judges[second]
            biases[pair], items[pair] = bias, count
    return {
        pair: LengthContrast(Measured(*biases[pair][:3], items[pair], None), adjusted.p_adjusted)
        for pair, adjusted in adjust_biases(biases).items()
    }


def _estimate_length_contrast(
    grid: ScoreGrid, answer_lengths: Floats, first_judge: int, second_judge: int
) -> tuple[Bias, int]:
    """Estimate the contrast of two judges, and return it with the number of items."""
    both = grid.valid[:, first_judge] & grid.valid[:, second_judge] & np.isfinite(answer_lengths)
    if not both.any():
        return UNKNOWN, 0
    answer = unique_codes(grid.answer[both])[1]
    start = np.empty(int(answer.max()) + 1, np.int64)
    start[answer[::-1]] = np.arange(len(answer))[::-1]  # of each answer the first row
    more = grid.values[grid.levels[both, first_judge]] - grid.values[grid.levels[both, second_judge]]
    gaps = np.bincount(answer, more) / np.bincount(answer)
    task, student = grid.task[both][start].astype(np.int64), grid.student[both][start]
    group = unique_codes(task * len(grid.students) + student)[1]
    cluster = unique_codes(grid.cluster[both][start])[1]
    longer = _center_by_group(np.log2(answer_lengths[both][start] + 1), group)
    gaps = _center_by_group(gaps, group)
    both_ways, squares = np.bincount(cluster, longer * gaps), np.bincount(cluster, longer**2)
    items = int((squares > NEARLY).sum())
    if items < FEWEST_ITEMS:
        return UNKNOWN, items
    left = squares.sum() - squares
    without = ((both_ways.sum() - both_ways) / np.maximum(left, NEARLY))[squares > NEARLY]
    return bias_from_error(float(both_ways.sum() / squares.sum()), jackknife_error(without), items - 1), items


def _center_by_group(values: Floats, group: NDArray[np.integer[Any]]) -> Floats:
    """Subtract from each value the mean of its group."""
    means = np.bincount(group, values) / np.bincount(group)
    return np.asarray(values - means[group], np.float64)


def judge_length_contrast_sentences(contrasts: Mapping[tuple[str, str], LengthContrast]) -> Iterator[str]:
    """State once which judges score longer answers higher than which others, naming both sides."""
    below: dict[str, dict[str, LengthContrast]] = {}
    for (first, second), contrast in contrasts.items():
        if contrast.is_significant:
            more, less = (first, second) if (contrast.more.value or 0.0) > 0 else (second, first)
            below.setdefault(less, {})[more] = contrast
    sides: dict[tuple[str, ...], list[str]] = {}
    for less, exceeding in below.items():
        sides.setdefault(tuple(sorted(exceeding)), []).append(less)
    for above, less_than in sides.items():
        sizes = [below[less][more] for less in less_than for more in above]
        gaps = sorted(abs(contrast.more.value or 0.0) for contrast in sizes)
        above_names, others = " and ".join(above), " and ".join(less_than)
        by = (
            sizes[0].unsigned_size_text
            if len(sizes) == 1
            else f"{format_points(gaps[0])} to {format_points(gaps[-1])} points"
        )
        score = "scores" if len(above) == 1 else "score"
        does = "does" if len(less_than) == 1 else "do"
        yield (
            f"{above_names} {score} answers of twice the length {by} higher than {others} {does}: "
            "either side may be the biased one."
        )
