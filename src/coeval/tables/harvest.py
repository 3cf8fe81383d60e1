"""Items of user tables, in order, with counts and the problems of rows by file and line; and the file that
says where they came from."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from coeval.core.text import pluralize
from coeval.store.jsonl import read_json, write_json_atomic
from coeval.store.rundir import RunDir, utc_now
from coeval.tables.item_map import (
    ColumnsMissing,
    ItemMaker,
    ItemMap,
    MappedItem,
    Misfit,
    find_unknown_columns,
)
from coeval.tables.source_bytes import LineMessages, SourceFile
from coeval.tables.table import Table
from coeval.tables.table_source import DataSet, TableSource

# Bits of a line number, in an integer that holds a file's index above them.
_LINE_BITS = 40


class HarvestedItem(NamedTuple):
    """An item, its file and line, and its row's number among the rows of all files, from 1."""

    item: MappedItem
    place: int
    path: Path
    line: int

    @property
    def own_id(self) -> str:
        """Return the id without task and teacher: that of its column, else the row's number."""
        return self.item.id if self.item.id is not None else f"{self.place:05d}"


class Selection(NamedTuple):
    """Which items to take: the first ``limit``, or a random ``sample``; with both, the smaller one."""

    limit: int | None = None
    sample: int | None = None
    seed: int = 0

    @property
    def sample_size(self) -> int | None:
        """Return the size of the random sample; None to take the first items."""
        return self.sample if self.sample is None or self.limit is None else min(self.sample, self.limit)

    @property
    def read_limit(self) -> int | None:
        """Return how many items to read; None for all."""
        return self.limit if self.sample is None else None


@dataclass(slots=True)
class Harvest:
    """One pass over tables that makes items; its counts are complete after `read_items`. ``flawed`` rows make
    no item, ``unwanted`` ones fail a condition."""

    tables: Iterable[Table]
    item_map: ItemMap
    rows: int = 0
    unwanted: int = 0
    flawed: int = 0
    made: int = 0
    without_reference: int = 0
    lacking: Counter[str] = field(default_factory=Counter)
    problems: dict[Path, LineMessages] = field(default_factory=dict)
    files: list[SourceFile] = field(default_factory=list)
    _ids: dict[int, int] = field(default_factory=dict)

    def read_items(self, limit: int | None = None) -> Iterator[HarvestedItem]:
        """Yield the items of all tables, at most ``limit``. Raises ColumnsMissing: a table lacks columns of
        the map; UsageError: a file becomes unreadable."""
        for table in self.tables:
            try:
                if limit is None or self.made < limit:
                    for item in self._read_table(table):
                        yield item
                        if limit is not None and self.made >= limit:
                            break
                self.files.append(table.finish())
            finally:
                table.close()

    def _read_table(self, table: Table) -> Iterator[HarvestedItem]:
        """Yield the items of one table, and note the problems of its other rows."""
        if missing := list(find_unknown_columns(self.item_map, table.columns)):
            raise ColumnsMissing(table.path, missing)
        maker = ItemMaker(self.item_map, table.columns)
        problems = self.problems.setdefault(table.path, LineMessages())
        for line, fields in table.rows:
            self.rows += 1
            try:
                item = self._make_item(maker, fields)
                if item is not None and item.id is not None:
                    self._record_new_id(item.id, line)
            except Misfit as misfit:
                self.flawed += 1
                problems.note(str(misfit), line)
                continue
            if item is not None:
                self.made += 1
                self.without_reference += item.reference is None
                if item.lacking:
                    self.lacking.update(item.lacking)
                yield HarvestedItem(item, self.rows, table.path, line)

    def _make_item(self, maker: ItemMaker, fields: dict[str, Any] | str) -> MappedItem | None:
        """Make the item of a row, None if it fails a condition; raises Misfit where the row makes no item."""
        if isinstance(fields, str):
            raise Misfit(fields)
        item = maker.make_item(fields)
        self.unwanted += item is None
        return item

    def _record_new_id(self, item_id: str, line: int) -> None:
        """Raise Misfit if an earlier row had this id. Keeps 8 bytes of its hash: about 150 bytes in all."""
        key = int.from_bytes(blake2b(item_id.encode(), digest_size=8).digest())
        position = (len(self.files) << _LINE_BITS) + line
        first = self._ids.setdefault(key, position)
        if first != position:
            file, first_line = divmod(first, 1 << _LINE_BITS)
            name = f" of {Path(self.files[file].path).name}" if file < len(self.files) else ""
            raise Misfit(f"the id {item_id} is on line {first_line}{name} already")

    def describe_few_or_partial_items(self, selection: Selection) -> Iterator[str]:
        """Say if the items are fewer than the sample, or how many lack a reference or an attribute."""
        if (size := selection.sample_size) is not None and self.made < size:
            yield f"a sample of {size:,} exceeds {pluralize(self.made, 'item')}: all are taken"
        if self.item_map.reference is not None and self.without_reference:
            yield f"{pluralize(self.without_reference, 'item')} without a reference"
        for name, count in self.lacking.items():
            yield f"{pluralize(count, 'item')} without a value of {name}"

    def describe_problems(self) -> list[str]:
        return [sentence for path, rows in self.problems.items() for sentence in rows.format_lines(path)]


def sample_if_set(items: Iterator[HarvestedItem], selection: Selection) -> Iterator[HarvestedItem]:
    """Yield a random sample in table order, drawn in one pass (Vitter 1985, algorithm R); all items if none
    is requested. Every subset is equally likely; a seed always draws the same one."""
    size = selection.sample_size
    if size is None:
        yield from items
        return
    generator = random.Random(selection.seed)
    held: list[HarvestedItem] = []
    for seen, item in enumerate(items):
        if seen < size:
            held.append(item)
        elif (slot := generator.randrange(seen + 1)) < size:
            held[slot] = item
    yield from sorted(held, key=lambda item: item.place)


# --- Origins of supplied items: ``sources.json`` of a run, task → teacher → origins
#
# One file beside the items, so that a million of them do not each repeat it.


class ItemOrigin(DataSet, frozen=True, kw_only=True, omit_defaults=True):
    """One import of items: its ``files``, the hub's ``revision``, ``rows`` read and ``items`` made."""

    source: str
    files: list[SourceFile]
    map: ItemMap
    rows: int
    items: int
    taken_at: str
    limit: int | None = None
    sample: int | None = None
    seed: int | None = None

    @classmethod
    def from_harvest(
        cls, source: TableSource, harvest: Harvest, selection: Selection, items: int
    ) -> ItemOrigin:
        return cls(
            source=source.name,
            files=harvest.files,
            map=harvest.item_map,
            rows=harvest.rows,
            items=items,
            taken_at=utc_now(),
            limit=selection.limit,
            sample=selection.sample,
            seed=selection.seed if selection.sample is not None else None,
            **{name: getattr(source, name) for name in DataSet.__struct_fields__},
        )

    @property
    def selection(self) -> Selection:
        return Selection(self.limit, self.sample, self.seed or 0)

    def matches(self, files: Sequence[SourceFile], item_map: ItemMap, selection: Selection) -> bool:
        """Check whether the same files are mapped and selected alike, whatever their names."""
        same_files = [file.sha256 for file in self.files] == [file.sha256 for file in files]
        seeded = selection if selection.sample is not None else selection._replace(seed=0)
        return same_files and self.map == item_map and self.selection == seeded


Origins = dict[str, dict[str, list[ItemOrigin]]]


def read_origins(folder: RunDir) -> Origins:
    """Read the origins, empty without a file; raises StoreError where it is damaged."""
    return read_json(folder.sources, Origins, missing={})


def write_origin(folder: RunDir, task_and_teacher: tuple[str, str], origin: ItemOrigin) -> None:
    origins = read_origins(folder)
    task, teacher = task_and_teacher
    origins.setdefault(task, {})[teacher] = [origin]
    write_json_atomic(folder.sources, origins)


def inherit_origins(source: RunDir, target: RunDir) -> None:
    """Add the origins of another run's items to those stored."""
    theirs, own = read_origins(source), read_origins(target)
    merged = {task: {**theirs.get(task, {}), **own.get(task, {})} for task in theirs | own}
    if merged != own:
        write_json_atomic(target.sources, merged)
