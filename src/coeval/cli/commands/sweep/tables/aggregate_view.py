"""Aggregates of checkpoints as tables: one for each task, a row for each step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console

from coeval.cli.say import say, warn
from coeval.cli.views.metric_table import shown_interval, shown_value
from coeval.cli.views.name_table import Column, NameRow, print_table
from coeval.core.text import listed

if TYPE_CHECKING:  # the analysis loads duckdb, which a table does not need
    from coeval.analysis.training.aggregate import Aggregated
    from coeval.analysis.training.training_run import TrainingRun

_COLUMNS = [Column(name) for name in ("mean", "95 % interval", "sem", "runs", "items", "missing")]


def print_aggregates(found: Sequence[Aggregated], console: Console) -> None:
    """Every task's headline over the checkpoints."""
    for task in sorted({task for one in found for task in one.tasks}):
        rows, metrics = [], []
        for one in found:
            if (of := one.tasks.get(task)) is None:
                continue
            metrics.append(of.metric)
            figures = (shown_value(of.mean, of.unit), shown_interval(of.ci95, of.unit))
            counts = (f"{of.n_runs:,}", f"{of.n_items:,}", f"{of.missing:,}")
            rows.append(NameRow(str(of.step), (*figures, shown_value(of.sem, of.unit), *counts)))
        console.print()
        print_table(console, f"{task}: {listed(dict.fromkeys(metrics))}", "step", _COLUMNS, rows)


def print_conclusions(run: TrainingRun, found: Sequence[Aggregated], console: Console) -> None:
    """What follows from the checkpoints, by task, and what to know of it beside what is told of the samples;
    then what speaks against it."""
    told = {
        f"step {one.checkpoint.step}: {note}"
        for one in found
        for of in one.tasks.values()
        for note in of.notes
    }
    for task, curve in run.curves.items():
        notes = [note for note in curve.notes if note not in told]
        if curve.conclusions or notes:
            console.print()
        for sentence in curve.conclusions:
            say(console, f"{task}: {sentence}")
        for note in notes:
            say(console, f"{task}: {note}", "dim")
    for sentence in run.alarms:
        console.print()
        warn(console, sentence)


class AggregateNotes(NamedTuple):
    """Sentences; ``gaps``: something that was asked for is not there."""

    notes: list[str]
    gaps: bool


def told_of(
    found: Sequence[Aggregated], out: Path, tasks: Sequence[str] | None, steps: Sequence[int] | None
) -> AggregateNotes:
    """What is to be known of the figures, what is the same at several steps once."""
    absent = sorted(set(steps or ()) - {one.checkpoint.step for one in found})
    everywhere = tasks or sorted({task for one in found for task in (*one.tasks, *one.without)})
    same: dict[tuple[str, str], list[str]] = {}
    gaps = bool(absent)
    for one in found:
        for task in everywhere:
            of = one.tasks.get(task)
            notes = one.without.get(task, ("there are no results",)) if of is None else of.notes
            gaps = gaps or of is None or not of.complete
            for note in notes:
                same.setdefault((task, note), []).append(str(one.checkpoint.step))
    said = [f"{out} holds no results of step {listed(map(str, absent))}"] if absent else []
    said += [f"{task}, step {listed(at)}: {note}" for (task, note), at in same.items()]
    return AggregateNotes(said, gaps)
