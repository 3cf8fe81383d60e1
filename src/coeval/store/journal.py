"""The journal of a run: what is recorded, and the one way to record more.

`Index` answers what a set of JSONL files holds, within about 150 bytes a record; `Journal` appends,
and groups its fsyncs off the event loop.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

import msgspec

from coeval.core.errors import StoreError, Undecodable
from coeval.core.foreign import decode, lines_decoder
from coeval.core.good import is_good
from coeval.core.records import Kept
from coeval.store.jsonl import Appender, Lines, cut_torn_tail, groups_of_lines, line_at, torn_tail

SYNC_RECORDS = 256
"""A file is synced when so many of its lines have not been."""
SYNC_INTERVAL_S = 1.0
"""… and never later than this after a line was written."""
_OPEN_FILES = 256


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
    """What an `Index` remembers of a record."""

    @property
    def good(self) -> bool: ...


EntryT = TypeVar("EntryT", bound=Remembered)
PartT = TypeVar("PartT", bound=RecordPart | Kept)
RecordT = TypeVar("RecordT", bound=msgspec.Struct)

NOTHING: Mapping[Path, Collection[int]] = MappingProxyType({})
NO_LINES: Mapping[Path, list[bytes]] = MappingProxyType({})

_AT_ONCE = 4_096
_OFFSET_BITS = 44
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


class Index(Generic[EntryT]):
    """Record id → what is remembered of it. Of an id's records the one counts that counts in
    `coeval.core.good.by_id`: a good one before others, else the last.

    ``get`` gives the entry of an id, or None. What ``note`` gives for records that are alike should
    be one object: then a million records cost about 150 MB, and 250 MB once any is loaded.
    """

    def __init__(self) -> None:
        self._entries: dict[str, EntryT] = {}
        self.get: Callable[[str], EntryT | None] = self._entries.get
        self._positions = array("Q")  # of each id where it stood first, in the order of ``_entries``
        self._moved: dict[str, int] = {}  # where an id stood again
        self._in_vain: dict[str, int] = {}  # askings that failed after a good record of the id
        self._places: dict[str, int] = {}
        self._paths: list[Path] = []
        self.damaged: list[tuple[Path, int]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def entries(self) -> Iterable[EntryT]:
        """What is remembered of each id, in the order of the ids."""
        return self._entries.values()

    def asked_in_vain(self, key: str) -> int:
        """The ``attempts`` of a failed record that came after the good one of an id; 0 if none did."""
        return self._in_vain.get(key, 0)

    def read(
        self,
        paths: Iterable[Path],
        part: type[PartT],
        note: Callable[[PartT], EntryT],
        without: Mapping[Path, Collection[int]] = NOTHING,
        instead: Mapping[Path, list[bytes]] = NO_LINES,
    ) -> None:
        """Take in files: ``note`` turns the decoded part of each record that counts into its entry.

        Of files in ``instead`` the lines given there are taken for theirs; these cannot be loaded.

        A line that is no such record is remembered in ``damaged`` and otherwise left out, as are
        the lines at the offsets that ``without`` names.
        """
        read = lines_decoder(part)
        entries, known = self._entries, len(self._entries)
        for path in paths:
            file = len(self._paths) << _OFFSET_BITS
            self._paths.append(path)
            left_out = () if path in instead else without.get(path, ())
            groups = _groups_of(instead[path]) if path in instead else groups_of_lines(path)
            for end, texts in groups:
                records = read(texts)
                for text, record in zip(texts, records, strict=True):  # a million: call nothing needless
                    offset, end = end, end + len(text)
                    if left_out and offset in left_out:
                        continue
                    try:
                        if isinstance(record, Undecodable):
                            raise record
                        key = record.id
                        earlier = entries.get(key)
                        if earlier is not None and earlier.good and not is_good(record):
                            if record.status == "failed":
                                self._in_vain[key] = record.attempts
                            else:  # it says that it is good, and holds nothing
                                self.damaged.append((path, offset))
                            continue
                        entry = note(record)
                    except Undecodable:
                        if not text.isspace():
                            self.damaged.append((path, offset))
                        continue
                    entries[key] = entry
                    if len(entries) > known:
                        known += 1
                        self._positions.append(file | offset)
                    else:
                        self._moved[key] = file | offset

    def load(self, key: str, kind: type[RecordT]) -> RecordT:
        """The whole record of an id, read again from disk."""
        if len(self._places) != len(self._entries):
            self._places = dict(zip(self._entries, self._positions, strict=True))
        position = self._moved.get(key, self._places[key])
        path = self._paths[position >> _OFFSET_BITS]
        try:
            return decode(line_at(path, position & _OFFSET_MASK), kind)
        except Undecodable as error:
            raise StoreError(f"{path}: the record {key} is damaged ({error}); see `coeval repair`") from error


class Journal:
    """Appends records to the files of one run; the only writer of them.

    Use as an async context manager: leaving it syncs and closes every file. A last line that a crash
    left torn is cut off before its file is appended to; ``note_torn`` makes the record that keeps
    it, which is appended to ``notes`` first.
    """

    def __init__(self, notes: Path, note_torn: Callable[[Path, bytes], msgspec.Struct]) -> None:
        self._files: dict[Path, Appender] = {}
        self._notes = notes
        self._note_torn = note_torn
        self._due = asyncio.Event()
        self._syncing: asyncio.Task[None] | None = None
        self._busy: Appender | None = None  # being synced in a thread: not to be closed
        self._failure: StoreError | None = None
        self._closing = False

    async def __aenter__(self) -> Journal:
        self._syncing = asyncio.create_task(self._sync_in_groups(), name="journal")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._due.set()
        if self._syncing is not None:
            await self._syncing
        failures = [self._failure] if self._failure else []
        for file in self._files.values():
            try:
                file.close()
            except StoreError as error:
                failures.append(error)
        self._files.clear()
        if failures:
            raise failures[0]

    def append(self, path: Path, record: msgspec.Struct) -> None:
        """Write one record as one whole line.

        Raises
        ------
        StoreError
            the disk refused this line, or the sync of earlier ones; the file holds whole lines only.
        """
        if self._failure is not None:
            raise self._failure
        file = self._files.pop(path, None) or self._open(path)
        self._files[path] = file  # most recently used last
        file.append(record)
        if file.unsynced >= SYNC_RECORDS:
            self._due.set()

    def _open(self, path: Path) -> Appender:
        torn = torn_tail(path)
        if torn and path != self._notes:
            self.append(self._notes, self._note_torn(path, torn))
        if torn:
            cut_torn_tail(path)
        if len(self._files) >= _OPEN_FILES:
            oldest = next(path for path, file in self._files.items() if file is not self._busy)
            self._files.pop(oldest).close()
        file = Appender(path)
        if torn and path == self._notes:  # it can keep its own torn line only once that is cut off
            file.append(self._note_torn(path, torn))
        return file

    async def _sync_in_groups(self) -> None:
        while not self._closing:
            try:
                await asyncio.wait_for(self._due.wait(), SYNC_INTERVAL_S)
                late = SYNC_RECORDS
            except TimeoutError:
                late = 1
            self._due.clear()
            for file in [file for file in self._files.values() if file.unsynced >= late]:
                if self._files.get(file.path) is not file:
                    continue  # closed, and so synced, meanwhile
                self._busy = file
                try:
                    await asyncio.to_thread(file.sync)
                except StoreError as error:
                    self._failure = error
                finally:
                    self._busy = None


def _groups_of(texts: list[bytes]) -> Iterator[Lines]:
    """Lines as `groups_of_lines` gives them: what is decoded of a million at once takes a gigabyte."""
    offset = 0
    for start in range(0, len(texts), _AT_ONCE):
        group = texts[start : start + _AT_ONCE]
        yield Lines(offset, group)
        offset += sum(map(len, group))
