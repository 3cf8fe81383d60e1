"""Comparisons on a terminal and in Markdown: the sentences first, then the figures behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console

from coeval.analysis.comparison.comparison_report import (
    comparison_cells,
    group_by_pair,
    interval_over_judges_text,
    leading_sentences,
    orient_to_base,
    significant_count_sentence,
    sort_best_first,
)
from coeval.analysis.run_results import SIMULATED
from coeval.cli.streams import say, warn
from coeval.cli.views.table_view import (
    pair_columns,
    pair_headings,
    say_names,
    show_each,
    without_incomparable,
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
    "of runs. least: the true difference detected four times in five."
)


def print_sweeps(found: SweepComparison, console: Console) -> None:
    from coeval.reports.training_report import best_checkpoints_table, last_steps_table, run_table

    for said in found.sentences:
        say(console, said)
    show_each(console, [best_checkpoints_table(found).reorder_columns("task", "best", last="tied")])
    if found.changes:
        show_each(console, [last_steps_table(found).reorder_columns("run", "task")])
    table = run_table(found)
    for base in list(dict.fromkeys(row[1] for row in table.rows))[:-1]:
        rows = tuple(row for row in table.rows if row[1] == base)
        title = f"{table.title}: the others less {base}"
        against = msgspec.structs.replace(table, title=title, rows=rows)
        show_each(console, [against.reorder_columns("of", "row")])
    console.print()
    say(console, _LEGEND, "dim")
    for note in found.notes:
        warn(console, note)


# --- Runs

# Of a few lines each: more are read on a page.
_MOST_TABLES = 5
_ALL = "all of them: --html FILE, --excel FILE or --json"
# Above the table on a screen of 24 lines.
_MOST_SENTENCES = 8


def print_comparisons(compared: ComparisonReport, console: Console) -> None:
    """Sentences and what speaks against them, tables, and what else is to be known: of two sides a table, of
    three or more the leader against the others, overall and in tasks."""
    names = ShownNames.of(compared.sides)
    compared = names.shorten_in(compared)
    if compared.simulated:
        say(console, SIMULATED, "bold yellow")
    pairs = list(group_by_pair(compared.comparisons))
    order = sort_best_first(compared.comparisons, list(compared.sides))
    many = len(compared.bases) == 1 and len(compared.sides) > 2
    leading = [said.text for said in leading_sentences(compared.comparisons, 1)]
    for said in (
        [*leading, significant_count_sentence(compared.comparisons)] if many else _sentences(compared)
    ):
        say(console, said)
    for doubt in compared.doubts:
        warn(console, doubt)
    for (a, b), found in [] if many else pairs[:_MOST_TABLES]:
        whole = not console.file.isatty()
        places = [one.place if whole else _name(one) for one in found]
        headings = ("task", *compared.mean_headings(*pair_headings(a, b)))
        show_each(console, [_table(f"a: {a}  b: {b}", headings, places, found)])
    if many:
        _print_leader(compared, order, console)
        of_leader = [one for one in compared.comparisons if order[0] in (one.a, one.b)]
        compared = msgspec.structs.replace(compared, comparisons=tuple(of_leader))
    elif len(pairs) > _MOST_TABLES:
        say(console, f"{_MOST_TABLES} of {len(pairs)} pairs; {_ALL}")
    console.print()
    say(console, compared.legend.replace("b − a", "difference") if many else compared.legend, "dim")
    for said in (*compared.missing, *without_incomparable(compared.notes, console)):
        warn(console, said)
    say_names(console, names)


def _print_leader(compared: ComparisonReport, order: Sequence[str], console: Console) -> None:
    """A table for each of the first places: the best of all against each of the others, the best first."""
    places: dict[str, dict[str, Comparison]] = {}
    for one in compared.comparisons:
        if order[0] in (one.a, one.b) and one.family != "part":
            turned = orient_to_base(one, order[0])
            places.setdefault(one.place, {})[turned.b] = turned
    for place, others in list(places.items())[:_MOST_TABLES]:
        names = [name for name in order if name in others]
        headings = ("other", *compared.mean_headings("leader", "other", "difference"))
        title = f"{place[0].upper()}{place[1:]}" if place == "overall" else place
        found = [others[name] for name in names]
        show_each(console, [_table(f"{title}: the others less {order[0]}", headings, names, found)])
    say(console, f"{pluralize(len(compared.comparisons), 'difference')} were tested; {_ALL}")


def _table(
    title: str, headings: Sequence[str], names: Sequence[str], found: Sequence[Comparison]
) -> ReportTable:
    """``headings``: of the names, the scores of both sides, and their difference."""
    heading, *pair = headings
    judged = any(one.ci95_over_judges is not None for one in found)
    columns = (
        ReportColumn("name", heading),
        *pair_columns(*pair),
        *([ReportColumn("judges", "judges", "gap")] * judged),
        ReportColumn("p", "p", "probability"),
        *make_columns("n", kind="count"),
        ReportColumn("least", "least", "points"),
    )
    rows = []
    for name, one in zip(names, found, strict=True):
        a, b, difference, *others = comparison_cells(one)
        over = [interval_over_judges_text(one, one.unit)] if judged else []
        rows.append((name, a, b, difference, *over, *others))
    return ReportTable("", title, columns, tuple(rows))


def markdown(compared: ComparisonReport, gate: Sequence[str] = ()) -> str:
    """For a pull request: what a ``gate`` says and the sentences as a list, doubts of them, a table for each
    pair, notes."""
    said = [escape_markdown(sentence) for sentence in (*gate, *_sentences(compared))]
    said += [f"**Doubt:** {escape_markdown(doubt)}" for doubt in compared.doubts]
    parts = [f"**{escape_markdown(SIMULATED)}**"] if compared.simulated else []
    parts.append("\n".join(f"- {one}" for one in said))
    for (a, b), found in group_by_pair(compared.comparisons):
        table = _table("", ("task", *compared.mean_headings(a, b)), [one.place for one in found], found)
        parts.append(as_markdown(table))
    notes = [*compared.missing, *compared.notes]
    parts += ["\n".join(f"- {escape_markdown(note)}" for note in notes)] if notes else []
    return "\n\n".join([*parts, compared.legend]) + "\n"


def _sentences(compared: ComparisonReport) -> list[str]:
    """Of the tasks of each pair; of many pairs, only what is overall; never of parts where there is more."""
    said = list(compared.sentences)
    if len(said) > _MOST_SENTENCES:
        overall = [one.sentence for one in compared.comparisons if one.family == "overall"]
        said = overall or said
    more = len(said) - _MOST_SENTENCES
    return said[:_MOST_SENTENCES] + ([f"… and {more:,} more comparisons: see below"] if more > 0 else [])


def _name(one: Comparison) -> str:
    """On a terminal labels and parts stand below their task; elsewhere each row tells its own, for whoever
    searches."""
    return f"  {one.metric}" if one.family in ("label", "part") else one.place
