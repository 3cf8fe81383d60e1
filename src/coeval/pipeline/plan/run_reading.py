"""What a folder of ours holds; a run's records as its configuration plans them, and the looks at them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec

from coeval.analysis.intervals import Looks
from coeval.analysis.load import load
from coeval.analysis.planned_names import Planned
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.training.checkpoint_scores import uncounted_sample_notes
from coeval.core.errors import CoevalError, ConfigError, StoreError, Undecodable
from coeval.core.foreign import decode
from coeval.pipeline.plan.what_counts import planned_names
from coeval.pipeline.start.inherit import copy_if_absent
from coeval.store.jsonl import append_lines, read_whole_lines
from coeval.store.rundir import RunDir, utc_now


class FolderReading(NamedTuple):
    """An open reader, and what is to be known of it beside its own notes, one sentence each."""

    reader: Reader
    notes: tuple[str, ...]


class RunReading(NamedTuple):
    """The same of a run."""

    reader: RunReader
    notes: tuple[str, ...]


@contextmanager
def open_folder_reader(folder: Path, *, shown: bool = False) -> Iterator[FolderReading]:
    """Read a run as `open_run_reader` does, or what ``eval-framework`` left in a folder; raises the same."""
    if RunDir(folder).is_run():
        with open_run_reader(RunDir(folder), shown=shown) as (reader, notes):
            yield FolderReading(reader, notes)
    else:
        with load(folder) as results:
            yield FolderReading(results, tuple(uncounted_sample_notes(results)))


@contextmanager
def open_run_reader(folder: RunDir, *, shown: bool = False) -> Iterator[RunReading]:
    """Read a run; where its ``config.yaml`` cannot be read, all that is on record counts, and a note says so.
    ``shown``: its results are about to be shown to somebody, which counts as a look while it grows.

    Raises UsageError: the folder is no run; StoreError: a file cannot be read at all.
    """
    planned: Planned | None = None
    notes = list(_lost(folder))
    try:
        planned = planned_names(folder)
    except (ConfigError, StoreError) as error:
        notes.append(f"{_UNTOLD_REMOVED}: {str(error).splitlines()[0]}")
    with RunReader(folder.path, planned) as reader:
        looks = RecordedLooks(folder, reader)
        reader.looks = looks.now
        if said := looks.note(reader.looks):
            notes.append(said)
        if shown and (unwritten := looks.record()):
            notes.append(unwritten)
        yield RunReading(reader, tuple(notes))


def record_extension(source: RunDir, target: RunDir, planned: int) -> str:
    """Write down in ``target`` what looks at ``source`` have shown, whose scores it goes on from with
    ``planned`` items; return why that failed, if so."""
    try:
        if source.path != target.path and source.looks.exists():
            copy_if_absent(source.looks, target.looks)
        with open_run_reader(source) as (reader, _):
            return RecordedLooks(source, reader).record_extension(planned, target)
    except CoevalError as error:
        return f"that the results of {source.path.name} were shown is not recorded as a look: {error}"


_UNTOLD_REMOVED = "what was removed from the configuration is unknown and counts in full"
_UNTOLD_SIMULATED = "whether simulated models took part is unknown"


def _lost(folder: RunDir) -> Iterator[str]:
    """What is gone of the files that a run keeps about itself, and what cannot be told without it."""
    try:
        meta = folder.read_meta()
    except FileNotFoundError:
        if folder.config.exists():
            yield f"{_UNTOLD_SIMULATED}: {folder.meta} is not there"
        return
    except StoreError as error:
        if folder.config.exists():  # else it is that of an older layout, which has other fields
            yield f"{_UNTOLD_SIMULATED}: {error}"
        return
    if meta.coeval_version and not folder.config.exists():
        yield f"{_UNTOLD_REMOVED}: {folder.config} is not there"
    if meta.coeval_version and meta.resume_from is not None and not folder.inherited.exists():
        yield f"what was taken over is unknown, and may be left out: {folder.inherited} is not there"


# --- Looks at the results of a run that grows
#
# One line in ``looks.jsonl`` for each that showed anything new. Whoever only reads a finished run leaves no
# trace; a run that was looked at once, when it had ended, has no such file, and its tests are those of one
# look. Where a finished run is extended, its start writes the line: its results were shown when it ended.

_AT_WORK = ("running", "stopped", "interrupted")
_FINISHED = "completed"


class Look(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a look showed: how many ``scores`` of how many ``items``, of the items ``planned`` then; 0: not
    known. ``finished``: the run had ended, and ``planned`` is what it was extended to; more scores of the
    same items, as of one more student, make no second look of it."""

    at: str
    scores: int
    items: int
    planned: int
    finished: bool = False

    def is_before(self, other: Look) -> bool:
        return self.scores < other.scores and not (self.finished and self.items >= other.items)


class RecordedLooks:
    """The looks at a run, and which of them a reading of it is. Its files and scores are read once."""

    def __init__(self, folder: RunDir, reader: RunReader) -> None:
        self._folder, self._reader = folder, reader
        self._status = _status(folder)
        self._seen = _recorded(folder)

    @property
    def now(self) -> Looks:
        """Return which look a reading of the run is, whether or not it will be recorded.

        The plan that tests are tuned to is that of the first recorded look: tuned again to what later plans
        came to, looks would not be paid for together.
        """
        growing = self._status in _AT_WORK
        if not self._seen and not growing:
            return Looks(1, 1.0)  # as nearly always; nothing needs to be counted
        tuned = (self._seen[0].planned if self._seen else 0) or self._present.planned
        share = self._present.items / tuned if tuned else 1.0
        return Looks(len(self._earlier) + 1, max(share, 1e-6), growing)

    def note(self, looks: Looks) -> str:
        """Say of a look that is one of several how its tests are meant; empty: it is the only one."""
        if not looks.many:
            return ""
        only = "a difference is called significant only if it would be at any look"
        after = ", ".join(f"{one.items:,}" for one in self._earlier)
        name = f"{looks.name[0].upper()}{looks.name[1:]}"
        return f"{name} at a run as it grows{f' (after {after} items)' if after else ''}: {only}"

    def record(self) -> str:
        """Write down that the results of a run which is not finished were shown, unless they were before.

        Return why that could not be written, empty if it was or need not be: who may only read may look.
        """
        if self._status in ("", _FINISHED) or self._known:
            return ""
        return _append(self._folder, self._present)

    def record_extension(self, planned: int, target: RunDir) -> str:
        """Write into ``target`` that a finished run was looked at, if ``planned`` items are more than it has;
        return as `record` does."""
        if self._status != _FINISHED or self._known:
            return ""
        [(items,)] = self._reader.rows("SELECT count(*) FROM items")
        if planned <= int(items):  # what failed is asked for again: no more is bought than was planned
            return ""
        return _append(target, msgspec.structs.replace(self._present, planned=planned, finished=True))

    @cached_property
    def _present(self) -> Look:
        [(scores, items)] = self._reader.rows(
            "SELECT count(*), count(DISTINCT (task, item)) FROM "
            "(SELECT task, item FROM scores WHERE value IS NOT NULL UNION ALL SELECT task, item FROM labels)"
        )
        return Look(utc_now(), int(scores), int(items), _planned_items(self._reader.planned))

    @cached_property
    def _earlier(self) -> list[Look]:
        return [one for one in self._seen if one.is_before(self._present)]

    @property
    def _known(self) -> bool:
        """Whether no look at these scores need be recorded."""
        present = self._present
        return not present.scores or any(one.scores == present.scores for one in self._seen)


def _append(folder: RunDir, look: Look) -> str:
    try:
        append_lines(folder.looks, [look])
    except StoreError as error:
        return f"this look at a run that grows is not recorded: {error}"
    return ""


def _planned_items(planned: Planned | None) -> int:
    """Those of all tasks; 0 where a task says no number."""
    found = 0
    for task in planned.tasks.values() if planned is not None else ():
        if task.total is None or task.teachers is None:
            return 0
        found += task.total * len(task.teachers | task.supply)
    return found


def _recorded(folder: RunDir) -> list[Look]:
    """In their order; lines that are none count as none. Two who looked at once recorded one look."""
    found: dict[tuple[int, int], Look] = {}
    for _, text in read_whole_lines(folder.looks):
        with suppress(Undecodable):
            look = decode(text, Look)
            found.setdefault((look.scores, look.items), look)
    return [*found.values()]


def _status(folder: RunDir) -> str:
    """Empty where the run says none."""
    try:
        return folder.status(folder.read_meta())
    except (FileNotFoundError, StoreError):
        return ""
