"""Which models of an experiment go by batch jobs, in which phases."""

from __future__ import annotations

from collections.abc import Iterator

from coeval.core.errors import UsageError
from coeval.core.records import Purpose
from coeval.models.batch.waiting.batching import Batching, BatchMode
from coeval.models.batch.waiting.poll_pace import PollPace
from coeval.models.catalog import HOSTS
from coeval.pipeline.config.schema import Config

__all__ = ["batching_of", "live_after_all"]


def batching_of(config: Config, mode: BatchMode) -> Batching:
    """What goes by batch jobs; every `auto` is resolved by now.

    Raises
    ------
    UsageError
        a model is to go by batch jobs whose interface has none.
    """
    phases: dict[str, frozenset[Purpose]] = {}
    for model in config.models:
        wanted = config.batched_phases(model)
        if wanted and HOSTS[model.interface].batch:
            phases[model.name] = wanted
        elif wanted and not model.batch_enabled:
            raise UsageError(
                f"experiment.batch.{model.interface}: batch jobs of this interface cannot be submitted by "
                "this version; leave the setting out to ask live, at live prices"
            )
    return Batching(phases, PollPace(*config.experiment.batch_poll_s), mode)


def live_after_all(config: Config) -> Iterator[str]:
    """A sentence on each model that was to go by batch jobs, and whose host has none."""
    for model in config.models:
        if model.batch_enabled and not HOSTS[model.interface].batch:
            yield (
                f"models.{model.name}.batch_enabled: the interface {model.interface} has no Batch API here; "
                "it is asked live, at live prices"
            )
