"""How often labels are right, of which label, and what is stated in its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from urllib.parse import urlencode

from coeval.analysis.intervals import wilson
from coeval.analysis.measures.label_measures import Labels, LabelStudent
from coeval.analysis.measures.measured import Measured
from coeval.analysis.measures.ranking import Ranking
from coeval.reports.content import Cell, Picture, ReportColumn, ReportTable, columns_of
from coeval.reports.measure_table import apart, declared_column, declared_columns, rank_text
from coeval.reports.plots import HeatMap, heat_map, label_plot


def label_table(labels: Labels) -> ReportTable:
    """Accuracies, the best first within each label."""
    rows: list[tuple[Cell, ...]] = []
    links: dict[int, str] = {}
    for task, attributes in labels.items():
        for attribute, found in attributes.items():
            for name in found.order:
                one = found.students[name]
                ranks = rank_text(found.ranking.ranges.get(name))
                links[len(rows)] = urlencode({"student": name, "task": task})
                counts = (one.correct, one.none_of_the_labels, one.accuracy.n)
                lost = (one.failed, one.accuracy.missing)
                bounds = apart(one.bounds)
                figures = (one.accuracy, one.macro_f1, *counts)
                rows.append((name, task, attribute, ranks, *figures, *lost, *bounds))
    return ReportTable(
        "labels",
        "Labels: how often they are right",
        (
            ReportColumn("student", "Student"),
            ReportColumn("task", "Task"),
            ReportColumn("label", "Label"),
            declared_column(Ranking, "ranges", "ranks"),
            *declared_columns(LabelStudent).values(),
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


def label_picture(labels: ReportTable, models: Sequence[str]) -> Picture:
    rows = [(str(row[0]), str(row[1]), str(row[2])) for row in labels.rows]
    title = (
        "Label accuracy with its 95% interval. The share of a student's answers that state the right label."
    )
    return Picture(
        "accuracies",
        title,
        labels.name,
        label_plot(labels.name, rows, models),
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
                for value, n in one.expected.items():
                    if not n:
                        continue
                    share = wilson(one.confusion[value][value], n)
                    part = f"{task} · {attribute} · {value}" if several else value
                    query = {"student": name, "task": task, "attribute": f"{attribute}={value}"}
                    links[len(rows)] = urlencode(query)
                    rows.append((name, part, Measured(share.mean, share.low, share.high, n, None), n))
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
MOST_VALUES = 12
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
    if len(found.confusion) > MOST_VALUES:
        columns = (*columns_of("Expected", "Stated"), *columns_of("Answers", kind="count"))
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
