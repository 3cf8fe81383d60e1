"""V-33: the tables that a file names for items are there, and have the columns that it names."""

from __future__ import annotations

from collections.abc import Iterator

from coeval.core.errors import UsageError
from coeval.pipeline.config.draft import Draft
from coeval.pipeline.config.findings import Finding, KeyPath, WayOut
from coeval.pipeline.config.item_sources import OWN_ITEMS
from coeval.pipeline.config.items_schema import Items
from coeval.pipeline.phases.table_items import item_map, source_of
from coeval.store.rundir import RunDir
from coeval.tables.condition import is_condition
from coeval.tables.item_map import unknown_columns


def table_findings(draft: Draft, run: RunDir) -> Iterator[Finding]:
    """A table that is gone is told where nothing was taken out of it yet: see `table_items`."""
    for index, name in draft.names("tasks").items():
        path: KeyPath = ("tasks", index, "items")
        section = draft.get(*path)
        if section is None:
            continue
        items = _with_sound_conditions(Items.model_validate(section))
        try:
            yield from _columns(items, path)
        except UsageError as error:
            if not run.datapoints(name, OWN_ITEMS).exists():
                yield Finding((*path, "path"), "V-33", str(error))


def _with_sound_conditions(items: Items) -> Items:
    """Without those that V-32 refuses: of what stands in them no column can be told."""
    return items.model_copy(update={"where": tuple(filter(is_condition, items.where))})


def _columns(items: Items, path: KeyPath) -> Iterator[Finding]:
    """Columns that the first of the files lacks; of the others they are asked when they are read."""
    tables = source_of(items).tables()
    table = next(tables)
    table.close()
    for key, column, known in unknown_columns(item_map(items), table.columns):
        way = WayOut(column, known, "columns:")
        yield Finding(_place(items, path, key), "V-33", f"{table.path} has no column '{column}'", way)


def _place(items: Items, path: KeyPath, key: tuple[str, ...]) -> KeyPath:
    """Where the file names it: an attribute that it does not is the label's."""
    if key[0] == "attributes" and key[1] not in items.attributes:
        return (*path, "label")
    return (*path, *key)
