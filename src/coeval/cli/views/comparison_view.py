"""Comparisons on a terminal and in Markdown: sentences first, then their figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console

from coeval.analysis.comparison.comparison_report import (
    comparison_cells,
    group_by_pair,
    interval_over_judges_or_unknown,
    leaders_or_summary,
    significant_count_sentence,
    sort_by_total_lead,
    with_base_as_a,
)
from coeval.analysis.run_results import SIMULATED
from coeval.cli.streams import say, warn
from coeval.cli.views.table_view import (
    make_pair_and_difference_columns,
    pair_headings,
    print_and_drop_incomparable,
    print_full_names,
    show_tables,
)
from coeval.core.shown_names import ShownNames
from coeval.core.text import pluralize
from coeval.reports.content import ReportColumn, ReportTable, make_columns
from coeval.reports.writers.markup import as_markdown, escape_markdown

if TYPE_CHECKING:
    from coeval.analysis.comparison.comparison_report import Comparison, ComparisonReport
    from coeval.analysis.training.sweep_comparison import SweepComparison

# --- Sweeps
#
# Sweeps compared, on a terminal: what to ship, the best checkpoints, then runs against each other.

_LEGEND = (
    "In points, on the items that all checkpoints of a task share. tied: tied with the best, by "
    "paired tests adjusted for all pairs of checkpoints. p: adjusted for all steps, tasks and pairs "
    "of runs. least: true difference detected four times in five."
)


def print_sweep_comparison(comparison: SweepComparison, console: Console) -> None:
    """Print findings on sweeps, best checkpoints, last steps, and runs against each other."""
    from coeval.reports.training_report import best_by_task_table, last_steps_table, runs_by_baseline_table

    for sentence in comparison.sentences:
        say(console, sentence)
    show_tables(console, [best_by_task_table(comparison).reorder_columns("task", "best", last="tied")])
    if comparison.changes:
        show_tables(console, [last_steps_table(comparison).reorder_columns("run", "task")])
    table = runs_by_baseline_table(comparison)
    for base in list(dict.fromkeys(row[1] for row in table.rows))[:-1]:
        rows = tuple(row for row in table.rows if row[1] == base)
        title = f"{table.title}: the others − {base}"
        against = msgspec.structs.replace(table, title=title, rows=rows)
        show_tables(console, [against.reorder_columns("of", "row")])
    console.print()
    say(console, _LEGEND, "dim")
    for note in comparison.notes:
        warn(console, note)


# --- Runs

# Of a few lines each: more are read on a page.
_MOST_TABLES = 5
_ALL = "all of them: --html FILE, --excel FILE or --json"
# Above the table on a screen of 24 lines.
_MOST_SENTENCES = 8


def print_comparisons(report: ComparisonReport, console: Console) -> None:
    """Print sentences, doubts, tables and notes; of three or more sides only the leader's tables."""
    names = ShownNames.of(report.sides)
    report = names.shorten_in(report)
    if report.simulated:
        say(console, SIMULATED, "bold yellow")
    pairs = list(group_by_pair(report.comparisons))
    order = sort_by_total_lead(report.comparisons, list(report.sides))
    many = len(report.bases) == 1 and len(report.sides) > 2
    sentences = _first_sentences(report)
    if many:
        leading = [sentence.text for sentence in leaders_or_summary(report.comparisons, 1)]
        sentences = [*leading, significant_count_sentence(report.comparisons)]
    for sentence in sentences:
        say(console, sentence)
    for doubt in report.doubts:
        warn(console, doubt)
    for (a, b), of_pair in [] if many else pairs[:_MOST_TABLES]:
        places = [row.place for row in of_pair]  # whole off a terminal, for searches
        if console.file.isatty():  # labels and parts are indented below their task
            below = ("label", "part")
            places = [f"  {row.metric}" if row.family in below else row.place for row in of_pair]
        headings = ("task", *report.mean_headings(*pair_headings(a, b), "b − a"))
        show_tables(console, [_difference_table(f"a: {a}  b: {b}", headings, places, of_pair)])
    if many:
        _print_leader_comparisons(report, order, console)
        of_leader = tuple(row for row in report.comparisons if order[0] in (row.a, row.b))
        report = msgspec.structs.replace(report, comparisons=of_leader)
    elif len(pairs) > _MOST_TABLES:
        say(console, f"{_MOST_TABLES} of {len(pairs)} pairs; {_ALL}")
    console.print()
    say(console, report.legend.replace("b − a", "difference") if many else report.legend, "dim")
    for sentence in (*report.missing, *print_and_drop_incomparable(report.notes, console)):
        warn(console, sentence)
    print_full_names(console, names)


def _print_leader_comparisons(report: ComparisonReport, order: Sequence[str], console: Console) -> None:
    """Print the leader against each other side, best first, in a table for each of the first places."""
    places: dict[str, dict[str, Comparison]] = {}
    for comparison in report.comparisons:
        if order[0] in (comparison.a, comparison.b) and comparison.family != "part":
            turned = with_base_as_a(comparison, order[0])
            places.setdefault(comparison.place, {})[turned.b] = turned
    for task, others in list(places.items())[:_MOST_TABLES]:
        names = [name for name in order if name in others]
        headings = ("other", *report.mean_headings("leader", "other", "difference"))
        title = f"{task[0].upper()}{task[1:]}" if task == "overall" else task
        pairs = [others[name] for name in names]
        show_tables(console, [_difference_table(f"{title}: the others − {order[0]}", headings, names, pairs)])
    say(console, f"{pluralize(len(report.comparisons), 'difference')} were tested; {_ALL}")


def _difference_table(
    title: str, headings: Sequence[str], names: Sequence[str], comparisons: Sequence[Comparison]
) -> ReportTable:
    """Make a table of comparisons. ``headings``: of the names, both sides' scores, and their difference."""
    heading, *pair = headings
    judged = any(comparison.ci95_over_judges is not None for comparison in comparisons)
    columns = (
        ReportColumn("name", heading),
        *make_pair_and_difference_columns(*pair),
        *(make_columns("judges", kind="gap") if judged else ()),
        *make_columns("p", kind="probability"),
        *make_columns("n", kind="count"),
        *make_columns("least", kind="points"),
    )
    rows = []
    for name, comparison in zip(names, comparisons, strict=True):
        a, b, difference, *others = comparison_cells(comparison)
        over = [interval_over_judges_or_unknown(comparison, comparison.unit)] if judged else []
        rows.append((name, a, b, difference, *over, *others))
    return ReportTable("", title, columns, tuple(rows))


def comparison_markdown(report: ComparisonReport, gate: Sequence[str] = ()) -> str:
    """Write a comparison for a pull request: ``gate`` and sentences as a list, doubts, tables, notes."""
    items = [escape_markdown(sentence) for sentence in (*gate, *_first_sentences(report))]
    items += [f"**Doubt:** {escape_markdown(doubt)}" for doubt in report.doubts]
    parts = [f"**{escape_markdown(SIMULATED)}**"] if report.simulated else []
    parts.append("\n".join(f"- {comparison}" for comparison in items))
    for (a, b), pairs in group_by_pair(report.comparisons):
        headings, places = ("task", *report.mean_headings(a, b)), [row.place for row in pairs]
        parts.append(as_markdown(_difference_table("", headings, places, pairs)))
    notes = [*report.missing, *report.notes]
    parts += ["\n".join(f"- {escape_markdown(note)}" for note in notes)] if notes else []
    return "\n\n".join([*parts, report.legend]) + "\n"


def _first_sentences(report: ComparisonReport) -> list[str]:
    """Return the first sentences; of many, only those on overall scores, never those on parts."""
    texts = list(report.sentences)
    if len(texts) > _MOST_SENTENCES:
        overall = [comparison.sentence for comparison in report.comparisons if comparison.family == "overall"]
        texts = overall or texts
    more = len(texts) - _MOST_SENTENCES
    return texts[:_MOST_SENTENCES] + ([f"… and {more:,} more comparisons: see below"] if more > 0 else [])
