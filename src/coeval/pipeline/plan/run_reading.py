"""What a folder of ours holds; a run's records as its configuration plans them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from coeval.analysis.load import load
from coeval.analysis.planned_names import Planned
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import CoevalError, ConfigError, StoreError
from coeval.pipeline.plan.recorded_looks import RecordedLooks
from coeval.pipeline.plan.what_counts import planned_names
from coeval.pipeline.start.inherit import copy_once
from coeval.store.rundir import RunDir


class Opened(NamedTuple):
    """An open reader, and what is to be known of it beside its own notes, one sentence each."""

    reader: Reader
    notes: tuple[str, ...]


class Reading(NamedTuple):
    """The same of a run."""

    reader: RunReader
    notes: tuple[str, ...]


@contextmanager
def opened(folder: Path, *, shown: bool = False) -> Iterator[Opened]:
    """Read a run as `reading` does, or what ``eval-framework`` left in a folder; raises the same."""
    if RunDir(folder).is_run():
        with reading(RunDir(folder), shown=shown) as (reader, notes):
            yield Opened(reader, notes)
    else:
        with load(folder) as results:
            yield Opened(results, ())


@contextmanager
def reading(folder: RunDir, *, shown: bool = False) -> Iterator[Reading]:
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
        yield Reading(reader, tuple(notes))


def record_extension(source: RunDir, target: RunDir, planned: int) -> str:
    """Write down in ``target`` what looks at ``source`` have shown, whose scores it goes on from with
    ``planned`` items; return why that failed, if so."""
    try:
        if source.path != target.path and source.looks.exists():
            copy_once(source.looks, target.looks)
        with reading(source) as (reader, _):
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
