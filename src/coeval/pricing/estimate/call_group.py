"""Calls that are alike: so many of a model for a phase of a task, what each takes, and what all of them
cost."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coeval.pricing.estimate.span import CENTRAL, Scenarios
from coeval.pricing.tariff import Rates, Tariff

__all__ = ["CallGroup", "Pricing", "cost_of"]


class Pricing(NamedTuple):
    """What a model's calls are priced by: ``tariff`` None where nobody knows; ``share`` of it is paid for
    those that are ``batched``. ``provider`` is who is paid."""

    provider: str
    tariff: Tariff | None
    share: float = 1.0
    batched: bool = False

    @property
    def writes_cache(self) -> bool:
        """Whether what goes into a cache has a price of its own."""
        return self.tariff is not None and self.tariff.rates.cache_write_usd_per_mtok is not None


class CallGroup(NamedTuple):
    """Calls of one model for one phase of one task. Tokens are those of one call in the mean:
    ``read_tokens`` of the input come from the host's cache, ``written_tokens`` go into it. ``seconds`` is how
    long one call takes that is asked live."""

    phase: str
    task: str
    model: str
    pricing: Pricing
    calls: Scenarios
    input_tokens: Scenarios
    output_tokens: Scenarios
    read_tokens: Scenarios
    written_tokens: Scenarios
    seconds: Scenarios


def cost_of(group: CallGroup) -> Scenarios | None:
    """US dollars; None where the price is not known."""
    tariff = group.pricing.tariff
    if tariff is None:
        return None
    rates = _rates_for(tariff, float(group.input_tokens[CENTRAL]))
    of_input, of_output = rates.input_usd_per_mtok, rates.output_usd_per_mtok
    read = of_input if rates.cached_usd_per_mtok is None else rates.cached_usd_per_mtok
    written = of_input if rates.cache_write_usd_per_mtok is None else rates.cache_write_usd_per_mtok
    plain = np.maximum(group.input_tokens - group.read_tokens - group.written_tokens, 0.0)
    of_tokens = (
        plain * of_input
        + group.read_tokens * read
        + group.written_tokens * written
        + group.output_tokens * of_output
    )
    return group.calls * (of_tokens / 1e6 + rates.usd_per_request) * group.pricing.share


def _rates_for(tariff: Tariff, input_tokens: float) -> Rates:
    """The rates of a prompt of this length."""
    return next((tier for tier in reversed(tariff.tiers) if input_tokens > tier.above), tariff.rates)
