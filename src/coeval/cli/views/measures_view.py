"""Measures on a terminal, and as JSON, CSV and Markdown: all follow the records and what these declare."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.text import Text

from coeval.analysis.measures.measured import Analysis, Leaf, leaves
from coeval.analysis.measures.run_measures import OutputMeasures, RunMeasures, plain_measures, shown_parts
from coeval.analysis.run_results import SIMULATED
from coeval.cli.streams import say
from coeval.cli.views.results_view import json_text
from coeval.cli.views.table_view import say_names, show_each
from coeval.core.figures import MISSING, figure
from coeval.core.plain import guarded
from coeval.core.shown_names import ShownNames
from coeval.reports.content import Cell, ReportTable, Sentence, columns_of, row_texts
from coeval.reports.experiment.part_tables import output_tables, run_tables, scores_table
from coeval.reports.experiment.where_section import confusion_table
from coeval.reports.writers.markup import as_markdown as table_as_markdown
from coeval.reports.writers.markup import escaped

if TYPE_CHECKING:
    from rich.console import Console

    from coeval.analysis.measures.label_measures import Labels
    from coeval.analysis.measures.run_measures import Measures

_OF = " / "
_COLUMNS = ("part", "name", "measure", "of", "value", "low", "high", "n", "missing")

# --- JSON, CSV and Markdown


def as_json(measures: Measures, analysis: Analysis) -> str:
    return json_text(plain_measures(measures, analysis), indent=2) + "\n"


def as_csv(measures: Measures, analysis: Analysis) -> str:
    """A line for each number: the part and name it belongs to (no name: the run as a whole), the measure,
    and of what (``by_task`` of ``haiku``; of a label ``quiz / colour``); with its interval, n and what is
    missing, where it has these."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for leaf in _leaves(measures, analysis):
        place = (leaf.part, leaf.name, leaf.measure, _OF.join(leaf.of))
        writer.writerow([*map(guarded, place), *("" if v is None else v for v in leaf.measured)])
    return text.getvalue()


def as_markdown(measures: Measures, analysis: Analysis) -> str:
    """Findings, a table of the figures of each part, and of each label what is taken for what."""
    shown = dict(shown_parts(measures, analysis))
    parts = [f"**{escaped(SIMULATED)}**"] if shown.get("simulated") else []
    if findings := shown.get("findings"):
        parts.append("\n".join(f"- {escaped(finding)}" for finding in findings))
    parts.append(f"Scores that count (units): {measures.units:,}.")
    for part, found in groupby(_leaves(measures, analysis), key=lambda leaf: leaf.part):
        if part != "run" and (rows := [leaf for leaf in found if leaf.measure not in _IN_TABLES]):
            parts += [f"## {part}", table_as_markdown(_figures(rows))]
    labels: Labels = shown.get("labels", {})
    for task, of_task in labels.items():
        for label, of_label in of_task.items():
            for name, student in of_label.students.items():
                if student.accuracy.n:
                    parts.append(f"### {escaped(task)} {escaped(label)}: {escaped(name)}")
                    parts.append(table_as_markdown(confusion_table("", student)))
    return "\n\n".join(parts) + "\n"


# Measures that have tables of their own.
_IN_TABLES = ("confusion", "expected")


def _leaves(measures: Measures, analysis: Analysis) -> Iterator[Leaf]:
    for name, part in shown_parts(measures, analysis):
        yield from leaves(name, part)


def _figures(found: Sequence[Leaf]) -> ReportTable:
    """A row for each figure; without a column of names where all is of the run as a whole."""
    named = any(leaf.name for leaf in found)
    rows: list[tuple[Cell, ...]] = []
    for leaf in found:
        value, low, high, n, missing = leaf.measured
        shown = None if value is None else figure(value, "count" if isinstance(value, int) else leaf.kind)
        ends = (low, high)
        bounds = "" if None in ends else f"[{', '.join(figure(end or 0.0, leaf.kind) for end in ends)}]"
        measure = f"{leaf.measure} {_OF.join(leaf.of)}".strip()
        counts = ("" if count is None else count for count in (n, missing))
        rows.append((*((leaf.name,) * named), measure, shown, bounds, *counts))
    return ReportTable(
        "",
        "",
        (
            *columns_of("name") * named,
            *columns_of("measure"),
            *columns_of("value", "95% interval", kind="points"),
            *columns_of("n", "missing", kind="count"),
        ),
        tuple(rows),
    )


# --- Tables of the terminal


def print_measures(measures: Measures, analysis: Analysis, console: Console, names: ShownNames) -> None:
    """The scores, a line for each student, then findings, then a table for each part that there is anything
    of; ``names`` of models as they are shown."""
    measures = names.renamed(measures)
    shown = dict(shown_parts(measures, analysis))
    if shown.get("simulated"):
        console.print(Text(SIMULATED, style="bold yellow"))
    findings: Sequence[str] = shown.get("findings", ())
    if scored := "students" in shown and isinstance(measures, RunMeasures) and measures.units > 0:
        show_each(console, [scores_table(measures)])
    if findings and (scored or shown.get("simulated")):
        console.print()
    for finding in findings:
        say(console, f"- {finding}")
    match measures:
        case RunMeasures():
            tables = run_tables(measures, shown.keys())
        case OutputMeasures():
            tables = output_tables(measures, shown.keys())
    if sum(_tell(each, console) for each in tables):
        console.print()
        say(console, "[low, high]: 95% interval, clustered by item (n). docs/measures.md", "dim")
        say_names(console, names)
    elif not findings:
        bare = "students" not in shown
        nothing = "No task of this run has labels." if bare and "labels" in shown else _NOT_YET
        say(console, _UNLABELLED if analysis == "calibration" else nothing)


def _tell(shown: ReportTable | Sentence, console: Console) -> bool:
    """Whether there was anything to print: a table of nothing but counts is none."""
    if isinstance(shown, Sentence):
        say(console, shown.text, "dim")
        return False
    figures = [at for at, column in enumerate(shown.columns) if at >= shown.names and column.kind != "count"]
    texts = row_texts(shown.columns, shown.rows)
    if shown.name == "confusion" or any(row[at] not in ("", MISSING) for row in texts for at in figures):
        return show_each(console, [shown])
    return False


_NOT_YET = "There is nothing to show yet."
_UNLABELLED = "Nobody has labelled an answer of this run yet: coeval label RUN"
