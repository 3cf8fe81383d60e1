"""The journal of a run: appends records and groups fsyncs off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from coeval.core.errors import StoreError, Undecodable
from coeval.core.foreign import decoder
from coeval.core.records import Record, is_good
from coeval.store.jsonl import Appender, Line, cut_torn_tail, is_torn, line_at, torn_tail, whole_lines

# Unsynced lines after which a file is synced: a power cut costs a few hundred records at most, …
SYNC_RECORDS = 256
# … or a second's worth.
SYNC_INTERVAL_S = 1.0
# Linux lets a process hold 1,024 by default; connections need some of them.
_OPEN_FILES = 256


class Journal:
    """Append records to the files of one run; the only writer of them.

    Use as an async context manager: leaving it syncs and closes every file. A last line that a crash
    left torn is cut off before its file is appended to; ``note_torn`` makes the record that keeps
    it, which is appended to ``notes`` first.
    """

    def __init__(self, notes: Path, note_torn: Callable[[Path, bytes], msgspec.Struct]) -> None:
        self._files: dict[Path, Appender] = {}
        self._latest: Appender | None = None
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
        """Append one record as one whole line.

        Raises StoreError: the disk refused this line, or the sync of earlier ones; the file holds whole lines
        only.
        """
        if self._failure is not None:
            raise self._failure
        file = self._latest
        if file is None or file.path is not path:
            file = self._latest = self._files.pop(path, None) or self._open(path)
            self._files[path] = file  # most recently used last
        if file.append(record) >= SYNC_RECORDS:
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


# --- Lines that count, one per id


class Dropped(msgspec.Struct, frozen=True):
    """A line that is no record: its offset, and the reason."""

    path: str
    offset: int
    reason: str


class _Identified(msgspec.Struct):
    id: str


def all_lines(path: Path) -> Iterator[Line]:
    """Yield `whole_lines`, then a torn last line if there is one."""
    yield from whole_lines(path)
    if torn := torn_tail(path):
        yield Line(path.stat().st_size - len(torn), torn)


def lines_that_count(
    files: Sequence[Path], read: Callable[[bytes], Record], dropped: list[Dropped]
) -> list[set[int]]:
    """Return, per file, the offsets of the lines that count. Records are read whole only where an id has
    several."""

    def good(text: bytes) -> bool:
        try:
            return is_good(read(text))
        except Undecodable:
            return False

    identify = decoder(_Identified)
    places: dict[str, tuple[int, int]] = {}
    for number, path in enumerate(files):
        for line in all_lines(path):
            try:
                key = identify(line.text).id
            except Undecodable as error:
                reason = "the last line was cut off" if is_torn(line.text) else str(error)
                dropped.append(Dropped(str(path), line.offset, reason))
                continue
            earlier = places.get(key)
            if earlier is None or good(line.text) or not good(line_at(files[earlier[0]], earlier[1])):
                places[key] = number, line.offset
    needed: list[set[int]] = [set() for _ in files]
    for number, offset in places.values():
        needed[number].add(offset)
    return needed
