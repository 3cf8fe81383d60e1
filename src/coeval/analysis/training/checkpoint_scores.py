"""The scores of a task's items at each checkpoint: what all that is said of a training run rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coeval.analysis.intervals import Floats, Scale, scale_of
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.run_results import MetricScore
from coeval.analysis.training.run_choice import ChosenRuns
from coeval.core.text import listed, numbered

__all__ = [
    "CheckpointScores",
    "CommonItems",
    "ItemColumn",
    "common_items",
    "first_of_items",
    "read_items",
    "side_by_side",
]

_MOST_LACKING = 0.1
"""Of the items that other checkpoints have; one that lacks more is left out rather than their items."""


class ItemColumn(NamedTuple):
    """Of a checkpoint: what its items are known by (id, and a hash of what was asked), and arrays beside."""

    metric: str
    unit: str
    keys: tuple[tuple[str, int], ...]
    values: Floats
    weights: Floats
    characters: Floats


@dataclass(frozen=True, slots=True)
class CheckpointScores:
    """Means over the samples of n items at K checkpoints, (n, K) in the metric's unit; NaN: no score.

    ``weights`` is how often each counts (1 in most metrics), ``characters`` the mean length of its answers.
    """

    metric: str
    unit: str
    items: tuple[str, ...]
    steps: tuple[int, ...]
    values: Floats
    weights: Floats
    characters: Floats

    @property
    def scale(self) -> Scale:
        """The metric's, longer where single scores lie beyond it."""
        scale, known = scale_of(self.unit), self.values[np.isfinite(self.values)]
        least, most = known.min(initial=scale.least), known.max(initial=scale.most)
        return Scale(float(least), float(most))


class CommonItems(NamedTuple):
    """The n items that all of these checkpoints have a score of, on a scale from 0 to 1.

    The mean of a column of ``scores``, (n, K), is the metric's value: where items count unequally they are
    the pseudo-values ``m + w (x − m) / mean(w)`` of the ratio m, and may lie beyond the scale.
    """

    steps: tuple[int, ...]
    scores: Floats
    characters: Floats
    scale: Scale
    notes: tuple[str, ...]


def first_of_items(reader: OutputReader, task: str) -> MetricScore | None:
    """The first of the task's metrics that items have scores in."""
    with_items = {name for (name,) in reader.rows(_METRICS, [task])}
    of_task = (one for one in reader.metrics if one.task == task and one.metric in with_items)
    return next(of_task, None)


def read_items(reader: OutputReader, runs: ChosenRuns) -> ItemColumn | None:
    """The items' scores in the first of the task's metrics that has any; None where none has."""
    if (headline := first_of_items(reader, runs.task)) is None:
        return None
    found = reader.columns(_ITEMS, [runs.task, headline.metric, list(runs.runs)] + [runs.task] * 2)
    ids, contents = found["item"].tolist(), np.ma.filled(np.ma.asarray(found["content"]), 0).tolist()
    return ItemColumn(
        headline.metric,
        headline.unit,
        tuple(zip(ids, contents, strict=True)),
        *(np.ma.filled(np.ma.asarray(found[name], np.float64), np.nan) for name in _ARRAYS),
    )


_ARRAYS = ("value", "weight", "characters")
_METRICS = "SELECT DISTINCT metric FROM scores WHERE task = ? AND value IS NOT NULL"
_ITEMS = """
WITH score AS (
    SELECT item, sum(value * weight) / sum(weight) AS value, avg(weight) AS weight, list(sample) AS samples
    FROM scores
    WHERE task = ? AND metric = ? AND list_contains(?::INTEGER[], sample) AND value IS NOT NULL AND weight > 0
    GROUP BY ALL
), said AS (
    SELECT item, avg(characters) AS characters
    FROM lengths JOIN score USING (item) WHERE task = ? AND list_contains(samples, sample) GROUP BY ALL
)
SELECT score.item AS item, content, value, weight, characters
FROM score LEFT JOIN said USING (item)
LEFT JOIN (SELECT item, content FROM contents WHERE task = ?) asked USING (item)
ORDER BY item
"""


def side_by_side(columns: Mapping[int, ItemColumn]) -> CheckpointScores:
    """The columns of one task, by step; items are the same where id and question are. Of checkpoints whose
    first metric differs, those with the most common one count."""
    names = [(column.metric, column.unit) for column in columns.values()]
    metric, unit = max(dict.fromkeys(names), key=names.count)
    chosen = {step: one for step, one in columns.items() if (one.metric, one.unit) == (metric, unit)}
    places: dict[tuple[str, int], int] = {}
    for column in chosen.values():
        for key in column.keys:
            places.setdefault(key, len(places))
    arrays = np.full((3, len(places), len(chosen)), np.nan)
    for at, column in enumerate(chosen.values()):
        rows = [places[key] for key in column.keys]
        arrays[:, rows, at] = (column.values, column.weights, column.characters)
    return CheckpointScores(metric, unit, tuple(name for name, _ in places), tuple(chosen), *arrays)


def common_items(scores: CheckpointScores, steps: Sequence[int]) -> CommonItems:
    """The items that all checkpoints at these ``steps`` share; a checkpoint that lacks more than a tenth of
    what others have is left out."""
    here = [at for at, step in enumerate(scores.steps) if step in set(steps)]
    there = np.isfinite(scores.values)
    counts = {at: int(there[:, at].sum()) for at in here}
    most = max(counts.values(), default=0)
    kept = [at for at in here if counts[at] and counts[at] >= (1 - _MOST_LACKING) * most]
    notes = []
    if few := [f"step {scores.steps[at]} ({counts[at]:,})" for at in here if at not in kept]:
        notes.append(f"left out of the conclusions, with too few of {most:,} items: {listed(few)}")
    whole = there[:, kept].all(axis=1) if kept else np.zeros(len(scores.items), bool)
    if kept and (lacking := int(there[:, kept].any(axis=1).sum()) - int(whole.sum())):
        notes.append(
            f"conclusions rest on {numbered(int(whole.sum()), 'item')} that all checkpoints have; "
            f"{lacking:,} more are scored at some only"
        )
    scale = scores.scale
    values = (scores.values[whole][:, kept] - scale.least) / (scale.most - scale.least)
    weights = scores.weights[whole][:, kept]
    if not (weights == 1).all():
        means = (values * weights).sum(axis=0) / weights.sum(axis=0)
        values = means + weights / weights.mean(axis=0) * (values - means)
    return CommonItems(
        tuple(scores.steps[at] for at in kept),
        values,
        scores.characters[whole][:, kept],
        scale,
        tuple(notes),
    )
