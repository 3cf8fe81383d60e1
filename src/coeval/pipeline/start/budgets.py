"""What a run's budget is held against before its first request."""

from __future__ import annotations

from collections.abc import Iterator

from coeval.engine.bounded_cost import AskedUnder
from coeval.pipeline.config.schema import Config

__all__ = ["asked_under"]


def asked_under(config: Config) -> Iterator[AskedUnder]:
    """The models of an experiment in each of their roles; benchmark teachers are not asked."""
    for model in config.models:
        if model.interface != "benchmark":
            for role in model.roles:
                yield AskedUnder(model.spec(), model.sampling(role))
