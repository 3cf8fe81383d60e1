"""Comparisons on a terminal and in Markdown: the sentences first, then the figures behind them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console

from coeval.analysis.comparison.comparison_report import LEGEND, by_pair, shown_comparison, shown_over_judges
from coeval.analysis.run_results import SIMULATED
from coeval.cli.streams import say, warn
from coeval.cli.views.name_table import Column, NameRow, print_table
from coeval.core.plain import plain

if TYPE_CHECKING:  # the analysis loads numpy, scipy and duckdb, which a table does not need
    from coeval.analysis.comparison.comparison_report import Comparison, ComparisonReport

# Above the table on a screen of 24 lines.
_MOST_SENTENCES = 8
# Cells: a longer heading would make its column wider than the figures below it.
_LONGEST_HEADING = 12
_MARKUP = re.compile(r"([\\`*_|<>\[\]~#&])")


def print_comparisons(compared: ComparisonReport, console: Console) -> None:
    """Sentences and what speaks against them, a table for each pair, and what else is to be known of it."""
    if compared.simulated:
        say(console, SIMULATED, "bold yellow")
    for said in _sentences(compared):
        say(console, said)
    for doubt in compared.doubts:
        warn(console, doubt)
    whole = not console.file.isatty()
    for (a, b), found in by_pair(compared.comparisons):
        names = [one.place if whole else _name(one) for one in found]
        headings = [_heading(a, "a"), _heading(b, "b"), "b − a", "p", "n", "least"]
        table = _with_judges(names, [headings, *map(shown_comparison, found)], found, console.width)
        rows = [NameRow(name, cells) for name, cells in zip(names, table[1:], strict=True)]
        print_table(console, f"a: {a}  b: {b}", "task", [Column(each) for each in table[0]], rows)
    say(console, LEGEND, "dim")
    for said in (*compared.missing, *compared.notes):
        warn(console, said)


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
    if all(one.ci95_over_judges is None for one in found):
        return table
    over = ["judges", *map(shown_over_judges, found)]
    wider = [[*row[:3], cell, *row[3:]] for row, cell in zip(table, over, strict=True)]
    columns = (["task", *names], *zip(*wider, strict=True))
    taken = sum(max(map(cell_len, column)) for column in columns) + 2 * (len(columns) - 1)
    return wider if taken <= width else table


def _heading(label: str, short: str) -> str:
    return label if len(label) <= _LONGEST_HEADING else short


def escaped(text: str) -> str:
    """Foreign text that marks nothing up in Markdown."""
    return _MARKUP.sub(r"\\\1", plain(text))
