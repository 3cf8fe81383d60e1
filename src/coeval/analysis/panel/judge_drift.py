"""Whether a judge still judges as it did: an anchor set judged again, held against its first scores.

The anchor is what the judge gave in an earlier run, or what people gave. Items are the independent units, as
in every comparison: an item's scores of all answers and factors are one mean before and one after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np

from coeval.analysis.comparison.paired_difference import Difference, PairedScores, paired_difference
from coeval.analysis.intervals import Interval, clustered_mean
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import UsageError

# Levels are fractions such as 1/3; a mean of several people's lies between two of them.
_EQUAL = 1e-9


class ScorePlace(NamedTuple):
    """An answer's factor, and the item it belongs to."""

    task: str
    item: str
    answer: str
    factor: str


Scores: TypeAlias = Mapping[ScorePlace, float]
"""From 0 to 1."""


class FactorDrift(msgspec.Struct, frozen=True):
    """One factor of a task: how many scores, the share that changed, and how far their mean moved."""

    task: str
    factor: str
    n: int
    flips: float
    shift: float


class JudgeDrift(msgspec.Struct, frozen=True):
    """A judge's second scores against the anchor's.

    ``flips`` is the share of scores that changed, ``shift`` the mean of the second less that of the first,
    tasks counting alike; its ``minimum_detectable`` is the shift that this anchor shows four times in five.
    ``missing`` anchor scores are missing from the new check. ``served`` are the models that replies named,
    then and now.
    """

    judge: str
    items: int
    answers: int
    scores: int
    missing: int
    flips: Interval
    shift: Difference
    factors: tuple[FactorDrift, ...]
    served: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    def beyond(self, allowed: float) -> bool:
        """Whether the shift is shown to be larger than ``allowed``, from 0 to 1, in either direction: its 95%
        interval lies outside. False alarms: 5 % at ``allowed`` 0, 2.5 % at its edge else."""
        return self.shift.low > allowed or self.shift.high < -allowed


def judge_scores(reader: RunReader, judge: str) -> Scores:
    """Return the scores that a judge gave in a run."""
    rows = reader.rows(
        "SELECT task, item, answer, metric, value FROM scores "
        "WHERE judge = ? AND value IS NOT NULL AND NOT failed ORDER BY ALL",
        [judge],
    )
    return {ScorePlace(*place): float(value) for *place, value in rows}


def served_by(reader: RunReader, judge: str) -> tuple[str, ...]:
    """Return the models that the judge's replies named, where they were not the one asked for."""
    sql = "SELECT DISTINCT served_by::VARCHAR FROM served WHERE role = 'judge' AND model = ? ORDER BY ALL"
    return tuple(name for (name,) in reader.rows(sql, [judge]) if name)


def judge_drift(judge: str, anchor: Scores, again: Scores) -> JudgeDrift:
    """Compare a judge's second scores with the anchor's, over the answers and factors that have both.

    Raises UsageError: there are none.
    """
    places = sorted(anchor.keys() & again.keys())
    if not places:
        raise UsageError(f"{judge} gave no score that the anchor has too; see the errors of the check's run")
    before = np.array([anchor[place] for place in places])
    after = np.array([again[place] for place in places])
    changed = (np.abs(after - before) > _EQUAL).astype(np.float64)
    items = np.unique([f"{place.task}\0{place.item}" for place in places], return_inverse=True)[1]
    return JudgeDrift(
        judge=judge,
        items=len(set(items.tolist())),
        answers=len({(place.task, place.answer) for place in places}),
        scores=len(places),
        missing=len(anchor) - len(places),
        flips=clustered_mean(changed, items),
        shift=paired_difference([*_strata(places, before, after)]),
        factors=tuple(_factors(places, changed, after - before)),
    )


def _strata(places: Sequence[ScorePlace], before: np.ndarray, after: np.ndarray) -> list[PairedScores]:
    """Each task's items with their mean scores, before and after."""
    strata = []
    for task in dict.fromkeys(place.task for place in places):
        here = np.array([place.task == task for place in places])
        named = [place.item for place in places if place.task == task]
        _, item = np.unique(named, return_inverse=True)
        size = np.bincount(item)
        means = [np.bincount(item, values[here]) / size for values in (before, after)]
        strata.append(PairedScores(means[0], means[1], np.ones(len(size))))
    return strata


def _factors(places: Sequence[ScorePlace], changed: np.ndarray, moved: np.ndarray) -> list[FactorDrift]:
    kinds = [(place.task, place.factor) for place in places]
    found = []
    for task, factor in dict.fromkeys(kinds):
        here = np.array([kind == (task, factor) for kind in kinds])
        shift = float(moved[here].mean())
        found.append(FactorDrift(task, factor, int(here.sum()), float(changed[here].mean()), shift))
    return found
