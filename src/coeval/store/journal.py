"""The journal of a run: the one way to record more. It appends, and groups its fsyncs off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from coeval.core.errors import StoreError
from coeval.store.jsonl import Appender, cut_torn_tail, torn_tail

SYNC_RECORDS = 256
"""A file is synced when so many of its lines have not been."""
SYNC_INTERVAL_S = 1.0
"""… and never later than this after a line was written."""
_OPEN_FILES = 256


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
