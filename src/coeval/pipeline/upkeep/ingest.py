"""`coeval ingest`: items of somebody's tables are put where the run of an experiment looks for them."""

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
from coeval.pipeline.config.draft import BenchmarkTeachers
from coeval.pipeline.config.findings import Suggestion
from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.config.schema import Config, TaskConfig
from coeval.pipeline.config.structure import check_structure
from coeval.pipeline.phases.item_file import made_item
from coeval.pipeline.run_options import run_folder
from coeval.store.jsonl import replace_file
from coeval.store.output_folder import require_run
from coeval.store.rundir import RunDir, finish_replacing, move_to_replaced
from coeval.tables.harvest import (
    Harvest,
    HarvestedItem,
    ItemOrigin,
    Selection,
    draw_sample,
    read_origins,
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
    """Where the items of a benchmark teacher for a task lie."""

    folder: RunDir
    task: TaskConfig
    teacher: str

    @property
    def path(self) -> Path:
        return self.folder.datapoints(self.task.name, self.teacher)


def find_place_in_config(file: Path, task: str | None = None, teacher: str | None = None) -> IngestTarget:
    """The place in the run folder of an experiment file.

    Raises ConfigError: the file is none; UsageError: it has no benchmark teacher, or several places of which
    none is named.
    """
    config = load_config(file)
    return _only_one(config, run_folder(config), (task, teacher), str(file))


def find_place_in_run(path: Path, task: str | None = None, teacher: str | None = None) -> IngestTarget:
    """The place in a run's folder, by the configuration that lies in it; raises as `find_place_in_config`."""
    folder = require_run(path, whole=False)
    if not folder.config.exists():
        raise UsageError(f"{folder.path} holds no config.yaml; name the experiment file by --config")
    structure = check_structure(read_document(folder.config).data)
    if structure.config is None:
        raise UsageError(f"{folder.config} cannot be used; name the experiment file by --config")
    return _only_one(structure.config, folder, (task, teacher), str(folder.config))


def _only_one(
    config: Config, folder: RunDir, named: tuple[str | None, str | None], file: str
) -> IngestTarget:
    task, teacher = named
    tasks = {each.name: each for each in config.tasks}
    if task is not None and task not in tasks:
        raise UsageError(
            f"--task {task}: {file} has no such task; {Suggestion(task, tasks, 'tasks:').sentence()}"
        )
    places = list(_places(config, folder))
    found = [p for p in places if task in (None, p.task.name) and teacher in (None, p.teacher)]
    if len(found) == 1:
        return found[0]
    if teacher is not None and not any(place.teacher == teacher for place in places):
        teachers = dict.fromkeys(place.teacher for place in places)
        raise UsageError(
            f"--teacher {teacher}: no benchmark of {file} is named so; "
            f"{Suggestion(teacher, teachers, 'benchmarks:').sentence()}"
        )
    if not found:
        if task is not None and (table := tasks[task].items) is not None:
            raise UsageError(f"the task {task} takes its items from {table.path}; change `items` of it")
        whom = f"the task {task}" if task is not None else "any task"
        raise UsageError(f"{file} has no benchmark teacher that serves {whom}. {_HOW}")
    choices = join_names(f"--task {p.task.name} --teacher {p.teacher}" for p in found)
    raise UsageError(f"{file} has several places for items: {choices}; name one")


def _places(config: Config, folder: RunDir) -> Iterator[IngestTarget]:
    suppliers = BenchmarkTeachers.from_config(config)
    for task in config.tasks:
        for teacher in suppliers.serving(task.name, task.category):
            yield IngestTarget(folder, task, teacher)


# Distinct values kept in memory; a label with more is no label but free text.
_MOST_LABELS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions:
    """What is to be taken in. ``tables`` are those of ``source``, from the first on; ``replace``: other items
    that stand in the place give way; ``skip_bad`` leaves rows out that make no item."""

    source: TableSource
    tables: Iterator[Table]
    map: ItemMap
    needed: Selection
    replace: bool = False
    skip_bad: bool = False
    dry_run: bool = False


class IngestPreview(NamedTuple):
    """What is shown before anything is written."""

    items: list[MappedItem]
    problems: list[str]


class IngestOutcome(NamedTuple):
    """What came of it. ``written``: the place holds these items now, and did not before; ``same``: it did.
    ``replaced`` is where those are that stood there. ``items`` were taken of ``rows``; ``remarks`` are
    sentences; ``cut``: nothing was read below those rows; ``values`` are those of the attributes, told
    where there is no place."""

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
    needed: IngestOptions, place: IngestTarget | None, go_on: Callable[[IngestPreview], bool]
) -> IngestOutcome | None:
    """Take the items in; None where ``go_on``, which is shown the first of them, says no. With ``dry_run``,
    and where there is no ``place``, all is read and nothing written.

    Raises ConfigError: rows make no item; it names them by file and line; UsageError: there are no items, or
    others stand in the place, or somebody else writes there.
    """
    with ExitStack() as stack:
        if place is not None and not needed.dry_run:
            finish_replacing(place.folder)
            stack.enter_context(place.folder.hold_lock())
            read_origins(place.folder)  # where they cannot be read, it is told before anything is written
        stands = place is not None and place.path.exists()
        harvest = Harvest(needed.tables, needed.map)
        items = harvest.read_items(needed.needed.read_limit)
        head = list(islice(items, 3))
        ours = needed.replace or not stands  # else nothing will be written
        if ours and not go_on(IngestPreview([found.item for found in head], harvest.describe_problems())):
            return None
        stream = draw_sample(chain(head, items), needed.needed)
        if place is None or needed.dry_run:
            return _counted(stream, harvest, needed)
        return _put(stream, harvest, needed, place, stands=stands)


def _counted(stream: Iterator[HarvestedItem], harvest: Harvest, needed: IngestOptions) -> IngestOutcome:
    """Read all of it for somebody who writes no items."""
    items = 0
    values: dict[str, dict[str, None]] = {name: {} for name in needed.map.attributes}
    for found in stream:
        items += 1
        for name, value in found.item.attributes.items():
            if len(values[name]) < _MOST_LABELS:
                values[name][value] = None
    _refuse_flawed(harvest, needed, items)
    outcome = _outcome(harvest, needed, items)
    return outcome._replace(values={name: sorted(of) for name, of in values.items()})


def _put(
    stream: Iterator[HarvestedItem],
    harvest: Harvest,
    needed: IngestOptions,
    place: IngestTarget,
    *,
    stands: bool,
) -> IngestOutcome:
    names = (place.task.name, place.teacher)
    prefix, items, replaced = item_prefix(*names), 0, None
    try:
        with replace_file(place.path) as file:
            for found in stream:
                items += 1
                file.write(made_item(found.item, prefix, names, found.place).line)
            _refuse_flawed(harvest, needed, items)
            file.flush()
            if stands:
                _refuse_other(place, Path(file.name), needed)
                replaced = move_to_replaced(place.folder, [place.path])
    except _SameAsBefore:
        return _outcome(harvest, needed, items)._replace(same=True)
    write_origin(place.folder, names, ItemOrigin.from_harvest(needed.source, harvest, needed.needed, items))
    return _outcome(harvest, needed, items)._replace(written=True, replaced=replaced)


class _SameAsBefore(Exception):
    """These very items stand in the place already, so that nothing is to be written."""


def _refuse_other(place: IngestTarget, aside: Path, needed: IngestOptions) -> None:
    if filecmp.cmp(place.path, aside, shallow=False):
        raise _SameAsBefore
    if not needed.replace:
        raise UsageError(
            f"{place.path} holds other items already. --replace puts these in their place, and moves the old "
            "ones to replaced/ in the run folder. Nothing was written."
        )


def _refuse_flawed(harvest: Harvest, needed: IngestOptions, items: int) -> None:
    if harvest.flawed and not needed.skip_bad:
        flawed = "1 row makes" if harvest.flawed == 1 else f"{harvest.flawed:,} rows make"
        raise ConfigError(
            [
                *harvest.describe_problems(),
                f"{flawed} no item, of {pluralize(harvest.rows, 'row')}. Correct the table, or leave such "
                "rows out with --skip-bad. Nothing was written.",
            ]
        )
    if not items:
        unwanted = f", {harvest.unwanted:,} of which do not meet --where" if harvest.unwanted else ""
        raise UsageError(f"there are no items in {pluralize(harvest.rows, 'row')}{unwanted}")


def _outcome(harvest: Harvest, needed: IngestOptions, items: int) -> IngestOutcome:
    sentences = [*harvest.describe_problems(), *harvest.describe_gaps(needed.needed)]
    cut = needed.needed.read_limit == items
    return IngestOutcome(False, False, harvest.rows, items, harvest.flawed, sentences, cut)
