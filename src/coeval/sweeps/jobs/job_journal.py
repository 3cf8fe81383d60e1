"""``OUT/sweep/jobs.jsonl``: what was done of a sweep's jobs, as far as their files still bear it out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from coeval.core.errors import Undecodable
from coeval.core.foreign import decoder
from coeval.store.jsonl import Appender, cut_torn_tail, torn_tail, whole_lines

__all__ = ["Job", "JobJournal", "JobLine", "JobState", "Stamps", "bears_out", "stamps"]

JobState: TypeAlias = Literal["answered", "concluded", "failed"]
Stamps: TypeAlias = dict[str, tuple[int, int]]
"""File, below the output folder → its size, and when it was written, in nanoseconds."""


class Job(NamedTuple):
    """One task (by its label) and sample of the checkpoint at a step."""

    step: int
    label: str
    run: int

    @property
    def folder(self) -> str:
        """Below the output folder."""
        return f"step_{self.step}/run_{self.run}/{self.label}"


class JobLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job, or one shard of it, came to an end.

    ``settings`` is the hash of what the answers hang on, ``judging`` that of the judge where it was
    concluded. ``unanswered`` prompts have no good answer, ``unscored`` no score. ``problem`` says why it
    failed.
    """

    step: int
    label: str
    run: int
    state: JobState
    settings: str
    shard: str = ""
    judging: str = ""
    unanswered: int = 0
    unscored: int = 0
    files: Stamps = {}
    problem: str = ""
    at: str = ""

    @property
    def job(self) -> Job:
        return Job(self.step, self.label, self.run)


class JobJournal:
    """The lines of ``jobs.jsonl``; one sweep at a time appends to them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._appender: Appender | None = None

    def read(self) -> Iterator[JobLine]:
        """The whole lines in their order; a damaged one is passed over, and its job owed again.

        Raises
        ------
        StoreError
            the file is there and cannot be read.
        """
        read = decoder(JobLine)
        for _, line in whole_lines(self.path):
            try:
                yield read(line)
            except Undecodable:
                continue

    def append(self, line: JobLine) -> None:
        """Raises StoreError where the disk refuses."""
        if self._appender is None:
            if torn_tail(self.path):
                cut_torn_tail(self.path)
            self._appender = Appender(self.path)
        self._appender.append(line)

    def close(self) -> None:
        if self._appender is not None:
            self._appender.close()
            self._appender = None


def stamps(out: Path, files: Iterator[str] | list[str]) -> Stamps:
    """Those of these files that are there, as they are now."""
    found = ((file, _stamp(f"{out}/{file}")) for file in files)
    return {file: stamp for file, stamp in found if stamp is not None}


def bears_out(out: Path, line: JobLine) -> bool:
    """Whether the files of a line are what it says."""
    return bool(line.files) and all(_stamp(f"{out}/{file}") == stamp for file, stamp in line.files.items())


def _stamp(file: str) -> tuple[int, int] | None:
    try:
        stat = os.stat(file)  # noqa: PTH116  a tenth of a Path's time, and there may be 100,000
    except OSError:
        return None
    return (stat.st_size, stat.st_mtime_ns)
