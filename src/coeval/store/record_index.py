"""What JSONL files hold: of each record what is to be remembered of it, and where its line lies.

`Index` finds records by their ids, within about 150 bytes a record. `PhaseIndex` finds those of phases 3–5,
of which there may be millions, in little more than half: their ids begin with an item's, so it numbers the
items, and keeps a column of records for each way in which ids go on.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from coeval.core.errors import Misshapen, Undecodable
from coeval.core.good import is_good
from coeval.core.ids import item_of
from coeval.core.records import Kept
from coeval.store.record_files import NOTHING, RecordFiles


class RecordPart(msgspec.Struct, frozen=True):
    """What is read of every record's line; a file's own part adds to it."""

    id: str
    status: str = "ok"
    attempts: int = 0

    @property
    def value(self) -> object:
        """What the record was made for, None where it holds nothing: see `coeval.core.good`."""
        raise NotImplementedError


class Remembered(Protocol):
    """What is remembered of a record."""

    @property
    def good(self) -> bool: ...


KeyT = TypeVar("KeyT", str, int)
EntryT = TypeVar("EntryT", bound=Remembered)
PartT = TypeVar("PartT", bound=RecordPart | Kept)
RecordT = TypeVar("RecordT", bound=msgspec.Struct)


class RecordColumn(Generic[KeyT, EntryT]):
    """What is remembered of records, by a key of theirs. Of a key's records the one counts that counts in
    `coeval.core.good.by_id`: a good one before others, else the last.

    What is remembered of records that are alike should be one object.
    """

    __slots__ = ("_places", "entries", "in_vain", "moved", "positions")

    def __init__(self) -> None:
        self.entries: dict[KeyT, EntryT] = {}
        self.positions = array("Q")  # of each key where it stood first, in the order of ``entries``
        self._places: dict[KeyT, int] = {}  # the same by key, from when any is asked for
        self.moved: dict[KeyT, int] = {}  # where a key stood again
        self.in_vain: dict[KeyT, int] = {}  # askings that failed after a good record of the key

    def stays(self, key: KeyT, record: RecordPart | Kept) -> bool:
        """Whether the ``record`` that follows leaves what there is of its key as it is.

        Raises
        ------
        Misshapen
            it does, and says that it is good, and holds nothing.
        """
        earlier = self.entries.get(key)
        if earlier is None or not earlier.good or is_good(record):
            return False
        if record.status != "failed":
            raise Misshapen(f"{record.id} holds no value")
        self.in_vain[key] = record.attempts
        return True

    def put(self, key: KeyT, entry: EntryT, position: int) -> None:
        """Remember a record that counts."""
        if key in self.entries:
            self.moved[key] = position
        else:
            self.positions.append(position)
            if self._places:
                self._places[key] = position
        self.entries[key] = entry

    def position(self, key: KeyT) -> int:
        """Where the line of a key's record lies."""
        if not self._places:
            self._places.update(zip(self.entries, self.positions, strict=True))
        return self.moved.get(key, self._places[key])

    def asked_in_vain(self, key: KeyT) -> int:
        """The ``attempts`` of a failed record that came after the good one of a key; 0 if none did."""
        return self.in_vain.get(key, 0)


class Index(Generic[EntryT]):
    """Record id → what is remembered of it."""

    def __init__(self) -> None:
        self._files = RecordFiles()
        self._column: RecordColumn[str, EntryT] = RecordColumn()
        self.get: Callable[[str], EntryT | None] = self._column.entries.get

    def __len__(self) -> int:
        return len(self._column.entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._column.entries)

    @property
    def damaged(self) -> list[tuple[Path, int]]:
        return self._files.damaged

    def asked_in_vain(self, key: str) -> int:
        return self._column.asked_in_vain(key)

    def read(
        self,
        paths: Iterable[Path],
        part: type[PartT],
        note: Callable[[PartT], EntryT],
        without: Mapping[Path, Collection[int]] = NOTHING,
    ) -> None:
        """Take in files: ``note`` turns the decoded part of each record that counts into its entry."""
        column = self._column
        for position, record in self._files.lines(paths, part, without):
            try:
                if not column.stays(record.id, record):
                    column.put(record.id, note(record), position)
            except Undecodable:
                self._files.damage(position)

    def load(self, key: str, kind: type[RecordT]) -> RecordT:
        """Read the whole record of an id again."""
        return self._files.load(self._column.position(key), key, kind)


NO_ROW = -1
"""No column has anything there."""


class ItemRows(dict[str, int]):
    """Item id → its number, given when it is first asked for; ``get`` gives none."""

    def __missing__(self, item: str) -> int:
        self[item] = row = len(self)
        return row


class PhaseIndex(Generic[EntryT]):
    """The records of a phase, whose ids have so many ``names`` after the item's id. Phases of a run share
    their ``rows``."""

    def __init__(self, rows: ItemRows, names: int) -> None:
        self.files = RecordFiles()
        self.columns: defaultdict[str, RecordColumn[int, EntryT]] = defaultdict(RecordColumn)
        """The records whose ids end alike: by what follows the item's id, each by the item's row."""
        self._rows = rows
        self._names = names

    def __len__(self) -> int:
        return sum(len(column.entries) for column in self.columns.values())

    def __iter__(self) -> Iterator[str]:
        items = list(self._rows)
        return (items[row] + end for end, column in self.columns.items() for row in column.entries)

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def entries(self) -> Iterator[EntryT]:
        """What is remembered of each record, in the order of iteration."""
        return (entry for column in self.columns.values() for entry in column.entries.values())

    def place(self, key: str) -> tuple[RecordColumn[int, EntryT], int]:
        """The column and the row of a record."""
        item = item_of(key, self._names)
        return self.columns[key[len(item) :]], self._rows[item]

    def get(self, key: str) -> EntryT | None:
        if not self._rows:
            return None  # as in all of a run that begins
        item = item_of(key, self._names)
        column, row = self.columns.get(key[len(item) :]), self._rows.get(item)
        return None if column is None or row is None else column.entries.get(row)

    def entry_getter(self, end: str) -> Callable[[int], EntryT | None]:
        """Finds by an item's row what is remembered of the record whose id goes on with ``end``."""
        return self.columns[end].entries.get

    def asked_in_vain(self, key: str) -> int:
        """The ``attempts`` of a failed record that came after the good one of an id; 0 if none did."""
        column, row = self.place(key)
        return column.asked_in_vain(row)

    def load(self, key: str, kind: type[RecordT]) -> RecordT:
        """Read the whole record of an id again."""
        column, row = self.place(key)
        return self.files.load(column.position(row), key, kind)
