"""Where do students differ: by task and factor, by attribute, by teacher and by judge."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from coeval.analysis.measures.label_measures import Labels, LabelStudent
from coeval.analysis.measures.measure_tree import Measured
from coeval.analysis.measures.ranking import Ranking
from coeval.analysis.measures.student_measures import Named, StudentMeasures
from coeval.core.figures import format_points
from coeval.core.text import join_names
from coeval.reports.charts.plots import NOTEWORTHY, HeatMap, heat_map
from coeval.reports.content import (
    Cell,
    Picture,
    ReportColumn,
    ReportSection,
    ReportTable,
    link_rows,
    make_columns,
)
from coeval.reports.experiment.judges_section import name_and_level_table
from coeval.reports.experiment.run_evidence import RunEvidence
from coeval.reports.measure_table import bounds_unless_equal, column_of_field, columns_by_field, format_ranks

# --- Residuals of a grid

Cells = Mapping[tuple[str, str], float]
"""By (row, column)."""


def column_means(cells: Cells) -> dict[str, float]:
    """Return the mean of each column over the rows that have it."""
    values_by_column: defaultdict[str, list[float]] = defaultdict(list)
    for (_, column), value in cells.items():
        values_by_column[column].append(value)
    return {column: sum(values) / len(values) for column, values in values_by_column.items()}


def interaction_residuals(cells: Cells) -> dict[tuple[str, str], float]:
    """Return ``value − row mean − column mean + grand mean`` of each cell present."""
    columns = column_means(cells)
    rows = column_means({(column, row): value for (row, column), value in cells.items()})
    grand = sum(cells.values()) / len(cells) if cells else 0.0
    return {
        (row, column): value - rows[row] - columns[column] + grand for (row, column), value in cells.items()
    }


# Of attributes in a picture: those whose scores differ most among students.
MOST_VALUES = 40
# Clauses of one sentence; the heat map shows all.
_MOST_CLAUSES = 3
_UNEXPECTED = "Difference from what the averages of the student and of the row predict"


class _PartScore(NamedTuple):
    """A student's mean score on a part of the answers; ``query`` is the link that chooses these."""

    student: str
    name: str
    score: Measured
    query: tuple[tuple[str, str], ...]

    @property
    def task(self) -> str:
        return dict(self.query)["task"]


def where_students_differ_section(evidence: RunEvidence) -> ReportSection:
    """Make the section of scores by task and factor, attribute, judge and teacher, and of label recall."""
    measures, students = evidence.measured.measures, evidence.students
    by_student = {name: measures.students[name] for name in students}
    several = len(evidence.measured.grid.tasks) > 1
    tasks, factors = list(_task_scores(by_student)), list(_factor_scores(by_student, several_tasks=several))
    split = {part.task for part in factors if len(by_student[part.student].by_task_aspect[part.task]) > 1}
    leaves = [part for part in factors if part.task in split]
    leaves += [part for part in tasks if part.task not in split]
    parts = sorted({*tasks, *leaves}, key=lambda part: (students.index(part.student), part.name))
    values = list(_group_scores(by_student, lambda student: student.by_attr_value, "attribute"))
    texts = [conclusion.text for conclusion in evidence.measured.conclusions if conclusion.topic == "where"]
    texts += _unusual_score_sentences(leaves)
    check_means = measures.checks or {}
    checks = [part for part in factors if tuple(name for _, name in part.query[1:]) in check_means]
    expected = interaction_residuals(_values_by_cell(tasks)) | interaction_residuals(_values_by_cell(leaves))
    tables = [
        _part_table("parts", "Tasks and factors", parts, expected),
        _part_table("values", "Attributes", values),
    ]
    if checks:
        tables.append(_part_table("checks", "Checks", checks))
    pictures = [
        _part_heat_map(tables[0], "factors", "Scores by task and factor", _part_names(parts), students),
    ]
    if widest := _keep_names_that_differ_most(values):
        pictures.append(
            _part_heat_map(tables[1], "attributes", "Scores by attribute value", widest, students)
        )
    groups = {
        "judge": list(_group_scores(by_student, lambda student: student.by_judge, "judge")),
        "teacher": list(_group_scores(by_student, lambda student: student.by_teacher, "teacher")),
    }
    for role, group in groups.items():
        if evidence.is_choice or (len(_part_names(group)) > 1 and len(students) > 1):
            tables.append(_part_table(f"by-{role}", f"Scores by {role} and student", group))
    counts = {name: student.levels for name, student in by_student.items()}
    levels = name_and_level_table("levels", "Levels by student", counts)
    recalls = recall_table(measures.labels, students)
    if recalls.rows:
        pictures.append(recall_picture(recalls, students))
    tables += [levels, recalls]
    return ReportSection.with_rows("where", "Where?", texts, pictures, tables, tables[0].name)


def _task_scores(students: Mapping[str, StudentMeasures]) -> Iterator[_PartScore]:
    for student, measures in students.items():
        for task, score in measures.score_by_task.items():
            yield _PartScore(student, task, score, (("student", student), ("task", task)))


def _factor_scores(students: Mapping[str, StudentMeasures], *, several_tasks: bool) -> Iterator[_PartScore]:
    for student, measures in students.items():
        for task, factors in measures.by_task_aspect.items():
            for factor, score in factors.items():
                name = f"{task} · {factor}" if several_tasks else factor
                query = (("student", student), ("task", task), ("factor", factor))
                yield _PartScore(student, name, score, query)


def _group_scores(
    students: Mapping[str, StudentMeasures], read_means: Callable[[StudentMeasures], Named], link_key: str
) -> Iterator[_PartScore]:
    """Yield the scores of some means, such as those by judge; a link chooses each by ``link_key``."""
    for student, measures in students.items():
        for name, score in read_means(measures).items():
            yield _PartScore(student, name, score, (("student", student), (link_key, name)))


def _part_names(parts: Iterable[_PartScore]) -> list[str]:
    return list(dict.fromkeys(part.name for part in parts))


def _values_by_cell(parts: Iterable[_PartScore]) -> dict[tuple[str, str], float]:
    return {(part.student, part.name): part.score.value for part in parts if part.score.value is not None}


def _part_table(name: str, title: str, parts: list[_PartScore], expected: Cells | None = None) -> ReportTable:
    """Make a row for each part score.

    ``beyond`` is relative to the mean over students; ``unexpected`` to the student's own mean too,
    computed from ``parts`` unless ``expected`` has it.
    """
    values = _values_by_cell(parts)
    means, deviations = column_means(values), interaction_residuals(values) if expected is None else expected
    rows: list[tuple[Cell, ...]] = []
    for part in parts:
        value = part.score.value
        beyond = None if value is None else value - means[part.name]
        deviation = deviations.get((part.student, part.name))
        rows.append((part.student, part.name, part.score, beyond, deviation, part.score.n))
    columns = (
        ReportColumn("student", "Student"),
        ReportColumn("part", title),
        ReportColumn("score", "Score", "points", "Of a task, its score; otherwise the mean of single scores"),
        ReportColumn("beyond", "Above the mean", "points", "The score minus the mean of all students"),
        ReportColumn("unexpected", "Above expectation", "points", _UNEXPECTED),
        ReportColumn("n", "Items", "count"),
    )
    links = {row: urlencode(part.query) for row, part in enumerate(parts)}
    return ReportTable(name, title, columns, tuple(rows), links=links)


def _part_heat_map(
    table: ReportTable, name: str, title: str, rows: list[str], students: list[str]
) -> Picture:
    grid = HeatMap(
        table,
        *("part", "student", "score"),
        *(rows, students),
        shade="beyond",
        least=NOTEWORTHY,
        format=".1f",
        tooltip=("score_low", "score_high", "score_n", "beyond", "unexpected"),
    )
    title = f"{title}. Colour: above or below the mean of all students in that row."
    return heat_map(name, title, grid)


def _keep_names_that_differ_most(parts: list[_PartScore]) -> list[str]:
    """Return the parts that a picture has room for, in their order: those in which students differ most."""
    scores: dict[str, list[float]] = {}
    for (_, name), value in _values_by_cell(parts).items():
        scores.setdefault(name, []).append(value)
    few = drop_values_of_large_attributes(scores)
    spread = sorted(few, key=lambda name: (min(scores[name]) - max(scores[name]), name))
    kept = set(spread[:MOST_VALUES])
    return [name for name in _part_names(parts) if name in kept]


def drop_values_of_large_attributes(attribute_values: Iterable[str]) -> list[str]:
    """Return the ``attribute=value`` of attributes with few values. Each value of an amount or an id has an
    item or two, and their mean shows chance."""
    attribute_values = list(attribute_values)
    values = Counter(stratum.partition("=")[0] for stratum in attribute_values)
    return [stratum for stratum in attribute_values if values[stratum.partition("=")[0]] <= MOST_VALUES]


def _unusual_score_sentences(parts: list[_PartScore]) -> Iterator[str]:
    """Name the scores that differ most from what student and part predict, by more than their interval."""
    values = _values_by_cell(parts)
    scored = {student for student, _ in values}
    if not values:
        yield "No answer has a judged score, so where judges see students differ is unknown."
        return
    if len(scored) == 1:
        yield f"Only {scored.pop()} has scores, so there is nothing to compare."
        return
    if len({name for _, name in values}) == 1:
        yield "All scores are of one factor of one task, so there is nothing to compare."
        return
    scores = {(part.student, part.name): part.score for part in parts}
    unusual = []
    for cell, deviation in interaction_residuals(values).items():
        low, high = scores[cell].low, scores[cell].high
        if low is not None and high is not None and abs(deviation) > (high - low) / 2:
            unusual.append((abs(deviation), cell, deviation))
    clauses = [
        f"{student} in {name} ({'+' * (deviation > 0)}{format_points(deviation)})"
        for _, (student, name), deviation in sorted(unusual, reverse=True)[:_MOST_CLAUSES]
    ]
    if clauses:
        yield f"Furthest from what the averages of student and row predict: {join_names(clauses)}."
    else:
        yield "No student is unusually strong or weak in any one task or factor."


# --- Labels


def label_table(labels: Labels) -> ReportTable:
    """Make a table of label accuracies, the best first within each label."""
    rows: list[tuple[Cell, ...]] = []
    for task, attributes in labels.items():
        for attribute, label in attributes.items():
            for name in label.order:
                student = label.students[name]
                ranks = format_ranks(label.ranking.ranges.get(name))
                counts = (student.correct, student.none_of_the_labels, student.accuracy.n)
                lost = (student.failed, student.accuracy.missing)
                bounds = bounds_unless_equal(student.bounds)
                figures = (student.accuracy, student.macro_f1, *counts)
                rows.append((name, task, attribute, ranks, *figures, *lost, *bounds))
    columns = (
        *make_columns("Student", "Task", "Label"),
        column_of_field(Ranking, "ranges", "ranks"),
        *columns_by_field(LabelStudent).values(),
        ReportColumn("n", "Answers", "count", terminal="n"),
        ReportColumn("failed", "Failed", "count", "Answers that failed", ""),
        ReportColumn("missing", "Missing", "count", "Labelled items whose answer failed or is missing"),
        ReportColumn("least", "Missing wrong", "points", "Accuracy if all missing answers were wrong"),
        ReportColumn("most", "Missing right", "points", "Accuracy if all missing answers were right"),
    )
    note, links = "Labels are checked by rule and enter no score.", link_rows(rows, student=0, task=1)
    return ReportTable("labels", "Label accuracy", columns, tuple(rows), note=note, links=links)


def recall_table(labels: Labels, students: Sequence[str]) -> ReportTable:
    """Make a row for each student and right label; among several labels ``part`` names task and attribute
    too."""
    several = sum(map(len, labels.values())) > 1
    rows: list[tuple[Cell, ...]] = []
    links: dict[int, str] = {}
    for task, attributes in labels.items():
        for attribute, label in attributes.items():
            for name in students:
                student = label.students[name]
                for value, share in student.recall.items():
                    part = f"{task} · {attribute} · {value}" if several else value
                    query = {"student": name, "task": task, "attribute": f"{attribute}={value}"}
                    links[len(rows)] = urlencode(query)
                    rows.append((name, part, share, share.n))
    columns = (
        ReportColumn("student", "Student"),
        ReportColumn("part", "Right label"),
        ReportColumn("recall", "Recall", "points", "Share of answers with this right label that state it"),
        ReportColumn("n", "Answers", "count"),
    )
    return ReportTable("by-label", "Recall by right label", columns, tuple(rows), links=links)


def recall_picture(recalls: ReportTable, students: Sequence[str]) -> Picture:
    parts = list(dict.fromkeys(str(row[1]) for row in recalls.rows))
    tooltip = ("recall_low", "recall_high", "n")
    grid = HeatMap(recalls, "part", "student", "recall", parts, students, format=".1f", tooltip=tooltip)
    return heat_map("recalls", "Recall by label.", grid)


# Values of a label up to which people can read a confusion matrix.
_MOST_CONFUSED = 12
NO_LABEL = "no label"


class Mistake(NamedTuple):
    """A wrong value of a label, and how many answers state it."""

    expected: str
    stated: str
    answers: int


def count_mistakes(students: Iterable[LabelStudent]) -> list[Mistake]:
    """Count the wrong values that students state for each expected one, the most frequent first."""
    counts = Counter[tuple[str, str]]()
    for student in students:
        for expected, row in student.confusion.items():
            counts.update({(expected, stated): count for stated, count in row.items() if stated != expected})
    mistakes = [Mistake(*pair, count) for pair, count in counts.items() if count]
    return sorted(mistakes, key=lambda mistake: (-mistake.answers, mistake))


def confusion_or_mistakes_table(title: str, student: LabelStudent) -> ReportTable:
    """Make a confusion matrix, or for a label of many values a list of mistakes, the most frequent first."""
    if len(student.confusion) > _MOST_CONFUSED:
        columns = (*make_columns("Expected", "Stated"), *make_columns("Answers", kind="count"))
        title = f"{title}: most frequent mistakes"
        return ReportTable("confusion", title, columns, tuple(count_mistakes([student])), names=2)
    stated = (
        ReportColumn(f"stated-{at}", value, "count", "", value) for at, value in enumerate(student.confusion)
    )
    rows: list[tuple[Cell, ...]] = [
        (value, *row.values(), student.count_without_stated_label(value))
        for value, row in student.confusion.items()
    ]
    columns = (ReportColumn("expected", "expected"), *stated, ReportColumn("none", NO_LABEL, "count"))
    title = f"{title}: expected labels by row, stated ones by column"
    return ReportTable("confusion", title, columns, tuple(rows))
