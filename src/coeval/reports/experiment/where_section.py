"""Where do students differ: by task and factor, by attribute, by whose items and by whose judgment."""

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
from coeval.reports.content import (
    Cell,
    Picture,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
    make_columns,
    make_section,
)
from coeval.reports.experiment.judges_section import level_table
from coeval.reports.experiment.run_evidence import RunEvidence
from coeval.reports.measure_table import column_of_field, columns_by_field, differing_bounds, format_ranks
from coeval.reports.plots import NOTEWORTHY, HeatMap, heat_map

# --- Residuals of a grid

Cells = Mapping[tuple[str, str], float]
"""By (row, column)."""


def column_means(cells: Cells) -> dict[str, float]:
    """By column, over the rows that have it."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for (_, column), value in cells.items():
        found[column].append(value)
    return {column: sum(values) / len(values) for column, values in found.items()}


def residuals(cells: Cells) -> dict[tuple[str, str], float]:
    """``value − row − column + grand`` with the means of the rows and columns that are there."""
    columns = column_means(cells)
    rows = column_means({(column, row): value for (row, column), value in cells.items()})
    grand = sum(cells.values()) / len(cells) if cells else 0.0
    return {
        (row, column): value - rows[row] - columns[column] + grand for (row, column), value in cells.items()
    }


# Of attributes in a picture: those whose scores differ most among students.
MOST_VALUES = 40
# Clauses of one sentence; the heat map shows all.
_TOLD = 3
_UNEXPECTED = (
    "The score minus the score expected from the student's own mean and the mean of all students there"
)


class _PartScore(NamedTuple):
    """A mean of a student's, with what it is over."""

    student: str
    name: str
    score: Measured
    query: tuple[tuple[str, str], ...]

    @property
    def task(self) -> str:
        return dict(self.query)["task"]


def where_section(evidence: RunEvidence) -> ReportSection:
    measures, students = evidence.measured.measures, evidence.students
    of = {name: measures.students[name] for name in students}
    several = len(evidence.measured.grid.tasks) > 1
    tasks, factors = list(_tasks(of)), list(_factors(of, several=several))
    split = {part.task for part in factors if len(of[part.student].by_task_aspect[part.task]) > 1}
    leaves = [part for part in factors if part.task in split]
    leaves += [part for part in tasks if part.task not in split]
    parts = sorted({*tasks, *leaves}, key=lambda part: (students.index(part.student), part.name))
    values = list(_by(of, lambda one: one.by_attr_value, "attribute"))
    said = [found.text for found in evidence.measured.conclusions if found.topic == "where"]
    said += _unexpected(leaves)
    known = measures.checks or {}
    checks = [part for part in factors if tuple(name for _, name in part.query[1:]) in known]
    expected = residuals(_known(tasks)) | residuals(_known(leaves))
    tables = [_table("parts", "Tasks and factors", parts, expected), _table("values", "Attributes", values)]
    if checks:
        tables.append(_table("checks", "Checks", checks))
    pictures = [
        _picture(tables[0], "factors", "Scores by task and factor", _names(parts), students),
    ]
    if widest := _widest(values):
        pictures.append(_picture(tables[1], "attributes", "Scores by what items are about", widest, students))
    for name, found, what in (
        ("by-judge", list(_by(of, lambda one: one.by_judge, "judge")), "Scores by judge and student"),
        ("by-teacher", list(_by(of, lambda one: one.by_teacher, "teacher")), "Scores by teacher and student"),
    ):
        if evidence.is_choice or (len(_names(found)) > 1 and len(students) > 1):
            tables.append(_table(name, what, found))
    levels = level_table(
        "levels", "Levels that students were given", {name: one.levels for name, one in of.items()}
    )
    recalls = recall_table(measures.labels, students)
    if recalls.rows:
        pictures.append(recall_picture(recalls, students))
    sentences = [Sentence(text, "parts") for text in said]
    return make_section("where", "Where?", sentences, pictures, [*tables, levels, recalls])


def _tasks(students: Mapping[str, StudentMeasures]) -> Iterator[_PartScore]:
    for student, found in students.items():
        for task, score in found.score_by_task.items():
            yield _PartScore(student, task, score, (("student", student), ("task", task)))


def _factors(students: Mapping[str, StudentMeasures], *, several: bool) -> Iterator[_PartScore]:
    for student, found in students.items():
        for task, factors in found.by_task_aspect.items():
            for factor, score in factors.items():
                name = f"{task} · {factor}" if several else factor
                query = (("student", student), ("task", task), ("factor", factor))
                yield _PartScore(student, name, score, query)


def _by(
    students: Mapping[str, StudentMeasures], means: Callable[[StudentMeasures], Named], what: str
) -> Iterator[_PartScore]:
    """Of some of the means, by judge and the like: ``what`` a link chooses by their names."""
    for student, found in students.items():
        for name, score in means(found).items():
            yield _PartScore(student, name, score, (("student", student), (what, name)))


def _names(parts: Iterable[_PartScore]) -> list[str]:
    return list(dict.fromkeys(part.name for part in parts))


def _known(parts: Iterable[_PartScore]) -> dict[tuple[str, str], float]:
    return {(part.student, part.name): part.score.value for part in parts if part.score.value is not None}


def _table(name: str, title: str, parts: list[_PartScore], expected: Cells | None = None) -> ReportTable:
    """``beyond`` is against the mean over students; ``unexpected`` against the student's own mean too, by all
    ``parts`` if not ``expected``."""
    known = _known(parts)
    means, rest = column_means(known), residuals(known) if expected is None else expected
    rows: list[tuple[Cell, ...]] = []
    for part in parts:
        value = part.score.value
        beyond = None if value is None else value - means[part.name]
        rows.append(
            (part.student, part.name, part.score, beyond, rest.get((part.student, part.name)), part.score.n)
        )
    return ReportTable(
        name,
        title,
        (
            ReportColumn("student", "Student"),
            ReportColumn("part", title),
            ReportColumn(
                "score",
                "Score",
                "points",
                "A task's score; elsewhere the mean over single scores",
            ),
            ReportColumn(
                "beyond", "Above the mean", "points", "The score less the mean of all students there"
            ),
            ReportColumn("unexpected", "Above expectation", "points", _UNEXPECTED),
            ReportColumn("n", "Items", "count"),
        ),
        tuple(rows),
        links={place: urlencode(part.query) for place, part in enumerate(parts)},
    )


def _picture(table: ReportTable, name: str, title: str, rows: list[str], students: list[str]) -> Picture:
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


def _widest(parts: list[_PartScore]) -> list[str]:
    """The values that a picture has room for, in their order: those in which students differ most."""
    scores: dict[str, list[float]] = {}
    for (_, name), value in _known(parts).items():
        scores.setdefault(name, []).append(value)
    few = of_few_values(scores)
    spread = sorted(few, key=lambda name: (min(scores[name]) - max(scores[name]), name))
    kept = set(spread[:MOST_VALUES])
    return [name for name in _names(parts) if name in kept]


def of_few_values(strata: Iterable[str]) -> list[str]:
    """The ``attribute=value`` of attributes with few values: of an amount or an id, each stands for an item
    or two, and its mean shows chance."""
    strata = list(strata)
    values = Counter(stratum.partition("=")[0] for stratum in strata)
    return [stratum for stratum in strata if values[stratum.partition("=")[0]] <= MOST_VALUES]


def _unexpected(parts: list[_PartScore]) -> Iterator[str]:
    """The cells that differ most from what student and part lead one to expect, by more than chance."""
    known = _known(parts)
    scored = {student for student, _ in known}
    if not known:
        yield "No answer has a judged score, so where judges see students differ is unknown."
        return
    if len(scored) == 1:
        yield f"{scored.pop()} alone has scores: there is nothing to compare it with."
        return
    if len({name for _, name in known}) == 1:
        yield "All scores are of one factor of one task: there is no other to be better or worse in."
        return
    scores = {(part.student, part.name): part.score for part in parts}
    found = []
    for place, rest in residuals(known).items():
        low, high = scores[place].low, scores[place].high
        if low is not None and high is not None and abs(rest) > (high - low) / 2:
            found.append((abs(rest), place, rest))
    reported = [
        f"{student} in {name} ({'+' * (rest > 0)}{format_points(rest)})"
        for _, (student, name), rest in sorted(found, reverse=True)[:_TOLD]
    ]
    if not found:
        yield (
            "No student's score deviates clearly from what its own mean and the mean of all students there "
            "predict."
        )
    if reported:
        yield (
            "Furthest from what the student's own mean and the mean of all students there predict: "
            f"{join_names(reported)}."
        )


# --- Labels: how often they are right, which, and what is stated in their place


def label_table(labels: Labels) -> ReportTable:
    """Accuracies, the best first within each label."""
    rows: list[tuple[Cell, ...]] = []
    links: dict[int, str] = {}
    for task, attributes in labels.items():
        for attribute, found in attributes.items():
            for name in found.order:
                one = found.students[name]
                ranks = format_ranks(found.ranking.ranges.get(name))
                links[len(rows)] = urlencode({"student": name, "task": task})
                counts = (one.correct, one.none_of_the_labels, one.accuracy.n)
                lost = (one.failed, one.accuracy.missing)
                bounds = differing_bounds(one.bounds)
                figures = (one.accuracy, one.macro_f1, *counts)
                rows.append((name, task, attribute, ranks, *figures, *lost, *bounds))
    return ReportTable(
        "labels",
        "Labels: how often they are right",
        (
            *make_columns("Student", "Task", "Label"),
            column_of_field(Ranking, "ranges", "ranks"),
            *columns_by_field(LabelStudent).values(),
            ReportColumn("n", "Answers", "count", terminal="n"),
            ReportColumn("failed", "Failed", "count", "Answers that came to nothing", ""),
            ReportColumn(
                "missing", "Missing", "count", "Items with a label and no answer, failed or not there"
            ),
            ReportColumn("least", "Missing wrong", "points", "Accuracy if all that is missing were wrong"),
            ReportColumn("most", "Missing right", "points", "Accuracy if all that is missing were right"),
        ),
        tuple(rows),
        note="Labels are compared without a judge, and stand in no score.",
        links=links,
    )


def recall_table(labels: Labels, students: Sequence[str]) -> ReportTable:
    """By student and right label; ``part`` names the task and the attribute where there are several."""
    several = sum(map(len, labels.values())) > 1
    rows: list[tuple[Cell, ...]] = []
    links: dict[int, str] = {}
    for task, attributes in labels.items():
        for attribute, found in attributes.items():
            for name in students:
                one = found.students[name]
                for value, share in one.recall.items():
                    part = f"{task} · {attribute} · {value}" if several else value
                    query = {"student": name, "task": task, "attribute": f"{attribute}={value}"}
                    links[len(rows)] = urlencode(query)
                    rows.append((name, part, share, share.n))
    return ReportTable(
        "by-label",
        "Answers by their right label",
        (
            ReportColumn("student", "Student"),
            ReportColumn("part", "Right label"),
            ReportColumn("recall", "Found", "points", "Share of the answers due this label that state it"),
            ReportColumn("n", "Answers", "count"),
        ),
        tuple(rows),
        links=links,
    )


def recall_picture(recalls: ReportTable, students: Sequence[str]) -> Picture:
    parts = list(dict.fromkeys(str(row[1]) for row in recalls.rows))
    noted = ("recall_low", "recall_high", "n")
    grid = HeatMap(recalls, "part", "student", "recall", parts, students, format=".1f", tooltip=noted)
    title = "Which labels are found. Of the answers due a label, the share that states it."
    return heat_map("recalls", title, grid)


# --- What is taken for what

# Of a label, up to which a table of all of them against each other can be read.
_MOST_CONFUSED = 12
NO_LABEL = "no label"


def mistakes(students: Iterable[LabelStudent]) -> list[tuple[str, str, int]]:
    """What is expected and what is stated in its place, of all students together: the most frequent first."""
    counts = Counter[tuple[str, str]]()
    for found in students:
        for expected, row in found.confusion.items():
            counts.update({(expected, stated): count for stated, count in row.items() if stated != expected})
    return sorted(
        ((*pair, count) for pair, count in counts.items() if count), key=lambda each: (-each[2], each[:2])
    )


def confusion_table(title: str, found: LabelStudent) -> ReportTable:
    """Expected labels below, stated ones beside; of many labels, the mistakes, the most frequent first."""
    if len(found.confusion) > _MOST_CONFUSED:
        columns = (*make_columns("Expected", "Stated"), *make_columns("Answers", kind="count"))
        most = f"{title}: most frequent mistakes"
        return ReportTable("confusion", most, columns, tuple(mistakes([found])), names=2)
    stated = (
        ReportColumn(f"stated-{at}", value, "count", "", value) for at, value in enumerate(found.confusion)
    )
    rows: list[tuple[Cell, ...]] = [
        (value, *row.values(), found.none_of(value)) for value, row in found.confusion.items()
    ]
    return ReportTable(
        "confusion",
        f"{title}: expected labels below, stated ones beside",
        (ReportColumn("expected", "expected"), *stated, ReportColumn("none", NO_LABEL, "count")),
        tuple(rows),
    )
