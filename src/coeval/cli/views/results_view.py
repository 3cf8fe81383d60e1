"""A run's scores as tables, as JSON and as CSV."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.text import Text

from coeval.analysis.run_results import SIMULATED
from coeval.cli.streams import say
from coeval.cli.views.name_table import Column, NameRow, print_table, say_names
from coeval.cli.views.result_table import LABEL_INTERVAL, NO_LABEL, bracketed, names_of, render
from coeval.core.plain import is_shown, plain

if TYPE_CHECKING:  # the analysis loads numpy, scipy and duckdb, which a table does not need
    from coeval.analysis.breakdown import By, LabelPart, Parts, PartScore
    from coeval.analysis.run_results import LabelAccuracy, Results, StudentScore


# --- JSON that moves no cursor

_OTHER = re.compile(r"[^\x20-\x7e\n]")


def json_text(value: Any, *, indent: int = 0) -> str:
    """``value`` as JSON in one line, or indented; what cannot be shown is escaped as JSON escapes it."""
    encoded = msgspec.json.encode(value)
    text = (msgspec.json.format(encoded, indent=indent) if indent else encoded).decode()
    return _OTHER.sub(_escaped, text)


def write_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    sys.stdout.write(json_text(value, indent=2) + "\n")


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if is_shown(character):
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def print_tables(
    results: Results, parts: Parts | None, console: Console, labels: Mapping[str, str] | None
) -> None:
    """``labels`` as in `short_names`."""
    if parts is None:
        render(results, console, labels)
        return
    shown = names_of(results, labels)
    results, parts = shown.renamed(results), shown.renamed(parts)
    if results.simulated and any(parts):
        console.print(Text(SIMULATED, style="bold yellow"))
    for task, of_task in groupby(parts.scores, key=lambda score: score.task):
        _show_parts(task, list(of_task), console)
    for (task, label), of_label in groupby(parts.labels, key=lambda part: (part.task, part.label)):
        _show_labels(f"Label accuracy in {plain(task)}: {plain(label)}", list(of_label), console)
    if parts.scores:
        say(
            console,
            "Scores in points, 0 to 100, with the 95% interval of the mean over items (n), each the mean "
            f"of its scores of that {parts.scores[0].by}; failed: what has no score, and is in no mean.",
            "dim",
        )
    if parts.labels:
        say(console, LABEL_INTERVAL, "dim")
    for note in results.notes if any(parts) else ():
        say(console, note, "dim")
    if any(parts):
        say_names(console, shown)


def why_nothing(results: Results, by: By) -> str:
    """Why there is no part of this kind."""
    nothing = f"nothing to show by {by}"
    if by in ("factor", "judge") and results.labels:
        return f"{nothing}: labels are compared without a judge; try --by attribute or --by teacher"
    if results.labels or any(score.score is not None for score in results.students):
        return f"{nothing}: the items were sampled without any attributes"
    return f"{nothing}: no answer has been scored yet"


def _show_parts(task: str | None, parts: Sequence[PartScore], console: Console) -> None:
    by = parts[0].by
    where = f"in {plain(task)}" if task is not None else "over all tasks"
    rows = [
        (score, (bracketed(score.score, score.low, score.high), f"{score.n:,}", f"{score.failed:,}"))
        for score in parts
    ]
    _show_rows(f"Scores {where} by {by}", ("score", "n", "failed"), rows, console)


def _show_labels(title: str, parts: Sequence[LabelPart], console: Console) -> None:
    rows = []
    for part in parts:
        right = (bracketed(part.accuracy, part.low, part.high), f"{part.correct:,} of {part.n:,}")
        rows.append((part, (*right, f"{part.none_of_the_labels:,}")))
    _show_rows(f"{title} by {parts[0].by}", ("accuracy", "right", NO_LABEL), rows, console)


def _show_rows(
    title: str,
    headings: Sequence[str],
    rows: Sequence[tuple[PartScore | LabelPart, Sequence[str]]],
    console: Console,
) -> None:
    """On a terminal a part's name stands above its students; elsewhere on every row, for whoever searches."""
    by, columns = rows[0][0].by, [Column(heading) for heading in headings]
    if not console.file.isatty():
        table = [NameRow(part.part, (_student(part), *figures)) for part, figures in rows]
        print_table(console, title, by, [Column("student", words=True), *columns], table)
        return
    table = []
    for name, of_part in groupby(rows, key=lambda row: row[0].part):
        table.append(NameRow(name))
        table += [
            NameRow(f"  {_student(part)}", figures, "dim" if part.removed else "")
            for part, figures in of_part
        ]
    print_table(console, title, f"{by}, student", columns, table)


def _student(part: PartScore | LabelPart) -> str:
    return f"{part.student} (removed)" if "student" in part.removed else part.student


def print_json(results: Results, parts: Parts | None) -> None:
    found = results.as_dict()
    if parts is not None:
        found |= {"by": msgspec.to_builtins(parts.scores), "labels_by": msgspec.to_builtins(parts.labels)}
    write_json(found)


def print_csv(results: Results, parts: Parts | None) -> None:
    """Scores and label accuracies, or what they are made of, told apart by their ``measure``."""
    rows = list(_rows(*(results.students, results.labels) if parts is None else parts))
    rows += [{"measure": "strength", **_row(strength)} for strength in results.pairs]
    rows += [{"measure": "human scale", **_row(score)} for score in results.people]
    rows += [{"measure": "metric", **_row(metric)} for metric in results.metrics]
    if not rows:
        return
    columns = dict.fromkeys(column for row in rows for column in row)
    writer = csv.DictWriter(sys.stdout, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _rows(
    scores: Iterable[StudentScore | PartScore], labels: Iterable[LabelAccuracy | LabelPart]
) -> Iterator[Mapping[str, Any]]:
    for score in scores:
        yield {"measure": "score", **_row(score)}
    for label in labels:
        row = _row(label)
        accuracy = row.pop("accuracy")
        yield {"measure": "label accuracy", **row, "score": accuracy}


def _row(record: object) -> dict[str, Any]:
    return {field: _cell(value) for field, value in msgspec.to_builtins(record).items()}


def _cell(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula is marked as the text it is."""
    text = ", ".join(map(str, value)) if isinstance(value, tuple | list) else value
    if not isinstance(text, str):
        return text
    return plain(f"'{text}" if text.startswith(("=", "+", "-", "@")) else text)
