"""`coeval ingest`: imports items from a table, a data set or a benchmark."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer
from msgspec import structs
from rich.console import Console
from rich.text import Text

from coeval.cli import streams
from coeval.cli.commands.datasets import draw_fetch_progress
from coeval.cli.ingest_flags import IngestFlags
from coeval.cli.settings_flags import GroupedCommand, read_set_flags, with_settings_flags
from coeval.cli.streams import say, warn
from coeval.cli.views.table_view import show_rows
from coeval.core.errors import UsageError
from coeval.core.plain import cut_middle, escape_line
from coeval.core.text import join_names, pluralize
from coeval.pipeline.config.names import find_name_problem
from coeval.pipeline.upkeep.ingest import (
    IngestOptions,
    IngestOutcome,
    IngestPreview,
    IngestTarget,
    find_place_in_config,
    find_place_in_run,
)
from coeval.pipeline.upkeep.ingest import import_items as ingest_items
from coeval.pipeline.upkeep.new_experiment import (
    MOST_NAMED,
    IdColumnFinder,
    NewItems,
    clean_task_name,
    distinct_labels,
    experiment_from_table,
    write_experiment_text,
)
from coeval.reports.content import make_columns
from coeval.store.jsonl import write_bytes_atomic
from coeval.tables.harvest import Selection
from coeval.tables.item_map import USUAL, ColumnsMissing, ItemMap, find_unknown_columns, guess_columns
from coeval.tables.table import Table
from coeval.tables.table_source import SourceChoice, TableSource, find_source, named_benchmarks

KIND = GroupedCommand

# Some four lines of a terminal: enough to recognise an item by.
_MOST_CHARACTERS = 300


def _choose_target_unless_new_file(flags: IngestFlags) -> IngestTarget | None:
    """Return where the items go; None for a new experiment file, which reads them from the source itself."""
    targets = [f"--{name}" for name in ("config", "run", "new") if getattr(flags, name) is not None]
    if len(targets) != 1:
        wrong = f"{join_names(targets)} exclude each other" if targets else "no target is given"
        raise UsageError(
            f"{wrong}; give --config FILE (an experiment), --run DIR (its folder), or --new FILE (to be "
            "written)"
        )
    if flags.config is not None:
        return find_place_in_config(flags.config, flags.task, flags.teacher)
    if flags.run is not None:
        return find_place_in_run(flags.run, flags.task, flags.teacher)
    if flags.teacher is not None:
        raise UsageError(
            "--teacher chooses among the benchmark teachers of an experiment, and a file that --new "
            "writes has none; leave it out"
        )
    if flags.task is not None and clean_task_name(flags.task) != flags.task:
        usable = clean_task_name(flags.task) or "items"
        raise UsageError(f"--task {quote(flags.task)} cannot be the name of a task; {usable} can")
    if flags.new is not None and flags.new.exists():
        raise UsageError(f"{flags.new} already exists; name another file, or move it away")
    return None


def preview_and_import_items(source_name: str, flags: IngestFlags) -> NewItems | None:
    """Find a source, show its first items, ask, and import all; with ``--new`` return them for the file."""
    console, selection = streams.results(), Selection(flags.limit, flags.sample, flags.seed)
    target, label = _choose_target_unless_new_file(flags), flags.single_value("label")
    stamp_before = _read_inode_and_mtime(target.path) if target is not None else None
    choice = SourceChoice(
        name=source_name,
        local=flags.local,
        subset=flags.subset,
        split=flags.split,
        encoding=flags.encoding,
        delimiter=flags.delimiter,
    )
    with draw_fetch_progress(streams.messages()) as progress:
        source = find_source(choice, progress)
    if flags.license is not None:
        source = structs.replace(source, license=flags.license)
    tables = source.open_tables()
    first = next(tables)
    try:
        item_map = _build_item_map(flags, source, first, target)
        responses = _read_answer_columns(flags, first, target)
    except UsageError:
        first.close()
        raise
    ids = IdColumnFinder(first.columns if flags.new is not None and item_map.id is None else ())
    options = IngestOptions(
        source=source,
        tables=ids.watch_tables(chain([first], tables)),
        map=item_map,
        selection=selection,
        replace=flags.replace,
        skip_bad=flags.skip_bad,
        dry_run=flags.dry_run,
    )

    def show_preview_and_confirm(items: IngestPreview) -> bool:
        _print_preview(console, items, item_map, source)
        asks = not (flags.yes or flags.dry_run) and sys.stdin.isatty() and sys.stderr.isatty()
        return not asks or typer.confirm(f"Write to {target.path if target else flags.new}?", True, err=True)

    try:
        outcome = ingest_items(options, target, show_preview_and_confirm)
    except ColumnsMissing as error:
        raise _name_label_flag_in_error(error, label) from None
    except (KeyboardInterrupt, typer.Abort):
        if target is None or _read_inode_and_mtime(target.path) == stamp_before:
            raise KeyboardInterrupt("Interrupted; nothing was written.") from None
        raise
    if outcome is None:
        say(console, "Nothing was written.")
        raise typer.Exit(1)
    _print_import_outcome(console, outcome, target, flags)
    if flags.new is None or flags.dry_run:
        return None
    item_map = _add_id_column_or_warn(item_map, ids, console)
    labels = {label: outcome.values[label]} if label is not None else {}
    _warn_of_many_labels({} if item_map.choices else labels, flags.new)
    skips, named_license = flags.skip_bad, flags.license or ""
    return NewItems(choice, source, item_map, selection, labels, skips, named_license, responses)


def _add_id_column_or_warn(item_map: ItemMap, ids: IdColumnFinder, console: Console) -> ItemMap:
    """Add the column that identifies rows as ids, or warn why none does."""
    if (column := ids.column) is not None:
        say(console, f"{column} differs in every row: item ids are taken from it.")
        return structs.replace(item_map, id=column)
    for column, reason in [*ids.rejected.items()][:1]:
        way = f"--id {quote(column)} --skip-bad takes ids from it and skips such rows"
        warn(streams.messages(), f"items are numbered, because {reason}; {way}")
    return item_map


def _warn_of_many_labels(labels: Mapping[str, Sequence[str]], file: Path) -> None:
    for name, values in labels.items():
        if (many := len(distinct_labels(values))) > MOST_NAMED:
            know = f"describe them for students in output_description of {file}"
            warn(streams.messages(), f"{name} has {many:,} values, too many to name in a prompt: {know}")


def _read_inode_and_mtime(path: Path) -> tuple[int, int] | None:
    """Return what changes when another file takes this path; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _name_label_flag_in_error(error: ColumnsMissing, label: str | None) -> ColumnsMissing:
    """Name ``--label`` in the error: the map has the label as an attribute or as the right choice."""
    unknown_columns = []
    for unknown in error.missing:
        is_label = unknown.column == label and unknown.key[0] in ("attributes", "reference")
        unknown_columns.append(unknown._replace(key=("label",)) if is_label else unknown)
    return ColumnsMissing(error.path, [*dict.fromkeys(unknown_columns)])


def _build_item_map(
    flags: IngestFlags, source: TableSource, first: Table, target: IngestTarget | None
) -> ItemMap:
    """Build the map from the flags, else from a named benchmark's map, else from columns with usual names."""
    benchmark_map = source.map or ItemMap(prompt="")
    prompt_flag, label, choices = map(flags.single_value, ("prompt", "label", "choices"))
    usual = guess_columns(first.columns) if source.map is None and prompt_flag is None else {}
    prompt = prompt_flag or benchmark_map.prompt or usual.get("prompt")
    if not prompt:
        raise UsageError(
            f"which column holds the prompts? Name it with --prompt COLUMN; {first.path} has "
            f"{join_names(first.columns, 30)}, and none is called {join_names(USUAL['prompt'], 10)}"
        )
    attributes = dict(benchmark_map.attributes) | dict(_parse_pairs(flags.attribute, "--attribute"))
    if label is not None:  # a task's only label is meant, whatever the column is called
        labels = target.task.label_attributes if target is not None else []
        attributes[labels[0] if len(labels) == 1 else label] = label
    guessed = usual.get("reference") if choices is None else None
    if guessed == label or guessed in dict(_parse_pairs(flags.response, "--response")).values():
        guessed = None  # a column called `answer` that is a student's is no reference for its judges
    reference = flags.single_value("reference") or benchmark_map.reference or guessed
    if choices is not None and reference is None:
        reference = label
    return ItemMap(
        prompt=prompt,
        reference=reference,
        attributes=attributes,
        id=flags.single_value("id") or benchmark_map.id,
        choices=choices or benchmark_map.choices,
        where=tuple(flags.where),
    )


def _read_answer_columns(flags: IngestFlags, first: Table, target: IngestTarget | None) -> dict[str, str]:
    """Return the columns of existing answers by student."""
    column_by_student = dict(_parse_pairs(flags.response, "--response"))
    if column_by_student and target is not None:
        raise UsageError(
            "--response is for --new; in an existing experiment file, name the table under `students` "
            "(docs/items.md)"
        )
    for name in column_by_student:
        if (problem := find_name_problem(name, is_model=True)) is not None:
            raise UsageError(f"--response: {problem}")
    columns_map = ItemMap(prompt=first.columns[0], attributes=column_by_student)
    missing = find_unknown_columns(columns_map, first.columns)
    if unknown_columns := [unknown._replace(key=("response",)) for unknown in missing]:
        raise ColumnsMissing(first.path, unknown_columns)
    return column_by_student


def _parse_pairs(texts: Sequence[str], flag: str) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, sign, column = text.partition("=")
        if not name.strip() or (sign and not column.strip()):
            raise UsageError(f"{flag} {text}: write NAME=COLUMN, or one word where both are the same")
        yield name.strip(), column.strip() or name.strip()


def _print_preview(console: Console, first: IngestPreview, item_map: ItemMap, source: TableSource) -> None:
    fields = [f"prompt: {item_map.prompt}"]
    fields += [f"reference: {item_map.reference}"] if item_map.reference else []
    fields += [f"{name}: {column}" for name, column in item_map.attributes.items()]
    files = f" ({pluralize(len(source.files), 'file')})" if len(source.files) > 1 else ""
    say(console, f"{source.name}{files}: {', '.join(fields)}", "bold")
    for number, item in enumerate(first.items, 1):
        _print_shortened_field(console, f"{number} prompt", item.prompt)
        if item.reference is not None:
            _print_shortened_field(console, "  reference", item.reference)
        for name, value in item.attributes.items():
            _print_shortened_field(console, f"  {name}", value)


def _print_shortened_field(console: Console, name: str, text: str) -> None:
    short = cut_middle(escape_line(" ⏎ ".join(text.splitlines())), _MOST_CHARACTERS)
    console.print(Text(f"  {name}: ", style="dim") + Text(short), soft_wrap=True)


def _print_import_outcome(
    console: Console, outcome: IngestOutcome, target: IngestTarget | None, flags: IngestFlags
) -> None:
    """Print how many items were imported, what they replaced, and the next command."""
    for remark in outcome.remarks:
        warn(streams.messages(), remark)
    if outcome.skipped:
        warn(streams.messages(), f"{pluralize(outcome.skipped, 'row')} without an item left out")
    rows = f"the first {pluralize(outcome.rows, 'row')}" if outcome.cut else pluralize(outcome.rows, "row")
    counted = f"{pluralize(outcome.items, 'item')} of {rows}"
    if target is None or flags.dry_run:
        say(console, counted + (". Nothing was written." if flags.dry_run else "."))
        return
    if outcome.same:
        these = pluralize(outcome.items, "item")
        say(console, f"{target.path} already holds these {these}; nothing was written.")
    else:
        say(console, f"{counted} are in {target.path}")
    if outcome.replaced is not None:
        say(console, f"The previous items are in {outcome.replaced}")
    if (total := target.task.sampling.max_items) is not None:
        total_set = f"sampling.total of {target.task.name} is {total:,}"
        if total < outcome.items:
            say(console, f"{total_set}: the first {total:,} are used.")
        elif total > outcome.items and not outcome.same:
            say(console, f"{total_set}; a run ends with exit code 3 for the rest.")
    if flags.config is not None:
        restart_flags = " --continue" if target.folder.meta.exists() else ""
        restart_flags += " --redo-changed" if restart_flags and outcome.replaced is not None else ""
        say(console, f"Next: coeval run --config {quote(str(flags.config))}{restart_flags}")


@with_settings_flags(IngestFlags)
def ingest(
    context: typer.Context,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            help="A file (CSV, JSON lines, Parquet, plain or .gz), a folder of them, a benchmark (--list), "
            "or a data set of the Hugging Face hub (OWNER/NAME).",
        ),
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the benchmarks, and exit.")] = False,
    **flags: Any,  # noqa: ARG001  the context has them, and which of them were given
) -> None:
    """Import items from a table, a data set or a benchmark.

    It shows the first three items and, in a terminal, asks before it writes. Bad
    rows are reported by line, and nothing is written. Without --prompt, the
    columns of prompt and reference are found by their usual names.

    \b
    Examples:
      coeval ingest reviews.csv --prompt text --label sentiment --new reviews.yaml
      coeval ingest qa.jsonl --prompt question --reference answer --config my.yaml
      coeval ingest exam.parquet --choices options --reference key --sample 200 --config my.yaml
      coeval ingest gsm8k --sample 100 --config my.yaml --task maths
      coeval ingest arc-challenge --from ./ARC-Challenge --run runs/education-benchmark-v1
      coeval ingest --list
    """
    if list_all:
        rows = [(name, row.license, row.about) for name, row in named_benchmarks().items()]
        show_rows(streams.results(), "", make_columns("benchmark", "licence", "about"), rows)
        return
    if source is None:
        raise UsageError("name a file, a folder, a benchmark or a data set; coeval ingest --help shows how")
    flags_given = IngestFlags(**read_set_flags(context, IngestFlags))
    for name in ("prompt", "reference", "label", "id", "choices"):
        flags_given.single_value(name)
    if flags_given.new is not None and flags_given.replace:
        raise UsageError("--replace is for existing items of a run; --new has none")
    table = preview_and_import_items(source, flags_given)
    if table is not None and (file := flags_given.new) is not None:
        new = experiment_from_table("coeval ingest", file.stem, table)
        new = replace(new, task=flags_given.task or new.task)
        write_bytes_atomic(file, write_experiment_text(new).encode())
        start = f"coeval run --config {quote(str(file))}"
        say(streams.results(), f"{file} takes them from {table.choice.name}. Next: {start}")
