"""What the replies of one batch job took."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from coeval.core.model import Price
from coeval.core.records import Usage

__all__ = ["JobBill"]


class JobBill:
    """Sums up the replies of a job, one after the other; made by `Meter.bill`.

    ``requests`` are those that the host carried out, well or not; ``unpriced`` answers whose cost nobody
    knows, which may have cost ``uncertain_usd`` at most, together with what could not be read.
    """

    __slots__ = (
        "_doubt",
        "_price",
        "cost_usd",
        "input_tokens",
        "output_tokens",
        "priced",
        "requests",
        "uncertain_usd",
        "unpriced",
    )

    def __init__(self, price: Price | None, doubt: Callable[[Usage, float], None]) -> None:
        self._price = price
        self._doubt = doubt
        self.requests = self.input_tokens = self.output_tokens = self.priced = self.unpriced = 0
        self.cost_usd = self.uncertain_usd = 0.0

    def answered(self, usage: Usage, most_usd: float = 0.0) -> Usage:
        """Add what an answer took; the same with its price. ``most_usd`` is what was held for it."""
        usage = priced(usage, self._price)
        self._doubt(usage, most_usd)
        self.requests += 1
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        if usage.cost_usd is None:
            self.unpriced += 1
            self.uncertain_usd += most_usd
        else:
            self.priced += 1
            self.cost_usd += usage.cost_usd
        return usage

    def failed(self, most_usd: float = 0.0) -> None:
        """Add a request that the host carried out, and answered with an error; ``most_usd`` is what that may
        have cost, 0 where the host does not bill it."""
        self.requests += 1
        self.uncertain_usd += most_usd


def priced(usage: Usage, price: Price | None) -> Usage:
    """The usage with its cost, where the host reports none and the price is known. A cost of zero is none
    beside tokens that nobody knows."""
    if usage.cost_usd or (usage.cost_usd is not None and not usage.uncounted):
        return usage
    cost = None if price is None else price(usage)
    return usage if cost == usage.cost_usd else msgspec.structs.replace(usage, cost_usd=cost)
