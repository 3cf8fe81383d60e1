"""Comparisons on a terminal and in Markdown: the sentences first, then the figures behind them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Console

from coeval.analysis.comparison.comparison_sentence import shown_difference, shown_points
from coeval.cli.say import say, warn
from coeval.cli.views.name_table import Column, NameRow, print_table
from coeval.core.plain import plain

if TYPE_CHECKING:  # the analysis loads numpy, scipy and duckdb, which a table does not need
    from coeval.analysis.comparison.comparison_sentence import Comparison
    from coeval.analysis.comparison.comparisons import ComparisonReport

_MOST_SENTENCES = 8
_NONE = "–"
_LONGEST_HEADING = 12
_MARKUP = re.compile(r"([\\`*_|<>\[\]~#&])")


def print_comparisons(compared: ComparisonReport, console: Console) -> None:
    """Sentences, a table for each pair, and what is to be known of it."""
    for said in _sentences(compared.comparisons):
        say(console, said)
    whole = not console.file.isatty()
    for (a, b), found in _pairs(compared.comparisons):
        headings = [_heading(a, "a"), _heading(b, "b"), "b − a", "p", "n", "least"]
        rows = [NameRow(_name(one, whole), (*_figures(one), _least(one))) for one in found]
        print_table(
            console, f"a: {plain(a)}  b: {plain(b)}", "task", [Column(each) for each in headings], rows
        )
    say(console, _LEGEND, "dim")
    for said in (*_of_missing(compared.comparisons), *compared.notes):
        warn(console, said)


_LEGEND = (
    "In points: hundredths of a score from 0 to 1, percent, or those of the metric. b − a: with its 95 % "
    "interval over n paired items. p: adjusted for the number of comparisons (Holm). least: the smallest "
    "difference that would have been found with 80 % power."
)


def markdown(compared: ComparisonReport) -> str:
    """For a pull request: the sentences as a list, a table for each pair, notes."""
    parts = ["\n".join(f"- {_escaped(said)}" for said in _sentences(compared.comparisons))]
    for (a, b), found in _pairs(compared.comparisons):
        lines = [
            f"| {_escaped(b)} − {_escaped(a)} | {_escaped(a)} | {_escaped(b)} | difference | p (Holm) | n | "
            "smallest detectable |",
            "|---|---:|---:|---:|---:|---:|---:|",
        ]
        for one in found:
            cells = [_escaped(_name(one)), *_figures(one), _least(one)]
            lines.append(f"| {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    said = [*_of_missing(compared.comparisons), *compared.notes]
    parts += ["\n".join(f"- {_escaped(note)}" for note in said)] if said else []
    return "\n\n".join([*parts, _LEGEND]) + "\n"


def _sentences(comparisons: Sequence[Comparison]) -> list[str]:
    """Of the tasks of each pair; of many pairs, only what is overall; never of parts where there is more."""
    of_tasks = [one for one in comparisons if one.family != "part"] or list(comparisons)
    if len(of_tasks) > _MOST_SENTENCES:
        of_tasks = [one for one in of_tasks if one.task is None] or of_tasks
    said = [one.sentence for one in of_tasks]
    more = len(said) - _MOST_SENTENCES
    return said[:_MOST_SENTENCES] + ([f"… and {more:,} more comparisons: see below"] if more > 0 else [])


def _pairs(comparisons: Sequence[Comparison]) -> Iterator[tuple[tuple[str, str], list[Comparison]]]:
    """Of each pair: what is overall, then each task with its parts."""
    order = {pair: n for n, pair in enumerate(dict.fromkeys((one.a, one.b) for one in comparisons))}
    families = {"overall": 0, "task": 1, "part": 2}
    found = sorted(
        comparisons, key=lambda one: (order[one.a, one.b], one.task or "", families[one.family], one.metric)
    )
    for pair, of_pair in groupby(found, key=lambda one: (one.a, one.b)):
        yield pair, list(of_pair)


def _name(one: Comparison, whole: bool = True) -> str:
    """On a terminal a part stands below its task; elsewhere each row tells its task, for whoever searches."""
    match one.family:
        case "overall":
            return "overall"
        case "task":
            return one.task or ""
        case "part":
            return f"{one.task}: {one.metric}" if whole else f"  {one.metric}"


def _figures(one: Comparison) -> tuple[str, ...]:
    means = (shown_points(one, mean) for mean in (one.mean_a, one.mean_b))
    return (*means, shown_difference(one), _p(one.p_adjusted), f"{one.n:,}")


def _least(one: Comparison) -> str:
    return _NONE if one.minimum_detectable is None else shown_points(one, one.minimum_detectable)


def _p(p: float | None) -> str:
    if p is None:
        return _NONE
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _heading(label: str, short: str) -> str:
    return label if len(label) <= _LONGEST_HEADING else short


def _of_missing(comparisons: Sequence[Comparison]) -> Iterator[str]:
    for one in comparisons:
        if one.missing and one.family == "task":
            low, high = (shown_points(one, bound) for bound in one.bounds)
            every = one.n + one.missing
            lacking = f"{one.missing:,} of {every:,} {one.counted}s"
            yield (
                f"{one.task}: {lacking} lack a score of {one.a} or {one.b}: "
                f"whatever these would score, {one.b} − {one.a} over all lies between {low} and {high} points"
            )


def _escaped(text: str) -> str:
    return _MARKUP.sub(r"\\\1", plain(text))
