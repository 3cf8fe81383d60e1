"""What a large run's files held when they were last read, kept for the next process.

Reading a million records takes seconds, and hashing their files a tenth of that. So what `Recorded` made of
files is kept in the user's cache folder, with the SHA-256 of what was read of each. It is taken for theirs
while every byte of that is the same, and the code that read it too, and what has been added since is read on;
else all is read anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import sys
import time
from collections.abc import Set
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from math import inf
from pathlib import Path

import msgspec

from coeval import __version__
from coeval.core.errors import StoreError, Undecodable
from coeval.core.foreign import decode
from coeval.core.plain_file import file_bytes
from coeval.core.text import digest
from coeval.pipeline.config.schema import PHASES
from coeval.pipeline.plan.reading.kept_index import KeptFile, KeptIndex, kept_files, restored, to_keep
from coeval.pipeline.plan.recorded import Recorded
from coeval.store.cache_folder import cache_folder
from coeval.store.jsonl import replaced_whole
from coeval.store.record_files import Overtaken, ReadFile
from coeval.store.rundir import RunDir

log = logging.getLogger("coeval")

SMALLEST = 1 << 26
"""Bytes of records: fewer are read as quickly."""
AT_END_S = 5.0
AT_INTERRUPTION_S = 1.0
"""Seconds that the end of a run may go on with reading what it has recorded; the next look does the rest."""
_KEPT_DAYS = 30
_SUM = hashlib.sha256().digest_size
_MOST_THREADS = 4


class RunRecords:
    """The records of a run's phases 3–5, read once; what is kept of them is of use to the next process."""

    def __init__(self, folder: RunDir) -> None:
        self._folder = folder
        self._recorded: Recorded | None = None
        self._on_disk: list[list[KeptFile]] | None = None
        self._place: Path | None = None
        self._stop_at = inf

    def read(self) -> Recorded:
        """All of them: as they were kept, as far as no file has changed since, else from the files.

        Raises
        ------
        StoreError
            a file cannot be read.
        """
        sizes = self._sizes()
        self._place = _place(self._folder) if sum(sizes.values()) >= SMALLEST else None
        kept = self._kept(sizes.keys()) if self._place is not None else None
        if kept is not None:
            try:
                return self._read_on(kept)
            except Overtaken:
                pass
        self._recorded = Recorded(goes_on=self._place is not None)
        self._recorded.stop_at(self._stop_at)
        return self._recorded.read(self._folder)

    def keep(self) -> None:
        """Keep what has been read, unless there is something damaged or in doubt."""
        recorded = self._recorded
        if self._place is None or recorded is None or recorded.contents is None or not recorded.sound:
            return
        files = [kept_files(files, self._folder) for files in recorded.files]
        if files == self._on_disk:
            return
        try:
            payload = msgspec.json.encode(to_keep(recorded, recorded.contents, self._folder, _code()))
            with replaced_whole(self._place) as file:
                file.write(hashlib.sha256(payload).digest())
                file.write(payload)
            _forget_old(self._place.parent)
        except (StoreError, OSError) as error:
            log.info("what was read of %s is not kept: %s", self._folder.path, error)
        else:
            self._on_disk = files

    async def keep_at_end(self, within_s: float) -> None:
        """Keep what the run has recorded too, or as much of that as can be read in so many seconds."""
        if sum(self._sizes().values()) < SMALLEST:
            return
        self._stop_at = time.monotonic() + within_s
        try:
            await asyncio.to_thread(self._keep_on)
        finally:
            self._stop_at = 0.0
            if self._recorded is not None:
                self._recorded.stop_at(self._stop_at)

    def _keep_on(self) -> None:
        try:
            if self._recorded is None or self._place is None:
                self.read()
            else:
                try:
                    self._read_on(self._recorded)
                except Overtaken:
                    self.read()
        except StoreError as error:
            log.info("what was recorded in %s is not read again: %s", self._folder.path, error)
        else:
            self.keep()

    def _read_on(self, recorded: Recorded) -> Recorded:
        self._recorded = recorded
        recorded.stop_at(self._stop_at)
        known = {file.path: file.end for files in recorded.files for file in files.files}
        return recorded if known == self._sizes() else recorded.read_on(self._folder)

    def _kept(self, there: Set[Path]) -> Recorded | None:
        """What was kept of these very files; None where that is not so, or it cannot be read."""
        try:
            data = file_bytes(self._place) if self._place is not None else b""
            if hashlib.sha256(memoryview(data)[_SUM:]).digest() != data[:_SUM]:
                return None
            kept = decode(msgspec.Raw(memoryview(data)[_SUM:]), KeptIndex)
            del data
            files = [file for phase in kept.phases for file in phase.files]
            if kept.code != _code() or not {self._folder.path / file.name for file in files} <= there:
                return None
            with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as threads:
                begun = threads.map(self._as_far, files)  # beside what follows
                recorded = restored(kept)
                read = list(begun)
        except (OSError, Undecodable, ValueError, LookupError):
            return None
        for files_read, phase in zip(recorded.files, kept.phases, strict=True):
            files_read.files = [read.pop(0) for _ in phase.files]
        self._on_disk = [phase.files for phase in kept.phases]
        same = [kept_files(files, self._folder) for files in recorded.files] == self._on_disk
        return recorded if same else None

    def _as_far(self, kept: KeptFile) -> ReadFile:
        """What is there of a file, up to where it had been read."""
        file = ReadFile(self._folder.path / kept.name, summed=True)
        file.skip(kept.end, whole=kept.whole)
        return file

    def _sizes(self) -> dict[Path, int]:
        """Of all files; none where one cannot be looked at, which their reader tells of."""
        try:
            return {path: path.stat().st_size for phase in PHASES[2:] for path in self._folder.files(phase)}
        except OSError:
            return {}


# --- where ---------------------------------------------------------------------------------------


def _place(folder: RunDir) -> Path | None:
    """Where what a folder holds is kept; None where the user has no folder of their own."""
    try:
        return cache_folder() / "records" / digest(str(folder.path.resolve()))
    except RuntimeError:
        return None


def _forget_old(place: Path) -> None:
    """Remove what has not been made anew for a month: its run may be gone."""
    oldest = time.time() - _KEPT_DAYS * 86_400
    for path in place.iterdir():
        if path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)


@cache
def _code() -> str:
    """What says what is remembered of a line, and how it is written down here."""
    source = Path(__file__).parents[3]
    parts = ("core", "store", "pipeline/plan", "pipeline/plan/reading")
    files = sorted(path for part in parts for path in source.glob(f"{part}/*.py"))
    about = (__version__, msgspec.__version__, sys.version, sys.byteorder)
    return digest(*about, *(path.read_text(encoding="utf-8") for path in files))
