"""A run's scores as tables, as JSON and as CSV."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.text import Text

from coeval.analysis.doubtful_answers import marked_labels
from coeval.analysis.run_results import SIMULATED
from coeval.cli.streams import say, warn
from coeval.cli.views.metric_view import metrics_table, show_costs
from coeval.cli.views.result_notes import LABEL_INTERVAL, notes, warnings
from coeval.cli.views.table_view import say_names, show_each, without_incomparable
from coeval.core.plain import guarded, is_shown
from coeval.core.shown_names import ShownNames

if TYPE_CHECKING:  # the analysis loads numpy, scipy and duckdb, which a table does not need
    from coeval.analysis.breakdown import By, Parts
    from coeval.core.html_table import MeasureRow
    from coeval.reports.result_tables import Results


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
    from coeval.reports.result_tables import part_label_table, part_score_table

    if parts is None:
        render(results, console, labels)
        return
    shown = names_of(results, labels)
    results, parts = shown.renamed(results), shown.renamed(parts)
    if results.simulated and any(parts):
        console.print(Text(SIMULATED, style="bold yellow"))
    tables = []
    for task, of_task in groupby(parts.scores, key=lambda score: score.task):
        where = f"in {task}" if task is not None else "over all tasks"
        tables.append(part_score_table(list(of_task), where))
    for _, of_label in groupby(parts.labels, key=lambda part: (part.task, part.label)):
        tables.append(part_label_table(list(of_label)))
    show_each(console, tables, above=results.simulated)
    if parts.scores:
        say(
            console,
            f"Means of all scores of a {parts.scores[0].by}, in points, 0 to 100, with the 95% interval over "
            "items (n); missing: possible scores that are not there, in no mean.",
            "dim",
        )
    if parts.labels:
        say(console, LABEL_INTERVAL, "dim")
    for note in results.notes if any(parts) else ():
        say(console, note, "dim")
    if any(parts):
        say_names(console, shown)


def names_of(results: Results, labels: Mapping[str, str] | None = None) -> ShownNames:
    """Short names of all models that take part; ``labels`` as in `short_names`."""
    names = [one.student for of in (results.students, results.labels, results.pairs) for one in of]
    names += [one.model for of in (results.metrics, results.costs) for one in of]
    return ShownNames.of(names, marked_labels(results.served, labels or {}))


def render(results: Results, console: Console, labels: Mapping[str, str] | None = None) -> None:
    """Print scores, label accuracies and what they mean, within the console's width; ``labels`` as in
    `short_names`."""
    names = names_of(results, labels)
    results = names.renamed(results)
    if results.simulated:
        console.print(Text(SIMULATED, style="bold yellow"))
    for said in results.leads:
        say(console, said)
    tables = [*results.tables()]
    if results.metrics:
        tables.append(metrics_table(results.metrics))
    show_each(console, map(names.renamed, tables), above=bool(results.simulated or results.leads))
    if not tables:
        say(console, "no scores yet: no answer has been scored")
    for note in without_incomparable(notes(results), console):
        say(console, note, "dim")
    for warning in warnings(results):
        warn(console, warning)
    show_costs(results.costs, console)
    say_names(console, names)


def why_nothing(results: Results, by: By) -> str:
    """Why there is no part of this kind."""
    nothing = f"nothing to show by {by}"
    if by in ("factor", "judge") and results.labels:
        return f"{nothing}: labels are compared without a judge; try --by attribute or --by teacher"
    if results.labels or any(score.score is not None for score in results.students):
        return f"{nothing}: the items were sampled without any attributes"
    return f"{nothing}: no answer has been scored yet"


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


def _rows(scores: Iterable[MeasureRow], labels: Iterable[MeasureRow]) -> Iterator[Mapping[str, Any]]:
    for score in scores:
        yield {"measure": "score", **_row(score)}
    for label in labels:
        row = _row(label)
        accuracy = row.pop("accuracy")
        yield {"measure": "label accuracy", **row, "score": accuracy}


def _row(record: object) -> dict[str, Any]:
    return {field: _cell(value) for field, value in msgspec.to_builtins(record).items()}


def _cell(value: Any) -> Any:
    text = ", ".join(map(str, value)) if isinstance(value, tuple | list) else value
    return guarded(text) if isinstance(text, str) else text
