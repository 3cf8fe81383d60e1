"""How often students state the right label: of all answers, and of those that one label is right for."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from coeval.analysis.intervals import wilson
from coeval.analysis.measures.measured import Branch, Measured
from coeval.reports.charts.heat_map import HeatMap, heat_map
from coeval.reports.charts.label_plot import label_plot
from coeval.reports.content.report_content import Cell, Picture, ReportColumn, ReportTable
from coeval.reports.experiment.run_evidence import RunEvidence

__all__ = ["label_picture", "label_table", "recall_picture", "recall_table"]


def label_table(evidence: RunEvidence) -> ReportTable:
    """Accuracies, the best first within each label."""
    failed = {(one.task, one.attribute, one.student): one.failed for one in evidence.results.labels}
    rows: list[tuple[Cell, ...]] = []
    links: dict[int, str] = {}
    for task, attributes in evidence.measured.tree["labels"].items():
        for attribute, found in attributes.items():
            order = found["ranking"]["order"]
            for name in [*order, *(each for each in found["students"] if each not in order)]:
                one = found["students"][name]
                links[len(rows)] = urlencode({"student": name, "task": task})
                accuracy: Measured = one["accuracy"]
                counts = (one["correct"], one["none_of_the_labels"], accuracy.n)
                lost = (failed.get((task, attribute, name), 0), accuracy.missing)
                least, most = one["bounds"]["accuracy"] or (None, None)
                bounds = (None, None) if least == most else (least, most)
                rows.append((name, task, attribute, accuracy, one["macro_f1"], *counts, *lost, *bounds))
    return ReportTable(
        "labels",
        "Labels: how often they are right",
        (
            ReportColumn("student", "Student"),
            ReportColumn("task", "Task"),
            ReportColumn("label", "Label"),
            ReportColumn("accuracy", "Accuracy", "share", "Share of right labels, with Wilson's interval"),
            ReportColumn("macro_f1", "Macro-F1", "score", "Mean over the labels of F1"),
            ReportColumn("correct", "Right", "count"),
            ReportColumn("none", "None of them", "count", "Answers that state no label, or several"),
            ReportColumn("n", "Answers", "count"),
            ReportColumn("failed", "Failed", "count", "Answers that came to nothing"),
            ReportColumn(
                "missing", "Missing", "count", "Items with a label and no answer, failed or not there"
            ),
            ReportColumn("least", "Missing wrong", "share", "Accuracy if all that is missing were wrong"),
            ReportColumn("most", "Missing right", "share", "Accuracy if all that is missing were right"),
        ),
        tuple(rows),
        note="Labels are compared without a judge, and stand in no score.",
        links=links,
    )


def label_picture(labels: ReportTable, models: Sequence[str]) -> Picture:
    rows = [(str(row[0]), str(row[1]), str(row[2])) for row in labels.rows]
    title = (
        "Label accuracy with its 95 % interval. The share of a student's answers that state the right label."
    )
    return Picture(
        "accuracies",
        title,
        labels.name,
        label_plot(labels.name, rows, models),
    )


def recall_table(labels: Branch, students: Sequence[str]) -> ReportTable:
    """By student and right label; ``part`` names the task and the attribute where there are several."""
    several = sum(map(len, labels.values())) > 1
    rows: list[tuple[Cell, ...]] = []
    links: dict[int, str] = {}
    for task, attributes in labels.items():
        for attribute, found in attributes.items():
            for name in students:
                one = found["students"][name]
                for value, n in one["expected"].items():
                    if not n:
                        continue
                    share = wilson(one["confusion"][value][value], n)
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
            ReportColumn("recall", "Found", "share", "Share of the answers due this label that state it"),
            ReportColumn("n", "Answers", "count"),
        ),
        tuple(rows),
        links=links,
    )


def recall_picture(recalls: ReportTable, students: Sequence[str]) -> Picture:
    parts = list(dict.fromkeys(str(row[1]) for row in recalls.rows))
    grid = HeatMap(
        table=recalls.name,
        row="part",
        column="student",
        value="recall",
        shade="recall",
        rows=parts,
        columns=students,
        most=recalls.largest("recall"),
        tooltip=("recall_low", "recall_high", "n"),
    )
    title = "Which labels are found. Of the answers due a label, the share that states it."
    return Picture("recalls", title, recalls.name, heat_map(grid))
