"""A run's records as its configuration plans them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
    notes: tuple[str, ...] = ()
    try:
        planned = planned_names(folder)
    except (ConfigError, StoreError) as error:
        reason = str(error).splitlines()[0]
        notes = (f"what was removed from the configuration cannot be told and counts in full: {reason}",)
    with RunReader(folder.path, planned) as reader:
        yield Reading(reader, notes)
