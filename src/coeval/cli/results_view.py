"""A run's scores as tables, as JSON and as CSV."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.text import Text

from coeval.analysis.results_html import SIMULATED
from coeval.cli.json_text import json_text
from coeval.cli.name_table import Column, Row, print_table
from coeval.cli.result_table import bracketed, render
from coeval.cli.say import say
from coeval.core.plain import plain

if TYPE_CHECKING:  # the analysis loads numpy, scipy and duckdb, which a table does not need
    from coeval.analysis.breakdown import PartScore
    from coeval.analysis.scores import Results

Parts = Sequence["PartScore"]


def print_tables(results: Results, parts: Parts | None, console: Console) -> None:
    if parts is None:
        render(results, console)
        return
    if results.simulated:
        console.print(Text(SIMULATED, style="bold yellow"))
    if not parts:
        say(console, _why_nothing(results))
    for task, of_task in groupby(parts, key=lambda score: score.task):
        _show_parts(task, list(of_task), console)
    if parts:
        say(
            console,
            "Scores run from 0 to 1, with the 95 % interval of the mean over datapoints (n), each the mean "
            f"of its scores of that {parts[0].by}; failed: what has no score, and is in no mean.",
            "dim",
        )
    for note in results.notes:
        say(console, note, "dim")


def _why_nothing(results: Results) -> str:
    if any(score.mean is not None for score in results.students):
        return "nothing to show by attribute: the items that are scored were sampled without any"
    if results.labels:
        return "nothing to show by parts: labels are compared here, and no judge has scored anything"
    return "no scores yet: no answer has been judged"


def _show_parts(task: str | None, parts: Parts, console: Console) -> None:
    """On a terminal a part's name stands above its students; elsewhere on every row, for whoever searches."""
    by = parts[0].by
    where = f"in {plain(task)}" if task is not None else "over all tasks"
    title, figures = f"Scores {where} by {by}", [*map(Column, ("score", "n", "failed"))]
    if not console.file.isatty():
        rows = [Row(score.part, (_student(score), *_figures(score))) for score in parts]
        print_table(console, title, by, [Column("student", words=True), *figures], rows)
        return
    rows = []
    for part, of_part in groupby(parts, key=lambda score: score.part):
        rows.append(Row(part))
        rows += [
            Row(f"  {_student(score)}", _figures(score), "dim" if score.removed else "") for score in of_part
        ]
    print_table(console, title, f"{by}, student", figures, rows)


def _student(score: PartScore) -> str:
    return f"{score.student} (removed)" if "student" in score.removed else score.student


def _figures(score: PartScore) -> tuple[str, ...]:
    return bracketed(score.mean, score.low, score.high), f"{score.n:,}", f"{score.failed:,}"


def print_json(results: Results, parts: Parts | None) -> None:
    found = results.as_dict() if parts is None else {**results.as_dict(), "by": msgspec.to_builtins(parts)}
    sys.stdout.write(json_text(found, indent=2) + "\n")


def print_csv(results: Results, parts: Parts | None) -> None:
    """The parts; or else scores and label accuracies, told apart by their ``measure``."""
    rows = list(_rows(results)) if parts is None else [_row(score) for score in parts]
    columns = dict.fromkeys(column for row in rows for column in row)
    writer = csv.DictWriter(sys.stdout, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _rows(results: Results) -> Iterator[Mapping[str, Any]]:
    for score in results.students:
        yield {"measure": "score", **_row(score)}
    for label in results.labels:
        row = _row(label)
        mean = row.pop("accuracy")
        yield {"measure": "label accuracy", **row, "mean": mean}


def _row(record: msgspec.Struct) -> dict[str, Any]:
    return {field: _cell(value) for field, value in msgspec.structs.asdict(record).items()}


def _cell(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula is marked as the text it is."""
    text = ", ".join(value) if isinstance(value, tuple) else value
    if not isinstance(text, str):
        return text
    return plain(f"'{text}" if text.startswith(("=", "+", "-", "@")) else text)
