"""A run's records as its configuration plans them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from coeval.analysis.load import RunReader
from coeval.analysis.planned import Planned
from coeval.core.errors import ConfigError, StoreError
from coeval.pipeline.planned import planned_names
from coeval.store.rundir import RunDir


class Reading(NamedTuple):
    """An open reader, and what is to be known of it beside its own notes, one sentence each."""

    reader: RunReader
    notes: tuple[str, ...]


@contextmanager
def reading(folder: RunDir) -> Iterator[Reading]:
    """Read a run; where its ``config.yaml`` cannot be read, all that is on record counts, and a note says so.

    Raises
    ------
    UsageError
        the folder is no run.
    StoreError
        a file cannot be read at all.
    """
    planned: Planned | None = None
    notes = list(_lost(folder))
    try:
        planned = planned_names(folder)
    except (ConfigError, StoreError) as error:
        notes.append(f"{_UNTOLD}: {str(error).splitlines()[0]}")
    with RunReader(folder.path, planned) as reader:
        yield Reading(reader, tuple(notes))


_UNTOLD = "what was removed from the configuration cannot be told and counts in full"


def _lost(folder: RunDir) -> Iterator[str]:
    """What is gone of the files that a run keeps about itself, and what cannot be told without it."""
    with suppress(FileNotFoundError, StoreError):  # an older layout has none; a damaged one is told elsewhere
        meta = folder.read_meta()
        if meta.coeval_version and not folder.config.exists():
            yield f"{_UNTOLD}: {folder.config} is not there"
        if meta.resume_from is not None and meta.coeval_version and not folder.inherited.exists():
            yield f"what was taken over cannot be told, and may be left out: {folder.inherited} is not there"
    if folder.config.exists() and not folder.meta.exists():
        yield f"whether simulated models took part cannot be told: {folder.meta} is not there"
