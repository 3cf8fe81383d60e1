"""How often students' answers state the right label, and which labels they confuse.

Labels enter no mean of the rubric: each label of each task has its own accuracy, confusion table and order
of students.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.comparison.family import adjust_family
from coeval.analysis.comparison.paired_difference import PairedScores
from coeval.analysis.intervals import Bounds, Floats, mean_with_missing_at_ends, share_with_interval
from coeval.analysis.measures.agreement import DRAWS, percentile_interval, smooth_level_shares
from coeval.analysis.measures.measure_tree import Entity, Measured, Record, ShownAs
from coeval.analysis.measures.pair_scores import ComparedGrid
from coeval.analysis.measures.ranking import (
    Ranking,
    StudentMean,
    count_tested_pairs,
    family_members,
    rank_by_differences,
)
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.measures.value_grid import read_label_grid
from coeval.analysis.planned_names import find_removed_names
from coeval.analysis.readers.run_reader import RunReader

# Numbers drawn at once: 32 MB.
_MOST_DRAWN = 1 << 22


class LabelStudent(Entity, frozen=True):
    """How often a student's answers state the right label, and which labels they confuse."""

    accuracy: Annotated[
        Measured, ShownAs("Share of right labels, with Wilson's interval", "Accuracy", "accuracy")
    ]
    macro_f1: Annotated[Measured, ShownAs("Mean over the labels of F1", "Macro-F1", "macro-F1")]
    bounds: Annotated[
        tuple[float, float] | None,
        ShownAs("Accuracy if all missing are wrong, and if right", elsewhere="labels"),
    ]
    correct: Annotated[int, ShownAs("Answers that state the right label", "Right", kind="count")]
    none_of_the_labels: Annotated[
        int, ShownAs("Answers that state no label, or several", "None of them", "no label", "count")
    ]
    expected: Annotated[Mapping[str, int], ShownAs("Answers by their right label", elsewhere="by-label")]
    recall: Annotated[
        Mapping[str, Measured],
        ShownAs("Share of answers with this right label that state it", elsewhere="by-label"),
    ]
    confusion: Annotated[
        Mapping[str, Mapping[str, int]], ShownAs("Answers by right and stated label", elsewhere="by-label")
    ]
    failed: Annotated[int, ShownAs("Answers that failed", elsewhere="labels", kind="count")]

    def count_without_stated_label(self, label: str) -> int:
        """Count the answers due a label that state none of the labels, or several."""
        return self.expected[label] - sum(self.confusion[label].values())


class LabelMeasures(Record, frozen=True):
    """Measures of one label of one task; students are ordered by accuracy."""

    students: Annotated[Mapping[str, LabelStudent], ShownAs("By student", elsewhere="labels")]
    ranking: Annotated[Ranking, ShownAs("By accuracy", elsewhere="labels")]

    @property
    def order(self) -> list[str]:
        """Return students, best first; those without an answer come last."""
        return [*self.ranking.order, *(name for name in self.students if name not in self.ranking.order)]


Labels: TypeAlias = Mapping[str, Mapping[str, LabelMeasures]]
"""By task and label attribute."""


class _ComparedLabels(NamedTuple):
    """The labels of a task by one attribute, (R,): ``item`` numbers items; ``stated`` is −1 where an answer
    states none of the ``values``, or several; ``items`` have a value of the attribute. ``cluster``: of
    each item, None where all are independent. ``samples``: by student, how many answers an item got."""

    values: tuple[str, ...]
    item: NDArray[np.int64]
    student: NDArray[np.int64]
    expected: NDArray[np.int64]
    stated: NDArray[np.int64]
    right: NDArray[np.bool_]
    items: int
    cluster: NDArray[np.int64] | None
    samples: Sequence[int]


def measure_planned_labels(reader: RunReader, grid: ScoreGrid) -> Labels:
    """Measure the labels of the grid's students, without those that the configuration has lost."""
    kept = [label for label in _read_label_values(reader) if not _is_removed_label(reader, *label)]
    return _measure_labels(reader, grid, dict.fromkeys(kept, grid.students))


def measure_removed_labels(reader: RunReader, whole_grid: ScoreGrid, kept_students: Sequence[str]) -> Labels:
    """Measure what the configuration lost: labels, tasks, in others the students not planned."""
    others = [name for name in whole_grid.students if name not in kept_students]
    students_by_label = {
        label: whole_grid.students if _is_removed_label(reader, *label) else others
        for label in _read_label_values(reader)
    }
    return _measure_labels(
        reader, whole_grid, {label: names for label, names in students_by_label.items() if names}
    )


def _read_label_values(reader: RunReader) -> dict[tuple[str, str], Sequence[str]]:
    return {(task, attribute): values for task, attribute, values in reader.rows(_ATTRIBUTES)}


def _is_removed_label(reader: RunReader, task: str, attribute: str) -> bool:
    gone = find_removed_names(reader.planned, "", task, attribute)
    return "task" in gone or "label" in gone


def _measure_labels(
    reader: RunReader, grid: ScoreGrid, students_by_label: Mapping[tuple[str, str], Sequence[str]]
) -> Labels:
    """Measure the labels of these students; all pairs in all labels are tested as one family."""
    if not students_by_label:
        return {}
    values, compared_labels = _read_label_values(reader), ComparedGrid(read_label_grid(reader, grid))
    measured: dict[tuple[str, str], dict[str, LabelStudent]] = {}
    common: dict[tuple[str, str], dict[tuple[str, str], dict[str, PairedScores]]] = {}
    for label, students in students_by_label.items():
        compared = _read_compared_labels(reader, label, students, values[label])
        failed = dict(reader.rows(_FAILED, [label[0]]))
        measured[label] = {
            name: _measure_student(compared, at, failed.get(name, 0)) for at, name in enumerate(students)
        }
        shared, scored = compared_labels.shared_scores(*label), sorted(_student_accuracies(measured[label]))
        common[label] = {pair: shared.item_means_by_task(*pair) for pair in combinations(scored, 2)}
    tests = sum(map(count_tested_pairs, common.values()))
    members = {
        label: family_members(strata_by_pair, looks=reader.looks, tests=tests)
        for label, strata_by_pair in common.items()
    }
    tested = iter(
        adjust_family([member for strata_by_pair in members.values() for member in strata_by_pair.values()])
    )
    labels: dict[str, dict[str, LabelMeasures]] = {}
    for (task, attribute), measures in measured.items():
        ranks = rank_by_differences(
            _student_accuracies(measures), {pair: next(tested) for pair in members[task, attribute]}
        )
        labels.setdefault(task, {})[attribute] = LabelMeasures(measures, ranks)
    return labels


def macro_f1(tables: Floats) -> Floats:
    """Average F1 over the labels that occur among the expected or the stated ones; NaN without any. ``F1 = 2
    TP / (2 TP + FP + FN)``, the harmonic mean of precision and recall (van Rijsbergen 1979). ``tables``
    (…, K, K + 1): answers by expected and stated label; the last column states none."""
    right = np.diagonal(tables, axis1=-2, axis2=-1)
    return _mean_f1(right, tables.sum(axis=-1), tables[..., :-1].sum(axis=-2))


def macro_f1_bounds(table: Floats, value: float) -> Bounds | None:
    """Return the 95% interval of a table's macro-F1 ``value``, (K, K + 1), by the Bayesian bootstrap (Rubin
    1981): weights for the answers, and so for the cells they fall in, with half an answer that is right
    and half a wrong one added, as in `coeval.analysis.measures.agreement`."""
    n = round(float(table.sum()))
    if not n:
        return None
    expected, stated = np.nonzero(table)
    labels = len(table)
    random = np.random.default_rng(0)
    best, worst = random.standard_gamma(0.5, (2, DRAWS, 1))
    occurs = (table.sum(axis=1) + table[:, :-1].sum(axis=0)) > 0
    of_expected = smooth_level_shares(table.sum(axis=1)[occurs] / n)
    of_stated = smooth_level_shares(np.append(table[:, :-1].sum(axis=0)[occurs], table[:, -1].sum()) / n)
    draws = np.empty(DRAWS)
    step = max(_MOST_DRAWN // len(expected), 1)
    for first in range(0, DRAWS, step):
        chunk = slice(first, min(first + step, DRAWS))
        weights = random.standard_gamma(table[expected, stated], (chunk.stop - first, len(expected)))
        rows = weights @ np.eye(labels)[expected]
        columns = weights @ np.eye(labels + 1)[stated]
        right = (weights * (expected == stated)) @ np.eye(labels)[expected]
        draws[chunk] = _mean_f1(
            right[:, occurs] + best[chunk] * of_expected,
            rows[:, occurs] + (best[chunk] + worst[chunk]) * of_expected,
            columns[:, :-1][:, occurs] + best[chunk] * of_expected + worst[chunk] * of_stated[:-1],
        )
    return percentile_interval(draws, value, n)


def _mean_f1(right: Floats, expected: Floats, stated: Floats) -> Floats:
    """Average F1 over labels, from how often each is right, expected and stated: (…, K)."""
    occurs = expected + stated > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        f1 = np.where(occurs, 2 * right / (expected + stated), 0.0)
        return np.asarray(f1.sum(axis=-1) / occurs.sum(axis=-1), np.float64)


def _read_compared_labels(
    reader: RunReader, label: tuple[str, str], students: Sequence[str], values: Sequence[str]
) -> _ComparedLabels:
    """Read which label each answer states, for a (task, attribute)."""
    task, attribute = label
    columns = reader.columns(_COMPARED, [list(students), list(values), list(values), task, attribute])
    is_known = ~np.ma.getmaskarray(columns["student"])
    names, item = np.unique(np.asarray(columns["item"])[is_known], return_inverse=True)
    [(items,)] = reader.rows(_ITEMS, [task, attribute])
    return _ComparedLabels(
        tuple(values),
        item.astype(np.int64),
        np.asarray(columns["student"])[is_known].astype(np.int64),
        np.asarray(columns["expected"])[is_known].astype(np.int64),
        np.ma.filled(columns["said"], -1)[is_known].astype(np.int64),
        np.asarray(columns["match"])[is_known].astype(np.bool_),
        items,
        reader.item_clusters(names.tolist()),
        [
            reader.samples_by_student.get(student, 1)
            * (reader.planned is None or reader.planned.is_assigned(student, task))
            for student in students
        ],
    )


def _measure_student(compared: _ComparedLabels, student: int, failed: int) -> LabelStudent:
    """Measure how often one student, by its index, states the right label."""
    own = compared.student == student
    labels, n = len(compared.values), int(own.sum())
    missing = max(compared.items * compared.samples[student] - n, 0)
    correct = int(compared.right[own].sum())
    stated = np.where(compared.stated < 0, labels, compared.stated)[own]
    cells = np.bincount(compared.expected[own] * (labels + 1) + stated, minlength=labels * (labels + 1))
    table = cells.reshape(labels, labels + 1).astype(np.float64)
    clusters = compared.item[own] if compared.cluster is None else compared.cluster[compared.item[own]]
    if compared.cluster is None and compared.samples[student] == 1:
        clusters = None
    share, f1 = share_with_interval(compared.right[own].tolist(), clusters), float(macro_f1(table))
    weight = 1.0 if clusters is None or not n else len(np.unique(clusters)) / n
    bounds = macro_f1_bounds(table * weight, f1) if math.isfinite(f1) else None
    expected = table.sum(axis=1).astype(np.int64).tolist()
    dues = {value: compared.expected[own] == at for at, value in enumerate(compared.values) if expected[at]}
    recall = {
        value: share_with_interval(
            compared.right[own][due].tolist(), None if clusters is None else clusters[due]
        )
        for value, due in dues.items()
    }
    return LabelStudent(
        accuracy=Measured(share.mean, share.low, share.high, n, missing),
        macro_f1=Measured.with_bounds(f1, bounds, n, missing),
        bounds=mean_with_missing_at_ends(float(correct), float(n), float(n + missing)) if n else None,
        correct=correct,
        none_of_the_labels=int(table[:, -1].sum()),
        expected=dict(zip(compared.values, expected, strict=True)),
        recall={value: Measured.from_interval(share) for value, share in recall.items()},
        confusion={
            value: dict(zip(compared.values, row, strict=True))
            for value, row in zip(compared.values, table[:, :-1].astype(np.int64).tolist(), strict=True)
        },
        failed=failed,
    )


def _student_accuracies(measures: Mapping[str, LabelStudent]) -> dict[str, StudentMean]:
    return {
        name: StudentMean(student.accuracy.value, student.accuracy.n or 0)
        for name, student in measures.items()
        if student.accuracy.value is not None
    }


_FAILED = "SELECT model, count(*) FROM answers WHERE failed AND task = ? GROUP BY ALL"

# By task and label, the values that are expected or stated.
_ATTRIBUTES = """
SELECT task, attribute, list_sort(list_distinct(flatten(list([expected, predicted]))))
FROM (SELECT DISTINCT task, attribute, expected, predicted FROM labels)
GROUP BY ALL ORDER BY ALL
"""

_COMPARED = """
SELECT item, list_position(?::VARCHAR[], model) - 1 AS student,
       list_position(?::VARCHAR[], expected) - 1 AS expected,
       list_position(?::VARCHAR[], predicted) - 1 AS said, match
FROM labels WHERE task = ? AND attribute = ? AND expected IS NOT NULL
"""

_ITEMS = "SELECT count(*) FROM items WHERE NOT failed AND task = ? AND attributes[?] IS NOT NULL"
