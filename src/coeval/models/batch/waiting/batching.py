"""Which models a session asks by batch jobs, and whether it waits for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coeval.core.records import Purpose
from coeval.models.batch.waiting.poll_pace import PollPace

__all__ = ["BATCH_PHASES", "Batching"]

BATCH_PHASES: tuple[Purpose, ...] = ("data_generation", "response_collection", "evaluation")
"""The phases whose requests may go by batch jobs."""


@dataclass(frozen=True, slots=True)
class Batching:
    """``phases`` by the names of models that are batched in them. Without ``wait`` a session ends when its
    jobs are submitted; they go on at their providers."""

    phases: Mapping[str, frozenset[Purpose]] = field(default_factory=dict)
    pace: PollPace = field(default_factory=PollPace)
    wait: bool = True
