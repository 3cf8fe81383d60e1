"""What is to be known of a run's scores, beside the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from coeval.analysis.cut_off import CutOffAnswers, cut_off_sentence, warning_of_cut_off
from coeval.analysis.empty_answers import EmptyAnswers, empty_answers_sentence
from coeval.analysis.run_results import (
    LABELS,
    Bounded,
    missing_label_sentences,
    missing_sentences,
    unequally_covered_sentence,
)
from coeval.core.plain import plain
from coeval.core.text import listed

if TYPE_CHECKING:  # the analysis loads numpy, scipy and duckdb, which sentences do not need
    from coeval.analysis.run_results import LabelAccuracy, Results, StudentScore

__all__ = ["ADJUSTED", "BOUNDS", "NO_LABEL", "notes", "warnings"]

BOUNDS = "bounds"
"""The column of scores with all that is missing at 0, and at 1."""
ADJUSTED = "adjusted"
"""The column of scores as if all students had been scored by the same judges on the same items."""

NO_LABEL = "no label"
"""The column of answers that are none of the labels."""


def notes(results: Results, *, scored: bool) -> list[str]:
    """What to know of the tables; ``scored``: there is one of scores."""
    notes = []
    if scored:
        notes.append(
            "Scores run from 0 to 1, with the 95 % interval [low, high] of the mean over datapoints (n); "
            "failed: answers, judgments and factors without a result, in no mean."
        )
    bounds = [(score.least, score.most) for score in results.students if score.task is None]
    bounds += [(label.least, label.most) for label in results.labels]
    if any(least != most for least, most in bounds):
        notes.append(f"{BOUNDS}: with all that failed or is missing counted as 0 (wrong), and as 1 (right).")
    if any(score.adjusted is not None for score in results.students):
        notes.append(
            f"{ADJUSTED}: the score if all had the same judges and items; the order of students follows it."
        )
    if unequal := unequally_covered_sentence(results.students):
        notes.append(plain(unequal))
    if fewer := _less_scored(results.students, results.labels):
        notes.append(
            "With under nine tenths of another student's scores or labels in some task, so not over the same "
            f"datapoints or judges: {listed(map(plain, fewer))}."
        )
    notes += _of_labels(results, scored)
    if cut := cut_off_sentence(_cut_off(results.students), "of"):
        notes.append(cut)
    notes += _removed(results)
    return notes + [plain(note) for note in results.notes]


def warnings(results: Results) -> Iterator[str]:
    """What speaks against trusting the scores as they are."""
    yield from map(plain, missing_sentences(results.students))
    for place, of in groupby(results.labels, key=lambda label: f"{label.task} ({label.attribute})"):
        known = (
            Bounded(label.student, label.least, label.most)
            for label in of
            if not label.removed and label.least is not None and label.most is not None
        )
        yield from map(plain, missing_label_sentences(place, known))
    if cut := warning_of_cut_off(_cut_off(results.students)):
        yield cut
    empty = [
        EmptyAnswers(plain(score.student), score.empty, score.empty_truncated, score.answers)
        for score in results.students
        if score.task is None
    ]
    if said := empty_answers_sentence(empty, "of"):
        yield said


def _of_labels(results: Results, scored: bool) -> list[str]:
    notes = []
    if scored and results.only_labelled:
        notes.append(f"({LABELS}): label accuracy, the share of right answers; in no overall score.")
    if results.labels:
        notes.append("[low, high] in label accuracy: 95 % Wilson interval.")
    if any(label.none_of_the_labels for label in results.labels):
        notes.append(f"{NO_LABEL}: answers that are none of the task's labels, or several; wrong.")
    return notes


def _cut_off(scores: Sequence[StudentScore]) -> list[CutOffAnswers]:
    return [
        CutOffAnswers(plain(score.student), score.truncated, score.answers)
        for score in scores
        if score.task is None
    ]


def _removed(results: Results) -> list[str]:
    """What the configuration no longer plans: what the mark means, and what is left out of all means."""
    notes = []
    if any(s.removed for s in results.students) or any(label.removed for label in results.labels):
        notes.append("(removed): no longer in the configuration; a removed task is in no overall score.")
    names = [
        f"{each.kind} {plain(each.name)}" + (f" of {plain(each.task)}" if each.kind == "factor" else "")
        for each in results.left_out
    ]
    if names:
        notes.append(f"No longer in the configuration and in no mean: {listed(dict.fromkeys(names))}.")
    beyond = [
        f"{cut.items:,} {'item' if cut.items == 1 else 'items'} of {plain(cut.task)}"
        for cut in results.beyond_total
    ]
    if beyond:
        notes.append(f"Beyond sampling.total and in no mean: {listed(beyond)}.")
    return notes


def _less_scored(scores: Sequence[StudentScore], labels: Sequence[LabelAccuracy]) -> list[str]:
    """Students with clearly fewer scores or labels in a task than another one has; no score at all is told
    elsewhere."""
    counts = [((s.task, ""), s.student, s.units) for s in scores if s.task and s.units and not s.removed]
    counts += [((a.task, a.attribute), a.student, a.n) for a in labels if not a.removed]
    most: dict[tuple[str, str], int] = {}
    for place, _, count in counts:
        most[place] = max(most.get(place, 0), count)
    return sorted({student for place, student, count in counts if count < 0.9 * most[place]})
