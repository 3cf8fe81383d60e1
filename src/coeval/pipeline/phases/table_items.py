"""Items that an experiment file takes out of a table: ``tasks[].items``."""

from __future__ import annotations

from dataclasses import replace

from coeval.core.errors import UsageError
from coeval.core.ids import item_prefix
from coeval.core.text import numbered
from coeval.pipeline.config.items_schema import Items
from coeval.pipeline.phases.item_file import ItemFile
from coeval.pipeline.phases.own_item import made_item
from coeval.store.rundir import RunDir
from coeval.tables.harvest import Harvest, Selection, sampled
from coeval.tables.item_map import ItemMap
from coeval.tables.origin import ItemOrigin, read_origins
from coeval.tables.source_bytes import file_of
from coeval.tables.table_source import SourceChoice, TableSource, local_source


def item_map(items: Items) -> ItemMap:
    """What the section says of the columns. Of choices without a reference the label is the right one."""
    return ItemMap(
        prompt=items.prompt,
        reference=items.reference or (items.label if items.choices is not None else None),
        attributes=items.all_attributes,
        id=items.id,
        choices=items.choices,
        where=items.where,
    )


def source_of(items: Items) -> TableSource:
    """The files of the section; raises UsageError where there are none."""
    source = local_source(
        SourceChoice(name=items.path, split=items.split, encoding=items.encoding, delimiter=items.delimiter)
    )
    return replace(source, license=items.license) if items.license is not None else source


def table_items(file: ItemFile, folder: RunDir) -> ItemFile:
    """Read the items of a task: those in the run's folder while they are what its table gives, else the
    table's rows, as many as are used, which are to be put there (``file.rewritten``). A table that is gone
    leaves those that are there."""
    items = file.source.task.items
    if items is None:  # nobody but a task with a table has such a file
        return file.read()
    wanted, chosen = item_map(items), _selection(items, file.source.task.sampling.most)
    origins = read_origins(folder).get(file.source.task.name, {}).get(file.source.teacher, [])
    before = origins[-1] if origins and file.path.exists() else None
    try:
        source = source_of(items)
        files = [file_of(path) for path in source.files] if before is not None else []
    except UsageError as error:
        if before is None:
            file.flaws.append(str(error))
            return file
        file.said.append(f"the items that were taken on {before.taken_at} are used: {error}")
        return file.read()
    if before is not None and before.same_as(files, wanted, chosen):
        return file.read()
    _take(file, source, wanted, chosen, skip_bad=items.skip_bad)
    if before is not None and not before.same_as(files, wanted, before.selection):
        file.changed_since = before.taken_at
        file.said.append(
            f"{items.path}, or what is taken out of it, has changed since {before.taken_at}: "
            f"{numbered(before.items, 'item')} then, {len(file.ids):,} now"
        )
    return file


def _selection(items: Items, most: int | None) -> Selection:
    """No more rows are read than are used; of a sample all are."""
    if items.sample is not None or most is None:
        return Selection(items.limit, items.sample, items.seed)
    return Selection(min(most, items.limit or most))


def _take(file: ItemFile, source: TableSource, wanted: ItemMap, chosen: Selection, *, skip_bad: bool) -> None:
    names = (file.source.task.name, file.source.teacher)
    prefix, harvest = item_prefix(*names), Harvest(source.tables(), wanted)
    for found in sampled(harvest.items(chosen.first), chosen):
        made = made_item(found.item, prefix, names, found.place)
        file.add(made.line, made.item, found.line)
    file.rewritten = True
    (file.said if skip_bad else file.flaws).extend(harvest.problem_lines())
    if skip_bad and harvest.flawed:
        file.said.append(f"{source.name}: {numbered(harvest.flawed, 'row')} left out that make no item")
    if not file.ids and not file.flaws:
        unwanted = f"; {harvest.unwanted:,} do not meet `where`" if harvest.unwanted else ""
        file.flaws.append(f"{source.name}: of {numbered(harvest.rows, 'row')} none makes an item{unwanted}")
    file.said += [f"{source.name}: {sentence}" for sentence in harvest.short_of(chosen)]
    if wanted.reference is not None and harvest.without_reference:
        file.said.append(f"{source.name}: {numbered(harvest.without_reference, 'item')} without a reference")
    for name, count in harvest.lacking.items():
        file.said.append(f"{source.name}: {numbered(count, 'item')} without a value of {name}")
    file.origin = ItemOrigin.of(source, harvest, chosen, len(file.ids))
