"""A folder's results: as plain data, and as tables for terminals, notebooks and papers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import singledispatch
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from coeval.analysis.doubtful_answers import ServedModel
from coeval.analysis.measures.compute import AnalyzedRun, compute_run_measures
from coeval.analysis.measures.leaders import leader_sentences
from coeval.analysis.measures.measure_rows import row_record
from coeval.analysis.measures.measure_tree import Measured
from coeval.analysis.measures.pair_measures import PairStudent, unlinked_group_sentences
from coeval.analysis.people.calibration import CalibratedStudent
from coeval.analysis.planned_names import BeyondTotal, LeftOut
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.result_rows import label_rows, pair_rows, people_rows, sample_rows, student_rows
from coeval.analysis.run_results import (
    BOUNDS,
    LABELS,
    NO_LABEL,
    SIMULATED,
    MetricScore,
    ModelCost,
    answer_notes,
    answer_warnings,
    bill,
    model_costs,
)
from coeval.analysis.sampled_answers import WHOLE, FactorSamples
from coeval.analysis.score_notes import label_task_notes, unscored_notes
from coeval.analysis.training.sample_figures import metric_scores, task_figures
from coeval.core.errors import StoreError, UsageError
from coeval.core.figures import MISSING, metric_text, missing_bounds_text, score_text
from coeval.core.html_table import Columns, MeasureRow, html_lines, record_columns, row_columns
from coeval.core.records import CHECK
from coeval.core.text import dollars
from coeval.reports.content import Cell, ReportColumn, ReportTable, make_columns
from coeval.reports.measure_table import (
    TableHeading,
    benchmark_metrics_table,
    measure_table,
    metric_in_points,
)
from coeval.reports.writers.markup import as_html

if TYPE_CHECKING:
    from pandas import DataFrame

    from coeval.analysis.comparison.comparison_report import Comparison
    from coeval.analysis.training.sweep_comparison import SweepComparison
    from coeval.analysis.training.training_curves import TrainingRun


class Results(msgspec.Struct, frozen=True):
    """What is in a folder, as `coeval.Run.results()` returns it: a run's scores, or the ``metrics`` of an
    output folder of ``eval-framework``, by task.

    A row of ``students``, ``labels``, ``pairs``, ``people`` and ``sampled`` has all figures that are
    declared of the thing in `RunMeasures`: of the first measure ``low``, ``high`` (95% interval), ``n`` and
    ``missing``, of another one ``NAME_low`` and ``NAME_high``, and under ``least`` and ``most`` what it would
    be if all that failed or is missing were 0, or 1.

    ``students``: first the overall scores, then those of each task by name; each best first, ties
    by name. ``labels``: by task and attribute, best first. What is removed stands after what is
    planned. ``left_out``: teachers, judges and factors of planned tasks that the configuration no
    longer holds, and that therefore count nowhere; nor do the items ``beyond_total``. ``notes``: how many
    items have labels alone, and what of the records could not be counted. ``missing``: what of the plan is
    not there, one sentence each.
    ``metrics`` are those of an output folder of ``eval-framework``, which has no students or labels.
    ``pairs``: students by comparisons of their answers, the strongest first; ``people``: by human labels.
    ``costs``: what its models were sent over the life of the folder, and what that cost, dearest first.
    ``leads``: who leads, over items and over items and judges, in sentences.
    ``sampled``: by task, factor and student, what several answers to an item show, where there are any.
    ``checks_alone``: whether all scores are those of checks. ``served``: the models behind the names of
    students and judges, where those are others or several.
    """

    students: tuple[MeasureRow, ...]
    labels: tuple[MeasureRow, ...]
    simulated: bool
    notes: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    beyond_total: tuple[BeyondTotal, ...] = ()
    metrics: tuple[MetricScore, ...] = ()
    missing: tuple[str, ...] = ()
    costs: tuple[ModelCost, ...] = ()
    sampled: tuple[MeasureRow, ...] = ()
    pairs: tuple[MeasureRow, ...] = ()
    people: tuple[MeasureRow, ...] = ()
    checks_alone: bool = False
    leads: tuple[str, ...] = ()
    served: tuple[ServedModel, ...] = ()

    @property
    def only_labelled(self) -> frozenset[str]:
        """The tasks in which labels were compared and nothing was scored."""
        scored = {score.task for score in self.students if score.score is not None}
        return frozenset(label.task for label in self.labels) - scored

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON: a key for each field, a list of mappings for each tuple of records.

        What there is no value for is None.
        """
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    def table(self, name: str = "students") -> Columns:
        """Return ``students``, ``labels``, ``metrics``, ``sampled``, ``pairs``, ``people`` or ``costs`` as
        columns, for ``pandas.DataFrame`` or ``polars.DataFrame``: a row for each record, a column for each of
        its figures.

        Raises UsageError: there is no such table.
        """
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
        named = [f"{score.student!r} {self._figure(score)}" for score in overall]
        named += [
            f"{metric.task} {metric.metric} "
            f"{MISSING if metric.value is None else metric_text(metric.value, metric.unit)}"
            for metric in self.metrics
        ]
        shown = named[:3]
        rest = len(named) - len(shown)
        return f"Results({', '.join(shown + [f'{rest} more'] * bool(rest))})"

    def _figure(self, overall: MeasureRow) -> str:
        """A student's score, or where there is none, its first label's accuracy."""
        if (score := score_text(overall.score, overall.low, overall.high)) is not None:
            return score
        for label in self.labels:
            if label.student == overall.student:
                accuracy = score_text(label.accuracy, label.low, label.high)
                return f"{label.task} {label.attribute} {accuracy}"
        return "unscored"

    @property
    def scored(self) -> bool:
        """Whether students have scores, or could have them but for what failed."""
        return any(score.score is not None or score.failed for score in self.students)

    def tables(self) -> Iterator[ReportTable]:
        """Return what people read of it, but for costs."""
        if self.metrics:
            yield benchmark_metrics_table(self.metrics)
        if self.pairs:
            yield pair_table({row.student: row_record(row, PairStudent) for row in self.pairs})
        if self.scored:
            yield score_table(self)
        if self.people:
            people = {(row.scale, row.student): row_record(row, CalibratedStudent) for row in self.people}
            yield people_table(people)
        if self.labels:
            yield label_accuracy_table(self.labels)
        if self.sampled:
            yield sample_table(
                {
                    (row.student, row.task, row.factor or WHOLE): row_record(row, FactorSamples)
                    for row in self.sampled
                    if row.factor is None or row.pass_at is not None
                }
            )

    def _repr_html_(self) -> str:
        """Tables and notes, escaped."""
        tables = [*self.tables(), *([cost_table(self.costs)] if bill(self.costs) else [])]
        said = (*answer_warnings(self.students), *answer_notes(self.students), *self.notes, *self.missing)
        first = html_lines([*[SIMULATED] * self.simulated, *self.leads])
        return "".join([first, *map(as_html, tables), html_lines(said)])


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
    """A label's accuracies by student; ``name``: the task's, with the label's where it has several."""

    name: str
    removed: bool
    accuracies: dict[str, Measured]


def label_columns(results: Results) -> list[LabelColumn]:
    """One for each label that the configuration still names, in the order of ``results.labels``."""
    found: dict[tuple[str, str], LabelColumn] = {}
    for label in results.labels:
        if label.task in results.only_labelled and "label" not in label.removed:
            column = LabelColumn(label.task, "task" in label.removed, {})
            found.setdefault((label.task, label.attribute), column).accuracies[label.student] = _measured(
                label
            )
    labels_of = Counter(task for task, _ in found)
    return [
        column._replace(name=f"{task} {attribute}") if labels_of[task] > 1 else column
        for (task, attribute), column in found.items()
    ]


# --- For people


def score_table(results: Results) -> ReportTable:
    """Students' overall scores, and those in each task where there are several, judged or by label."""
    overall = [score for score in results.students if score.task is None]
    students = [score.student for score in overall]
    judged = {score.task for score in results.students if score.score is not None or score.failed}
    by_task: dict[tuple[str, bool], dict[str, Measured]] = {}
    for score in results.students:
        if score.task is not None and score.task in judged - results.only_labelled:
            by_task.setdefault((score.task, "task" in score.removed), {})[score.student] = _measured(score)
    cells = {_named(*task): scores for task, scores in by_task.items()}
    cells |= {_named(one.name, one.removed, LABELS): one.accuracies for one in label_columns(results)}
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
            missing_bounds_text(label.least, label.most),
            label.failed if any(one.failed for one in labels) else None,
        )
        for label in labels
    ]
    figures = (*make_columns("accuracy", "right", kind="points"), *make_columns(NO_LABEL, kind="count"))
    more = (*make_columns(BOUNDS, kind="points"), *make_columns("failed", kind="count"))
    columns = (*make_columns("task", "label", "student"), *figures, *more)
    return ReportTable("labels", "Label accuracy", columns, tuple(rows), names=3)


def pair_table(students: Mapping[str, PairStudent]) -> ReportTable:
    """Students by comparisons of their answers."""
    named = TableHeading("strengths", "Students by comparisons", ("Student",), "student")
    return measure_table(named, PairStudent, students)


def people_table(students: Mapping[tuple[str, str], CalibratedStudent]) -> ReportTable:
    """By scale and student: by judges and by people."""
    named = TableHeading("people", "Students by judges and by people", ("Scale", "Student"))
    return measure_table(named, CalibratedStudent, students, "Answers")


def sample_table(samples: Mapping[tuple[str, str, str], FactorSamples]) -> ReportTable:
    """Of several answers to an item: the mean over all of them, and how often one or all of them pass."""
    named = TableHeading("samples", "Several answers to an item", ("Student", "Task", "Factor"))
    return measure_table(named, FactorSamples, samples)


def part_score_table(parts: Sequence[MeasureRow], where: str) -> ReportTable:
    """By part and student."""
    figures = (*make_columns("score", kind="points"), *make_columns("n", "missing", kind="count"))
    rows = [(one.part, one.student, _measured(one), one.n, one.missing) for one in parts]
    by = parts[0].by
    columns = (*make_columns(by, "student"), *figures)
    return ReportTable("parts", f"Scores {where} by {by}", columns, tuple(rows), names=2)


def part_label_table(parts: Sequence[MeasureRow]) -> ReportTable:
    """By part and student, of one label."""
    figures = (*make_columns("accuracy", "right", kind="points"), *make_columns(NO_LABEL, kind="count"))
    rows = [
        (one.part, one.student, _measured(one), f"{one.correct:,} of {one.n:,}", one.none_of_the_labels)
        for one in parts
    ]
    first = parts[0]
    title = f"Label accuracy in {first.task}: {first.label} by {first.by}"
    return ReportTable("parts", title, (*make_columns(first.by, "student"), *figures), tuple(rows), names=2)


def _measured(one: MeasureRow) -> Measured:
    value = one.accuracy if "accuracy" in one else one.score
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
            *make_columns(heading),
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
            cells[one.model] = metric_in_points(one.value, (one.low, one.high), one.unit)
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
        cells = {str(at.step): metric_in_points(at.mean, at.ci95, curve.unit) for at in curve.points}
        columns.append(_PaperColumn(task, cells, sure.get(task)))
    steps = sorted({int(step) for column in columns for step in column.cells})
    notes = (f"{task}: {curve.metric}." for task, curve in run.curves.items())
    return _paper("step", columns, notes, [str(step) for step in steps])


# --- What each student scored
#
# Where it is known what the run's configuration plans, only that is in the scores of planned tasks. Students
# and tasks that it no longer names keep their figures, marked; a task of these is in no overall score.


def results(reader: Reader, notes: Sequence[str] = (), measured: AnalyzedRun | None = None) -> Results:
    """The scores of what is read, and perhaps ``measured``; ``notes``: what else is to be known of them."""
    try:
        costs = model_costs(reader.folder / "usage.json")
    except StoreError as error:
        costs, notes = (), (*notes, f"its cost is unknown: {error}")
    found = _scored(reader, measured)
    return msgspec.structs.replace(found, notes=(*found.notes, *notes), costs=costs, served=reader.served())


@singledispatch
def _scored(reader: Reader, *_: object) -> Results:
    raise NotImplementedError(type(reader).__name__)


@_scored.register
def _(reader: OutputReader, *_: object) -> Results:
    """A benchmark's own figures."""
    figures = task_figures(reader)
    metrics = metric_scores(reader, figures)
    return Results((), (), simulated=reader.simulated, notes=reader.notes(), metrics=metrics)


@_scored.register
def _(reader: RunReader, measured: AnalyzedRun | None) -> Results:
    measures, grid, _ = measured or compute_run_measures(reader, _PARTS)
    ranks, pairs = measures.ranking, measures.pairs
    leads = leader_sentences(measures.students, ranks, grid.looks) if ranks.order else ()
    return Results(
        students=student_rows(measures, reader.planned),
        labels=label_rows(measures, reader.planned),
        sampled=tuple(sample_rows(measures.samples)),
        pairs=pair_rows(pairs),
        people=people_rows(measures.people),
        leads=(*(unlinked_group_sentences(pairs) if pairs is not None else ()), *leads),
        simulated=reader.simulated,
        notes=(*label_task_notes(grid, measures.labels), *unscored_notes(reader, grid), *reader.notes()),
        left_out=reader.left_out,
        beyond_total=reader.beyond_total,
        checks_alone=reader.rows(_ALL_CHECKED) == [(True,)],
    )


_PARTS = ("students", "ranking", "labels", "samples", "pairs", "people", "removed")
_ALL_CHECKED = f"SELECT bool_and(judge = '{CHECK}') FROM scores WHERE value IS NOT NULL"  # noqa: S608 - ours
