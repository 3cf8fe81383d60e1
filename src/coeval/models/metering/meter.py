"""One model's requests, tokens and costs over the whole life of a folder, and its quota.

``usage.json`` is written *ahead*: before a model with a quota sends, a block of permits is on disk as
reserved. After a crash that block counts as used, so a quota is never exceeded; at most a part of one block
per model is wasted. Money is reserved likewise (`budget_gate`).
"""

from __future__ import annotations

import logging
from asyncio import Future
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from coeval.core.errors import QuotaExhausted, StoreError
from coeval.core.figures import dollars
from coeval.core.model import Price
from coeval.core.options import CONTINUE, max_calls
from coeval.core.records import Usage
from coeval.models.metering.account_file import AccountFile, JobAccount, ModelAccount, Terms
from coeval.models.metering.budget_gate import BudgetGate, Fund


class JobBill:
    """Adds up the replies of a batch job; made by `Meter.open_bill`. ``sums`` counts the requests that the
    host processed, failed ones too, with their usage and cost; its ``uncertain_usd`` covers answers without a
    price and unreadable replies. ``taken_usd`` is what the priced answers took of the job's money, each at
    most what was held for it."""

    def __init__(self, price: Price | None, doubt: Callable[[Usage, float], None]) -> None:
        self._price = price
        self._doubt = doubt
        self.sums = ModelAccount()
        self.taken_usd = 0.0

    def add_answer(self, usage: Usage, most_usd: float = 0.0) -> Usage:
        """Add an answer's usage; return it with its price. ``most_usd`` is what was held for it."""
        usage = add_price_unless_reported(usage, self._price)
        self._doubt(usage, most_usd)
        self.sums.requests += 1
        self.sums.book(usage)
        if usage.cost_usd is None:
            self.sums.uncertain_usd += most_usd
        else:
            self.taken_usd += min(usage.cost_usd, most_usd)
        return usage

    def add_failure(self, most_usd: float = 0.0) -> None:
        """Add a request that the host answered with an error, which may have cost ``most_usd``."""
        self.sums.requests += 1
        self.sums.uncertain_usd += most_usd


def add_price_unless_reported(usage: Usage, price: Price | None) -> Usage:
    """Return the usage with its cost, if the host reports none and the price is known. A reported cost of
    zero counts as none if tokens are uncounted."""
    if usage.cost_usd or (usage.cost_usd is not None and not usage.uncounted):
        return usage
    cost = None if price is None else price(usage)
    return usage if cost == usage.cost_usd else msgspec.structs.replace(usage, cost_usd=cost)


_HOSTS_WORD = "what the host says an answer cost"

# Permits reserved on disk at once: few writes relative to requests, and as many as a crash may waste.
BLOCK = 32
# Tokens that a host may add to a prompt, at most: marks of its template, and what it tells the model about
# the date, tools and schemas (the most seen are some 350).
FRAMING_TOKENS = 1024


class Meter:
    """Keeps one model's account; made by `Ledger.meter`.

    A live request: `reserve_request` before it is sent; `book_answer` once its answer comes, or
    `return_request` if it was not sent. If the model `is_priced`, a `Reservation` (`models.pacing.admission`)
    holds its money.

    A request of a batch job: `reserve_for_batch` before it is recorded, `release_unsent_batch_request` if
    dropped; `move_parked_to_job` before the job goes to the host, `settle_job` when its replies are there.
    Tags make both safe to repeat after a crash.
    """

    def __init__(
        self,
        file: AccountFile,
        budget_gate: BudgetGate,
        fund: Fund,
        terms: Terms,
        doubt: Callable[[str, str, str], None],
    ) -> None:
        self.name = fund.name
        self.budget_gate = budget_gate
        self.fund = fund
        self._file = file
        self._row: ModelAccount = fund.row
        self._terms = terms
        self._doubt = doubt
        self._parked = 0

    @property
    def requests(self) -> int:
        """Return the requests counted over the life of the folder, without parked ones."""
        return self._row.requests

    @property
    def spent_usd(self) -> float:
        """Return what the model has cost over the life of the folder, uncertain cost included."""
        return self._row.spent_usd

    @property
    def is_priced(self) -> bool:
        """Check whether requests cost a known price, which is then set aside, even without a budget."""
        return self._terms.most is not None

    @property
    def has_budget(self) -> bool:
        """Check whether requests are priced and a budget applies to them."""
        return self.is_priced and bool(self.fund.budgets)

    def most_usd(self, body_bytes: int, answer_tokens: int, *, batched: bool = False) -> float:
        """Return the most that a request may cost: a text has no more tokens than bytes."""
        most = self._terms.batch_most if batched else self._terms.most
        return 0.0 if most is None else most(body_bytes + FRAMING_TOKENS, answer_tokens)

    def refusal(self) -> QuotaExhausted | None:
        """Return what `reserve_request` would raise for another request, without counting one; else None."""
        used, ceiling = self._row.requests + self._parked, self._terms.max_calls
        if ceiling is None or used < ceiling:
            return None
        key = max_calls(self.name)
        return QuotaExhausted(
            f"model {self.name} has used {used} of the {ceiling} requests that {key} allows over the life of "
            "the run.",
            f"Raise {key} and run again with {CONTINUE}.",
        )

    def reserve_request(self) -> None:
        """Count a request that is about to be sent. Raises QuotaExhausted: the quota is used up; StoreError:
        the reservation could not be written, so nothing may be sent."""
        row, ceiling = self._row, self._terms.max_calls
        if ceiling is not None:
            if (refused := self.refusal()) is not None:
                raise refused
            if not row.reserved:
                with self._file.undo_if_write_fails(row):
                    row.reserved = min(BLOCK, ceiling - row.requests)
            row.reserved -= 1
        row.requests += 1

    def return_request(self) -> None:
        """Return the permit of a request that was not sent. The file's count is lowered only at its next
        write, so it is never less than what was sent. It is written as soon as a crash would waste more than
        a block. Raises StoreError: it could not be written."""
        row = self._row
        row.requests -= 1
        if self._terms.max_calls is not None:
            row.reserved += 1
            if row.reserved > BLOCK:
                row.reserved = BLOCK // 2
                self._file.write()

    def book_answer(self, usage: Usage, most_usd: float = 0.0) -> Usage:
        """Book an answer's usage; return it with its cost. ``most_usd`` was set aside for it."""
        row, reported = self._row, usage.cost_usd
        usage = add_price_unless_reported(usage, self._terms.price)
        cost = usage.cost_usd
        if reported is not None and cost is not None:
            row.priced_by = _HOSTS_WORD
        if cost is not None and (reported is not None or most_usd):
            self._warn_if_bill_is_odd(usage, most_usd, self._terms.price)
        row.book(usage)
        return usage

    def _warn_if_bill_is_odd(self, usage: Usage, most_usd: float, price: Price | None) -> None:
        """Warn of a bill above what was set aside, or of none for priced tokens: no budget prevents these."""
        cost = usage.cost_usd
        if cost is None:
            return
        reported = f"{usage.input_tokens:,} tokens of input and {usage.output_tokens:,} of output"
        if most_usd and cost > most_usd * (1 + 1e-9):
            self._doubt(
                self.name,
                "above",
                f"{self.name}: its host reports {reported} for one answer, which cost {dollars(cost)}: "
                f"more than the {dollars(most_usd)} that its prompt and max_tokens allow. It is booked as "
                "reported; no budget can prevent it, so check the host's bill",
            )
        if not cost and price is not None and (due := price(msgspec.structs.replace(usage, cost_usd=None))):
            self._doubt(
                self.name,
                "free",
                f"{self.name}: its host reports a cost of $0 for {reported}, which its list price makes "
                f"{dollars(due)}. It is booked as reported; check the host's bill",
            )

    def reserve_for_batch(self, usd: float = 0.0, priority: int = 0) -> Awaitable[None] | None:
        """Hold a permit and ``usd``, in memory only, for a request of a batch job that is yet to be
        submitted: at once (None), or once what is returned has been awaited. Raises QuotaExhausted: a quota
        or a budget does not allow it; so does the awaitable."""
        if (refused := self.refusal()) is not None:
            raise refused
        money = self.budget_gate.set_aside(self.fund, usd, priority, parked=True) if usd else None
        if money is None:
            self._parked += 1
            return None
        return self._await_reservation(money, usd)

    async def _await_reservation(self, money: Future[None], usd: float) -> None:
        await self.budget_gate.await_grant(self.fund, usd, money, parked=True)
        if (refused := self.refusal()) is not None:
            self.budget_gate.put_back(self.fund, usd, parked=True)
            raise refused
        self._parked += 1

    def release_unsent_batch_request(self, usd: float = 0.0) -> None:
        """Release what `reserve_for_batch` held for a request that no job will send."""
        self._parked -= 1
        if usd:
            self.budget_gate.put_back(self.fund, usd, parked=True)

    def move_parked_to_job(self, tag: str, requests: int, usd: float = 0.0, dearest_usd: float = 0.0) -> None:
        """Book the parked money of a job's requests, ``usd`` in all, as the job's, before the host gets it. A
        repeated tag, after a crash, does nothing. Raises StoreError: it could not be written, so nothing may
        be sent; all stays parked."""
        row = self._row
        if tag in row.jobs:
            return
        with self._file.undo_if_write_fails(row):
            row.jobs[tag] = JobAccount(requests, usd, dearest_usd)
            row.requests += requests
        self._parked -= requests
        if usd:
            self.fund.unpark(usd, requests)

    def open_jobs(self) -> dict[str, JobAccount]:
        """Return the submitted jobs that are not booked, by tag."""
        return dict(self._row.jobs)

    def open_bill(self) -> JobBill:
        price = self._terms.batch_price
        return JobBill(price, lambda usage, most_usd: self._warn_if_bill_is_odd(usage, most_usd, price))

    def add_batch_price(self, usage: Usage) -> Usage:
        """Return the usage of an answer in a job with its cost; books nothing."""
        return add_price_unless_reported(usage, self._terms.batch_price)

    def settle_job(self, tag: str, bill: JobBill) -> None:
        """Book a job's replies; return the permits and money of requests that were not processed. A repeated
        tag does nothing. An empty ``bill`` is that of a job that never started. Raises StoreError: it could
        not be written; call it again."""
        row = self._row
        if tag in row.booked:
            return
        with self._file.undo_if_write_fails(row):
            job = row.jobs.pop(tag, JobAccount(0))
            row.booked.append(tag)
            sums = bill.sums
            row.requests += sums.requests - job.requests
            row.input_tokens += sums.input_tokens
            row.output_tokens += sums.output_tokens
            row.unpriced += sums.unpriced
            row.uncertain_usd += max(0.0, min(sums.uncertain_usd, job.usd - bill.taken_usd))
            if sums.cost_usd is not None:
                row.cost_usd = (row.cost_usd or 0.0) + sums.cost_usd
        self.budget_gate.serve_waiting()


_log = logging.getLogger("coeval")


class Ledger:
    """The meters of a folder's models, for the only process that writes ``usage.json`` (``path``).

    Models without ``terms`` are counted, not limited; accounts of models that this run does not use are kept.
    ``budget_usd`` is the most money for all models together, over the life of the file. Counts are never less
    than ``recorded``, the usage in the folder's own records by model. Raises StoreError: the file is damaged,
    and a quota or a budget depends on it.
    """

    def __init__(
        self,
        path: Path,
        terms: Mapping[str, Terms] = MappingProxyType({}),
        budget_usd: float | None = None,
        recorded: Mapping[str, Usage] = MappingProxyType({}),
    ) -> None:
        self._terms = dict(terms)
        self._file = AccountFile(path)
        try:
            self._file.load()
        except StoreError as error:
            ceilings = [(limits.max_calls, limits.max_cost_usd) for limits in self._terms.values()]
            if budget_usd is not None or any(limits != (None, None) for limits in ceilings):
                raise StoreError(
                    f"{path} cannot be used ({error}), and a ceiling depends on what it counts. Restore it "
                    "from a copy, or move it away: then requests count from zero, and costs from what the "
                    "folder's records say."
                ) from error
            self._file.set_aside()
        if self._file.absorb_crash_and_check_loss(recorded):
            self._file.write()  # for readers, and in case this start is killed at once
        self.budget_gate = BudgetGate(self._file, budget_usd)
        self._meters: dict[str, Meter] = {}
        self._doubted: set[tuple[str, str]] = set()
        self.warn: Callable[[str], None] = _log.warning
        """Called once for each kind of doubt about a model's bill."""

    @property
    def accounts(self) -> Collection[ModelAccount]:
        """Return the accounts of all models, those of earlier runs included."""
        return self._file.rows.values()

    def meter(self, name: str) -> Meter:
        if (known := self._meters.get(name)) is not None:
            return known
        row, terms = self._file.rows.setdefault(name, ModelAccount()), self._terms.get(name, Terms())
        row.priced_by = terms.priced_by
        fund = self.budget_gate.open_fund(name, row, terms.max_cost_usd)
        self._meters[name] = meter = Meter(self._file, self.budget_gate, fund, terms, self._warn_once)
        return meter

    def _warn_once(self, name: str, kind: str, sentence: str) -> None:
        if (name, kind) not in self._doubted:
            self._doubted.add((name, kind))
            self.warn(sentence)

    def write_with_reservations_of_one_block(self) -> None:
        """Write the accounts, reservations included, but no more than a block of each."""
        self.budget_gate.shrink_reservations_to_one_block()
        self._file.write()

    def close(self) -> None:
        """Write the exact counts, without reservations. Make no file if nothing was sent."""
        rows = self._file.rows.values()
        for row in rows:
            row.reserved, row.reserved_usd = 0, 0.0
        if self._file.path.exists() or any(row.requests for row in rows):
            self._file.write()
