"""Where requests get their money before they are sent, and wait if it is short.

Money is written to disk before it may be spent, in blocks: a crash leaves as uncertain a part of a block for
each model, and what requests in flight may have cost. Later phases are served first. Nobody waits for so
little money of batch jobs that it would not pay for another job.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import CancelledError, Future, get_running_loop
from collections.abc import Callable, Collection, Iterator
from enum import Enum, auto
from itertools import count
from typing import NamedTuple

from coeval.core.errors import CoevalError, QuotaExhausted, StoreError
from coeval.core.figures import dollars, dollars_beyond_limit, limit_in_dollars
from coeval.core.options import BUDGET, CONTINUE, Option, max_cost
from coeval.models.metering.account_file import AccountFile, ModelAccount, Spent, describe_uncertain

# Requests of batch jobs whose money is worth waiting for: what fewer leave pays for jobs of one or two each.
WORTH_A_JOB = 20
# Share of a budget held by batch jobs below which nobody waits for it.
WORTH_A_WAIT = 0.1


class Waiter(NamedTuple):
    """A request that waits for money, in the order of service: ``place`` is (−priority, order of arrival)."""

    place: tuple[int, int]
    usd: float
    parked: bool
    granted: asyncio.Future[None]


class Fund:
    """The most that one model's pending requests may cost: ``held`` for those being sent, ``parked`` for
    those that wait for a batch job, which are in no file yet. ``queue`` is a heap."""

    def __init__(self, name: str, row: ModelAccount) -> None:
        self.name = name
        self.row = row
        self.held = self.parked = 0.0
        self._held_of = self._parked_of = 0
        self.budgets: tuple[Budget, ...] = ()
        self.queue: list[Waiter] = []

    @property
    def promised_usd(self) -> float:
        """Return the most that pending requests may cost, without the unused part of a block."""
        return self.held + self.unblocked_usd

    @property
    def unblocked_usd(self) -> float:
        """Return what is promised outside the block that is written ahead for live requests."""
        return self.parked + sum(job.usd for job in self.row.jobs.values())

    @property
    def in_jobs(self) -> int:
        """Return the number of requests in batch jobs, parked ones included."""
        return self._parked_of + sum(job.requests for job in self.row.jobs.values())

    @property
    def is_live(self) -> bool:
        """Check whether requests are being sent, which will be settled soon."""
        return bool(self._held_of)

    def hold(self, usd: float) -> None:
        self.held += usd
        self._held_of += 1

    def release(self, usd: float) -> None:
        self._held_of -= 1
        self.held = self.held - usd if self._held_of else 0.0  # no rest of rounding stays

    def park(self, usd: float) -> None:
        self.parked += usd
        self._parked_of += 1

    def unpark(self, usd: float, requests: int = 1) -> None:
        self._parked_of -= requests
        self.parked = self.parked - usd if self._parked_of else 0.0


class Budget:
    """A budget in US dollars over the life of a folder, set by ``key``, and the funds that draw on it.
    ``exhausted_at`` is the highest priority of a request that it could not pay for. Lower ones, which would
    only lead to more of those, are refused too."""

    def __init__(self, limit_usd: float, key: Option, funds: Collection[Fund]) -> None:
        self.limit_usd = limit_usd
        self.key = key
        self.funds = funds
        self.exhausted_at = -1

    @property
    def spent_usd(self) -> float:
        return sum(fund.row.spent_usd for fund in self.funds)

    def can_pay_now(self, usd: float) -> bool:
        """Check whether a request can be paid for, whatever pending requests turn out to cost."""
        return self.spent_usd + sum(fund.promised_usd for fund in self.funds) + usd <= self.limit_usd

    def unspent_usd_beside_other_funds(self, fund: Fund) -> float:
        """Return how much may be written ahead for a fund's live requests beside other funds' blocks."""
        others = sum(other.row.reserved_usd for other in self.funds if other is not fund)
        unblocked = sum(each.unblocked_usd for each in self.funds)
        return self.limit_usd - self.spent_usd - others - unblocked

    def shrink_blocks_to_held(self) -> None:
        for fund in self.funds:
            fund.row.reserved_usd = min(fund.row.reserved_usd, fund.held)

    def shrink_blocks_if_overdrawn(self) -> None:
        if any(self.unspent_usd_beside_other_funds(fund) < fund.row.reserved_usd for fund in self.funds):
            self.shrink_blocks_to_held()

    def can_ever_pay(self, usd: float, priority: int) -> bool:
        """Check whether a request could be paid for if all pending requests cost nothing."""
        return priority >= self.exhausted_at and self.spent_usd + usd <= self.limit_usd

    def limit_usd_if_jobs_hold_enough(self) -> float:
        """Return the cost up to which a request may wait for money of batch jobs: any, if what they hold
        makes another job of some size; else 0. Without this bound, the last of a budget would go into jobs
        of one request each."""
        jobs = [fund for fund in self.funds if fund.unblocked_usd]
        if sum(fund.in_jobs for fund in jobs) < WORTH_A_JOB:
            return 0.0
        held = sum(fund.unblocked_usd for fund in jobs)
        return self.limit_usd if held >= WORTH_A_WAIT * self.limit_usd else 0.0

    def make_refusal(self, name: str, usd: float) -> QuotaExhausted:
        """Make the error for a request that this budget cannot pay for, with the ways out."""
        so_far = Spent.add_up([fund.row for fund in self.funds], at_work=True)
        gone, needed = (
            dollars_beyond_limit(self.limit_usd, so_far.usd, usd) if so_far.usd else ("$0.00", dollars(usd))
        )
        spent = f"{gone} of it is spent{describe_uncertain(so_far.perhaps_usd)}"
        settle = ", or settle the uncertain cost (coeval status RUN --settle)" if so_far.perhaps_usd else ""
        way_out = f"Raise {self.key}{settle} and run again with {CONTINUE}."
        if promised := sum(fund.unblocked_usd for fund in self.funds):
            spent += f", {dollars(promised)} is held for batch jobs"
            way_out = f"Run again with {CONTINUE} when they have ended, or raise {self.key} before that."
        return QuotaExhausted(
            f"model {name} is no longer called: {self.key} is {limit_in_dollars(self.limit_usd)}, and "
            f"{spent}, which leaves too little for a request that may cost {needed}, or for its "
            "follow-ups.",
            way_out,
        )


# A block is this part of a budget; without one, it is as much as is in flight. So writes stay few relative to
# requests, and a crash leaves little that is only perhaps spent.
BLOCKS = 128


class Held(Enum):
    """How long batch jobs hold the money that others wait for."""

    BRIEFLY = auto()
    """until the provider accepts or refuses a job; a refused one returns all its money"""
    BY_JOBS = auto()
    """until they end, which requests wait for"""
    FOR_GOOD = auto()


class BudgetGate:
    """Grants money to the requests of a folder's models. ``budget_usd`` is the budget of all models together,
    over the life of the folder; None: there is none."""

    def __init__(self, file: AccountFile, budget_usd: float | None = None) -> None:
        self._file = file
        self._funds = {name: Fund(name, row) for name, row in file.rows.items()}
        self._of_all = None if budget_usd is None else Budget(budget_usd, BUDGET, self._funds.values())
        self._order = count()
        self._closed: CoevalError | None = None
        self.free_jobs_money: Callable[[], Held] = lambda: Held.FOR_GOOD
        """Called if waiting requests can only get money held for batch jobs: submits parked requests, and
        returns how long the money stays held."""
        self._turning = False
        self.waiting = 0
        """Requests that wait for money."""

    def open_fund(self, name: str, row: ModelAccount, max_cost_usd: float | None) -> Fund:
        """Return a model's fund, linked to the budgets that apply to it."""
        fund = self._funds.setdefault(name, Fund(name, row))
        own = [] if max_cost_usd is None else [Budget(max_cost_usd, max_cost(name), (fund,))]
        fund.budgets = (*own, *([self._of_all] if self._of_all is not None else ()))
        return fund

    def refusal(self, fund: Fund, usd: float, priority: int) -> QuotaExhausted | None:
        """Return why a request will not be paid for, whatever others turn out to cost; None if it may be."""
        budget = next((budget for budget in fund.budgets if not budget.can_ever_pay(usd, priority)), None)
        return None if budget is None else budget.make_refusal(fund.name, usd)

    def set_aside(
        self, fund: Fund, usd: float, priority: int, *, parked: bool = False
    ) -> Future[None] | None:
        """Set money aside for a request: at once (None), or when the returned future is done, for
        `await_grant`. ``parked``: the request waits for a batch job, and no file is written. Raises
        QuotaExhausted: a budget cannot pay for it, which the future may raise too; StoreError: the
        reservation could not be written, so nothing may be sent."""
        if not self.waiting and all(priority >= budget.exhausted_at for budget in fund.budgets):
            if not parked and fund.held + usd <= fund.row.reserved_usd:
                fund.hold(usd)
                return None
            if all(budget.can_pay_now(usd) for budget in fund.budgets):
                self._grant(fund, usd, parked=parked)
                return None
        if self._closed is not None:
            raise self._closed.with_traceback(None)
        waiter = Waiter((-priority, next(self._order)), usd, parked, get_running_loop().create_future())
        heapq.heappush(fund.queue, waiter)
        self.waiting += 1
        self._serve_queues()
        if not waiter.granted.done():
            return waiter.granted
        waiter.granted.result()
        return None

    async def await_grant(self, fund: Fund, usd: float, money: Future[None], *, parked: bool = False) -> None:
        """Wait for money that `set_aside` could not grant at once. Put it back if the waiter is cancelled."""
        try:
            await money
        except CancelledError:
            if money.cancelled():
                self.waiting -= 1  # its place in the queue is skipped when it comes up
                self._serve_queues()
            elif money.done() and money.exception() is None:
                self.put_back(fund, usd, parked=parked)
            raise

    def put_back(self, fund: Fund, usd: float, *, parked: bool = False) -> None:
        """Put back money set aside for a request that will not spend it."""
        if parked:
            fund.unpark(usd)
        else:
            fund.release(usd)
        self.serve_waiting()

    def release_booked(self, fund: Fund, usd: float, booked_usd: float) -> None:
        """Release what was set aside for a request whose cost is booked already."""
        fund.release(usd)
        fund.row.reserved_usd = max(fund.row.reserved_usd - booked_usd, fund.held)
        self.serve_waiting()

    def book_uncertain(self, fund: Fund, usd: float) -> None:
        """Book as uncertain all that was set aside for a request whose cost cannot be known."""
        fund.row.uncertain_usd += usd
        self.release_booked(fund, usd, usd)

    def serve_waiting(self) -> None:
        if self.waiting:
            self._serve_queues()

    def shrink_reservations_to_one_block(self) -> None:
        """Release money beyond held requests and one block (budget / `BLOCKS`). The caller writes."""
        for fund in self._funds.values():
            row = fund.row
            row.reserved_usd = min(row.reserved_usd, fund.held + _block_usd(fund))

    def close(self, error: CoevalError) -> None:
        """Raise ``error`` in waiting requests, and in those that would have to wait."""
        self._closed = error
        for fund in self._funds.values():
            queue, fund.queue = fund.queue, []
            for waiter in queue:
                if not waiter.granted.done():
                    self.waiting -= 1
                    waiter.granted.set_exception(error)

    def _grant(self, fund: Fund, usd: float, *, parked: bool) -> None:
        if parked:
            fund.park(usd)
            for budget in fund.budgets:
                budget.shrink_blocks_if_overdrawn()
            return
        fund.hold(usd)
        if fund.held > fund.row.reserved_usd:
            try:
                self._reserve_block_on_disk(fund)
            except StoreError:
                fund.release(usd)
                raise

    def _reserve_block_on_disk(self, fund: Fund) -> None:
        """Reserve a fund's held money on disk, and a further block if a budget has room for it."""
        before = [(other.row, other.row.reserved_usd) for other in self._funds.values()]
        needed = fund.held + _block_usd(fund)
        for budget in fund.budgets:
            if budget.unspent_usd_beside_other_funds(fund) < needed:
                budget.shrink_blocks_to_held()
            needed = min(needed, budget.unspent_usd_beside_other_funds(fund))
        fund.row.reserved_usd = max(needed, fund.held)
        try:
            self._file.write()
        except StoreError:
            for row, reserved_usd in before:
                row.reserved_usd = reserved_usd
            raise

    def _serve_queues(self) -> None:
        """Grant money to waiting requests, and refuse those that no budget can ever pay for. A request that
        cannot be served now keeps later ones from the budgets that it needs."""
        shut: set[Budget] = set()
        while (
            fund := min(
                self._servable_funds(shut), key=lambda candidate: candidate.queue[0].place, default=None
            )
        ) is not None:
            (above, _), usd, parked, granted = fund.queue[0]
            priority = -above
            if (error := self.refusal(fund, usd, priority)) is not None:
                for budget in fund.budgets:
                    if not budget.can_ever_pay(usd, priority):
                        budget.exhausted_at = max(budget.exhausted_at, priority)
                self._pop_first_waiting(fund)
                granted.set_exception(error)
            elif lacking := [budget for budget in fund.budgets if not budget.can_pay_now(usd)]:
                shut.update(lacking)
            else:
                self._pop_first_waiting(fund)
                try:
                    self._grant(fund, usd, parked=parked)
                except StoreError as refused:
                    granted.set_exception(refused)
                else:
                    granted.set_result(None)
        if self.waiting and not self._has_live_requests() and not self._turning:
            self._turning = True
            # Soon, as whoever parked the last request must write it first.
            get_running_loop().call_soon(self._serve_from_jobs_or_refuse)

    def _has_live_requests(self) -> bool:
        return any(fund.is_live for fund in self._funds.values())

    def _serve_from_jobs_or_refuse(self) -> None:
        """Serve waiting requests with money of batch jobs, or refuse them."""
        self._turning = False
        if not self.waiting or self._has_live_requests():
            return
        try:
            held = self.free_jobs_money()
        except StoreError as error:  # else the waiting requests would wait for ever
            self.close(error)
            return
        if held is Held.BRIEFLY or not self.waiting or self._has_live_requests():
            return  # `serve_waiting` is called when more is known
        if self._refuse_waiting(only_beyond_jobs=True):
            self._serve_queues()  # those behind may need less
        elif held is Held.FOR_GOOD:
            self._refuse_waiting(only_beyond_jobs=False)

    def _refuse_waiting(self, *, only_beyond_jobs: bool) -> bool:
        """Refuse all waiting requests, or (``only_beyond_jobs``) those to which ending jobs would leave too
        little, and from now on priorities that would lead to more of them. Return whether any was refused."""
        to_come = {
            budget: budget.limit_usd_if_jobs_hold_enough()
            for fund in self._funds.values()
            for budget in fund.budgets
        }
        before = self.waiting
        for fund in self._funds.values():
            queue, fund.queue = fund.queue, []
            for waiter in queue:
                if waiter.granted.cancelled():
                    continue
                short = [budget for budget in fund.budgets if waiter.usd > to_come[budget]]
                short = [budget for budget in short if not budget.can_pay_now(waiter.usd)]
                if only_beyond_jobs and not short:
                    fund.queue.append(waiter)
                    continue
                for budget in short if only_beyond_jobs else ():
                    budget.exhausted_at = max(budget.exhausted_at, -waiter.place[0])
                self.waiting -= 1
                budget = next(
                    (budget for budget in fund.budgets if not budget.can_pay_now(waiter.usd)), fund.budgets[0]
                )
                waiter.granted.set_exception(budget.make_refusal(fund.name, waiter.usd))
            heapq.heapify(fund.queue)
        return self.waiting < before

    def _pop_first_waiting(self, fund: Fund) -> None:
        heapq.heappop(fund.queue)
        self.waiting -= 1

    def _servable_funds(self, shut_budgets: set[Budget]) -> Iterator[Fund]:
        """Yield the funds whose first waiting request draws on no budget of ``shut``."""
        for fund in self._funds.values():
            while fund.queue and fund.queue[0].granted.cancelled():
                heapq.heappop(fund.queue)
            if fund.queue and shut_budgets.isdisjoint(fund.budgets):
                yield fund


def _block_usd(fund: Fund) -> float:
    """Return the size of a fund's block: a part of its smallest budget, else what it holds."""
    if not fund.budgets:
        return fund.held
    return min(budget.limit_usd for budget in fund.budgets) / BLOCKS
