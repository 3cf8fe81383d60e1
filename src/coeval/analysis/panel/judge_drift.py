"""Judge drift: an anchor set is judged again, and compared with its first scores.

The anchor is what the judge gave in an earlier run, or what people gave. Items are the independent units,
as in every comparison: an item's scores of all answers and factors are one mean before and one after.
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


class ScoreKey(NamedTuple):
    """The key of a score: an answer, its factor, and the item it belongs to."""

    task: str
    item: str
    answer: str
    factor: str


Scores: TypeAlias = Mapping[ScoreKey, float]
"""From 0 to 1."""


class FactorDrift(msgspec.Struct, frozen=True):
    """The drift in one factor of a task: its scores, the share that changed, and the shift of their mean."""

    task: str
    factor: str
    n: int
    flips: float
    shift: float


class JudgeDrift(msgspec.Struct, frozen=True):
    """A judge's second scores against the anchor's.

    ``flips``: the share of scores that changed; ``shift``: the mean of the second less that of the first,
    tasks counting alike; its ``minimum_detectable`` is the shift that this anchor shows four times in
    five. ``missing``: anchor scores that the new check lacks. ``served``: the models that replies named,
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

    def significantly_exceeds(self, allowed: float) -> bool:
        """Check whether the shift is significantly larger than ``allowed`` (0 to 1) in either direction: its
        95% interval lies outside. False alarms: 5% at ``allowed`` 0, 2.5% at its edge else."""
        return self.shift.low > allowed or self.shift.high < -allowed


def read_judge_scores(reader: RunReader, judge: str) -> Scores:
    rows = reader.rows(
        "SELECT task, item, answer, metric, value FROM scores "
        "WHERE judge = ? AND value IS NOT NULL AND NOT failed ORDER BY ALL",
        [judge],
    )
    return {ScoreKey(*key): float(value) for *key, value in rows}


def read_other_served_models(reader: RunReader, judge: str) -> tuple[str, ...]:
    """Read the models that the judge's replies named, if they were not the requested one."""
    sql = "SELECT DISTINCT served_by::VARCHAR FROM served WHERE role = 'judge' AND model = ? ORDER BY ALL"
    return tuple(name for (name,) in reader.rows(sql, [judge]) if name)


def compare_with_anchor(judge: str, anchor: Scores, again: Scores) -> JudgeDrift:
    """Compare a judge's second scores with the anchor's, over the answers and factors that have both. Raises
    UsageError if there are none."""
    shared = sorted(anchor.keys() & again.keys())
    if not shared:
        raise UsageError(f"{judge} scored nothing that the anchor also scores; see the errors of the check")
    before = np.array([anchor[key] for key in shared])
    after = np.array([again[key] for key in shared])
    changed = (np.abs(after - before) > _EQUAL).astype(np.float64)
    items = np.unique([f"{key.task}\0{key.item}" for key in shared], return_inverse=True)[1]
    return JudgeDrift(
        judge=judge,
        items=len(set(items.tolist())),
        answers=len({(key.task, key.answer) for key in shared}),
        scores=len(shared),
        missing=len(anchor) - len(shared),
        flips=clustered_mean(changed, items),
        shift=paired_difference([*_pair_items_by_task(shared, before, after)]),
        factors=tuple(_compare_factors(shared, changed, after - before)),
    )


def _pair_items_by_task(
    keys: Sequence[ScoreKey], before: np.ndarray, after: np.ndarray
) -> list[PairedScores]:
    strata = []
    for task in dict.fromkeys(key.task for key in keys):
        in_task = np.array([key.task == task for key in keys])
        item_ids = [key.item for key in keys if key.task == task]
        _, item = np.unique(item_ids, return_inverse=True)
        size = np.bincount(item)
        means = [np.bincount(item, values[in_task]) / size for values in (before, after)]
        strata.append(PairedScores(means[0], means[1], np.ones(len(size))))
    return strata


def _compare_factors(keys: Sequence[ScoreKey], changed: np.ndarray, moved: np.ndarray) -> list[FactorDrift]:
    kinds = [(key.task, key.factor) for key in keys]
    drifts = []
    for task, factor in dict.fromkeys(kinds):
        rows = np.array([kind == (task, factor) for kind in kinds])
        shift = float(moved[rows].mean())
        drifts.append(FactorDrift(task, factor, int(rows.sum()), float(changed[rows].mean()), shift))
    return drifts
