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

import msgspec

from coeval.core.text import pluralize
from coeval.store.jsonl import read_json, write_json_atomic
from coeval.store.rundir import RunDir, now
from coeval.tables.item_map import ColumnsMissing, ItemMaker, ItemMap, MappedItem, Misfit, unknown_columns
from coeval.tables.source_bytes import Reported, SourceFile
from coeval.tables.table import Table
from coeval.tables.table_source import TableSource

# Of a number that holds a file's place among the files and a line of it.
_LINE_BITS = 40


class HarvestedItem(NamedTuple):
    """An item, its row, and that row's number among all rows of all files, from 1."""

    item: MappedItem
    place: int
    path: Path
    line: int


class Selection(NamedTuple):
    """Number of items to take: the first ``limit``, or a random ``sample``; with both, a random sample of the
    smaller number."""

    limit: int | None = None
    sample: int | None = None
    seed: int = 0

    @property
    def drawn(self) -> int | None:
        """Size of the random sample; None where the first items are taken."""
        return self.sample if self.sample is None or self.limit is None else min(self.sample, self.limit)

    @property
    def first(self) -> int | None:
        """Number of items after which reading stops; None to read all."""
        return self.limit if self.sample is None else None


@dataclass(slots=True)
class Harvest:
    """One pass over the tables. ``items`` yields them; counts are complete afterwards. ``flawed`` rows make
    no item, ``unwanted`` ones fail a condition."""

    tables: Iterable[Table]
    needed: ItemMap
    rows: int = 0
    unwanted: int = 0
    flawed: int = 0
    made: int = 0
    without_reference: int = 0
    lacking: Counter[str] = field(default_factory=Counter)
    problems: dict[Path, Reported] = field(default_factory=dict)
    files: list[SourceFile] = field(default_factory=list)
    _ids: dict[int, int] = field(default_factory=dict)

    def items(self, limit: int | None = None) -> Iterator[HarvestedItem]:
        """Yield the items.

        Raises ColumnsMissing: a table has not the columns that the map names; UsageError: a file cannot be
        read on.
        """
        for table in self.tables:
            try:
                if limit is None or self.made < limit:
                    for found in self._of_table(table):
                        yield found
                        if limit is not None and self.made >= limit:
                            break
                self.files.append(table.finish())
            finally:
                table.close()

    def _of_table(self, table: Table) -> Iterator[HarvestedItem]:
        if missing := list(unknown_columns(self.needed, table.columns)):
            raise ColumnsMissing(table.path, missing)
        maker = ItemMaker(self.needed, table.columns)
        reported = self.problems.setdefault(table.path, Reported())
        for line, fields in table.rows:
            self.rows += 1
            try:
                item = self._item(maker, fields)
                if item is not None and item.id is not None:
                    self._refuse_twice(item.id, line)
            except Misfit as misfit:
                self.flawed += 1
                reported.note(str(misfit), line)
                continue
            if item is not None:
                self.made += 1
                self.without_reference += item.reference is None
                if item.lacking:
                    self.lacking.update(item.lacking)
                yield HarvestedItem(item, self.rows, table.path, line)

    def _item(self, maker: ItemMaker, fields: dict[str, Any] | str) -> MappedItem | None:
        """None where the row is not wanted; raises Misfit where it makes no item."""
        if isinstance(fields, str):
            raise Misfit(fields)
        if maker.wants(fields):
            return maker.item(fields)
        self.unwanted += 1
        return None

    def _refuse_twice(self, own: str, line: int) -> None:
        """Ids are remembered by 8 bytes of their hash: with where they stood, about 150 bytes each."""
        key = int.from_bytes(blake2b(own.encode(), digest_size=8).digest())
        here = (len(self.files) << _LINE_BITS) + line
        first = self._ids.setdefault(key, here)
        if first != here:
            file, there = divmod(first, 1 << _LINE_BITS)
            of = f" of {Path(self.files[file].path).name}" if file < len(self.files) else ""
            raise Misfit(f"the id {own} stood on line {there}{of} already")

    def remarks(self, chosen: Selection) -> Iterator[str]:
        """What is odd about the items: fewer than the sample, without a reference or an attribute."""
        if chosen.drawn is not None and self.made < chosen.drawn:
            yield (
                f"a sample of {chosen.drawn:,} is asked for of {pluralize(self.made, 'item')}: all are taken"
            )
        if self.needed.reference is not None and self.without_reference:
            yield f"{pluralize(self.without_reference, 'item')} without a reference"
        for name, count in self.lacking.items():
            yield f"{pluralize(count, 'item')} without a value of {name}"

    def problem_lines(self) -> list[str]:
        return [sentence for path, reported in self.problems.items() for sentence in reported.of(path)]


def sampled(items: Iterator[HarvestedItem], needed: Selection) -> Iterator[HarvestedItem]:
    """Draw the sample in one pass and in memory (Vitter 1985, algorithm R), and yield it in table order.
    Every subset is equally likely; the same seed draws the same one."""
    size = needed.drawn
    if size is None:
        yield from items
        return
    drawn = random.Random(needed.seed)
    held: list[HarvestedItem] = []
    for seen, item in enumerate(items):
        if seen < size:
            held.append(item)
        elif (place := drawn.randrange(seen + 1)) < size:
            held[place] = item
    yield from sorted(held, key=lambda found: found.place)


# --- Origins of supplied items: ``sources.json`` of a run, task → teacher → origins
#
# One file beside the items, so that a million of them do not each repeat it.


class ItemOrigin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One import of items. ``files`` with their SHA-256; ``revision`` of the hub's data set; ``rows`` read
    and ``items`` made."""

    source: str
    files: list[SourceFile]
    map: ItemMap
    rows: int
    items: int
    taken_at: str
    url: str = ""
    revision: str = ""
    subset: str = ""
    split: str = ""
    license: str = ""
    citation: str = ""
    limit: int | None = None
    sample: int | None = None
    seed: int | None = None

    @classmethod
    def of(cls, source: TableSource, harvest: Harvest, chosen: Selection, items: int) -> ItemOrigin:
        """Make the origin of a finished harvest."""
        return cls(
            source=source.name,
            files=harvest.files,
            map=harvest.needed,
            rows=harvest.rows,
            items=items,
            taken_at=now(),
            url=source.url,
            revision=source.revision,
            subset=source.subset,
            split=source.split,
            license=source.license,
            citation=source.citation,
            limit=chosen.limit,
            sample=chosen.sample,
            seed=chosen.seed if chosen.sample is not None else None,
        )

    @property
    def selection(self) -> Selection:
        return Selection(self.limit, self.sample, self.seed or 0)

    def same_as(self, files: Sequence[SourceFile], needed: ItemMap, chosen: Selection) -> bool:
        """Check whether the same files, used alike, give the same items; file names do not matter."""
        hashes = [file.sha256 for file in files]
        seeded = chosen if chosen.sample is not None else chosen._replace(seed=0)
        return (
            [file.sha256 for file in self.files] == hashes and self.map == needed and self.selection == seeded
        )


Origins = dict[str, dict[str, list[ItemOrigin]]]


def read_origins(folder: RunDir) -> Origins:
    """Read the origins, empty without a file; raises StoreError where it is damaged."""
    return read_json(folder.sources, Origins, missing={})


def remember_origin(folder: RunDir, place: tuple[str, str], origin: ItemOrigin) -> None:
    """Store the origin of a (task, teacher)'s items."""
    origins = read_origins(folder)
    task, teacher = place
    origins.setdefault(task, {})[teacher] = [origin]
    write_json_atomic(folder.sources, origins)


def inherit_origins(source: RunDir, target: RunDir) -> None:
    """Add the origins of another run's items to those stored."""
    theirs, own = read_origins(source), read_origins(target)
    merged = {task: {**theirs.get(task, {}), **own.get(task, {})} for task in theirs | own}
    if merged != own:
        write_json_atomic(target.sources, merged)
