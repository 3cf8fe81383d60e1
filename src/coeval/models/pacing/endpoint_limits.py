"""The limits that the models of one endpoint set between them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Self, TypeVar

from coeval.core.model import ModelSpec
from coeval.models.pacing.limits import Limiter
from coeval.models.pacing.throttle import Turn

__all__ = ["DEFAULT_CONCURRENCY", "EndpointLimits"]

DEFAULT_CONCURRENCY = 256
DEFAULT_START = 16

T = TypeVar("T", int, float)


class EndpointLimits(NamedTuple):
    """The largest numbers in flight that any model sets, and the smallest rates; None where none sets one."""

    max_concurrency: int | None = None
    start_concurrency: int | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None

    @classmethod
    def of(cls, specs: Iterable[ModelSpec]) -> Self:
        limits = cls()
        for spec in specs:
            limits = limits.joined(
                cls(
                    spec.max_concurrency,
                    spec.start_concurrency,
                    spec.requests_per_minute,
                    spec.tokens_per_minute,
                )
            )
        return limits

    def joined(self, other: Self) -> Self:
        """Those of more models."""
        return self._replace(
            max_concurrency=max(_set(self.max_concurrency, other.max_concurrency), default=None),
            start_concurrency=max(_set(self.start_concurrency, other.start_concurrency), default=None),
            requests_per_minute=min(_set(self.requests_per_minute, other.requests_per_minute), default=None),
            tokens_per_minute=min(_set(self.tokens_per_minute, other.tokens_per_minute), default=None),
        )

    def limiter(self, turn: Turn | None = None) -> Limiter:
        """A new limiter with these limits, and its turn among all processes, where there is a throttle."""
        limiter = Limiter(turn=turn)
        self.apply_to(limiter)
        return limiter

    def apply_to(self, limiter: Limiter) -> None:
        limiter.limit_to(
            self.max_concurrency or DEFAULT_CONCURRENCY,
            start=self.start_concurrency or DEFAULT_START,
            requests_per_minute=self.requests_per_minute,
            tokens_per_minute=self.tokens_per_minute,
        )


def _set(*limits: T | None) -> list[T]:
    return [limit for limit in limits if limit is not None]
