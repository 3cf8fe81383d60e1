"""How long calls take: what overlaps is as long as its slowest endpoint, not as the sum of its phases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from coeval.pricing.estimate.call_group import CallGroup
from coeval.pricing.estimate.span import Scenarios
from coeval.pricing.estimate.unknowns import SCENARIOS

__all__ = ["EndpointPace", "duration_s"]

_OWN_S = 0.001
"""What a call takes of this process, which makes one after another."""


class EndpointPace(NamedTuple):
    """How much an endpoint takes at once, and at most in a minute."""

    name: str
    concurrency: Scenarios
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


def duration_s(
    stages: Sequence[Sequence[str]],
    groups: Iterable[CallGroup],
    paces: Mapping[str, EndpointPace],
    batch_s: Mapping[str, Scenarios],
) -> Scenarios:
    """Seconds of all calls. ``stages`` are phases that overlap, one stage after another; ``paces`` by model,
    models of one endpoint with the same one. ``batch_s`` is how long a batch of a phase takes: the models
    that are asked live meanwhile wait for none but their own phase's."""
    every = list(groups)
    total = np.zeros(SCENARIOS + 1)
    for phases in stages:
        live = [group for group in every if group.phase in phases and not group.pricing.batched]
        busy = [_busy_s(of_endpoint, paces) for of_endpoint in _by_endpoint(live, paces)]
        total += np.max(busy, axis=0) if busy else 0.0
        for phase in phases:
            seconds = [group.seconds * (group.calls > 0) for group in live if group.phase == phase]
            total += np.max(seconds, axis=0) if seconds and len(phases) > 1 else 0.0
            if any(group.phase == phase and group.pricing.batched for group in every):
                total += batch_s[phase]
    own = sum(group.calls for group in every) * _OWN_S
    return np.maximum(total, own)


def _by_endpoint(groups: Iterable[CallGroup], paces: Mapping[str, EndpointPace]) -> list[list[CallGroup]]:
    found: dict[str, list[CallGroup]] = {}
    for group in groups:
        found.setdefault(paces[group.model].name, []).append(group)
    return list(found.values())


def _busy_s(groups: Sequence[CallGroup], paces: Mapping[str, EndpointPace]) -> Scenarios:
    """How long an endpoint is at work on what it is asked."""
    pace = paces[groups[0].model]
    calls = sum(group.calls for group in groups)
    at_once = np.maximum(np.minimum(pace.concurrency, calls), 1.0)
    busy: Scenarios = sum(group.calls * group.seconds for group in groups) / at_once
    if pace.requests_per_minute is not None:
        busy = np.maximum(busy, calls * 60 / pace.requests_per_minute)
    if pace.tokens_per_minute is not None:
        tokens = sum(g.calls * (g.input_tokens + g.output_tokens) for g in groups)
        busy = np.maximum(busy, tokens * 60 / pace.tokens_per_minute)
    return busy
