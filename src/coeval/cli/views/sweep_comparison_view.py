"""Sweeps compared, on a terminal: what to ship, the best checkpoints, then runs against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from coeval.cli.streams import say, warn
from coeval.cli.views.name_table import NONE, Column, NameRow, print_table, shown_gap, shown_value
from coeval.core.text import probability

if TYPE_CHECKING:  # the analysis loads numpy, scipy and duckdb, which a table does not need
    from coeval.analysis.training.checkpoint_choice import CheckpointChoice, RunDifference
    from coeval.analysis.training.sweep_comparison import SweepComparison

# Cells: a longer heading would make its column wider than the figures below it.
_LONGEST_HEADING = 12
_LEGEND = (
    "In points, on the items that all checkpoints of a task share. corrected: for picking the best. tied: "
    "pairwise tests of all checkpoints do not tell them from the best. p: adjusted for all steps, tasks and "
    "pairs of runs. least: the true difference that would be detected four times in five."
)
_BEST = [Column("score"), Column("corrected"), Column("items"), Column("tied", words=True, free=True)]


def print_sweeps(found: SweepComparison, console: Console) -> None:
    for said in found.sentences:
        say(console, said)
    console.print()
    rows = [NameRow(_best(one), _choice_cells(one, several=len(found.folders) > 1)) for one in found.choices]
    print_table(console, "Best checkpoints", "task: run, step", _BEST, rows)
    for first, of_task in found.by_task():
        console.print()
        headings = (_heading(first.a, "a"), _heading(first.b, "b"), "b − a", "p", "n", "least")
        steps = [NameRow(str(one.step), _difference_cells(one)) for one in of_task]
        title = f"{_task(first.task)}, a: {first.a}, b: {first.b}"
        print_table(console, title, "step", [Column(each) for each in headings], steps)
    console.print()
    say(console, _LEGEND, "dim")
    for note in found.notes:
        warn(console, note)


def _best(one: CheckpointChoice) -> str:
    return f"{_task(one.task)}: {one.best.run}, {one.best.step}"


def _task(task: str | None) -> str:
    return "overall" if task is None else task


def _choice_cells(one: CheckpointChoice, *, several: bool) -> list[str]:
    from coeval.analysis.training.sweep_comparison import peers_text

    corrected = NONE
    if one.corrected is not None and one.ci95 is not None:
        low, high = (shown_value(bound, one.unit) for bound in one.ci95)
        corrected = f"{shown_value(one.corrected, one.unit)} [{low}, {high}]"
    tied = peers_text(one, several=several) if one.peers else "none"
    return [shown_value(one.mean, one.unit), corrected, f"{one.n_items:,}", tied]


def _difference_cells(one: RunDifference) -> list[str]:
    from coeval.analysis.training.best_checkpoint import signed_points

    return [
        shown_value(one.mean_a, one.unit),
        shown_value(one.mean_b, one.unit),
        signed_points(one.difference, *one.ci95, one.unit),
        NONE if one.p_adjusted is None else probability(one.p_adjusted),
        f"{one.n_items:,}",
        shown_gap(one.minimum_detectable, one.unit),
    ]


def _heading(label: str, short: str) -> str:
    return label if len(label) <= _LONGEST_HEADING else short
