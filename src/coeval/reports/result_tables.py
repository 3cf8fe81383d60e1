"""Results as tables, for a terminal and for a paper: models in rows, tasks in columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from coeval.analysis.measures.measured import Measured
from coeval.analysis.run_results import LABELS, bill, both_scales, label_columns
from coeval.core.figures import bounds_text
from coeval.core.html_table import MeasureRow
from coeval.core.text import dollars
from coeval.reports.content import Cell, ReportColumn, ReportTable, columns_of
from coeval.reports.measure_table import in_points

if TYPE_CHECKING:  # the analysis loads numpy, scipy and duckdb, which a table does not need
    from coeval.analysis.breakdown import LabelPart, PartScore
    from coeval.analysis.comparison.comparison_report import Comparison
    from coeval.analysis.run_results import MetricScore, ModelCost, Results
    from coeval.analysis.training.sweep_comparison import SweepComparison
    from coeval.analysis.training.training_curves import TrainingRun

BOUNDS = "bounds"
"""The column of scores with all that is missing at 0, and at 1."""
NO_LABEL = "no label"
"""The column of answers that are none of the labels."""

# --- For a terminal


def score_table(results: Results) -> ReportTable:
    """Students' overall scores, and those in each task where there are several, judged or by label."""
    overall = [score for score in results.students if score.task is None]
    students = [score.student for score in overall]
    judged = {score.task for score in results.students if score.score is not None or score.failed}
    by_task: dict[tuple[str, bool], dict[str, MeasureRow]] = {}
    for score in results.students:
        if score.task is not None and score.task in judged - results.only_labelled:
            by_task.setdefault((score.task, "task" in score.removed), {})[score.student] = score
    tasks = {_named(*task): _cells(scores, students) for task, scores in by_task.items()}
    tasks |= {
        _named(column.name, column.removed, LABELS): _cells(column.accuracies, students)
        for column in label_columns(results)
    }
    title = "Scores of checks" if results.pairs and results.checks_alone else "Scores"
    if len(by_task) == len(tasks) == 1 and not any("task" in score.removed for score in results.students):
        [(only, _)] = by_task
        title, tasks = f"{title} in {only}", {}
    bounds = [bounds_text(score.least, score.most) for score in overall]
    columns = (
        *columns_of("student"),
        *columns_of("overall", BOUNDS, kind="points"),
        *columns_of("n", "failed", kind="count"),
        *(ReportColumn(f"task-{at}", task, "points", "", task) for at, task in enumerate(tasks)),
    )
    figures = ([_measured(score) for score in overall], bounds)
    counts = ([score.n for score in overall], [score.failed for score in overall])
    names = [_named(score.student, bool(score.removed)) for score in overall]
    rows = zip(names, *figures, *counts, *tasks.values(), strict=True)
    return ReportTable("scores", title, columns, tuple(rows))


def label_accuracy_table(labels: Sequence[MeasureRow]) -> ReportTable:
    """Of each label of each task."""
    rows = [
        (
            _named(label.task, "task" in label.removed),
            _named(label.attribute, "label" in label.removed),
            _named(label.student, "student" in label.removed),
            _measured(label),
            f"{label.correct:,} of {label.n:,}",
            label.none_of_the_labels if any(one.none_of_the_labels for one in labels) else None,
            bounds_text(label.least, label.most),
            label.failed if any(one.failed for one in labels) else None,
        )
        for label in labels
    ]
    figures = (*columns_of("accuracy", "right", kind="points"), *columns_of(NO_LABEL, kind="count"))
    more = (*columns_of(BOUNDS, kind="points"), *columns_of("failed", kind="count"))
    columns = (*columns_of("task", "label", "student"), *figures, *more)
    return ReportTable("labels", "Label accuracy", columns, tuple(rows), names=3)


def pair_table(pairs: Sequence[MeasureRow]) -> ReportTable:
    """Students by comparisons of their answers."""
    figures = (*columns_of("strength", "win rate", kind="points"), *columns_of("ties", "n", kind="count"))
    rows = [
        (
            one.student,
            "–".join(map(str, dict.fromkeys(one.ranks))),
            Measured(one.strength, one.low, one.high, None, None),
            one.win_rate,
            one.ties,
            one.comparisons,
        )
        for one in pairs
    ]
    columns = (*columns_of("student"), *columns_of("rank", kind="count"), *figures)
    note = "Strength: expected wins in 100 comparisons with the others. docs/pairs.md"
    return ReportTable("pairs", "Pairwise comparisons", columns, tuple(rows), note)


def people_table(people: Sequence[MeasureRow]) -> ReportTable:
    """Students by judges and by people."""
    figures = (*columns_of("judged", "human scale", kind="points"), *columns_of("labels", kind="count"))
    rows = [(one.student, *(text or None for text in both_scales(one)), one.labels) for one in people]
    title = f"By judges and by people, {people[0].scale}, in points"
    note = "Human scale: by labels, and judged scores where they help. docs/people.md"
    return ReportTable("people", title, (*columns_of("student"), *figures), tuple(rows), note)


def sampled_table(sampled: Sequence[MeasureRow]) -> ReportTable:
    """Of several answers to an item: the mean over all of them, and how often one or all of them pass."""
    rows: list[tuple[Cell, ...]] = []
    for each in (each for each in sampled if each.factor is None or each.pass_at is not None):
        means = [
            Measured(each[name], each[low], each[high], None, None)
            for name, low, high in (
                ("mean", "low", "high"),
                ("pass_at", "pass_at_low", "pass_at_high"),
                ("pass_all", "pass_all_low", "pass_all_high"),
            )
        ]
        rows.append(
            (
                each.task,
                each.factor or "(answer)",
                each.student,
                means[0],
                each.item_se,
                each.sample_sd,
                *(one if one.value is not None else None for one in means[1:]),
                each.samples,
            )
        )
    figures = columns_of("mean@N", "item s.e.", "sd in item", "pass@N", "pass^N", kind="points")
    names = columns_of("task", "factor", "student")
    title = "Several answers to an item"
    return ReportTable(
        "samples", title, (*names, *figures, ReportColumn("samples", "N", "count")), tuple(rows), names=3
    )


def part_score_table(parts: Sequence[PartScore], where: str) -> ReportTable:
    """By part and student."""
    figures = (*columns_of("score", kind="points"), *columns_of("n", "failed", kind="count"))
    rows = [(*_part(one), _measured(one), one.n, one.failed) for one in parts]
    by = parts[0].by
    columns = (*columns_of(by, "student"), *figures)
    return ReportTable("parts", f"Scores {where} by {by}", columns, tuple(rows), names=2)


def part_label_table(parts: Sequence[LabelPart]) -> ReportTable:
    """By part and student, of one label."""
    figures = (*columns_of("accuracy", "right", kind="points"), *columns_of(NO_LABEL, kind="count"))
    rows = [
        (*_part(one), _measured(one), f"{one.correct:,} of {one.n:,}", one.none_of_the_labels)
        for one in parts
    ]
    first = parts[0]
    title = f"Label accuracy in {first.task}: {first.label} by {first.by}"
    return ReportTable("parts", title, (*columns_of(first.by, "student"), *figures), tuple(rows), names=2)


def _part(one: PartScore | LabelPart) -> tuple[str, str]:
    return one.part, _named(one.student, "student" in one.removed)


def _cells(found: Mapping[str, MeasureRow], students: Sequence[str]) -> list[Measured | None]:
    return [_measured(found[student]) if student in found else None for student in students]


def _measured(one: MeasureRow | PartScore | LabelPart) -> Measured:
    value = one.accuracy if hasattr(one, "accuracy") else one.score
    return Measured(value, one.low, one.high, one.n, None)


def _named(name: str, removed: bool, *marks: str) -> str:
    marks = (*marks, "removed") if removed else marks
    return f"{name} ({', '.join(marks)})" if marks else name


def cost_table(costs: Sequence[ModelCost]) -> ReportTable:
    """A row for each model, and the sum of several; ``+``: and what answers without a known price cost."""
    rows: list[tuple[Cell, ...]] = [
        (
            cost.model,
            cost.requests,
            cost.input_tokens,
            cost.output_tokens,
            _cost(cost.cost_usd, partial=bool(cost.unpriced)),
            cost.perhaps_usd or None,
            cost.priced_by,
        )
        for cost in costs
    ]
    if len(costs) > 1:
        of_all, counts = bill(costs), (sum(row[at] for row in rows) for at in (1, 2, 3))  # type: ignore[misc]
        perhaps = sum(cost.perhaps_usd for cost in costs) or None
        rows.append(("total", *counts, _cost(of_all.cost_usd, partial=of_all.is_partial), perhaps, None))
    columns = (
        ReportColumn("model", "Model"),
        ReportColumn("requests", "Requests", "count", "Probes, samples and retries among them"),
        ReportColumn("input", "Tokens in", "count", terminal="input"),
        ReportColumn("output", "Tokens out", "count", terminal="output"),
        ReportColumn("cost", "Cost", "usd"),
        ReportColumn("perhaps", "Perhaps", "usd", "Requests that may have been billed"),
        ReportColumn("priced_by", "Price from", terminal=""),
    )
    title = "Cost by model, in tokens and US dollars"
    return ReportTable("models", title, columns, tuple(rows), bold=frozenset({(len(costs), 0)}))


def _cost(usd: float | None, *, partial: bool) -> Cell:
    if not partial:
        return usd
    return f"{dollars(usd)}+" if usd else "unknown"


# --- For a paper
#
# The best in bold where it is significantly ahead of all others.

_POINTS = "In points, 0 to 100, with 95% intervals."
_BOLD = "Bold: significantly ahead of every other row (p < 0.05, adjusted for all comparisons)."


class _PaperColumn(NamedTuple):
    """Cells by row, and the row whose cell is bold, if any."""

    title: str
    cells: Mapping[str, Measured]
    best: str | None = None


def paper_table(results: Results, comparisons: Sequence[Comparison]) -> ReportTable:
    """Of a run, students by tasks and by labels that have no other score; of eval-framework, models by the
    headline metric of each task."""
    if results.metrics:
        return _of_metrics(results.metrics)
    scored = [one for one in results.students if not one.removed and one.task not in results.only_labelled]
    tasks = list(dict.fromkeys(one.task for one in scored if one.score is not None))
    if len(tasks) == 2 and not results.only_labelled:
        tasks.remove(None)  # which is the same as the only task
    columns = []
    for task in tasks:
        cells = {one.student: _measured(one) for one in scored if one.task == task}
        columns.append(_PaperColumn(task or "overall", cells, _best(cells, comparisons, task, None)))
    labels = [one for one in results.labels if not one.removed]
    for task, attribute in dict.fromkeys((one.task, one.attribute) for one in labels):
        cells = {
            one.student: _measured(one) for one in labels if (one.task, one.attribute) == (task, attribute)
        }
        best = _best(cells, comparisons, task, attribute)
        columns.append(_PaperColumn(f"{task}: {attribute}", cells, best))
    if results.pairs:
        cells = {one.student: Measured(one.strength, one.low, one.high, None, None) for one in results.pairs}
        first = results.pairs[0]
        best = first.student if len(results.pairs) > 1 and first.ranks == (1, 1) else None
        columns.append(_PaperColumn("pairwise strength", cells, best))
    return _paper("student", columns, ())


def _paper(
    heading: str, columns: Sequence[_PaperColumn], notes: Iterable[str], rows: Sequence[str] = ()
) -> ReportTable:
    rows = rows or list(dict.fromkeys(row for column in columns for row in column.cells))
    bold = frozenset(
        (rows.index(column.best), at) for at, column in enumerate(columns, 1) if column.best is not None
    )
    return ReportTable(
        "paper",
        "",
        (
            *columns_of(heading),
            *(ReportColumn(f"c{at}", one.title, "points") for at, one in enumerate(columns)),
        ),
        tuple((row, *(column.cells.get(row) for column in columns)) for row in rows),
        note=" ".join((_POINTS, *notes, *([_BOLD] * bool(bold)))),
        bold=bold,
    )


def _best(
    cells: Mapping[str, Measured], comparisons: Sequence[Comparison], task: str | None, label: str | None
) -> str | None:
    """The row with the highest score, if it is significantly better than every other."""
    scores = {name: cell.value for name, cell in cells.items() if cell.value is not None}
    best = max(scores, key=scores.__getitem__, default=None)
    beaten = {
        one.a if one.difference > 0 else one.b
        for one in comparisons
        if one.task == task
        and (one.metric == label if label is not None else one.family in ("overall", "task"))
        and one.significant
        and best == (one.b if one.difference > 0 else one.a)
    }
    return best if best is not None and len(scores) > 1 and beaten >= scores.keys() - {best} else None


def _of_metrics(metrics: Sequence[MetricScore]) -> ReportTable:
    """A row for each model."""
    columns: dict[str, dict[str, Measured]] = {}
    headline: dict[str, str] = {}
    for one in metrics:
        cells = columns.setdefault(one.task, {})
        if one.model not in cells:
            cells[one.model] = in_points((one.value, one.low, one.high), one.unit)
            headline.setdefault(one.task, one.metric)
    found = [_PaperColumn(task, cells) for task, cells in columns.items()]
    return _paper("model", found, (f"{task}: {metric}." for task, metric in headline.items()))


def sweep_paper_table(run: TrainingRun, found: SweepComparison) -> ReportTable:
    """A row for each checkpoint: its mean over the tasks, where there are several, and headline metrics."""
    sure = {one.task: str(one.best.step) for one in found.choices if not one.peers}
    columns = []
    if found.overall:
        means = {str(one.step): Measured(one.mean, *one.ci95, None, None) for one in found.overall}
        columns.append(_PaperColumn("overall", means, sure.get(None)))
    for task, curve in run.curves.items():
        cells = {
            str(at.step): in_points((at.mean, *(at.ci95 or (None, None))), curve.unit) for at in curve.points
        }
        columns.append(_PaperColumn(task, cells, sure.get(task)))
    steps = sorted({int(step) for column in columns for step in column.cells})
    notes = (f"{task}: {curve.metric}." for task, curve in run.curves.items())
    return _paper("step", columns, notes, [str(step) for step in steps])
