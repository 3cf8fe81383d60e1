"""Tables on a console, and what short names in them stand for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import Console

from coeval.analysis.doubtful_answers import OTHER_MODELS, Incomparable
from coeval.analysis.run_results import Bill, ModelCost, sum_costs, uncertain_cost_sentences
from coeval.cli.streams import say
from coeval.core.figures import MISSING
from coeval.core.plain import escape_line
from coeval.core.shown_names import ShownNames
from coeval.pricing.tariff import join_price_sources
from coeval.reports.content import Cell, ReportColumn, ReportTable, make_columns
from coeval.reports.writers.terminal import terminal_lines


def show_table(console: Console, table: ReportTable) -> None:
    """Print a table within the console's width, and its note. Its texts are foreign, and obey nothing."""
    for line in terminal_lines(table, console.width):
        console.print(line, soft_wrap=True)
    if table.note:
        say(console, table.note, "dim")


def show_each(console: Console, tables: Iterable[ReportTable], *, above: bool = True) -> bool:
    """Print those that have rows, an empty line before each where something stands ``above``; whether there
    were any."""
    shown = [table for table in tables if table.rows]
    for at, table in enumerate(shown):
        if above or at:
            console.print()
        show_table(console, table)
    return bool(shown)


def show_rows(
    console: Console, title: str, columns: Iterable[ReportColumn], rows: Iterable[Sequence[Cell]]
) -> None:
    """Print rows, the first cells of which are their names."""
    show_table(console, ReportTable("", title, tuple(columns), tuple(map(tuple, rows))))


# A longer heading would make its column wider than the figures below it.
_LONGEST_SIDE = 12


def pair_headings(a: str, b: str) -> tuple[str, str, str]:
    """Of two sides' scores and their difference."""
    return (a, b, "b − a") if max(len(a), len(b)) <= _LONGEST_SIDE else ("a", "b", "b − a")


def pair_columns(a: str, b: str, difference: str) -> tuple[ReportColumn, ...]:
    """Of two sides' scores and their difference, by their headings."""
    return (
        ReportColumn("a", a, "points", terminal=a),
        ReportColumn("b", b, "points", terminal=b),
        ReportColumn("difference", difference, "gap", terminal=difference),
    )


def say_names(console: Console, shown: ShownNames) -> None:
    """Say what short names stand for, where there are any."""
    if shown.key:
        full = "; ".join(f"{label} = {escape_line(name)}" for name, label in shown.key.items())
        say(console, f"Names in full: {full}.", "dim")


def without_incomparable(notes: Sequence[str], console: Console) -> list[str]:
    """Print what is not comparable with published figures as a table; the other notes."""
    found = {note: Incomparable.of(note) for note in notes}
    show_incomparable([one for one in found.values() if one is not None], console)
    return [note for note, one in found.items() if one is None]


def show_incomparable(found: Sequence[Incomparable], console: Console) -> None:
    """A table for each kind of figures that they are not comparable with: of what tasks, and why."""
    for with_what, of_kind in groupby(
        sorted(found, key=lambda one: one.with_what), lambda one: one.with_what
    ):
        rows = [(one.task, one.remedy or None, one.shown_why) for one in of_kind]
        if any(remedy for _, remedy, _ in rows):
            rows = [(task, remedy or MISSING, why) for task, remedy, why in rows]
        columns = make_columns("model" if with_what == OTHER_MODELS else "task", "to change that", "why")
        show_each(console, [ReportTable("", f"Not comparable with {with_what}", columns, tuple(rows))])


# --- Model costs


def show_costs(costs: Sequence[ModelCost], console: Console) -> None:
    """A row for each model, the sum of them, and whose prices these are."""
    from coeval.reports.result_tables import cost_table  # it loads numpy and scipy

    of_all, perhaps = sum_costs(costs), [*uncertain_cost_sentences(costs)]
    if of_all or perhaps:
        show_each(console, [cost_table(costs)])
        for sentence in (*perhaps, *_notes(of_all)):
            say(console, sentence, "dim")


def _notes(of_all: Bill) -> Iterator[str]:
    if of_all.unknown:
        plus = "; +: and what these took" if of_all.cost_usd else ""
        yield (
            f"price unknown for {', '.join(of_all.unknown)}{plus}; overrides in Config/provider_pricing.yaml "
            "can name one (docs/prices.md)"
        )
    if of_all.untold:
        yield (
            f"cost unknown of some answers of {', '.join(of_all.untold)}: the host reported no "
            "tokens for them, or they came before the price was known"
        )
    if of_all.sources:
        yield f"Prices: {join_price_sources(of_all.sources)}."
