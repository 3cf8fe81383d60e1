"""What to know of a run's results beside their tables, in sentences.

Names come from configuration files and are shown as they are: never as markup, and without the
control characters that could move the cursor or change colours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from coeval.analysis.run_results import (
    BOUNDS,
    LABELS,
    NO_LABEL,
    Bounded,
    answer_notes,
    answer_warnings,
    missing_label_sentences,
)
from coeval.core.plain import plain
from coeval.core.text import listed

if TYPE_CHECKING:  # the analysis loads numpy, scipy and duckdb, which sentences do not need
    from coeval.core.html_table import MeasureRow
    from coeval.reports.result_tables import Results

LABEL_INTERVAL = "[low, high] in label accuracy: 95% interval, over items."


def notes(results: Results) -> list[str]:
    """What to know of the tables."""
    notes = []
    if results.scored:
        notes.append(
            "Scores in points, 0 to 100, with the 95% interval [low, high] of the mean over items (n); "
            "failed: answers, judgments and factors without a result, in no mean."
        )
    bounds = [(score.least, score.most) for score in results.students if score.task is None]
    bounds += [(label.least, label.most) for label in results.labels]
    if any(least != most for least, most in bounds):
        notes.append(
            f"{BOUNDS}: with all that failed or is missing counted as 0 (wrong), and as 100 (right)."
        )
    notes += map(plain, answer_notes(results.students))
    if fewer := _less_scored(results.students, results.labels):
        notes.append(
            "With under nine tenths of another student's scores or labels in some task, so not over the same "
            f"items or judges: {listed(map(plain, fewer))}."
        )
    notes += _of_labels(results)
    if results.sampled:
        notes.append(
            "mean@N: over N answers to an item, pooled within it. item s.e.: how far other items would move "
            "it; sd in item: how far answers to one item lie apart."
        )
    if any(each.pass_at is not None for each in results.sampled):
        notes.append(
            "pass@N, pass^N: how often one of N answers passes, and all of them; "
            "by k: coeval analyze students --run RUN --format json."
        )
    notes += _removed(results)
    return notes + [plain(note) for note in results.notes]


def warnings(results: Results) -> Iterator[str]:
    """What speaks against trusting the scores as they are."""
    yield from (plain(served.warning) for served in results.served if served.warning)
    yield from map(plain, answer_warnings(results.students))
    for place, of in groupby(results.labels, key=lambda label: f"{label.task} ({label.attribute})"):
        known = (
            Bounded(label.student, label.least, label.most)
            for label in of
            if not label.removed and label.least is not None and label.most is not None
        )
        yield from map(plain, missing_label_sentences(place, known))


def _of_labels(results: Results) -> list[str]:
    notes = []
    if results.scored and results.only_labelled:
        notes.append(f"({LABELS}): label accuracy, the share of right answers; in no overall score.")
    if results.labels:
        notes.append(LABEL_INTERVAL)
    if any(label.none_of_the_labels for label in results.labels):
        notes.append(f"{NO_LABEL}: answers that are none of the task's labels, or several; wrong.")
    return notes


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


def _less_scored(scores: Sequence[MeasureRow], labels: Sequence[MeasureRow]) -> list[str]:
    """Students with clearly fewer scores or labels in a task than another one has; no score at all is told
    elsewhere."""
    samples = {s.student: s.samples for s in scores}
    counts = [
        ((s.task, ""), s.student, s.valid_evals / s.samples)
        for s in scores
        if s.task and s.valid_evals and not s.removed
    ]
    counts += [
        ((a.task, a.attribute), a.student, a.n / samples.get(a.student, 1)) for a in labels if not a.removed
    ]
    most: dict[tuple[str, str], float] = {}
    for place, _, count in counts:
        most[place] = max(most.get(place, 0), count)
    return sorted({student for place, student, count in counts if count < 0.9 * most[place]})
