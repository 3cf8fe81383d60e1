"""Tables of names with figures beside them, or below them where a terminal is too narrow: neither is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from coeval.analysis.doubtful_answers import OTHER_MODELS, Incomparable
from coeval.analysis.run_results import Bill, ModelCost, bill
from coeval.cli.streams import folded, folded_name, say
from coeval.core.figures import MISSING, gap_text, metric_text
from coeval.core.plain import plain
from coeval.core.shown_names import ShownNames
from coeval.core.text import dollars
from coeval.engine.progress import short
from coeval.pricing.tariff import sources_reported

if TYPE_CHECKING:  # the analysis loads duckdb, which a table does not need
    from collections.abc import Sequence

    from rich.console import Console

    from coeval.analysis.run_results import MetricScore


_GAP = "  "
_BELOW = "    "
# Below, prose breaks at nearly every word, and the names' column is better folded.
_NARROWEST_WORDS = 20


class Column(NamedTuple):
    """Figures stand to the right, words to the left. ``free`` words, in the last column alone, are folded."""

    heading: str
    words: bool = False
    free: bool = False


class NameRow(NamedTuple):
    """A name and its cells; there are fewer of them than columns where the last ones are empty."""

    name: str
    cells: Sequence[str] = ()
    style: str = ""


def print_table(
    console: Console, title: str, heading: str, columns: Sequence[Column], rows: Sequence[NameRow]
) -> None:
    """Print a title if there is one, headings and rows. What stands in them is foreign, and obeys nothing."""
    table = [NameRow(plain(heading), [plain(column.heading) for column in columns], "bold")]
    table += [NameRow(plain(row.name), [*map(plain, row.cells)], row.style) for row in rows]
    for line in folded(plain(title), console.width) if title else ():
        console.print(Text(line, style="italic"), soft_wrap=True)
    layout = _layout(columns, table, console.width)
    for row in table:
        for line in _lines(row, columns, layout):
            console.print(Text(line.rstrip(), style=row.style), soft_wrap=True)


def say_names(console: Console, shown: ShownNames) -> None:
    """Say what short names stand for, where there are any."""
    if shown.key:
        full = "; ".join(f"{label} = {plain(name)}" for name, label in shown.key.items())
        say(console, f"Names in full: {full}.", "dim")


def without_incomparable(notes: Sequence[str], console: Console) -> list[str]:
    """Print what is not comparable with published figures as a table; the other notes."""
    found = {note: Incomparable.of(note) for note in notes}
    print_incomparable([one for one in found.values() if one is not None], console)
    return [note for note, one in found.items() if one is None]


def print_incomparable(found: Sequence[Incomparable], console: Console) -> None:
    """A table for each kind of figures that they are not comparable with: of what tasks, and why."""
    for with_what, ones in groupby(sorted(found, key=lambda one: one.with_what), lambda one: one.with_what):
        of_kind = list(ones)
        columns, rows = [Column("why", words=True, free=True)], [[one.shown_why] for one in of_kind]
        if any(one.remedy for one in of_kind):
            columns.insert(0, Column("to change that", words=True))
            rows = [[one.remedy or MISSING, *row] for one, row in zip(of_kind, rows, strict=True)]
        names = [NameRow(one.task, row) for one, row in zip(of_kind, rows, strict=True)]
        console.print()
        heading = "model" if with_what == OTHER_MODELS else "task"
        print_table(console, f"Not comparable with {with_what}", heading, columns, names)


class _Layout(NamedTuple):
    """Cells of each column; of the names too, or None where the figures stand below them; and of all."""

    widths: Sequence[int]
    names: int | None
    whole: int


def _layout(columns: Sequence[Column], table: Sequence[NameRow], width: int) -> _Layout:
    widths = [
        max(cell_len(row.cells[at]) for row in table if at < len(row.cells)) for at in range(len(columns))
    ]
    names = max(cell_len(row.name) for row in table)
    free = columns[-1].free
    for start in (names, len(_BELOW) - len(_GAP)):
        taken = start + sum(len(_GAP) + wide for wide in (widths[:-1] if free else widths))
        room = width - taken - len(_GAP)
        if free and room >= min(_NARROWEST_WORDS, widths[-1]):
            return _Layout([*widths[:-1], min(room, widths[-1])], names if start == names else None, width)
        if not free and taken <= width:
            return _Layout(widths, names if start == names else None, width)
    return _Layout([*widths[:-1], _NARROWEST_WORDS] if free else widths, None, width)


def _lines(row: NameRow, columns: Sequence[Column], layout: _Layout) -> Iterator[str]:
    """A row's lines; what is folded goes on where its column begins."""
    if layout.names is None:
        yield from folded_name(row.name, layout.whole).split("\n")
        begin = _BELOW
    else:
        begin = _padded(row.name, layout.names, words=True) + _GAP
    if not row.cells:
        if layout.names is not None:
            yield row.name
        return
    cells = [
        _padded(cell, wide, words=column.words)
        for cell, column, wide in zip(row.cells, columns, layout.widths, strict=False)
    ]
    if not columns[len(cells) - 1].free:
        yield begin + _GAP.join(cells)
        return
    first, *others = folded(row.cells[-1], layout.widths[-1])
    start = begin + "".join(cell + _GAP for cell in cells[:-1])
    yield start + first
    for line in others:
        yield " " * cell_len(start) + line


def _padded(text: str, width: int, *, words: bool) -> str:
    blanks = " " * (width - cell_len(text))
    return text + blanks if words else blanks + text


# --- Benchmark metrics as a table

NONE = MISSING


def print_metrics(metrics: Sequence[MetricScore], console: Console) -> None:
    """A row for each metric, below its task."""
    rows = []
    for task, found in groupby(metrics, key=lambda metric: metric.task):
        of_task = list(found)
        samples = of_task[0].samples
        label = plain(task if samples == 1 else f"{task}, {samples:,} samples of each prompt")
        counts = (f"{of_task[0].expected:,} {of_task[0].counted}", f"{of_task[0].failed:,}")
        state = f"not measured: {of_task[0].not_measured}" if of_task[0].not_measured else ""
        rows.append(NameRow(label, (state, "", *counts), "bold"))
        for metric in of_task:
            bounds = None if metric.low is None or metric.high is None else (metric.low, metric.high)
            figures = (shown_value(metric.value, metric.unit), shown_interval(bounds, metric.unit))
            rows.append(NameRow(f"  {plain(metric.metric)}", (*figures, f"{metric.n:,}")))
    print_table(console, f"Metrics of {plain(metrics[0].model)}", "task and metric", METRIC_COLUMNS, rows)


METRIC_COLUMNS = [Column(heading) for heading in ("value", "95% interval", "n", "failed")]


def shown_value(value: float | None, unit: str) -> str:
    """In points, 0 to 100 of the metric's scale."""
    return NONE if value is None else metric_text(value, unit)


def shown_gap(difference: float | None, unit: str) -> str:
    """A difference, or a standard error, in points."""
    return NONE if difference is None else gap_text(difference, unit)


def shown_interval(bounds: tuple[float, float] | None, unit: str) -> str:
    return NONE if bounds is None else "[" + ", ".join(shown_value(bound, unit) for bound in bounds) + "]"


# --- Model costs as a table

UNKNOWN = "unknown"
_COLUMNS = [Column(heading) for heading in ("requests", "input", "output", "cost")]
_PERHAPS = Column("perhaps")


def print_costs(costs: Sequence[ModelCost], console: Console) -> None:
    """A row for each model, the sum of them, and whose prices these are."""
    of_all, perhaps = bill(costs), sum(cost.perhaps_usd for cost in costs)
    if not of_all and not perhaps:
        return
    console.print()
    rows = [
        NameRow(cost.model, (*_figures([cost]), _cell(cost), *_perhaps(cost.perhaps_usd, perhaps)))
        for cost in costs
    ]
    if len(costs) > 1:
        rows.append(NameRow("total", (*_figures(costs), _total(of_all), *_perhaps(perhaps, perhaps)), "bold"))
    columns = [*_COLUMNS, _PERHAPS] if perhaps else _COLUMNS
    print_table(console, "Cost, in tokens and US dollars", "model", columns, rows)
    if perhaps:
        say(
            console,
            f"perhaps: {dollars(perhaps)} was set aside for requests that may have been billed; "
            "coeval status RUN --settle MODEL=USD takes the provider's bill for it",
            "dim",
        )
    for sentence in _notes(of_all):
        say(console, sentence, "dim")


def _figures(costs: Sequence[ModelCost]) -> tuple[str, str, str]:
    return (
        f"{sum(cost.requests for cost in costs):,}",
        short(sum(cost.input_tokens for cost in costs)),
        short(sum(cost.output_tokens for cost in costs)),
    )


def _cell(cost: ModelCost) -> str:
    if cost.cost_usd is None:
        return UNKNOWN if cost.unpriced else ""
    return dollars(cost.cost_usd) + "+" * bool(cost.unpriced)


def _perhaps(usd: float, of_all: float) -> tuple[str, ...]:
    """The cell of what is perhaps spent, where any model has some."""
    return () if not of_all else (dollars(usd) if usd else "",)


def _total(of_all: Bill) -> str:
    return dollars(of_all.cost_usd) + "+" * of_all.is_partial if of_all.cost_usd else UNKNOWN


def _notes(of_all: Bill) -> list[str]:
    notes = []
    if of_all.unknown:
        plus = "; +: and what these took" if of_all.cost_usd else ""
        notes.append(
            f"price unknown for {', '.join(of_all.unknown)}{plus}; overrides in Config/provider_pricing.yaml "
            "can name one (docs/prices.md)"
        )
    if of_all.untold:
        notes.append(
            f"cost unknown of some answers of {', '.join(of_all.untold)}: the host reported no "
            "tokens for them, or they came before the price was known"
        )
    if of_all.sources:
        notes.append(f"Prices: {sources_reported(of_all.sources)}.")
    return notes
