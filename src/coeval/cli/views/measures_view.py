"""Measures on a terminal and in Markdown, and all figures as JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from coeval.analysis.measures.measure_tree import Analysis, iterate_leaves
from coeval.analysis.measures.run_measures import OutputMeasures, RunMeasures, measures_to_json, select_parts
from coeval.analysis.run_results import SIMULATED
from coeval.cli.streams import say
from coeval.cli.views.results_view import json_text
from coeval.cli.views.table_view import print_full_names, show_tables
from coeval.core.figures import MISSING
from coeval.core.plain import guard_formula
from coeval.core.shown_names import ShownNames
from coeval.reports.content import ReportTable, Sentence, format_rows
from coeval.reports.experiment.part_tables import output_part_tables, ranked_scores_table, run_part_tables
from coeval.reports.writers.markup import as_markdown as table_as_markdown
from coeval.reports.writers.markup import escape_markdown

if TYPE_CHECKING:
    from rich.console import Console

    from coeval.analysis.measures.run_measures import Measures

_SEPARATOR = " / "
_COLUMNS = ("part", "name", "measure", "of", "value", "low", "high", "n", "missing")

# --- JSON and CSV: all figures


def as_json(measures: Measures, analysis: Analysis) -> str:
    return json_text(measures_to_json(measures, analysis), indent=2) + "\n"


def as_csv(measures: Measures, analysis: Analysis) -> str:
    """Write a line for each number: its part and name ('' for the run), its measure, what it is of (``quiz /
    colour``), interval, n and missing."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for name, part in select_parts(measures, analysis):
        for leaf in iterate_leaves(name, part):
            names = (leaf.part, leaf.name, leaf.measure, _SEPARATOR.join(leaf.of))
            writer.writerow([*map(guard_formula, names), *("" if v is None else v for v in leaf.measured)])
    return text.getvalue()


# --- Sentences and tables, on a terminal and in Markdown


class _ShownAnalysis(NamedTuple):
    """What an analysis prints: the scores of students, findings, and tables and sentences by part."""

    simulated: bool
    scores: ReportTable | None
    findings: Sequence[str]
    parts: Sequence[ReportTable | Sentence]


def _select_shown(measures: Measures, analysis: Analysis) -> _ShownAnalysis:
    selected = dict(select_parts(measures, analysis))
    scored = "students" in selected and isinstance(measures, RunMeasures) and measures.units > 0
    match measures:
        case RunMeasures():
            parts = run_part_tables(measures, selected.keys())
            scores = ranked_scores_table(measures) if scored else None
        case OutputMeasures():
            parts, scores = output_part_tables(measures, selected.keys()), None
    kept = [part for part in parts if isinstance(part, Sentence) or _has_more_than_counts(part)]
    return _ShownAnalysis(bool(selected.get("simulated")), scores, selected.get("findings", ()), kept)


def _has_more_than_counts(table: ReportTable) -> bool:
    if table.name == "confusion":
        return bool(table.rows)
    figures = [at for at, column in enumerate(table.columns) if at >= table.names and column.kind != "count"]
    texts = format_rows(table.columns, table.rows)
    return any(row[at] not in ("", MISSING) for row in texts for at in figures)


def as_markdown(measures: Measures, analysis: Analysis) -> str:
    """Write findings as a list, then the tables, each below its title."""
    simulated, scores, findings, parts = _select_shown(measures, analysis)
    texts = [f"**{escape_markdown(SIMULATED)}**"] if simulated else []
    if findings:
        texts.append("\n".join(f"- {escape_markdown(finding)}" for finding in findings))
    texts.append(f"Scores that count (units): {measures.units:,}.")
    for part in (*filter(None, [scores]), *parts):
        if isinstance(part, Sentence):
            texts.append(escape_markdown(part.text))
        else:
            texts += [f"### {escape_markdown(part.title)}", table_as_markdown(part)]
    return "\n\n".join(texts) + "\n"


def print_measures(measures: Measures, analysis: Analysis, console: Console, names: ShownNames) -> None:
    """Print an analysis; ``names`` are the short names of models."""
    simulated, scores, findings, parts = _select_shown(names.shorten_in(measures), analysis)
    if simulated:
        console.print(Text(SIMULATED, style="bold yellow"))
    if scores is not None:
        show_tables(console, [scores])
    if findings and (scores is not None or simulated):
        console.print()
    for finding in findings:
        say(console, f"- {finding}")
    for part in parts:
        if isinstance(part, Sentence):
            say(console, part.text, "dim")
        else:
            show_tables(console, [part])
    if any(isinstance(part, ReportTable) for part in parts):
        console.print()
        say(console, "[low, high]: 95% interval, clustered by item (n). docs/measures.md", "dim")
        print_full_names(console, names)
    elif not findings:
        say(console, _NOTHING.get(analysis, "There is nothing to show yet."))


_NOTHING = {
    "labels": "No task of this run has labels.",
    "calibration": "Nobody has labelled an answer of this run yet: coeval label RUN",
}
