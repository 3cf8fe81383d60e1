"""A folder's results: as plain data, and as tables for terminals, notebooks and papers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import singledispatch
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from coeval.analysis.comparison.family import PairDifference
from coeval.analysis.doubtful_answers import ServedModel
from coeval.analysis.measures import leaders
from coeval.analysis.measures.compute import AnalyzedRun, compute_run_measures
from coeval.analysis.measures.measure_tree import Measured
from coeval.analysis.measures.pair_measures import PairStudent, unlinked_group_sentences
from coeval.analysis.people.calibration import CalibratedStudent
from coeval.analysis.planned_names import ItemsBeyondTotal, LeftOut
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.result_rows import (
    compared_student_rows,
    label_rows,
    people_scale_student_rows,
    record_from_row,
    sample_rows,
    student_overall_and_task_rows,
)
from coeval.analysis.run_results import (
    BOUNDS,
    LABELS,
    NO_LABEL,
    SIMULATED,
    MetricScore,
    ModelCost,
    lacking_task_and_cut_off_sentences,
    missing_cut_off_or_empty_warnings,
    read_model_costs,
    sum_costs,
)
from coeval.analysis.sampled_answers import WHOLE, FactorSamples, SampledPart
from coeval.analysis.training.aggregate import compute_figures_of_counted_runs, list_metric_scores
from coeval.core.errors import StoreError, UsageError
from coeval.core.figures import MISSING, metric_text, missing_bounds_text, score_text
from coeval.core.html_table import Columns, MeasureRow, html_lines, record_columns, row_columns
from coeval.core.records import CHECK
from coeval.reports.content import ReportColumn, ReportTable, make_columns
from coeval.reports.costs import cost_table
from coeval.reports.difference_table import leader_differences_table
from coeval.reports.measure_table import MeasureTable, metric_as_share, single_model_metrics_table
from coeval.reports.writers.markup import as_html

if TYPE_CHECKING:
    from pandas import DataFrame

    from coeval.analysis.comparison.comparison_report import Comparison
    from coeval.analysis.training.sweep_comparison import SweepComparison
    from coeval.analysis.training.training_curves import TrainingRun


class Results(msgspec.Struct, frozen=True):
    """A folder's results, as `coeval.Run.results()` returns them: a run's scores, or the ``metrics`` of an
    output folder of ``eval-framework``, by task.

    A row of ``students``, ``labels``, ``pairs``, ``people`` and ``sampled`` has all figures declared in
    `RunMeasures`: of the first measure ``low``, ``high`` (95% interval), ``n`` and ``missing``, of another
    one ``NAME_low`` and ``NAME_high``, and as ``least`` and ``most`` its value if everything failed or
    missing were 0, or 1.

    ``students``: first the overall scores, then those of each task by name; each best first, ties by name.
    ``labels``: by task and attribute, best first. What is removed comes after what is planned.
    ``left_out``: teachers, judges and factors of planned tasks that the configuration no longer has, and
    that therefore count nowhere; nor do the items ``beyond_total``. ``notes``: how many items have labels
    alone, and which records could not be counted. ``missing``: missing parts of the plan, one sentence
    each. ``metrics`` are those of an output folder of ``eval-framework``, which has no students or labels.
    ``pairs``: students by comparisons of their answers, the strongest first; ``people``: by human labels.
    ``costs``: requests, tokens and cost by model over the life of the folder, dearest first. ``leads``:
    who leads, with items alone and with judges too as a sample, in sentences. ``gaps``: by each other
    student, by how much the first leads it. ``sampled``: by task, factor
    and student, figures of several answers to an item, if there are any. ``checks_alone``: whether all
    scores are those of checks. ``served``: the models behind the names of students and judges, if these
    differ or are several.
    """

    students: tuple[MeasureRow, ...]
    labels: tuple[MeasureRow, ...]
    simulated: bool
    notes: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    beyond_total: tuple[ItemsBeyondTotal, ...] = ()
    metrics: tuple[MetricScore, ...] = ()
    missing: tuple[str, ...] = ()
    costs: tuple[ModelCost, ...] = ()
    sampled: tuple[MeasureRow, ...] = ()
    pairs: tuple[MeasureRow, ...] = ()
    people: tuple[MeasureRow, ...] = ()
    checks_alone: bool = False
    leads: tuple[str, ...] = ()
    gaps: dict[str, PairDifference] = {}
    served: tuple[ServedModel, ...] = ()

    @property
    def label_only_tasks(self) -> frozenset[str]:
        """Return the tasks whose answers have labels and no score."""
        scored = {score.task for score in self.students if score.score is not None}
        return frozenset(label.task for label in self.labels) - scored

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON: a mapping for each record; missing values are None."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    def table(self, name: str = "students") -> Columns:
        """Return the rows of a field as columns, a record in each row, for ``pandas.DataFrame`` or
        ``polars.DataFrame``. Raises UsageError: there is no such table."""
        if name not in _TABLES:
            raise UsageError(f"results have no table {name}; there are {', '.join(_TABLES)}")
        rows = getattr(self, name)
        return row_columns(rows) if (kind := _TABLES[name]) is MeasureRow else record_columns(kind, rows)

    def frame(self, name: str = "students") -> DataFrame:
        """Return `table` as a frame of pandas. Raises UsageError: there is no such table, or no pandas."""
        try:
            from pandas import DataFrame
        except ImportError:
            raise UsageError("frame() needs pandas (pip install pandas); table() does not") from None
        return DataFrame(self.table(name))

    def __repr__(self) -> str:
        overall = [score for score in self.students if score.task is None]
        named = [f"{score.student!r} {self._format_overall_or_first_label(score)}" for score in overall]
        named += [
            f"{metric.task} {metric.metric} "
            f"{MISSING if metric.value is None else metric_text(metric.value, metric.unit)}"
            for metric in self.metrics
        ]
        omitted = len(named) - 3
        return f"Results({', '.join(named[:3] + [f'{omitted} more'] * (omitted > 0))})"

    def _format_overall_or_first_label(self, overall: MeasureRow) -> str:
        """Format a student's score, or the accuracy of its first label if it has none."""
        if (score := score_text(overall.score, overall.low, overall.high)) is not None:
            return score
        for label in self.labels:
            if label.student == overall.student:
                accuracy = score_text(label.accuracy, label.low, label.high)
                return f"{label.task} {label.attribute} {accuracy}"
        return "unscored"

    @property
    def scored(self) -> bool:
        """Check whether students have scores, or records that failed to give one."""
        return any(score.score is not None or score.failed for score in self.students)

    def tables(self) -> Iterator[ReportTable]:
        """Yield the tables that people read, except costs."""
        if self.metrics:
            yield single_model_metrics_table(self.metrics)
        if self.pairs:
            yield PAIR_TABLE.fill({row.student: record_from_row(row, PairStudent) for row in self.pairs})
        if self.scored:
            yield score_table(self)
        if self.gaps:
            yield leader_differences_table(self.gaps)
        if self.people:
            yield PEOPLE_TABLE.fill(
                {(row.scale, row.student): record_from_row(row, CalibratedStudent) for row in self.people}
            )
        if self.labels:
            yield label_accuracy_table(self.labels)
        if self.sampled:
            yield SAMPLE_TABLE.fill(
                {
                    SampledPart(row.student, row.task, row.factor or WHOLE): record_from_row(
                        row, FactorSamples
                    )
                    for row in self.sampled
                    if row.factor is None or row.pass_at is not None
                }
            )

    def _repr_html_(self) -> str:
        """Return tables and notes as escaped HTML."""
        tables = [*self.tables(), *([cost_table(self.costs)] if sum_costs(self.costs) else [])]
        notes = (
            *missing_cut_off_or_empty_warnings(self.students),
            *lacking_task_and_cut_off_sentences(self.students),
            *self.notes,
            *self.missing,
        )
        first = html_lines([*[SIMULATED] * self.simulated, *self.leads])
        return "".join([first, *map(as_html, tables), html_lines(notes)])


_TABLES = {
    "students": MeasureRow,
    "labels": MeasureRow,
    "metrics": MetricScore,
    "sampled": MeasureRow,
    "pairs": MeasureRow,
    "people": MeasureRow,
    "costs": ModelCost,
}


class LabelColumn(NamedTuple):
    """A label's accuracies by student; ``name``: the task's, with the label's if the task has several."""

    name: str
    removed: bool
    accuracies: dict[str, Measured]


def label_columns_of_unscored_tasks(results: Results) -> list[LabelColumn]:
    """Return the columns of labels that the configuration still names, in the order of ``results.labels``."""
    columns: dict[tuple[str, str], LabelColumn] = {}
    for label in results.labels:
        if label.task in results.label_only_tasks and "label" not in label.removed:
            column = LabelColumn(label.task, "task" in label.removed, {})
            columns.setdefault((label.task, label.attribute), column).accuracies[label.student] = (
                _row_measure(label)
            )
    labels_of = Counter(task for task, _ in columns)
    return [
        column._replace(name=f"{task} {attribute}") if labels_of[task] > 1 else column
        for (task, attribute), column in columns.items()
    ]


# --- For people


def score_table(results: Results) -> ReportTable:
    """Make a table of students' overall scores, and of those in several tasks, judged or by label."""
    overall = [score for score in results.students if score.task is None]
    students = [score.student for score in overall]
    judged = {score.task for score in results.students if score.score is not None or score.failed}
    by_task: dict[tuple[str, bool], dict[str, Measured]] = {}
    for score in results.students:
        if score.task is not None and score.task in judged - results.label_only_tasks:
            by_task.setdefault((score.task, "task" in score.removed), {})[score.student] = _row_measure(score)
    cells = {_mark_name(*task): scores for task, scores in by_task.items()}
    cells |= {
        _mark_name(column.name, column.removed, LABELS): column.accuracies
        for column in label_columns_of_unscored_tasks(results)
    }
    tasks = {task: [scores.get(student) for student in students] for task, scores in cells.items()}
    title = "Scores of checks" if results.pairs and results.checks_alone else "Scores"
    if len(by_task) == len(tasks) == 1 and not any("task" in score.removed for score in results.students):
        [(only, _)] = by_task
        title, tasks = f"{title} in {only}", {}
    bounds = [missing_bounds_text(score.least, score.most) for score in overall]
    columns = (
        *make_columns("student"),
        *make_columns("overall", BOUNDS, kind="points"),
        *make_columns("n", "failed", kind="count"),
        *(ReportColumn(f"task-{at}", task, "points", "", task) for at, task in enumerate(tasks)),
    )
    figures = ([_row_measure(score) for score in overall], bounds)
    counts = ([score.n for score in overall], [score.failed for score in overall])
    names = [_mark_name(score.student, bool(score.removed)) for score in overall]
    rows = zip(names, *figures, *counts, *tasks.values(), strict=True)
    return ReportTable("scores", title, columns, tuple(rows))


def label_accuracy_table(labels: Sequence[MeasureRow]) -> ReportTable:
    """Make a row for each label and student."""
    rows = [
        (
            _mark_name(label.task, "task" in label.removed),
            _mark_name(label.attribute, "label" in label.removed),
            _mark_name(label.student, "student" in label.removed),
            _row_measure(label),
            f"{label.correct:,} of {label.n:,}",
            label.none_of_the_labels if any(other.none_of_the_labels for other in labels) else None,
            missing_bounds_text(label.least, label.most),
            label.failed if any(other.failed for other in labels) else None,
        )
        for label in labels
    ]
    figures = (*make_columns("accuracy", "right", kind="points"), *make_columns(NO_LABEL, kind="count"))
    more = (*make_columns(BOUNDS, kind="points"), *make_columns("failed", kind="count"))
    columns = (*make_columns("task", "label", "student"), *figures, *more)
    return ReportTable("labels", "Label accuracy", columns, tuple(rows), names=3)


PAIR_TABLE = MeasureTable("strengths", "Students by comparisons", ("Student",), PairStudent, "student")
PEOPLE_TABLE = MeasureTable(
    "people",
    "Students by judges and by people",
    ("Scale", "Student"),
    CalibratedStudent,
    count_title="Answers",
)
SAMPLE_TABLE = MeasureTable(
    "samples", "Several answers to an item", ("Student", "Task", "Factor"), FactorSamples
)
"""Of several answers to an item: their mean, and how often one or all of them pass."""


def part_score_table(parts: Sequence[MeasureRow], title_scope: str) -> ReportTable:
    """Make a table of scores by part and student. ``title_scope``: of what the parts are."""
    figures = (*make_columns("score", kind="points"), *make_columns("n", "missing", kind="count"))
    rows = [(row.part, row.student, _row_measure(row), row.n, row.missing) for row in parts]
    by = parts[0].by
    columns = (*make_columns(by, "student"), *figures)
    return ReportTable("parts", f"Scores {title_scope} by {by}", columns, tuple(rows), names=2)


def label_accuracy_by_part_table(parts: Sequence[MeasureRow]) -> ReportTable:
    figures = (*make_columns("accuracy", "right", kind="points"), *make_columns(NO_LABEL, kind="count"))
    rows = [
        (row.part, row.student, _row_measure(row), f"{row.correct:,} of {row.n:,}", row.none_of_the_labels)
        for row in parts
    ]
    first = parts[0]
    title = f"Label accuracy in {first.task}: {first.label} by {first.by}"
    return ReportTable("parts", title, (*make_columns(first.by, "student"), *figures), tuple(rows), names=2)


def _row_measure(row: MeasureRow) -> Measured:
    value = row.accuracy if "accuracy" in row else row.score
    return Measured(value, row.low, row.high, row.n, None)


def _mark_name(name: str, removed: bool, *marks: str) -> str:
    marks = (*marks, "removed") if removed else marks
    return f"{name} ({', '.join(marks)})" if marks else name


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
    """Make a table of a run's students by task, and by labels of unscored tasks; or of an eval-framework
    folder's models by the headline metric of each task."""
    if results.metrics:
        return _metrics_paper_table(results.metrics)
    scored = [row for row in results.students if not row.removed and row.task not in results.label_only_tasks]
    tasks = list(dict.fromkeys(row.task for row in scored if row.score is not None))
    if len(tasks) == 2 and not results.label_only_tasks:
        tasks.remove(None)  # which is the same as the only task
    columns = []
    for task in tasks:
        cells = {row.student: _row_measure(row) for row in scored if row.task == task}
        best = _significantly_best_row(cells, comparisons, task, None)
        columns.append(_PaperColumn(task or "overall", cells, best))
    cells_by_label: dict[tuple[str, str], dict[str, Measured]] = {}
    for row in results.labels:
        if not row.removed:
            cells_by_label.setdefault((row.task, row.attribute), {})[row.student] = _row_measure(row)
    for (task, attribute), cells in cells_by_label.items():
        best = _significantly_best_row(cells, comparisons, task, attribute)
        columns.append(_PaperColumn(f"{task}: {attribute}", cells, best))
    if results.pairs:
        cells = {row.student: Measured(row.strength, row.low, row.high, None, None) for row in results.pairs}
        first = results.pairs[0]
        best = first.student if len(results.pairs) > 1 and first.ranks == (1, 1) else None
        columns.append(_PaperColumn("pairwise strength", cells, best))
    return _make_paper_table("student", columns, ())


def _make_paper_table(
    heading: str, columns: Sequence[_PaperColumn], notes: Iterable[str], rows: Sequence[str] = ()
) -> ReportTable:
    """Make a table for a paper from its columns; ``rows`` are by default in the order of the cells."""
    rows = rows or list(dict.fromkeys(row for column in columns for row in column.cells))
    bold = frozenset(
        (rows.index(column.best), at) for at, column in enumerate(columns, 1) if column.best is not None
    )
    figures = (ReportColumn(f"c{at}", column.title, "points") for at, column in enumerate(columns))
    cells = tuple((row, *(column.cells.get(row) for column in columns)) for row in rows)
    note = " ".join((_POINTS, *notes, *([_BOLD] * bool(bold))))
    return ReportTable("paper", "", (*make_columns(heading), *figures), cells, note=note, bold=bold)


def _significantly_best_row(
    cells: Mapping[str, Measured], comparisons: Sequence[Comparison], task: str | None, label: str | None
) -> str | None:
    """Return the row with the highest score, if it is significantly better than every other."""
    scores = {name: cell.value for name, cell in cells.items() if cell.value is not None}
    best = max(scores, key=scores.__getitem__, default=None)
    beaten = {
        comparison.a if comparison.difference > 0 else comparison.b
        for comparison in comparisons
        if comparison.task == task
        and (comparison.metric == label if label is not None else comparison.family in ("overall", "task"))
        and comparison.significant
        and best == (comparison.b if comparison.difference > 0 else comparison.a)
    }
    return best if best is not None and len(scores) > 1 and beaten >= scores.keys() - {best} else None


def _metrics_paper_table(metrics: Sequence[MetricScore]) -> ReportTable:
    """Make a row for each model, with the first metric of each task."""
    cells_by_task: dict[str, dict[str, Measured]] = {}
    headline: dict[str, str] = {}
    for metric in metrics:
        cells = cells_by_task.setdefault(metric.task, {})
        if metric.model not in cells:
            cells[metric.model] = metric_as_share(metric.value, (metric.low, metric.high), metric.unit)
            headline.setdefault(metric.task, metric.metric)
    columns = [_PaperColumn(task, cells) for task, cells in cells_by_task.items()]
    return _make_paper_table("model", columns, (f"{task}: {metric}." for task, metric in headline.items()))


def sweep_paper_table(run: TrainingRun, comparison: SweepComparison) -> ReportTable:
    """Make a row for each checkpoint, with headline metrics, and their mean over several tasks."""
    best_by_task = {choice.task: str(choice.best.step) for choice in comparison.choices if not choice.peers}
    columns = []
    if comparison.overall:
        means = {
            str(point.step): Measured(point.mean, *point.ci95, None, None) for point in comparison.overall
        }
        columns.append(_PaperColumn("overall", means, best_by_task.get(None)))
    for task, curve in run.curves.items():
        cells = {str(at.step): metric_as_share(at.mean, at.ci95, curve.unit) for at in curve.points}
        columns.append(_PaperColumn(task, cells, best_by_task.get(task)))
    steps = sorted({int(step) for column in columns for step in column.cells})
    notes = (f"{task}: {curve.metric}." for task, curve in run.curves.items())
    return _make_paper_table("step", columns, notes, [str(step) for step in steps])


# --- What each student scored
#
# If the run's configuration is known, the scores of planned tasks hold only what it plans. Students and tasks
# that it no longer names keep their figures, marked; such a task enters no overall score.


def read_results(reader: Reader, notes: Sequence[str] = (), measured: AnalyzedRun | None = None) -> Results:
    """Read the results of a folder; ``measured`` saves measuring them again, ``notes`` are added."""
    try:
        costs = read_model_costs(reader.folder / "usage.json")
    except StoreError as error:
        costs, notes = (), (*notes, f"its cost is unknown: {error}")
    scored = _read_scores(reader, measured)
    return msgspec.structs.replace(
        scored, notes=(*scored.notes, *notes), costs=costs, served=reader.stand_ins_and_mixtures()
    )


@singledispatch
def _read_scores(reader: Reader, *_: object) -> Results:
    raise NotImplementedError(type(reader).__name__)


@_read_scores.register
def _(reader: OutputReader, *_: object) -> Results:
    figures = compute_figures_of_counted_runs(reader)
    metrics = list_metric_scores(reader, figures)
    return Results((), (), simulated=reader.simulated, notes=reader.notes(), metrics=metrics)


@_read_scores.register
def _(reader: RunReader, measured: AnalyzedRun | None) -> Results:
    """Read a run's scores, labels, samples, comparisons and human labels."""
    measures, grid, _ = measured or compute_run_measures(reader, _PARTS)
    ranks, pairs = measures.ranking, measures.pairs
    leads = (
        leaders.leader_tie_and_judges_sentences(measures.students, ranks, grid.looks) if ranks.order else ()
    )
    return Results(
        students=student_overall_and_task_rows(measures, reader.planned),
        labels=label_rows(measures, reader.planned),
        sampled=tuple(sample_rows(measures.samples)),
        pairs=compared_student_rows(pairs),
        people=people_scale_student_rows(measures.people),
        gaps=ranks.leader_differences,
        leads=(*(unlinked_group_sentences(pairs) if pairs is not None else ()), *leads),
        simulated=reader.simulated,
        notes=(
            *leaders.label_only_notes(grid, measures.labels),
            *leaders.failed_or_factor_unscored_notes(reader, grid),
            *reader.notes(),
        ),
        left_out=reader.left_out,
        beyond_total=reader.beyond_total,
        checks_alone=reader.rows(_ALL_CHECKS_SQL) == [(True,)],
    )


_PARTS = ("students", "ranking", "labels", "samples", "pairs", "people", "removed")
_ALL_CHECKS_SQL = f"SELECT bool_and(judge = '{CHECK}') FROM scores WHERE value IS NOT NULL"  # noqa: S608 - ours
