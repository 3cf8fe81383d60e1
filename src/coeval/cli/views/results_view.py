"""A run's scores as tables, with what to know of them in sentences, as JSON and as CSV."""

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

from coeval.analysis.doubtful_answers import mark_stand_in_students
from coeval.analysis.run_results import (
    BOUNDS,
    LABELS,
    NO_LABEL,
    SIMULATED,
    BoundedScore,
    lacking_task_and_cut_off_sentences,
    missing_cut_off_or_empty_warnings,
    missing_labels_may_reorder_sentences,
)
from coeval.cli.streams import say, warn
from coeval.cli.views.table_view import print_and_drop_incomparable, print_full_names, show_costs, show_tables
from coeval.core.plain import escape_line, guard_formula, is_displayable
from coeval.core.shown_names import ShownNames
from coeval.core.text import join_names, pluralize

if TYPE_CHECKING:  # the analysis loads numpy, scipy and duckdb, which a table does not need
    from coeval.analysis.breakdown import By, ScoreParts
    from coeval.core.html_table import MeasureRow
    from coeval.reports.result_tables import Results


# --- JSON that moves no cursor

_NOT_PRINTABLE = re.compile(r"[^\x20-\x7e\n]")


def json_text(value: Any, *, indent: int = 0) -> str:
    """Encode ``value`` as JSON in one line, or indented; characters that cannot be shown are escaped."""
    encoded = msgspec.json.encode(value)
    text = (msgspec.json.format(encoded, indent=indent) if indent else encoded).decode()
    return _NOT_PRINTABLE.sub(_escape_character, text)


def write_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    sys.stdout.write(json_text(value, indent=2) + "\n")


def _escape_character(match: re.Match[str]) -> str:
    character = match[0]
    if is_displayable(character):
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def print_results_or_parts(
    results: Results, parts: ScoreParts | None, console: Console, labels: Mapping[str, str] | None
) -> None:
    """Print results, or their ``parts``; ``labels`` as in `short_names`."""
    from coeval.reports.result_tables import label_accuracy_by_part_table, part_score_table

    if parts is None:
        print_results(results, console, labels)
        return
    names = short_result_names(results, labels)
    results, parts = names.shorten_in(results), names.shorten_in(parts)
    if results.simulated and any(parts):
        console.print(Text(SIMULATED, style="bold yellow"))
    tables = []
    for task, of_task in groupby(parts.scores, key=lambda score: score.task):
        where = f"in {task}" if task is not None else "over all tasks"
        tables.append(part_score_table(list(of_task), where))
    for _, of_label in groupby(parts.labels, key=lambda part: (part.task, part.label)):
        tables.append(label_accuracy_by_part_table(list(of_label)))
    show_tables(console, tables, has_text_above=results.simulated)
    if parts.scores:
        by = f"{'an' if parts.scores[0].by == 'attribute' else 'a'} {parts.scores[0].by}"
        means = f"Means of all scores of {by}, in points, 0 to 100, with the 95% interval over items (n)"
        say(console, f"{means}; missing: expected scores that are missing, in no mean.", "dim")
    if parts.labels:
        say(console, LABEL_INTERVAL, "dim")
    if any(parts):
        for note in results.notes:
            say(console, note, "dim")
        print_full_names(console, names)


def short_result_names(results: Results, labels: Mapping[str, str] | None = None) -> ShownNames:
    """Return short names of all models in the results; ``labels`` as in `short_names`."""
    names = [row.student for rows in (results.students, results.labels, results.pairs) for row in rows]
    names += [row.model for rows in (results.metrics, results.costs) for row in rows]
    return ShownNames.of(names, mark_stand_in_students(results.served, labels or {}))


def print_results(results: Results, console: Console, labels: Mapping[str, str] | None = None) -> None:
    """Print scores, label accuracies and what they mean, within the console's width; ``labels`` as in
    `short_names`."""
    names = short_result_names(results, labels)
    results = names.shorten_in(results)
    if results.simulated:
        console.print(Text(SIMULATED, style="bold yellow"))
    for sentence in results.leads:
        say(console, sentence)
    tables = map(names.shorten_in, results.tables())
    if not show_tables(console, tables, has_text_above=bool(results.simulated or results.leads)):
        say(console, "no scores yet: no answer has been scored")
    for note in print_and_drop_incomparable(result_notes(results), console):
        say(console, note, "dim")
    for warning in result_warnings(results):
        warn(console, warning)
    show_costs(results.costs, console)
    print_full_names(console, names)


def explain_empty_breakdown(results: Results, by: By) -> str:
    nothing = f"nothing to show by {by}"
    if by in ("factor", "judge") and results.labels:
        return f"{nothing}: labels are compared without a judge; try --by attribute or --by teacher"
    if results.labels or any(score.score is not None for score in results.students):
        return f"{nothing}: the items were sampled without any attributes"
    return f"{nothing}: no answer has been scored yet"


def print_json(results: Results, parts: ScoreParts | None) -> None:
    data = results.as_dict()
    if parts is not None:
        data |= {"by": msgspec.to_builtins(parts.scores), "labels_by": msgspec.to_builtins(parts.labels)}
    write_json(data)


def print_csv(results: Results, parts: ScoreParts | None) -> None:
    """Print scores and label accuracies, or their parts, distinguished by their ``measure``."""
    rows = list(_csv_rows(*(results.students, results.labels) if parts is None else parts))
    rows += [{"measure": "strength", **_csv_row(strength)} for strength in results.pairs]
    rows += [{"measure": "human scale", **_csv_row(score)} for score in results.people]
    rows += [{"measure": "metric", **_csv_row(metric)} for metric in results.metrics]
    if not rows:
        return
    columns = dict.fromkeys(column for row in rows for column in row)
    writer = csv.DictWriter(sys.stdout, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _csv_rows(scores: Iterable[MeasureRow], labels: Iterable[MeasureRow]) -> Iterator[Mapping[str, Any]]:
    for score in scores:
        yield {"measure": "score", **_csv_row(score)}
    for label in labels:
        row = _csv_row(label)
        accuracy = row.pop("accuracy")
        yield {"measure": "label accuracy", **row, "score": accuracy}


def _csv_row(record: object) -> dict[str, Any]:
    return {field: _csv_cell(value) for field, value in msgspec.to_builtins(record).items()}


def _csv_cell(value: Any) -> Any:
    text = ", ".join(map(str, value)) if isinstance(value, tuple | list) else value
    return guard_formula(text) if isinstance(text, str) else text


# --- What to know of results beside their tables, in sentences

LABEL_INTERVAL = "[low, high] in label accuracy: 95% interval, over items."


def result_notes(results: Results) -> Iterator[str]:
    """Yield sentences that explain the tables."""
    if results.scored:
        yield (
            "Scores in points, 0 to 100, with the 95% interval [low, high] of the mean over items (n); "
            "failed: answers and judgments without a result, in no mean."
        )
    bounds = [(score.least, score.most) for score in results.students if score.task is None]
    bounds += [(label.least, label.most) for label in results.labels]
    if any(least != most for least, most in bounds):
        yield f"{BOUNDS}: with all that failed or is missing counted as 0 (wrong), and as 100 (right)."
    yield from map(escape_line, lacking_task_and_cut_off_sentences(results.students))
    yield from _label_notes(results)
    if results.sampled:
        yield (
            "mean@N: over N answers to an item, pooled within it. item s.e.: its standard error over "
            "items; sd in item: standard deviation of answers to one item."
        )
    if any(sample.pass_at is not None for sample in results.sampled):
        yield (
            "pass@N, pass^N: how often one of N answers passes, and all of them; "
            "by k: coeval analyze students --run RUN --format json."
        )
    yield from _removed_notes(results)
    yield from map(escape_line, results.notes)


def result_warnings(results: Results) -> Iterator[str]:
    """Yield warnings against trusting the scores as they are."""
    yield from (escape_line(served.warning) for served in results.served if served.warning)
    yield from map(escape_line, missing_cut_off_or_empty_warnings(results.students))
    for label_name, rows in groupby(results.labels, key=lambda label: f"{label.task} ({label.attribute})"):
        bounded = (
            BoundedScore(label.student, label.least, label.most)
            for label in rows
            if not label.removed and label.least is not None and label.most is not None
        )
        yield from map(escape_line, missing_labels_may_reorder_sentences(label_name, bounded))


def _label_notes(results: Results) -> Iterator[str]:
    if results.scored and results.label_only_tasks:
        yield f"({LABELS}): label accuracy, the share of right answers; in no overall score."
    if results.labels:
        yield LABEL_INTERVAL
    if any(label.none_of_the_labels for label in results.labels):
        yield f"{NO_LABEL}: answers that are none of the task's labels, or several; wrong."


def _removed_notes(results: Results) -> Iterator[str]:
    """Explain what the configuration no longer plans: the mark, and what is left out of all means."""
    if any(row.removed for row in (*results.students, *results.labels)):
        yield "(removed): no longer in the configuration; a removed task is in no overall score."
    names = [
        f"{row.kind} {escape_line(row.name)}"
        + (f" of {escape_line(row.task)}" if row.kind == "factor" else "")
        for row in results.left_out
    ]
    if names:
        yield f"No longer in the configuration and in no mean: {join_names(dict.fromkeys(names))}."
    beyond = [f"{pluralize(cut.items, 'item')} of {escape_line(cut.task)}" for cut in results.beyond_total]
    if beyond:
        yield f"Beyond sampling.total and in no mean: {join_names(beyond)}."
