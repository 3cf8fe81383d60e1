"""Measures on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coeval.analysis.run_results import with_interval
from coeval.cli.say import say
from coeval.cli.views.name_table import Column, NameRow, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from coeval.analysis.measures.measured import Branch, Measured

__all__ = ["print_measures"]

_NOTHING = "–"


def print_measures(tree: Branch, console: Console) -> None:
    """A table for each part that there is."""
    if students := tree.get("students"):
        _print_students(students, console)
    if agreement := tree.get("agreement"):
        _print_rows("How far judges agree", "judges", agreement, ("spa", "wpa", "kappa"), console)
    if judges := tree.get("judges"):
        _print_rows("Judges, mean over the others", "judge", judges, _OF_JUDGES, console)
    if teachers := tree.get("teachers"):
        _print_rows("How far teachers' items tell students apart", "teacher", teachers, _OF_TEACHERS, console)
    for model, tasks in tree.get("metrics", {}).items():
        for task, metrics in tasks.items():
            rows = [NameRow(name, (_shown(found), f"{found.n:,}")) for name, found in metrics.items()]
            print_table(console, f"{model} in {task}", "metric", [Column("value"), Column("n")], rows)
    say(console, "[low, high]: 95 % interval, clustered by datapoint (n). docs/measures.md", "dim")


_OF_JUDGES = ("spa_mean", "wpa_mean", "kappa_mean")
_OF_TEACHERS = ("v1", "s2", "r3")


def _print_students(students: Branch, console: Console) -> None:
    ranked = sorted(students.items(), key=lambda entry: _best_first(entry[0], entry[1]["headline"]))
    rows = [
        NameRow(
            name,
            (
                _shown(found["headline"]),
                _shown(found["overall"]),
                f"{found['headline'].n:,}",
                f"{found['overall'].missing:,}",
            ),
        )
        for name, found in ranked
    ]
    columns = [Column("score"), Column("over units"), Column("n"), Column("missing")]
    print_table(console, "Students", "student", columns, rows)


def _print_rows(title: str, heading: str, part: Branch, names: tuple[str, ...], console: Console) -> None:
    columns = [*(Column(name.removesuffix("_mean")) for name in names), Column("n")]
    rows = [
        NameRow(name, (*(_shown(found[measure]) for measure in names), f"{found[names[0]].n:,}"))
        for name, found in part.items()
    ]
    print_table(console, title, heading, columns, rows)


def _shown(found: Measured) -> str:
    return with_interval(found.value, found.low, found.high) or _NOTHING


def _best_first(name: str, found: Measured) -> tuple[bool, float, str]:
    return found.value is None, -(found.value or 0.0), name
