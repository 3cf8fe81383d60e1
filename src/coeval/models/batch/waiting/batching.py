"""Which models a session asks by batch jobs, and whether it waits for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from coeval.core.records import Purpose
from coeval.models.batch.waiting.poll_pace import PollPace

__all__ = ["BATCH_PHASES", "BatchMode", "Batching"]

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
    def asks(self) -> bool:
        return self in (BatchMode.WAIT, BatchMode.SUBMIT)


@dataclass(frozen=True, slots=True)
class Batching:
    """``phases`` by the names of models that are batched in them."""

    phases: Mapping[str, frozenset[Purpose]] = field(default_factory=dict)
    pace: PollPace = field(default_factory=PollPace)
    mode: BatchMode = BatchMode.WAIT
