"""The money of one live request, from before it is sent until it is known what it cost."""

from __future__ import annotations

from asyncio import CancelledError, Future
from collections.abc import Awaitable

from coeval.core.errors import QuotaExhausted
from coeval.core.records import Usage
from coeval.models.metering.meter import Meter

__all__ = ["Stake"]


class Stake:
    """At most ``usd``, set aside by `take` before each attempt, which is then `sent`, and settled after it.
    What nobody has settled of an attempt when the next one begins, or at `close`, may have been spent."""

    __slots__ = ("_held", "_meter", "_rank", "_sent", "usd")

    def __init__(self, meter: Meter, usd: float, rank: int) -> None:
        self._meter = meter
        self._rank = rank
        self._held = self._sent = False
        self.usd = usd

    def refusal(self) -> QuotaExhausted | None:
        """What `take` would raise now, of a budget."""
        if self._held:
            return None
        return self._meter.till.refusal(self._meter.fund, self.usd, self._rank)

    def take(self) -> Awaitable[None] | None:
        """Set the money aside: at once (None), or when what is returned has been awaited.

        Raises
        ------
        QuotaExhausted
            a budget does not reach for it; so does the awaitable.
        StoreError
            the reservation could not be written, so nothing may be sent.
        """
        if self._sent:
            self.close()
        if self._held:
            return None
        money = self._meter.till.take(self._meter.fund, self.usd, self._rank)
        if money is None:
            self._held = True
            return None
        return self._take_when(money)

    async def _take_when(self, money: Future[None]) -> None:
        try:
            await money
        except CancelledError:
            self._meter.till.leave(self._meter.fund, self.usd, money)
            raise
        self._held = True

    def settle(self, usage: Usage) -> Usage:
        """Book what an answer took; the same with its price. What nobody told the tokens of may have cost all
        that was set aside."""
        usage = self._meter.settle(usage, self.usd if self._held else 0.0)
        if self._held and usage.cost_usd is not None:
            self._held = self._sent = False
            self._meter.till.spend(self._meter.fund, self.usd, usage.cost_usd)
        return usage

    def sent(self) -> None:
        """The request goes out now."""
        self._sent = True

    def unspent(self) -> None:
        """The request was not sent after all, or was answered with an error that is not billed."""
        if self._held:
            self._held = self._sent = False
            self._meter.till.put_back(self._meter.fund, self.usd)

    def close(self) -> None:
        """It is over: who can say what became of a request that was sent and is not settled?"""
        if self._held and self._sent:
            self._held = self._sent = False
            self._meter.till.lose(self._meter.fund, self.usd)
        else:
            self.unspent()
