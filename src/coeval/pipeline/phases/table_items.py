"""Items that an experiment file takes out of a table: ``tasks[].items``."""

from __future__ import annotations

from coeval.core.errors import UsageError
from coeval.core.ids import item_prefix
from coeval.core.text import numbered
from coeval.pipeline.config.items_schema import Items
from coeval.pipeline.phases.item_file import ItemFile
from coeval.pipeline.phases.own_item import item_line, read_item
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
    return local_source(
        SourceChoice(name=items.path, split=items.split, encoding=items.encoding, delimiter=items.delimiter)
    )


def table_items(file: ItemFile, folder: RunDir) -> ItemFile:
    """Read the items of a task: those in the run's folder while they are what its table gives, else the
    table's rows, which are to be put there (``file.rewritten``). A table that is gone leaves those that are
    there."""
    task = file.source.task
    items = task.items
    if items is None:  # nobody but a task with a table has such a file
        return file.read()
    wanted, chosen = item_map(items), Selection(items.limit, items.sample, items.seed)
    origins = read_origins(folder).get(task.name, {}).get(file.source.teacher, [])
    stands = file.path.exists() and bool(origins)
    try:
        source = source_of(items)
        if stands and origins[-1].same_as([file_of(path) for path in source.files], wanted, chosen):
            return file.read()
    except UsageError as error:
        if not stands:
            file.flaws.append(str(error))
            return file
        file.said.append(f"{error}; the items that were taken out of it on {origins[-1].taken_at} are used")
        return file.read()
    _take(file, source, wanted, chosen)
    if stands:
        was = numbered(origins[-1].items, "item")
        file.said.append(
            f"{items.path}, or what is taken out of it, has changed since {origins[-1].taken_at}: "
            f"{was} then, {len(file.ids):,} now"
        )
    return file


def _take(file: ItemFile, source: TableSource, wanted: ItemMap, chosen: Selection) -> None:
    names = (file.source.task.name, file.source.teacher)
    prefix, harvest = item_prefix(*names), Harvest(source.tables(), wanted)
    for found in sampled(harvest.items(chosen.limit), chosen):
        line = item_line(found.item, prefix, names, found.place)
        read = read_item(line, *names)
        if isinstance(read, str):
            file.flaws.append(f"{found.path}:{found.line}: {read}")
        else:
            file.add(line, read.item, found.line)
    file.rewritten = True
    file.flaws += harvest.problem_lines()
    if not file.ids and not file.flaws:
        unwanted = f"; {harvest.unwanted:,} do not meet `where`" if harvest.unwanted else ""
        file.flaws.append(
            f"{source.name}: none of its {numbered(harvest.rows, 'row')} makes an item{unwanted}"
        )
    if wanted.reference is not None and harvest.without_reference:
        file.said.append(f"{source.name}: {numbered(harvest.without_reference, 'item')} without a reference")
    for name, count in harvest.lacking.items():
        file.said.append(f"{source.name}: {numbered(count, 'item')} without a value of {name}")
    file.origin = ItemOrigin.of(source, harvest, chosen, len(file.ids))
