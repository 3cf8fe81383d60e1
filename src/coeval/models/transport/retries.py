"""How often one request is sent, and how long it waits before it is sent again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from coeval.core.errors import AccessDenied, ModelError, RequestTimeout, Unreadable

__all__ = ["ATTEMPTS", "BACKOFF_S", "FEWER_ATTEMPTS", "TURNED_AWAY", "Fault", "Tries"]

BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 28.0)
"""Longest wait before each further attempt; 59.5 s in all."""
ATTEMPTS = len(BACKOFF_S) + 1
FEWER_ATTEMPTS: Mapping[type[ModelError], int] = {AccessDenied: 2, RequestTimeout: 2, Unreadable: 2}
"""Of these, so many end a request, whatever else it met with: another try gains little and may cost a lot.
Without access there is one more only where the credential has been renewed."""
TURNED_AWAY = 64
"""Times that a request is turned away because of others, before it is taken to be itself the reason."""
_TURNED_AWAY_WAIT_S = 4.0


class Fault(NamedTuple):
    """A failed attempt.

    ``again``: sending the same request again may help. ``crowded``: the host turned it away for the
    number of requests, which is none of its own doing; it is not counted among the attempts.
    """

    error: ModelError
    again: bool
    crowded: bool = False


class Tries:
    """What failed attempts of one request have come to."""

    __slots__ = ("_counted", "_met", "_turned_away")

    def __init__(self) -> None:
        self._counted = self._turned_away = 0
        self._met: Counter[type[ModelError]] = Counter()

    def failed(self, fault: Fault) -> bool:
        """Count a failed attempt; whether another one is made."""
        if fault.crowded:
            self._turned_away += 1
            return fault.again and self._turned_away < TURNED_AWAY
        self._counted += 1
        kind = type(fault.error)
        self._met[kind] += 1
        if self._met[kind] == FEWER_ATTEMPTS.get(kind):
            fault.error.retry_advised = False
            return False
        return fault.again and self._counted < ATTEMPTS

    def wait_s(self, fault: Fault, rng: random.Random) -> float:
        """Our own backoff, or what the provider asked for if that is longer; never less than asked."""
        if fault.crowded:
            longest_s = min(_TURNED_AWAY_WAIT_S, BACKOFF_S[min(self._turned_away, len(BACKOFF_S)) - 1])
        else:
            longest_s = BACKOFF_S[self._counted - 1]
        asked_s = fault.error.retry_after_s or 0.0
        return max(longest_s * rng.uniform(0.5, 1.0), asked_s + rng.uniform(0.0, min(1.0, asked_s / 10)))
