"""Money that models may cost, and how much of it is left."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import NamedTuple

from coeval.core.errors import QuotaExhausted
from coeval.core.options import CONTINUE, Option
from coeval.core.text import dollars, dollars_beyond, limit_in_dollars
from coeval.models.metering.account_file import ModelAccount
from coeval.models.metering.spent import Spent, perhaps

__all__ = ["WORTH_A_JOB", "Budget", "Fund", "Purse", "Waiter"]

WORTH_A_JOB = 20
"""Requests of batch jobs whose money is waited for: what fewer leave pays for jobs of one or two each."""
WORTH_A_WAIT = 0.1
"""The part of a budget that batch jobs hold, below which nobody waits for it."""


class Budget(NamedTuple):
    """A ceiling in US dollars over the life of a folder; ``key``: what sets it."""

    usd: float
    key: Option


class Waiter(NamedTuple):
    """A request that has no money yet. Sorts by what is served first: ``place`` is (−rank, order of
    arrival)."""

    place: tuple[int, int]
    usd: float
    parked: bool
    granted: asyncio.Future[None]


class Fund:
    """What one model's requests on their way may cost: ``held`` of those that are being sent, ``parked`` of
    those that wait to be sent in a batch job, which no file knows of yet. ``queue`` is a heap."""

    __slots__ = ("_held_of", "_parked_of", "held", "name", "parked", "purses", "queue", "row")

    def __init__(self, name: str, row: ModelAccount) -> None:
        self.name = name
        self.row = row
        self.held = self.parked = 0.0
        self._held_of = self._parked_of = 0
        self.purses: tuple[Purse, ...] = ()
        self.queue: list[Waiter] = []

    @property
    def promised_usd(self) -> float:
        """What is yet to be known of all that may be sent, without the rest of a block."""
        return self.held + self.unblocked_usd

    @property
    def unblocked_usd(self) -> float:
        """What is promised beside the block that is written ahead for live requests."""
        return self.parked + sum(job.usd for job in self.row.jobs.values())

    @property
    def in_jobs(self) -> int:
        """Requests of batch jobs, those that are yet to be submitted among them."""
        return self._parked_of + sum(job.requests for job in self.row.jobs.values())

    @property
    def is_live(self) -> bool:
        """Whether requests are being sent, which will be settled soon."""
        return bool(self._held_of)

    def hold(self, usd: float) -> None:
        self.held += usd
        self._held_of += 1

    def let_go(self, usd: float) -> None:
        self._held_of -= 1
        self.held = self.held - usd if self._held_of else 0.0  # no rest of rounding stays

    def park(self, usd: float) -> None:
        self.parked += usd
        self._parked_of += 1

    def unpark(self, usd: float, requests: int = 1) -> None:
        self._parked_of -= requests
        self.parked = self.parked - usd if self._parked_of else 0.0


class Purse:
    """A budget and the funds that spend out of it. ``exhausted_at`` is the highest rank of a request that it
    could not pay for: what would only bring about more such requests is not paid for either."""

    __slots__ = ("budget", "exhausted_at", "funds")

    def __init__(self, budget: Budget, funds: Collection[Fund]) -> None:
        self.budget = budget
        self.funds = funds
        self.exhausted_at = -1

    @property
    def spent_usd(self) -> float:
        return sum(fund.row.spent_usd for fund in self.funds)

    def fits(self, usd: float) -> bool:
        """Whether a request can be paid for now, whatever those on their way turn out to cost."""
        return self.spent_usd + sum(fund.promised_usd for fund in self.funds) + usd <= self.budget.usd

    def room_for(self, fund: Fund) -> float:
        """How much may be written ahead for the live requests of a fund, the blocks of others left as they
        are."""
        others = sum(other.row.reserved_usd for other in self.funds if other is not fund)
        unblocked = sum(each.unblocked_usd for each in self.funds)
        return self.budget.usd - self.spent_usd - others - unblocked

    def give_up_blocks(self) -> None:
        """Reserve what is held, and nothing ahead."""
        for fund in self.funds:
            fund.row.reserved_usd = min(fund.row.reserved_usd, fund.held)

    def make_room(self) -> None:
        """What was parked last may have been money of a block."""
        if any(self.room_for(fund) < fund.row.reserved_usd for fund in self.funds):
            self.give_up_blocks()

    def reaches(self, usd: float, rank: int) -> bool:
        """Whether a request can ever be paid for: if all that is on its way turns out to cost nothing."""
        return rank >= self.exhausted_at and self.spent_usd + usd <= self.budget.usd

    def dearest_to_come(self) -> float:
        """What a request may cost that is worth waiting for, where none is being sent: any amount if batch
        jobs hold so much that a job of some size can be made of what they leave. Without that bound, the last
        of a budget would go job by job, of one request each."""
        jobs = [fund for fund in self.funds if fund.unblocked_usd]
        if sum(fund.in_jobs for fund in jobs) < WORTH_A_JOB:
            return 0.0
        held = sum(fund.unblocked_usd for fund in jobs)
        return self.budget.usd if held >= WORTH_A_WAIT * self.budget.usd else 0.0

    def refusal(self, name: str, usd: float) -> QuotaExhausted:
        budget = self.budget
        so_far = Spent.of([fund.row for fund in self.funds], at_work=True)
        gone, wanted = dollars_beyond(budget.usd, so_far.usd, usd) if so_far.usd else ("$0.00", dollars(usd))
        spent = f"{gone} of it is spent{perhaps(so_far.perhaps_usd)}"
        settle = (
            ", or settle what is perhaps spent (coeval status RUN --settle)" if so_far.perhaps_usd else ""
        )
        way_out = f"Raise {budget.key}{settle} and run again with {CONTINUE}."
        if promised := sum(fund.unblocked_usd for fund in self.funds):
            spent += f", {dollars(promised)} is held for batch jobs"
            way_out = f"Run again with {CONTINUE} when they have ended, or raise {budget.key} before that."
        return QuotaExhausted(
            f"model {name} is not asked any more: {budget.key} is {limit_in_dollars(budget.usd)}, and "
            f"{spent}, which leaves too little for a request that may cost {wanted}, or for what would "
            "follow from it.",
            way_out,
        )
