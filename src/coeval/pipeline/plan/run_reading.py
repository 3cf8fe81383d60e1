"""Open a folder for reading its results: a run as its configuration plans it, with the looks at it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import msgspec

from coeval.analysis.intervals import Looks
from coeval.analysis.load import open_reader
from coeval.analysis.planned_names import Planned
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.training.checkpoint_scores import uncounted_or_scoreless_sample_notes
from coeval.core.errors import CoevalError, ConfigError, StoreError, Undecodable
from coeval.core.foreign import decode
from coeval.pipeline.plan.what_counts import read_planned_names
from coeval.pipeline.start.inherit import copy_if_absent
from coeval.store.jsonl import append_lines, read_whole_lines
from coeval.store.rundir import RunDir, utc_now

ReaderT = TypeVar("ReaderT", bound=Reader)


class Reading(NamedTuple, Generic[ReaderT]):
    """An open reader, and notes on it besides its own."""

    reader: ReaderT
    notes: tuple[str, ...]


@contextmanager
def open_folder_reader(folder: Path, *, is_look: bool = False) -> Iterator[Reading[Reader]]:
    """Open a run as `open_run_reader` does, or a results folder of ``eval-framework``; raises the same."""
    if RunDir(folder).is_run():
        with open_run_reader(RunDir(folder), is_look=is_look) as (reader, notes):
            yield Reading(reader, notes)
    else:
        with open_reader(folder) as results:
            yield Reading(results, tuple(uncounted_or_scoreless_sample_notes(results)))


@contextmanager
def open_run_reader(folder: RunDir, *, is_look: bool = False) -> Iterator[Reading[RunReader]]:
    """Open a run for reading; without a readable ``config.yaml``, all records count, and a note says so. With
    ``is_look``, the results are shown to somebody. Raises UsageError: it is not a run; StoreError: a file
    cannot be read."""
    planned: Planned | None = None
    notes = list(_describe_missing_run_files(folder))
    try:
        planned = read_planned_names(folder)
    except (ConfigError, StoreError) as error:
        notes.append(f"{_UNTOLD_REMOVED}: {str(error).splitlines()[0]}")
    with RunReader(folder.path, planned) as reader:
        looks = RecordedLooks(folder, reader)
        reader.looks = looks.current_look
        if sentence := looks.describe_look_among_several(reader.looks):
            notes.append(sentence)
        if is_look and (unwritten := looks.record_new_unfinished_look_or_problem()):
            notes.append(unwritten)
        yield Reading(reader, tuple(notes))


def record_pre_extension_look_or_problem(source: RunDir, target: RunDir, planned: int) -> str:
    """Record in ``target`` that the results of ``source``, which it extends to ``planned`` items, were looked
    at. Return why that failed, or ""."""
    try:
        if source.path != target.path and source.looks.exists():
            copy_if_absent(source.looks, target.looks)
        with open_run_reader(source) as (reader, _):
            return RecordedLooks(source, reader).record_short_run_or_problem(planned, target)
    except CoevalError as error:
        return f"that the results of {source.path.name} were shown is not recorded as a look: {error}"


_UNTOLD_REMOVED = "what was removed from the configuration is unknown and counts in full"
_UNTOLD_SIMULATED = "whether simulated models took part is unknown"


def _describe_missing_run_files(folder: RunDir) -> Iterator[str]:
    """Say which files about the run itself are missing or damaged, and what is unknown without them."""
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
        yield f"which records were copied is unknown, some may be missing: {folder.inherited} is not there"


# --- Looks at the results of a run that grows
#
# One line in ``looks.jsonl`` for each that showed anything new. Whoever only reads a finished run leaves no
# trace; a run that was looked at once, when it had ended, has no such file, and its tests are those of one
# look. Where a finished run is extended, its start writes the line: its results were shown when it ended.

_AT_WORK = ("running", "stopped", "interrupted")
_FINISHED = "completed"


class Look(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a look showed: ``scores`` of ``items``, of the ``planned`` items; 0: unknown. ``finished``: the
    run had ended, and ``planned`` is what it was extended to; more scores of the same items, as of another
    student, are then no second look."""

    at: str
    scores: int
    items: int
    planned: int
    finished: bool = False

    def is_before(self, other: Look) -> bool:
        return self.scores < other.scores and not (self.finished and self.items >= other.items)


class RecordedLooks:
    """The looks at a run, and which of them the present reading is. Files and scores are read once."""

    def __init__(self, folder: RunDir, reader: RunReader) -> None:
        self._folder, self._reader = folder, reader
        self._status = _read_status(folder)
        self._recorded_looks = _read_looks(folder)

    @property
    def current_look(self) -> Looks:
        """Return which look a reading of the run is, recorded or not. Tests use the plan of the first
        recorded look throughout: with a plan that changes from look to look, the error rates of the looks
        would not add up."""
        growing = self._status in _AT_WORK
        if not self._recorded_looks and not growing:
            return Looks(1, 1.0)  # as nearly always; nothing needs to be counted
        tuned = (self._recorded_looks[0].planned if self._recorded_looks else 0) or self._new_look.planned
        share = self._new_look.items / tuned if tuned else 1.0
        return Looks(len(self._earlier_looks) + 1, max(share, 1e-6), growing)

    def describe_look_among_several(self, looks: Looks) -> str:
        """Say how the tests of one look among several are meant; empty if it is the only one."""
        if not looks.is_repeated:
            return ""
        only = "a difference is called significant only if it would be at any look"
        after = ", ".join(f"{look.items:,}" for look in self._earlier_looks)
        name = f"{looks.in_words[0].upper()}{looks.in_words[1:]}"
        return f"{name} at a run as it grows{f' (after {after} items)' if after else ''}: {only}"

    def record_new_unfinished_look_or_problem(self) -> str:
        """Record that results of an unfinished run were shown, unless they were before. Return why that
        failed, or "": somebody without write access may look too."""
        if self._status in ("", _FINISHED) or self._has_no_new_scores:
            return ""
        return _try_add_look(self._folder, self._new_look)

    def record_short_run_or_problem(self, planned: int, target: RunDir) -> str:
        """Record in ``target`` a look at a finished run of fewer than planned items. Return as above."""
        if self._status != _FINISHED or self._has_no_new_scores:
            return ""
        [(items,)] = self._reader.rows("SELECT count(*) FROM items")
        if planned <= int(items):  # what failed is asked for again: no more is bought than was planned
            return ""
        return _try_add_look(target, msgspec.structs.replace(self._new_look, planned=planned, finished=True))

    @cached_property
    def _new_look(self) -> Look:
        [(scores, items)] = self._reader.rows(
            "SELECT count(*), count(DISTINCT (task, item)) FROM "
            "(SELECT task, item FROM scores WHERE value IS NOT NULL UNION ALL SELECT task, item FROM labels)"
        )
        return Look(utc_now(), int(scores), int(items), _count_planned_items(self._reader.planned))

    @cached_property
    def _earlier_looks(self) -> list[Look]:
        return [look for look in self._recorded_looks if look.is_before(self._new_look)]

    @property
    def _has_no_new_scores(self) -> bool:
        """Check whether no look at these scores need be recorded."""
        present = self._new_look
        return not present.scores or any(look.scores == present.scores for look in self._recorded_looks)


def _try_add_look(folder: RunDir, look: Look) -> str:
    try:
        append_lines(folder.looks, [look])
    except StoreError as error:
        return f"this look at a run that grows is not recorded: {error}"
    return ""


def _count_planned_items(planned: Planned | None) -> int:
    """Count the planned items of all tasks; 0 if some task gives no number."""
    total = 0
    for task in planned.tasks.values() if planned is not None else ():
        if task.total is None or task.teachers is None:
            return 0
        total += task.total * len(task.teachers | task.supply)
    return total


def _read_looks(folder: RunDir) -> list[Look]:
    """Read the looks in order, skipping damaged lines; two at once count as one."""
    looks_by_size: dict[tuple[int, int], Look] = {}
    for _, text in read_whole_lines(folder.looks):
        with suppress(Undecodable):
            look = decode(text, Look)
            looks_by_size.setdefault((look.scores, look.items), look)
    return [*looks_by_size.values()]


def _read_status(folder: RunDir) -> str:
    try:
        return folder.status(folder.read_meta())
    except (FileNotFoundError, StoreError):
        return ""
