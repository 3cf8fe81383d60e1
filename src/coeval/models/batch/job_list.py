"""``pending_batches.json``: a folder's batch jobs, written before providers receive them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from coeval.core.records import Purpose
from coeval.core.text import pluralize
from coeval.store.jsonl import read_json, write_json_atomic

JobState: TypeAlias = Literal["written", "submitted", "collected"]
"""``written``: its provider may have been told, and its id is not known. ``collected``: its results are on
disk, and kept until a record has been made of each."""


class HostRefusals(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a host had refused of a model's requests when some were parked: schemas and fields by name, and
    its name for the output limit. Bodies, and so the ids of requests, depend on it."""

    schemas: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    limit_renamed: bool = False


class PendingJob(msgspec.Struct, kw_only=True):
    """A job in the list. ``name`` is its model in the experiment, ``model`` at the provider; ``endpoint`` the
    base URL, without credentials; ``phases`` counts its requests by phase.

    ``shown`` is the provider's last word on it; ``total``, ``done`` and ``failed`` its counts; ``note``
    what went wrong. ``refused`` are the ids of attempts that the provider refused; ``bodies`` the host's
    refusals under which its bodies were made. Once it is collected, ``unknown`` counts the requests
    without a result that may have been processed, and ``damage`` says which results are unreadable.
    ``cancelled``: its provider was asked to cancel it, and whether it accepted. Times are in seconds since
    1970.
    """

    tag: str
    state: JobState
    id: str | None = None
    interface: str
    name: str
    model: str
    endpoint: str
    phases: dict[str, int]
    requests: int
    bytes: int
    written_at: float
    submitted_at: float | None = None
    checked_at: float | None = None
    shown: str = ""
    total: int | None = None
    done: int | None = None
    failed: int | None = None
    note: str = ""
    unknown: int = 0
    damage: str = ""
    cancelled: Literal["", "requested", "accepted"] = ""
    refused: list[str] = []
    bodies: list[HostRefusals] = []

    @property
    def label(self) -> str:
        return f"batch {self.id or self.tag} of {self.name} ({pluralize(self.requests, 'request')})"


class _Content(msgspec.Struct):
    jobs: list[PendingJob] = []


class JobList:
    """``pending_batches.json``, for the only process that writes it. A change counts once `write` has
    returned. Raises StoreError: it is damaged, or cannot be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._jobs = {job.tag: job for job in read_jobs(path)}

    def __iter__(self) -> Iterator[PendingJob]:
        return iter(list(self._jobs.values()))

    def __len__(self) -> int:
        return len(self._jobs)

    def put(self, *jobs: PendingJob) -> None:
        """Add or replace jobs, and write the list. Raises StoreError: the disk refuses."""
        self._jobs |= {job.tag: job for job in jobs}
        self.write_or_delete_if_empty()

    def remove(self, *tags: str) -> None:
        for tag in tags:
            self._jobs.pop(tag, None)
        self.write_or_delete_if_empty()

    def write_or_delete_if_empty(self) -> None:
        if self._jobs:
            write_json_atomic(self._path, _Content(list(self._jobs.values())))
        else:
            self._path.unlink(missing_ok=True)


def read_jobs(path: Path) -> list[PendingJob]:
    """Read the jobs of a ``pending_batches.json``, none without a file; StoreError if it is damaged."""
    return read_json(path, _Content, missing=_Content()).jobs


# --- Polling pace


class PollPace(NamedTuple):
    """The wait between two checks of a job: at first, and at most (seconds)."""

    first_s: float = 5.0
    longest_s: float = 60.0

    def pauses(self) -> Iterator[float]:
        pause = self.first_s
        while True:
            yield pause
            pause = min(self.longest_s, pause * 1.5)


# --- Batch mode of a session

BATCH_PHASES: tuple[Purpose, ...] = ("data_generation", "response_collection", "evaluation")
"""The phases whose requests may go by batch jobs."""


class BatchMode(Enum):
    """How far a session goes with batch jobs."""

    WAIT = "wait"
    """it submits them, and waits for what they bring"""
    SUBMIT = "submit"
    """it ends when they are submitted; they go on at their providers"""
    FETCH = "fetch"
    """it makes records of what they have brought, submits nothing and asks no model"""
    CANCEL = "cancel"
    """it has them cancelled first, and then does as `FETCH`"""

    @property
    def calls_models(self) -> bool:
        return self in (BatchMode.WAIT, BatchMode.SUBMIT)


@dataclass(frozen=True, slots=True)
class Batching:
    """``phases`` by the names of models that are batched in them."""

    phases: Mapping[str, frozenset[Purpose]] = field(default_factory=dict)
    pace: PollPace = field(default_factory=PollPace)
    mode: BatchMode = BatchMode.WAIT
