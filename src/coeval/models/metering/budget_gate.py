"""Where requests get their money before they are sent, and wait for it where it is short.

Money that may be spent is on disk before it is: a block of it at a time, so that a crash wastes a part of a
block for each model, and what requests on the wire may have cost. Who waits is served downstream first, and
not for money of batch jobs that is not worth another job.
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
from coeval.core.options import BUDGET, CONTINUE, Option, max_cost
from coeval.core.text import dollars, dollars_beyond, limit_in_dollars
from coeval.models.metering.account_file import AccountFile, ModelAccount, Spent, perhaps

# --- Budget

# Requests of batch jobs whose money is waited for: what fewer leave pays for jobs of one or two each.
WORTH_A_JOB = 20
# The part of a budget that batch jobs hold, below which nobody waits for it.
WORTH_A_WAIT = 0.1


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

    def __init__(self, name: str, row: ModelAccount) -> None:
        self.name = name
        self.row = row
        self.held = self.parked = 0.0
        self._held_of = self._parked_of = 0
        self.budgets: tuple[Budget, ...] = ()
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


class Budget:
    """A budget in US dollars over the life of a folder, which ``key`` sets, and the funds that spend out of
    it. ``exhausted_at`` is the highest rank of a request that it could not pay for: what would only bring
    about more such requests is not paid for either."""

    def __init__(self, limit_usd: float, key: Option, funds: Collection[Fund]) -> None:
        self.limit_usd = limit_usd
        self.key = key
        self.funds = funds
        self.exhausted_at = -1

    @property
    def spent_usd(self) -> float:
        return sum(fund.row.spent_usd for fund in self.funds)

    def fits(self, usd: float) -> bool:
        """Whether a request can be paid for now, whatever those on their way turn out to cost."""
        return self.spent_usd + sum(fund.promised_usd for fund in self.funds) + usd <= self.limit_usd

    def room_for(self, fund: Fund) -> float:
        """How much may be written ahead for the live requests of a fund, the blocks of others left as they
        are."""
        others = sum(other.row.reserved_usd for other in self.funds if other is not fund)
        unblocked = sum(each.unblocked_usd for each in self.funds)
        return self.limit_usd - self.spent_usd - others - unblocked

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
        return rank >= self.exhausted_at and self.spent_usd + usd <= self.limit_usd

    def dearest_to_come(self) -> float:
        """What a request may cost that is worth waiting for, where none is being sent: any amount if batch
        jobs hold so much that a job of some size can be made of what they leave. Without that bound, the last
        of a budget would go job by job, of one request each."""
        jobs = [fund for fund in self.funds if fund.unblocked_usd]
        if sum(fund.in_jobs for fund in jobs) < WORTH_A_JOB:
            return 0.0
        held = sum(fund.unblocked_usd for fund in jobs)
        return self.limit_usd if held >= WORTH_A_WAIT * self.limit_usd else 0.0

    def refusal(self, name: str, usd: float) -> QuotaExhausted:
        so_far = Spent.of([fund.row for fund in self.funds], at_work=True)
        gone, needed = (
            dollars_beyond(self.limit_usd, so_far.usd, usd) if so_far.usd else ("$0.00", dollars(usd))
        )
        spent = f"{gone} of it is spent{perhaps(so_far.perhaps_usd)}"
        settle = (
            ", or settle what is perhaps spent (coeval status RUN --settle)" if so_far.perhaps_usd else ""
        )
        way_out = f"Raise {self.key}{settle} and run again with {CONTINUE}."
        if promised := sum(fund.unblocked_usd for fund in self.funds):
            spent += f", {dollars(promised)} is held for batch jobs"
            way_out = f"Run again with {CONTINUE} when they have ended, or raise {self.key} before that."
        return QuotaExhausted(
            f"model {name} is no longer called: {self.key} is {limit_in_dollars(self.limit_usd)}, and "
            f"{spent}, which leaves too little for a request that may cost {needed}, or for what would "
            "follow from it.",
            way_out,
        )


# A block is such a part of a budget; without one it is as much as is on its way, so that writes stay few
# beside requests and a crash leaves little that is only perhaps spent.
BLOCKS = 128


class Held(Enum):
    """For how long batch jobs hold the money that others wait for."""

    BRIEFLY = auto()
    """whether a provider takes a job shows soon: of one that it refuses, all money comes back"""
    BY_JOBS = auto()
    """until they end, which is waited for"""
    FOR_GOOD = auto()


class BudgetGate:
    """The funds of a folder's models. ``budget_usd`` is that of all models together, over the life of the
    folder; None: there is none."""

    def __init__(self, file: AccountFile, budget_usd: float | None = None) -> None:
        self._file = file
        self._funds = {name: Fund(name, row) for name, row in file.rows.items()}
        self._of_all = None if budget_usd is None else Budget(budget_usd, BUDGET, self._funds.values())
        self._order = count()
        self._closed: CoevalError | None = None
        self.free_jobs_money: Callable[[], Held] = lambda: Held.FOR_GOOD
        """Called where those who wait can only get money that is held for batch jobs: it submits what is
        parked, and says what may be waited for."""
        self._turning = False
        self.waiting = 0
        """Requests that wait for money."""

    def fund(self, name: str, row: ModelAccount, max_cost_usd: float | None) -> Fund:
        """The fund of a model, with the budgets that hold for it."""
        fund = self._funds.setdefault(name, Fund(name, row))
        own = [] if max_cost_usd is None else [Budget(max_cost_usd, max_cost(name), (fund,))]
        fund.budgets = (*own, *([self._of_all] if self._of_all is not None else ()))
        return fund

    def refusal(self, fund: Fund, usd: float, rank: int) -> QuotaExhausted | None:
        """Why a request will not be paid for, whatever others turn out to cost; None where it may be."""
        budget = next((budget for budget in fund.budgets if not budget.reaches(usd, rank)), None)
        return None if budget is None else budget.refusal(fund.name, usd)

    def take(self, fund: Fund, usd: float, rank: int, *, parked: bool = False) -> Future[None] | None:
        """Set money aside for a request: at once (None), or when the future is done, which is awaited by
        `granted`. ``parked``: it waits for a batch job, and no file is written.

        Raises QuotaExhausted: a budget does not reach for it; the future may raise it, too; StoreError: the
        reservation could not be written, so nothing may be sent.
        """
        if not self.waiting and all(rank >= budget.exhausted_at for budget in fund.budgets):
            if not parked and fund.held + usd <= fund.row.reserved_usd:
                fund.hold(usd)
                return None
            if all(budget.fits(usd) for budget in fund.budgets):
                self._grant(fund, usd, parked=parked)
                return None
        if self._closed is not None:
            raise self._closed.with_traceback(None)
        waiter = Waiter((-rank, next(self._order)), usd, parked, get_running_loop().create_future())
        heapq.heappush(fund.queue, waiter)
        self.waiting += 1
        self._serve()
        if not waiter.granted.done():
            return waiter.granted
        waiter.granted.result()
        return None

    async def granted(self, fund: Fund, usd: float, money: Future[None], *, parked: bool = False) -> None:
        """Wait for money that `take` could not set aside at once. Of one who is cancelled, what was granted
        meanwhile comes back."""
        try:
            await money
        except CancelledError:
            if money.cancelled():
                self.waiting -= 1  # its place in the queue is skipped when it comes up
                self._serve()
            elif money.done() and money.exception() is None:
                self.put_back(fund, usd, parked=parked)
            raise

    def put_back(self, fund: Fund, usd: float, *, parked: bool = False) -> None:
        """What was set aside for a request was not spent, and will not be."""
        if parked:
            fund.unpark(usd)
        else:
            fund.let_go(usd)
        self.changed()

    def spend(self, fund: Fund, usd: float, cost_usd: float) -> None:
        """Of what was set aside, so much was spent; it stands in the account already."""
        fund.let_go(usd)
        fund.row.reserved_usd = max(fund.row.reserved_usd - cost_usd, fund.held)
        self.changed()

    def lose(self, fund: Fund, usd: float) -> None:
        """Nobody can know what a request cost: it may have been all that was set aside."""
        fund.row.uncertain_usd += usd
        self.spend(fund, usd, usd)

    def changed(self) -> None:
        """Serve those who wait: something has been settled."""
        if self.waiting:
            self._serve()

    def trim(self) -> None:
        """Give up more than one block beside what is on its way; takes effect when it is written."""
        for fund in self._funds.values():
            row = fund.row
            row.reserved_usd = min(row.reserved_usd, fund.held + _block(fund))

    def close(self, error: CoevalError) -> None:
        """Whoever waits, or would have to, gets ``error``."""
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
                budget.make_room()
            return
        fund.hold(usd)
        if fund.held > fund.row.reserved_usd:
            try:
                self._write_ahead(fund)
            except StoreError:
                fund.let_go(usd)
                raise

    def _write_ahead(self, fund: Fund) -> None:
        """Write that what is held of a fund, and a block more where there is one, may be spent."""
        before = [(each.row, each.row.reserved_usd) for each in self._funds.values()]
        needed = fund.held + _block(fund)
        for budget in fund.budgets:
            if budget.room_for(fund) < needed:
                budget.give_up_blocks()
            needed = min(needed, budget.room_for(fund))
        fund.row.reserved_usd = max(needed, fund.held)
        try:
            self._file.write()
        except StoreError:
            for row, reserved_usd in before:
                row.reserved_usd = reserved_usd
            raise

    def _serve(self) -> None:
        """Give money to those who wait, and refuse those that it will never reach for. Who cannot be served
        now keeps those behind him from the budgets that he needs."""
        shut: set[Budget] = set()
        while (
            fund := min(self._lines(shut), key=lambda each: each.queue[0].place, default=None)
        ) is not None:
            (above, _), usd, parked, granted = fund.queue[0]
            rank = -above
            if (error := self.refusal(fund, usd, rank)) is not None:
                for budget in fund.budgets:
                    if not budget.reaches(usd, rank):
                        budget.exhausted_at = max(budget.exhausted_at, rank)
                self._leave_line(fund)
                granted.set_exception(error)
            elif lacking := [budget for budget in fund.budgets if not budget.fits(usd)]:
                shut.update(lacking)
            else:
                self._leave_line(fund)
                try:
                    self._grant(fund, usd, parked=parked)
                except StoreError as refused:
                    granted.set_exception(refused)
                else:
                    granted.set_result(None)
        if self.waiting and not self._is_live() and not self._turning:
            self._turning = True
            get_running_loop().call_soon(
                self._turn_to_jobs
            )  # whoever parked the last one is to write it first

    def _is_live(self) -> bool:
        """Whether requests are on their way that will free money soon."""
        return any(fund.is_live for fund in self._funds.values())

    def _turn_to_jobs(self) -> None:
        """Who waits now gets money of batch jobs, or none."""
        self._turning = False
        if not self.waiting or self._is_live():
            return
        try:
            held = self.free_jobs_money()
        except StoreError as error:  # nobody else is told of it here, and they would wait for ever
            self.close(error)
            return
        if held is Held.BRIEFLY or not self.waiting or self._is_live():
            return  # `changed` is called when more is known
        if self._refuse(beyond_jobs=True):
            self._serve()  # those behind may need less
        elif held is Held.FOR_GOOD:
            self._refuse(beyond_jobs=False)

    def _refuse(self, *, beyond_jobs: bool) -> bool:
        """Refuse all who wait, or only those for whom the end of jobs brings too little: then what would only
        bring about more such requests is refused from now on. Whether there were any."""
        to_come = {
            budget: budget.dearest_to_come() for fund in self._funds.values() for budget in fund.budgets
        }
        before = self.waiting
        for fund in self._funds.values():
            queue, fund.queue = fund.queue, []
            for waiter in queue:
                if waiter.granted.cancelled():
                    continue
                short = [budget for budget in fund.budgets if waiter.usd > to_come[budget]]
                short = [budget for budget in short if not budget.fits(waiter.usd)]
                if beyond_jobs and not short:
                    fund.queue.append(waiter)
                    continue
                for budget in short if beyond_jobs else ():
                    budget.exhausted_at = max(budget.exhausted_at, -waiter.place[0])
                self.waiting -= 1
                budget = next(
                    (budget for budget in fund.budgets if not budget.fits(waiter.usd)), fund.budgets[0]
                )
                waiter.granted.set_exception(budget.refusal(fund.name, waiter.usd))
            heapq.heapify(fund.queue)
        return self.waiting < before

    def _leave_line(self, fund: Fund) -> None:
        heapq.heappop(fund.queue)
        self.waiting -= 1

    def _lines(self, shut: set[Budget]) -> Iterator[Fund]:
        """The funds whose first in line may be served."""
        for fund in self._funds.values():
            while fund.queue and fund.queue[0].granted.cancelled():
                heapq.heappop(fund.queue)
            if fund.queue and shut.isdisjoint(fund.budgets):
                yield fund


def _block(fund: Fund) -> float:
    if not fund.budgets:
        return fund.held
    return min(budget.limit_usd for budget in fund.budgets) / BLOCKS
