"""Tables on a console, and the full names behind short ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from rich.console import Console

from coeval.analysis.doubtful_answers import OTHER_MODELS, Incomparable
from coeval.analysis.run_results import Bill, ModelCost, perhaps_billed_cost_sentences, sum_costs
from coeval.cli.streams import say
from coeval.core.figures import MISSING
from coeval.core.plain import escape_line
from coeval.core.shown_names import ShownNames
from coeval.pricing.tariff import join_price_sources
from coeval.reports.content import Cell, ReportColumn, ReportTable, make_columns
from coeval.reports.costs import cost_table
from coeval.reports.writers.terminal import terminal_lines


def show_table(console: Console, table: ReportTable) -> None:
    """Print a table within the console's width, and its note."""
    for line in terminal_lines(table, console.width):
        console.print(line, soft_wrap=True)
    if table.note:
        say(console, table.note, "dim")


def show_tables(console: Console, tables: Iterable[ReportTable], *, has_text_above: bool = True) -> bool:
    """Print the tables that have rows, separated by empty lines; return whether there were any."""
    nonempty = [table for table in tables if table.rows]
    for at, table in enumerate(nonempty):
        if has_text_above or at:
            console.print()
        show_table(console, table)
    return bool(nonempty)


def show_rows(
    console: Console, title: str, columns: Iterable[ReportColumn], rows: Iterable[Sequence[Cell]]
) -> None:
    """Print rows whose first cell is their name."""
    show_table(console, ReportTable("", title, tuple(columns), tuple(map(tuple, rows))))


# A longer heading would make its column wider than the figures below it.
_LONGEST_SIDE = 12


def pair_headings(a: str, b: str) -> tuple[str, str]:
    """Return the headings of two sides' scores."""
    return (a, b) if max(len(a), len(b)) <= _LONGEST_SIDE else ("a", "b")


def make_pair_and_difference_columns(a: str, b: str, difference: str = "b − a") -> tuple[ReportColumn, ...]:
    """Make the columns of two sides' scores and their difference."""
    return (
        ReportColumn("a", a, "points", terminal=a),
        ReportColumn("b", b, "points", terminal=b),
        ReportColumn("difference", difference, "gap", terminal=difference),
    )


def print_full_names(console: Console, names: ShownNames) -> None:
    """Print the full names behind short ones, if there are any."""
    if names.key:
        full = "; ".join(f"{label} = {escape_line(name)}" for name, label in names.key.items())
        say(console, f"Names in full: {full}.", "dim")


def print_and_drop_incomparable(notes: Iterable[str], console: Console) -> list[str]:
    """Print notes on incomparable figures as tables, and return the other notes."""
    by_note = {note: Incomparable.parse_note(note) for note in notes}
    show_incomparable([parsed for parsed in by_note.values() if parsed is not None], console)
    return [note for note, parsed in by_note.items() if parsed is None]


def show_incomparable(incomparables: Sequence[Incomparable], console: Console) -> None:
    """Print which tasks cannot be compared, and why: a table for each kind of figures."""
    key = attrgetter("with_what")
    for with_what, group in groupby(sorted(incomparables, key=key), key):
        same = list(group)
        no_remedy = MISSING if any(row.remedy for row in same) else None
        rows = [(row.task, row.remedy or no_remedy, row.why_without_folders) for row in same]
        columns = make_columns("model" if with_what == OTHER_MODELS else "task", "to change that", "why")
        show_tables(console, [ReportTable("", f"Not comparable with {with_what}", columns, tuple(rows))])


# --- Model costs


def show_costs(costs: Sequence[ModelCost], console: Console) -> None:
    """Print cost by model, the total, and whose prices these are."""
    total, perhaps = sum_costs(costs), [*perhaps_billed_cost_sentences(costs)]
    if total or perhaps:
        show_tables(console, [cost_table(costs)])
        for sentence in (*perhaps, *_cost_notes(total)):
            say(console, sentence, "dim")


def _cost_notes(total: Bill) -> Iterator[str]:
    if total.unknown:
        plus = "; +: and what these took" if total.cost_usd else ""
        yield (
            f"price unknown for {', '.join(total.unknown)}{plus}; overrides in Config/provider_pricing.yaml "
            "can name one (docs/prices.md)"
        )
    if total.untold:
        yield (
            f"cost unknown of some answers of {', '.join(total.untold)}: the host reported no "
            "tokens for them, or they came before the price was known"
        )
    if total.sources:
        yield f"Prices: {join_price_sources(total.sources)}."
