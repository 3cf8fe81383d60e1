"""`coeval ingest`: items from a table, a data set or a benchmark."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from coeval.cli.commands.datasets import fetch_bar
from coeval.cli.ingest_flags import IngestFlags
from coeval.cli.settings_flags import GroupedCommand, read_set_flags, with_settings
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
from coeval.pipeline.upkeep.ingest import (
    import_items as ingest_items,
)
from coeval.pipeline.upkeep.new_experiment import (
    MOST_NAMED,
    IdColumnFinder,
    NewItems,
    clean_task_name,
    distinct_labels,
    experiment_from_table,
    experiment_text,
)
from coeval.reports.content import make_columns
from coeval.store.jsonl import write_bytes_atomic
from coeval.tables.harvest import Selection
from coeval.tables.item_map import USUAL, ColumnsMissing, ItemMap, find_unknown_columns, guess_columns
from coeval.tables.table import Table
from coeval.tables.table_source import SourceChoice, TableSource, find_source, named_benchmarks

KIND = GroupedCommand

# Some four lines of a terminal: enough to recognise an item by.
_LONGEST = 300


def _place(flags: IngestFlags) -> IngestTarget | None:
    """Where the items go; None for a new experiment file, which takes them from the source itself."""
    given = [f"--{name}" for name in ("config", "run", "new") if getattr(flags, name) is not None]
    if len(given) != 1:
        wrong = f"{join_names(given)} exclude each other" if given else "where to put the items is not said"
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
        raise UsageError(f"{flags.new} already exists; name another file, or move this one away")
    return None


def list_benchmarks() -> None:
    """The benchmarks that have a name here."""
    rows = [(name, row.license, row.about) for name, row in named_benchmarks().items()]
    show_rows(streams.results(), "", make_columns("benchmark", "licence", "about"), rows)


def take_in(name: str, flags: IngestFlags) -> NewItems | None:
    """Find the source of a name and the place, show the first items, ask, and put all of them there; those of
    a file that is yet to be written are returned."""
    console, needed = streams.results(), Selection(flags.limit, flags.sample, flags.seed)
    place, label = _place(flags), flags.single_value("label")
    before = _stamp(place.path) if place is not None else None
    choice = SourceChoice(
        name=name,
        local=flags.local,
        subset=flags.subset,
        split=flags.split,
        encoding=flags.encoding,
        delimiter=flags.delimiter,
    )
    with fetch_bar(streams.messages()) as progress:
        source = find_source(choice, progress)
    if flags.license is not None:
        source = replace(source, license=flags.license)
    tables = source.open_tables()
    first = next(tables)
    with _closed_if_refused(first):
        item_map = _map(flags, source, first, place)
        responses = _responses(flags, first, place)
    ids = IdColumnFinder(first.columns if flags.new is not None and item_map.id is None else ())
    needed_items = IngestOptions(
        source=source,
        tables=ids.watched(chain([first], tables)),
        map=item_map,
        needed=needed,
        replace=flags.replace,
        skip_bad=flags.skip_bad,
        dry_run=flags.dry_run,
    )

    def go_on(items: IngestPreview) -> bool:
        _show(console, items, item_map, source)
        asks = not (flags.yes or flags.dry_run) and sys.stdin.isatty() and sys.stderr.isatty()
        return not asks or typer.confirm(f"Write to {place.path if place else flags.new}?", True, err=True)

    try:
        found = ingest_items(needed_items, place, go_on)
    except ColumnsMissing as error:
        raise _in_flags(error, label) from None
    except (KeyboardInterrupt, typer.Abort):
        if place is None or _stamp(place.path) == before:
            raise KeyboardInterrupt("Interrupted; nothing was written.") from None
        raise
    if found is None:
        say(console, "Nothing was written.")
        raise typer.Exit(1)
    _tell(console, found, place, flags)
    if flags.new is None or flags.dry_run:
        return None
    item_map = _with_ids(item_map, ids, console)
    labels = {label: found.values[label]} if label is not None else {}
    _warn_of_many(labels, item_map, flags.new)
    license_of = flags.license or ""
    return NewItems(choice, source, item_map, needed, labels, flags.skip_bad, license_of, responses)


def _with_ids(item_map: ItemMap, ids: IdColumnFinder, console: Console) -> ItemMap:
    """Take ids from the column that tells rows apart, or say why none does."""
    if (column := ids.found) is not None:
        say(console, f"{column} differs in every row: item ids are taken from it.")
        return structs.replace(item_map, id=column)
    for column, reason in [*ids.rejected.items()][:1]:
        way = f"--id {quote(column)} --skip-bad takes ids from it and skips such rows"
        warn(streams.messages(), f"items are numbered, because {reason}; {way}")
    return item_map


def _warn_of_many(labels: Mapping[str, Sequence[str]], item_map: ItemMap, file: Path) -> None:
    for name, values in labels.items():
        if item_map.choices is None and (many := len(distinct_labels(values))) > MOST_NAMED:
            warn(
                streams.messages(),
                f"{name} has {many:,} values, more than a prompt is to name: write into "
                f"output_description of {file} how students are to know them",
            )


@contextmanager
def _closed_if_refused(table: Table) -> Iterator[None]:
    try:
        yield
    except UsageError:
        table.close()
        raise


def _stamp(path: Path) -> tuple[int, int] | None:
    """What tells a file from the one that takes its place; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _in_flags(error: ColumnsMissing, label: str | None) -> ColumnsMissing:
    """With a label told as its flag: to a map it is an attribute, or of choices the right one."""
    reported = dict.fromkeys(
        unknown._replace(key=("label",))
        if unknown.column == label and unknown.key[0] in ("attributes", "reference")
        else unknown
        for unknown in error.missing
    )
    return ColumnsMissing(error.path, [*reported])


def write_new(file: Path, task: str | None, table: NewItems) -> None:
    """Write the experiment file of ``--new``."""
    new = experiment_from_table("coeval ingest", file.stem, table)
    write_bytes_atomic(file, experiment_text(replace(new, task=task or new.task)).encode())
    start = f"coeval run --config {quote(str(file))}"
    say(streams.results(), f"{file} takes them from {table.choice.name}. Next: {start}")


def _map(flags: IngestFlags, source: TableSource, first: Table, place: IngestTarget | None) -> ItemMap:
    """What the flags say, over what is known of a named benchmark; else by the usual names."""
    known, given, label, choices = (
        source.map or ItemMap(prompt=""),
        *map(flags.single_value, ("prompt", "label", "choices")),
    )
    usual = guess_columns(first.columns) if source.map is None and given is None else {}
    prompt = given or known.prompt or usual.get("prompt")
    if not prompt:
        raise UsageError(
            f"which column holds the prompts? Name it with --prompt COLUMN; {first.path} has "
            f"{join_names(first.columns, 30)}, and none is called {join_names(USUAL['prompt'], 10)}"
        )
    attributes = dict(known.attributes) | dict(_pairs(flags.attribute, "--attribute"))
    if label is not None:
        attributes[_label_name(label, place)] = label
    guessed = usual.get("reference") if choices is None else None
    if guessed in dict(_pairs(flags.response, "--response")).values():
        guessed = None  # a column called `answer` that is a student's is no reference for its judges
    reference = flags.single_value("reference") or known.reference or (guessed if guessed != label else None)
    if choices is not None and reference is None:
        reference = label
    return ItemMap(
        prompt=prompt,
        reference=reference,
        attributes=attributes,
        id=flags.single_value("id") or known.id,
        choices=choices or known.choices,
        where=tuple(flags.where),
    )


def _responses(flags: IngestFlags, first: Table, place: IngestTarget | None) -> dict[str, str]:
    """The columns of answers that exist, by student."""
    found = dict(_pairs(flags.response, "--response"))
    if found and place is not None:
        raise UsageError(
            "--response is for --new; in an experiment file that is there, name the table under `students` "
            "(docs/items.md)"
        )
    for name in found:
        if (problem := find_name_problem(name, is_model=True)) is not None:
            raise UsageError(f"--response: {problem}")
    missing = find_unknown_columns(ItemMap(prompt=first.columns[0], attributes=found), first.columns)
    if lacking := [unknown._replace(key=("response",)) for unknown in missing]:
        raise ColumnsMissing(first.path, lacking)
    return found


def _pairs(named: Sequence[str], flag: str) -> Iterator[tuple[str, str]]:
    for text in named:
        name, sign, column = text.partition("=")
        if not name.strip() or (sign and not column.strip()):
            raise UsageError(f"{flag} {text}: write NAME=COLUMN, or one word where both are the same")
        yield name.strip(), column.strip() or name.strip()


def _label_name(column: str, place: IngestTarget | None) -> str:
    """The task's label, where it has just one; else the column's own name."""
    labels = place.task.label_attributes if place is not None else []
    return labels[0] if len(labels) == 1 else column


def _show(console: Console, first: IngestPreview, item_map: ItemMap, source: TableSource) -> None:
    reported = [f"prompt: {item_map.prompt}"]
    reported += [f"reference: {item_map.reference}"] if item_map.reference else []
    reported += [f"{name}: {column}" for name, column in item_map.attributes.items()]
    files = f" ({pluralize(len(source.files), 'file')})" if len(source.files) > 1 else ""
    say(console, f"{source.name}{files}: {', '.join(reported)}", "bold")
    for number, item in enumerate(first.items, 1):
        _show_one(console, f"{number} prompt", item.prompt)
        if item.reference is not None:
            _show_one(console, "  reference", item.reference)
        for name, value in item.attributes.items():
            _show_one(console, f"  {name}", value)


def _show_one(console: Console, name: str, text: str) -> None:
    shown = cut_middle(escape_line(" ⏎ ".join(text.splitlines())), _LONGEST)
    console.print(Text(f"  {name}: ", style="dim") + Text(shown), soft_wrap=True)


def _tell(console: Console, found: IngestOutcome, place: IngestTarget | None, flags: IngestFlags) -> None:
    for remark in found.remarks:
        warn(streams.messages(), remark)
    if found.skipped:
        warn(streams.messages(), f"{pluralize(found.skipped, 'row')} without an item left out")
    rows = f"the first {pluralize(found.rows, 'row')}" if found.cut else pluralize(found.rows, "row")
    counted = f"{pluralize(found.items, 'item')} of {rows}"
    if place is None or flags.dry_run:
        say(console, counted + (". Nothing was written." if flags.dry_run else "."))
        return
    if found.same:
        these = pluralize(found.items, "item")
        say(console, f"{place.path} holds these {these} already; nothing was written.")
    else:
        say(console, f"{counted} are in {place.path}")
    if found.replaced is not None:
        say(console, f"What stood there is in {found.replaced}")
    total = place.task.sampling.most
    if total is not None and total < found.items:
        say(console, f"sampling.total of {place.task.name} is {total:,}: the first {total:,} are used.")
    elif total is not None and total > found.items and not found.same:
        say(
            console,
            f"sampling.total of {place.task.name} is {total:,}; a run ends with exit code 3 for the rest.",
        )
    if flags.config is not None:
        go_on = " --continue" if place.folder.meta.exists() else ""
        go_on += " --redo-changed" if go_on and found.replaced is not None else ""
        say(console, f"Next: coeval run --config {quote(str(flags.config))}{go_on}")


@with_settings(IngestFlags)
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
    list_all: Annotated[bool, typer.Option("--list", help="List the benchmarks, and end.")] = False,
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
        list_benchmarks()
        return
    if source is None:
        raise UsageError("name a file, a folder, a benchmark or a data set; coeval ingest --help shows how")
    given = IngestFlags(**read_set_flags(context, IngestFlags))
    for name in ("prompt", "reference", "label", "id", "choices"):
        given.single_value(name)
    if given.new is not None and given.replace:
        raise UsageError("--replace is for items that stand in a run; --new puts none there")
    table = take_in(source, given)
    if table is not None and given.new is not None:
        write_new(given.new, given.task, table)
