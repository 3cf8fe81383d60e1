"""`coeval ingest`: import items from tables into the folder where an experiment's run looks for them."""

from __future__ import annotations

import filecmp
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from coeval.core.errors import ConfigError, UsageError
from coeval.core.records import item_prefix
from coeval.core.text import join_names, pluralize
from coeval.pipeline.config.document import read_document
from coeval.pipeline.config.draft import list_benchmark_teachers
from coeval.pipeline.config.findings import Suggestion
from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.config.schema import Config, TaskConfig
from coeval.pipeline.config.structure import check_structure
from coeval.pipeline.phases.item_file import build_item
from coeval.pipeline.run_options import run_folder
from coeval.store.jsonl import replace_file
from coeval.store.output_folder import require_run
from coeval.store.rundir import RunDir, finish_move_to_replaced, move_to_replaced
from coeval.tables.harvest import (
    Harvest,
    HarvestedItem,
    ItemOrigin,
    Selection,
    read_origins,
    sample_if_set,
    write_origin,
)
from coeval.tables.item_map import ItemMap, MappedItem
from coeval.tables.table import Table
from coeval.tables.table_source import TableSource

# --- Target of ingested items

_HOW = (
    "Add one to its models, {name: own, interface: benchmark, roles: [teacher], parameters: {task: NAME}}; "
    "or give a task items: {path: FILE, prompt: COLUMN}, which needs neither a model nor `coeval ingest`."
)


class IngestTarget(NamedTuple):
    """The file of a benchmark teacher's items for a task."""

    folder: RunDir
    task: TaskConfig
    teacher: str

    @property
    def path(self) -> Path:
        return self.folder.datapoints(self.task.name, self.teacher)


def find_place_in_config(file: Path, task: str | None = None, teacher: str | None = None) -> IngestTarget:
    """Find the target in an experiment's run folder. Raises ConfigError: the file is invalid; UsageError: it
    has no benchmark teacher, or several targets and none is named."""
    config = load_config(file)
    return _choose_target(config, run_folder(config), (task, teacher), str(file))


def find_place_in_run(path: Path, task: str | None = None, teacher: str | None = None) -> IngestTarget:
    """Find the target in a run's folder, by the configuration there; raises as `find_place_in_config`."""
    folder = require_run(path, whole=False)
    if not folder.config.exists():
        raise UsageError(f"{folder.path} holds no config.yaml; name the experiment file by --config")
    structure = check_structure(read_document(folder.config).data)
    if structure.config is None:
        raise UsageError(f"{folder.config} cannot be used; name the experiment file by --config")
    return _choose_target(structure.config, folder, (task, teacher), str(folder.config))


def _choose_target(
    config: Config, folder: RunDir, task_and_teacher: tuple[str | None, str | None], file: str
) -> IngestTarget:
    """Return the target that task and teacher name, or the only one; raise UsageError with the choices."""
    task, teacher = task_and_teacher
    tasks = {entry.name: entry for entry in config.tasks}
    if task is not None and task not in tasks:
        raise UsageError(
            f"--task {task}: {file} has no such task; {Suggestion(task, tasks, 'tasks:').sentence()}"
        )
    teachers = list_benchmark_teachers(config)
    targets = [
        IngestTarget(folder, entry, benchmark.name)
        for entry in config.tasks
        for benchmark in teachers
        if benchmark.serves(entry.name, entry.category)
    ]
    matching = [p for p in targets if task in (None, p.task.name) and teacher in (None, p.teacher)]
    if len(matching) == 1:
        return matching[0]
    if teacher is not None and not any(target.teacher == teacher for target in targets):
        names = dict.fromkeys(target.teacher for target in targets)
        raise UsageError(
            f"--teacher {teacher}: {file} has no such benchmark; "
            f"{Suggestion(teacher, names, 'benchmarks:').sentence()}"
        )
    if not matching:
        if task is not None and (table := tasks[task].items) is not None:
            raise UsageError(f"the task {task} takes its items from {table.path}; change `items` of it")
        whom = f"the task {task}" if task is not None else "any task"
        raise UsageError(f"{file} has no benchmark teacher that serves {whom}. {_HOW}")
    choices = join_names(f"--task {p.task.name} --teacher {p.teacher}" for p in matching)
    raise UsageError(f"{file} has several places for items: {choices}; name one")


# Distinct values kept in memory; a label with more is no label but free text.
_MOST_LABELS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions:
    """What to import. ``replace``: existing other items move away; ``skip_bad``: flawed rows are left out."""

    source: TableSource
    tables: Iterator[Table]
    map: ItemMap
    selection: Selection
    replace: bool = False
    skip_bad: bool = False
    dry_run: bool = False


class IngestPreview(NamedTuple):
    """The first items, shown before anything is written."""

    items: list[MappedItem]
    problems: list[str]


class IngestOutcome(NamedTuple):
    """The result of an import. ``written``: the target holds these items now; ``same``: it did before.
    ``replaced`` is where earlier items were moved. ``items`` came from ``rows``; ``cut``: later rows were
    not read; ``values`` are those of attributes, if there is no target."""

    written: bool
    same: bool
    rows: int
    items: int
    skipped: int
    remarks: list[str]
    cut: bool = False
    replaced: Path | None = None
    values: Mapping[str, Sequence[str]] = {}


def import_items(
    options: IngestOptions, target: IngestTarget | None, go_on: Callable[[IngestPreview], bool]
) -> IngestOutcome | None:
    """Import the items; None if ``go_on``, which is shown the first ones, says no. With ``dry_run``, and
    without ``target``, all is read and nothing written. Raises ConfigError: rows make no item; it names
    them by file and line; UsageError: there are no items, or the target holds others, or is in use."""
    with ExitStack() as stack:
        if target is not None and not options.dry_run:
            finish_move_to_replaced(target.folder)
            stack.enter_context(target.folder.hold_lock())
            read_origins(target.folder)  # raises, if they are damaged, before anything is written
        exists_already = target is not None and target.path.exists()
        harvest = Harvest(options.tables, options.map)
        items = harvest.read_items(options.selection.read_limit)
        head = list(islice(items, 3))
        ours = options.replace or not exists_already  # else nothing will be written
        if ours and not go_on(IngestPreview([mapped.item for mapped in head], harvest.describe_problems())):
            return None
        stream = sample_if_set(chain(head, items), options.selection)
        if target is None or options.dry_run:
            return _count_items_and_values(stream, harvest, options)
        return _write_items_unless_same(stream, harvest, options, target, exists_already=exists_already)


def _count_items_and_values(
    stream: Iterator[HarvestedItem], harvest: Harvest, options: IngestOptions
) -> IngestOutcome:
    items = 0
    values: dict[str, dict[str, None]] = {name: {} for name in options.map.attributes}
    for mapped in stream:
        items += 1
        for name, value in mapped.item.attributes.items():
            if len(values[name]) < _MOST_LABELS:
                values[name][value] = None
    _refuse_flawed_or_empty_table(harvest, options, items)
    outcome = _make_outcome(harvest, options, items)
    return outcome._replace(values={name: sorted(texts) for name, texts in values.items()})


def _write_items_unless_same(
    stream: Iterator[HarvestedItem],
    harvest: Harvest,
    options: IngestOptions,
    target: IngestTarget,
    *,
    exists_already: bool,
) -> IngestOutcome:
    """Write the items to the target, unless it holds the very same."""
    names = (target.task.name, target.teacher)
    prefix, items, replaced = item_prefix(*names), 0, None
    try:
        with replace_file(target.path) as file:
            for row in stream:
                items += 1
                file.write(build_item(row, prefix, *names).line)
            _refuse_flawed_or_empty_table(harvest, options, items)
            file.flush()
            if exists_already:
                _refuse_same_or_unreplaced_items(target, Path(file.name), options)
                replaced = move_to_replaced(target.folder, [target.path])
    except _SameAsBefore:
        return _make_outcome(harvest, options, items)._replace(same=True)
    write_origin(
        target.folder, names, ItemOrigin.from_harvest(options.source, harvest, options.selection, items)
    )
    return _make_outcome(harvest, options, items)._replace(written=True, replaced=replaced)


class _SameAsBefore(Exception):
    """The target holds these very items already, so nothing is written."""


def _refuse_same_or_unreplaced_items(target: IngestTarget, aside: Path, options: IngestOptions) -> None:
    if filecmp.cmp(target.path, aside, shallow=False):
        raise _SameAsBefore
    if not options.replace:
        raise UsageError(
            f"{target.path} already holds other items. --replace puts these in their place, and moves the "
            "old ones to replaced/ in the run folder. Nothing was written."
        )


def _refuse_flawed_or_empty_table(harvest: Harvest, options: IngestOptions, items: int) -> None:
    """Refuse rows that make no item, and tables without any; nothing was written."""
    if harvest.flawed and not options.skip_bad:
        flawed = "1 row makes" if harvest.flawed == 1 else f"{harvest.flawed:,} rows make"
        raise ConfigError(
            [
                *harvest.describe_problems(),
                f"{flawed} no item, of {pluralize(harvest.rows, 'row')}. Correct the table, or skip such "
                "rows with --skip-bad. Nothing was written.",
            ]
        )
    if not items:
        unwanted = f", {harvest.unwanted:,} of which do not meet --where" if harvest.unwanted else ""
        raise UsageError(f"there are no items in {pluralize(harvest.rows, 'row')}{unwanted}")


def _make_outcome(harvest: Harvest, options: IngestOptions, items: int) -> IngestOutcome:
    sentences = [*harvest.describe_problems(), *harvest.describe_few_or_partial_items(options.selection)]
    cut = options.selection.read_limit == items
    return IngestOutcome(False, False, harvest.rows, items, harvest.flawed, sentences, cut)
