"""How often a batch job is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["PollPace"]


class PollPace(NamedTuple):
    """How long to wait between two looks at a job: at first, and at most (seconds)."""

    first_s: float = 5.0
    longest_s: float = 60.0

    def pauses(self) -> Iterator[float]:
        pause = self.first_s
        while True:
            yield pause
            pause = min(self.longest_s, pause * 1.5)
