"""Comparisons on a terminal and in Markdown: the sentences first, then the figures behind them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from rich.cells import cell_len
from rich.console import Console

from coeval.analysis.comparison.comparison_report import (
    LEGEND,
    against,
    best_first,
    by_pair,
    count_sentence,
    leading_sentences,
    shown_comparison,
    shown_over_judges,
)
from coeval.analysis.run_results import SIMULATED
from coeval.cli.streams import say, warn
from coeval.cli.views.name_table import Column, NameRow, print_table, say_names, without_incomparable
from coeval.core.figures import signed_points
from coeval.core.plain import plain
from coeval.core.shown_names import ShownNames
from coeval.core.text import numbered

if TYPE_CHECKING:  # the analysis loads numpy, scipy and duckdb, which a table does not need
    from coeval.analysis.comparison.comparison_report import Comparison, ComparisonReport
from coeval.cli.views.name_table import NONE, shown_gap, shown_value
from coeval.core.text import probability

if TYPE_CHECKING:  # the analysis loads numpy, scipy and duckdb, which a table does not need
    from coeval.analysis.training.sweep_comparison import (
        CheckpointChoice,
        CheckpointDifference,
        SweepComparison,
    )

# --- Sweeps
#
# Sweeps compared, on a terminal: what to ship, the best checkpoints, then runs against each other.

_LEGEND = (
    "In points, on the items that all checkpoints of a task share. tied: tied with the best, by "
    "paired tests adjusted for all pairs of checkpoints. p: adjusted for all steps, tasks and pairs "
    "of runs. least: the true difference detected four times in five."
)
_BEST = [Column("score"), Column("items"), Column("tied", words=True, free=True)]


def print_sweeps(found: SweepComparison, console: Console) -> None:
    for said in found.sentences:
        say(console, said)
    console.print()
    rows = [
        NameRow(
            f"{_task(one.task)}: {one.best.run}, {one.best.step}",
            _choice_cells(one, several=len(found.folders) > 1),
        )
        for one in found.choices
    ]
    print_table(console, "Best checkpoints", "task: run, step", _BEST, rows)
    for of_task in found.by_task():
        console.print()
        a, b = of_task[0].a.run, of_task[0].b.run
        headings = (_heading(a, "a"), _heading(b, "b"), "b − a", "p", "n", "least")
        steps = [NameRow(str(one.b.step), _difference_cells(one)) for one in of_task]
        title = f"{_task(of_task[0].task)}, a: {a}, b: {b}"
        print_table(console, title, "step", [Column(each) for each in headings], steps)
    console.print()
    say(console, _LEGEND, "dim")
    for note in found.notes:
        warn(console, note)


def _task(task: str | None) -> str:
    return "overall" if task is None else task


def _choice_cells(one: CheckpointChoice, *, several: bool) -> list[str]:
    from coeval.analysis.training.sweep_comparison import peers_text

    tied = peers_text(one, several=several) if one.peers else "none"
    return [shown_value(one.mean, one.unit), f"{one.n_items:,}", tied]


def _difference_cells(one: CheckpointDifference) -> list[str]:
    return [
        shown_value(one.mean_a, one.unit),
        shown_value(one.mean_b, one.unit),
        signed_points(one.difference, *one.ci95_adjusted, one.unit),
        NONE if one.p_adjusted is None else probability(one.p_adjusted),
        f"{one.n:,}",
        shown_gap(one.minimum_detectable, one.unit),
    ]


def _heading(label: str, short: str) -> str:
    return label if len(label) <= _LONGEST_HEADING else short


# --- Runs

# Of a few lines each: more are read on a page.
_MOST_TABLES = 5
_ALL = "all of them: --html FILE, --excel FILE or --json"
# Above the table on a screen of 24 lines.
_MOST_SENTENCES = 8
# Cells: a longer heading would make its column wider than the figures below it.
_LONGEST_HEADING = 12
_MARKUP = re.compile(r"([\\`*_|<>\[\]~#&])")


def print_comparisons(compared: ComparisonReport, console: Console) -> None:
    """Sentences and what speaks against them, tables, and what else is to be known: of two sides a table, of
    three or more the leader against the others, overall and in tasks."""
    names = ShownNames.of(compared.sides)
    compared = names.renamed(compared)
    if compared.simulated:
        say(console, SIMULATED, "bold yellow")
    pairs = list(by_pair(compared.comparisons))
    order = best_first(compared.comparisons, list(compared.sides))
    many = len(compared.bases) == 1 and len(compared.sides) > 2
    for said in _leading(compared) if many else _sentences(compared):
        say(console, said)
    for doubt in compared.doubts:
        warn(console, doubt)
    for (a, b), found in [] if many else pairs[:_MOST_TABLES]:
        whole = not console.file.isatty()
        places = [one.place if whole else _name(one) for one in found]
        short = max(len(a), len(b)) <= _LONGEST_HEADING
        headings = [*((a, b) if short else "ab"), "b − a", "p", "n", "least"]
        _print_rows(f"a: {a}  b: {b}", headings, places, found, console)
    if many:
        _print_leader(compared, order, console)
        of_leader = [one for one in compared.comparisons if order[0] in (one.a, one.b)]
        compared = msgspec.structs.replace(compared, comparisons=tuple(of_leader))
    elif len(pairs) > _MOST_TABLES:
        say(console, f"{_MOST_TABLES} of {len(pairs)} pairs; {_ALL}")
    console.print()
    say(console, LEGEND.replace("b − a", "difference") if many else LEGEND, "dim")
    for said in (*compared.missing, *without_incomparable(compared.notes, console)):
        warn(console, said)
    say_names(console, names)


def _print_leader(compared: ComparisonReport, order: Sequence[str], console: Console) -> None:
    """A table for each of the first places: the best of all against each of the others, the best first."""
    places: dict[str, dict[str, Comparison]] = {}
    for one in compared.comparisons:
        if order[0] in (one.a, one.b) and one.family != "part":
            turned = against(one, order[0])
            places.setdefault(one.place, {})[turned.b] = turned
    for place, others in list(places.items())[:_MOST_TABLES]:
        names = [name for name in order if name in others]
        headings = ["leader", "other", "difference", "p", "n", "least"]
        title = f"{place[0].upper()}{place[1:]}" if place == "overall" else place
        found = [others[name] for name in names]
        _print_rows(f"{title}: the others less {order[0]}", headings, names, found, console)
    say(console, f"{numbered(len(compared.comparisons), 'difference')} were tested; {_ALL}")


def _print_rows(
    title: str, headings: Sequence[str], names: Sequence[str], found: Sequence[Comparison], console: Console
) -> None:
    table = _with_judges(names, [headings, *map(shown_comparison, found)], found, console.width)
    rows = [NameRow(name, cells) for name, cells in zip(names, table[1:], strict=True)]
    console.print()
    print_table(console, title, "other" if "other" in headings else "task", [*map(Column, table[0])], rows)


def markdown(compared: ComparisonReport, gate: Sequence[str] = ()) -> str:
    """For a pull request: what a ``gate`` says and the sentences as a list, doubts of them, a table for each
    pair, notes."""
    said = [escaped(sentence) for sentence in (*gate, *_sentences(compared))]
    said += [f"**Doubt:** {escaped(doubt)}" for doubt in compared.doubts]
    parts = [f"**{escaped(SIMULATED)}**"] if compared.simulated else []
    parts.append("\n".join(f"- {one}" for one in said))
    for (a, b), found in by_pair(compared.comparisons):
        lines = [
            f"| {escaped(b)} − {escaped(a)} | {escaped(a)} | {escaped(b)} | difference | p (Holm) | n | "
            "smallest detectable |",
            "|---|---:|---:|---:|---:|---:|---:|",
        ]
        for one in found:
            cells = [escaped(one.place), *shown_comparison(one)]
            lines.append(f"| {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    notes = [*compared.missing, *compared.notes]
    parts += ["\n".join(f"- {escaped(note)}" for note in notes)] if notes else []
    return "\n\n".join([*parts, LEGEND]) + "\n"


def _leading(compared: ComparisonReport) -> Iterator[str]:
    for said in leading_sentences(compared.comparisons, 1):
        yield said.text
    yield count_sentence(compared.comparisons)


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


def _with_judges(
    names: Sequence[str], table: Sequence[Sequence[str]], found: Sequence[Comparison], width: int
) -> Sequence[Sequence[str]]:
    """The table with the interval over items and judges, where there is one and room for it."""
    if all(one.ci95_over_judges_adjusted is None for one in found):
        return table
    over = ["judges", *map(shown_over_judges, found)]
    wider = [[*row[:3], cell, *row[3:]] for row, cell in zip(table, over, strict=True)]
    columns = (["task", *names], *zip(*wider, strict=True))
    taken = sum(max(map(cell_len, column)) for column in columns) + 2 * (len(columns) - 1)
    return wider if taken <= width else table


def escaped(text: str) -> str:
    """Foreign text that marks nothing up in Markdown."""
    return _MARKUP.sub(r"\\\1", plain(text))
