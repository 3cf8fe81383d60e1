"""What each judge leans on, held against the other judges of the same answers.

``severity`` is how much lower a judge scores than the others do, over the (answer, factor) that it has in
common with them: the others' mean less its own. ``family`` and ``self`` are those of
`coeval.analysis.panel.panel_reading`. ``position`` needs pairs, of which a run has none
(`coeval.analysis.panel.output_judges`). All are in units of a score from 0 to 1. What judges think of long
answers is a matter between two of them (`coeval.analysis.panel.length_contrasts`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Annotated, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from coeval.analysis.comparison.paired_difference import holm
from coeval.analysis.intervals import ALPHA, LEVEL
from coeval.analysis.measures.measured import Measured, Record, ShownAs
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.core.figures import points_text

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

    @property
    def without_verdict(self) -> Bias:
        return Bias(self.value, None, None, None, self.usual)

    @property
    def is_sure(self) -> bool:
        """Whether its interval leaves zero out."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


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
        return f"{points_text(abs(self.size), low, high)} points"


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

    severity: Annotated[Leaning, ShownAs("How much lower it scores than others", "strictness", "severity")]
    family: Annotated[Favour, ShownAs(_MORE, "its family's answers", "family")]
    own: Annotated[Favour, ShownAs(_MORE, "its own answers", "self")] = msgspec.field(name="self")
    position: Annotated[Leaning, ShownAs("More of a win if shown first", "the first of two", "position")]


BIASES = tuple(field.encode_name for field in msgspec.structs.fields(JudgeBiases))

_Name = TypeVar("_Name", bound=Hashable)


def adjusted(biases: Mapping[_Name, Bias]) -> dict[_Name, Leaning]:
    """With Holm's p-values, over those of whom it can be told."""
    known = {name: bias.p for name, bias in biases.items() if bias.p is not None}
    p = dict(zip(known, holm(list(known.values())), strict=True))
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
    """By judge."""
    several = grid.valid.sum(axis=1) > 1
    return {
        judge: _severity(grid, place, several & grid.valid[:, place])
        for place, judge in enumerate(grid.judges)
    }


def _severity(grid: ScoreGrid, place: int, rows: NDArray[np.bool_]) -> Bias:
    """A mean over units, clustered by datapoint, or group of such (Liang and Zeger 1986)."""
    scores = grid.values[grid.levels[rows]]
    own = scores[:, place]
    others = (scores.sum(axis=1) - own) / (grid.valid[rows].sum(axis=1) - 1)
    clusters, at = np.unique(grid.cluster[rows], return_inverse=True)
    if len(clusters) < FEWEST_ITEMS:
        return UNKNOWN
    value = float((others - own).mean())
    distances = np.bincount(at, others - own - value)
    error = float(np.sqrt((distances @ distances) * len(clusters) / (len(clusters) - 1))) / len(at)
    return bias_of(value, error, len(clusters) - 1)


def bias_of(value: float, error: float, degrees: float) -> Bias:
    """With t's interval and p-value; unknown where nothing differs, and so no spread is there to judge by."""
    if error < NEARLY:
        return UNKNOWN
    half = float(stdtrit(degrees, (1 + LEVEL) / 2)) * error
    return Bias(value, value - half, value + half, 2 * float(stdtr(degrees, -abs(value) / error)))
