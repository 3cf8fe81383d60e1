"""Batch jobs that are not done with: which they are, how old, and what their providers say of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from coeval.cli.say import say
from coeval.cli.views.name_table import Column, NameRow, print_table
from coeval.engine.figures import clock

if TYPE_CHECKING:
    from rich.console import Console

    from coeval.models.batch.waiting.job_list import PendingJob

__all__ = ["show_batches", "tell_batches"]

_TAG = 8
"""Digits of the tag of a job that has no id yet: enough to tell it from others."""


def tell_batches(jobs: Sequence[PendingJob], console: Console) -> None:
    """Say that jobs go on without us."""
    show_batches(jobs, console)
    say(console, "They go on at their providers; the command below collects what they bring.")


def show_batches(jobs: Sequence[PendingJob], console: Console) -> None:
    """A row for each job."""
    rows = [NameRow(job.id or f"{job.tag[:_TAG]}…", _cells(job)) for job in jobs]
    columns = (
        Column("model", words=True),
        Column("phase", words=True),
        Column("requests"),
        Column("done"),
        Column("age"),
        Column("looked at"),
        Column("state", words=True, free=True),
    )
    print_table(console, "Batch jobs", "batch", columns, rows)


def _cells(job: PendingJob) -> tuple[str, ...]:
    done = "" if job.done is None else f"{job.done + (job.failed or 0):,}"
    age = clock(max(0.0, time.time() - job.written_at))
    looked = "never" if job.checked_at is None else f"{clock(max(0.0, time.time() - job.checked_at))} ago"
    return job.name, ", ".join(job.phases), f"{job.requests:,}", done, age, looked, _state(job)


def _state(job: PendingJob) -> str:
    state = job.shown or ("being submitted" if job.state == "written" else job.state)
    return f"{state}; {job.note}" if job.note else state
