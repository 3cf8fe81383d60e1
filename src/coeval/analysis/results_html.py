"""A run's results in a notebook: students against tasks, with their intervals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from coeval.analysis.cut_off import CutOffAnswers, cut_off_sentence
from coeval.analysis.empty_answers import EmptyAnswers, empty_answers_sentence
from coeval.analysis.label_columns import LABELS, label_columns
from coeval.core.html_table import html_lines, html_table

if TYPE_CHECKING:
    from coeval.analysis.scores import LabelAccuracy, Results

SIMULATED = "simulated models: numbers show the tool, not any real model"


def with_interval(mean: float | None, low: float | None, high: float | None) -> str | None:
    """``0.93 [.86, .97]``: without their leading zeros, two tasks fit beside the overall score on a terminal
    of 80 columns. None where nothing was scored."""
    if mean is None:
        return None
    bounds = "" if low is None or high is None else f" [{_bound(low)}, {_bound(high)}]"
    return f"{mean:.2f}{bounds}"


def _bound(share: float) -> str:
    return f"{share:.2f}".removeprefix("0")


def results_html(results: Results) -> str:
    """Scores, label accuracies and notes. Names and notes are escaped."""
    parts = [html_lines([SIMULATED] if results.simulated else [])]
    if results.students:
        parts.append(_scores(results))
    if results.labels:
        columns = ("task", "label", "student", "accuracy", "n", "no label", "failed")
        parts.append(html_table("Label accuracy", columns, _labels(results)))
    if results.metrics:
        figures = [[getattr(metric, name) for name in _METRIC] for metric in results.metrics]
        parts.append(html_table("Metrics", _METRIC, figures))
    return "".join(parts) + html_lines([*_of_answers(results), *results.notes, *results.missing])


_METRIC = ("task", "sample", "metric", "value", "low", "high", "n", "unit", "failed")


def _of_answers(results: Results) -> Iterator[str]:
    """How many answers were cut off, and how many are empty."""
    overall = [score for score in results.students if score.task is None]
    cut = [CutOffAnswers(score.student, score.truncated, score.answers) for score in overall]
    empty = [EmptyAnswers(s.student, s.empty, s.empty_truncated, s.answers) for s in overall]
    for said in (cut_off_sentence(cut, "of"), empty_answers_sentence(empty, "of")):
        if said is not None:
            yield said


def _scores(results: Results) -> str:
    cells = {
        (score.student, score.task): with_interval(score.mean, score.low, score.high)
        for score in results.students
    }
    tasks = list(
        dict.fromkeys(task for (_, task), cell in cells.items() if task is not None and cell is not None)
    )
    removed = {task for score in results.students if "task" in score.removed and (task := score.task)}
    labelled = label_columns(results)
    rows = [
        [
            _named(score.student, bool(score.removed)),
            cells[score.student, None],
            *(cells.get((score.student, task)) for task in tasks),
            *(_accuracy(column.accuracies.get(score.student)) for column in labelled),
            score.n,
            score.failed,
        ]
        for score in results.students
        if score.task is None
    ]
    columns = [_named(task, task in removed) for task in tasks]
    columns += [_named(f"{column.name} ({LABELS})", column.removed) for column in labelled]
    return html_table(
        "Mean scores, 0 to 1, with 95 % intervals", ("student", "overall", *columns, "n", "failed"), rows
    )


def _labels(results: Results) -> Iterator[list[object]]:
    for label in results.labels:
        yield [
            _named(label.task, "task" in label.removed),
            _named(label.attribute, "label" in label.removed),
            _named(label.student, "student" in label.removed),
            _accuracy(label),
            label.n,
            label.none_of_the_labels,
            label.failed,
        ]


def _accuracy(label: LabelAccuracy | None) -> str | None:
    return None if label is None else with_interval(label.accuracy, label.low, label.high)


def _named(name: str, removed: bool) -> str:
    return f"{name} (removed)" if removed else name
