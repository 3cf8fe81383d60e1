"""The file of a batch job while it is being filled."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from uuid import uuid4

from coeval.store.jsonl import store_error

__all__ = ["ID_BYTES", "ParkedFile", "ids_file", "lines_file", "results_file"]

ID_BYTES = 16


def lines_file(folder: Path, tag: str) -> Path:
    """The requests of a job, as its provider takes them."""
    return folder / f"{tag}.jsonl"


def ids_file(folder: Path, tag: str) -> Path:
    """Their ids, 16 bytes each, in the order of the lines."""
    return folder / f"{tag}.ids"


def results_file(folder: Path, tag: str) -> Path:
    """What came of them, an `BatchOutcome` a line, in any order."""
    return folder / f"{tag}.results.jsonl"


class ParkedFile:
    """Requests that wait to be submitted as one job: their lines, and beside them their ids.

    ``usd`` is the money held for them, ``dearest_usd`` the most for one. Nothing of it counts
    before a job is written down for it.
    """

    def __init__(self, folder: Path) -> None:
        self.tag = uuid4().hex
        self.folder = folder
        self.requests = self.bytes = 0
        self.usd = self.dearest_usd = 0.0
        self.phases: Counter[str] = Counter()
        self.first_id = ""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lines = lines_file(folder, self.tag).open("xb", buffering=1 << 18)
            self._ids = ids_file(folder, self.tag).open("xb", buffering=1 << 16)
        except OSError as error:
            raise store_error("write to", folder, error) from error

    def add(self, key: bytes, line: bytes, phase: str, usd: float) -> None:
        """Take one more request.

        Raises
        ------
        StoreError
            the disk refuses.
        """
        try:
            self._lines.write(line)
            self._ids.write(key)
        except OSError as error:
            raise store_error("write to", self.folder, error) from error
        self.first_id = self.first_id or key.hex()
        self.requests += 1
        self.bytes += len(line)
        self.usd += usd
        self.dearest_usd = max(self.dearest_usd, usd)
        self.phases[phase] += 1

    def close(self) -> None:
        """Nothing more comes; all of it is on disk when this returns.

        Raises
        ------
        StoreError
            the disk refuses.
        """
        try:
            for file in (self._lines, self._ids):
                file.flush()
                os.fsync(file.fileno())
                file.close()
        except OSError as error:
            raise store_error("write to", self.folder, error) from error

    def drop(self) -> None:
        """It was not to be."""
        self._lines.close()
        self._ids.close()
        lines_file(self.folder, self.tag).unlink(missing_ok=True)
        ids_file(self.folder, self.tag).unlink(missing_ok=True)
