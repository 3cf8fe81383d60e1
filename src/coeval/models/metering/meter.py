"""What one model was sent and what its answers took, over the whole life of a folder, and where that ends.

``usage.json`` is written *ahead*: before a model with a ceiling sends, a block of permits is put
on disk as reserved. After a crash that block counts as used, so a ceiling is never passed; at
most a part of one block per model is wasted. Money is reserved likewise (`budget_gate`).
"""

from __future__ import annotations

import logging
from asyncio import Future
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from coeval.core.errors import QuotaExhausted, StoreError
from coeval.core.model import Price
from coeval.core.options import CONTINUE, max_calls
from coeval.core.records import Usage
from coeval.core.text import dollars
from coeval.models.metering.account_file import AccountFile, JobAccount, ModelAccount, Terms
from coeval.models.metering.budget_gate import BudgetGate, Fund

# --- Bill of a batch job


class JobBill:
    """Sums up the replies of a job, one after the other; made by `Meter.bill`.

    ``sums`` counts the requests that the host carried out, well or not, and what they took and cost; nobody
    knows what ``uncertain_usd`` of it are, of answers without a price and of what could not be read.
    ``taken_usd`` is what the priced answers took of the job's money: one that cost more than was held for it
    took that.
    """

    def __init__(self, price: Price | None, doubt: Callable[[Usage, float], None]) -> None:
        self._price = price
        self._doubt = doubt
        self.sums = ModelAccount()
        self.taken_usd = 0.0

    def answered(self, usage: Usage, most_usd: float = 0.0) -> Usage:
        """Add what an answer took; the same with its price. ``most_usd`` is what was held for it."""
        usage = priced(usage, self._price)
        self._doubt(usage, most_usd)
        self.sums.requests += 1
        self.sums.book(usage)
        if usage.cost_usd is None:
            self.sums.uncertain_usd += most_usd
        else:
            self.taken_usd += min(usage.cost_usd, most_usd)
        return usage

    def failed(self, most_usd: float = 0.0) -> None:
        """Add a request that the host carried out, and answered with an error; ``most_usd`` is what that may
        have cost, 0 where the host does not bill it."""
        self.sums.requests += 1
        self.sums.uncertain_usd += most_usd


def priced(usage: Usage, price: Price | None) -> Usage:
    """The usage with its cost, where the host reports none and the price is known. A cost of zero is none
    beside tokens that nobody knows."""
    if usage.cost_usd or (usage.cost_usd is not None and not usage.uncounted):
        return usage
    cost = None if price is None else price(usage)
    return usage if cost == usage.cost_usd else msgspec.structs.replace(usage, cost_usd=cost)


_HOSTS_WORD = "what the host says an answer cost"

# Permits that are reserved on disk at once: few writes beside requests, and as much as a crash may waste.
BLOCK = 32
# What a host may add to a prompt, at most: the marks of its template, and what it tells the model of the
# date, of tools and of schemas (some 350 tokens where it is most).
FRAMING_TOKENS = 1024


class Meter:
    """One model's account; made by `Ledger.meter`.

    Of requests that are asked live: `reserve` before one is sent; `settle` once for each answer, when it
    comes; `give_back` for one that was not sent after all. Where the model is `priced`, their money is the
    affair of a `Reservation`.

    Of requests in a batch job: `park` before one is written down for a job that is yet to be submitted,
    `unpark` where that is dropped; `submit` before the job is sent to the host, `settle_job` once for it when
    its replies are there. Tags make both safe to repeat after a crash.
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
        """Requests counted so far, in this process and before, those that are parked not among them."""
        return self._row.requests

    @property
    def spent_usd(self) -> float:
        """What it has cost, in this process and before, and what it may have cost besides."""
        return self._row.spent_usd

    @property
    def priced(self) -> bool:
        """Whether money is set aside for its requests: they cost some, and it is known how much. So it is
        without a budget too, for one that may be set later."""
        return self._terms.most is not None

    @property
    def budgeted(self) -> bool:
        """Whether a budget holds for its requests."""
        return self.priced and bool(self.fund.budgets)

    def most_usd(self, body_bytes: int, answer_tokens: int, *, batched: bool = False) -> float:
        """The most that a request may cost: no tokenizer makes more tokens of a text than it has bytes."""
        most = self._terms.batch_most if batched else self._terms.most
        return 0.0 if most is None else most(body_bytes + FRAMING_TOKENS, answer_tokens)

    def refusal(self) -> QuotaExhausted | None:
        """What `reserve` would raise for one more request, without counting one; None where it would not."""
        used, ceiling = self._row.requests + self._parked, self._terms.max_calls
        if ceiling is None or used < ceiling:
            return None
        key = max_calls(self.name)
        return QuotaExhausted(
            f"model {self.name} has used {used} of the {ceiling} requests that {key} allows over the life of "
            "the run.",
            f"Raise {key} and run again with {CONTINUE}.",
        )

    def reserve(self) -> None:
        """Count a request that is about to be sent.

        Raises QuotaExhausted: the ceiling does not allow it; StoreError: the reservation could not be
        written, so nothing may be sent.
        """
        row, ceiling = self._row, self._terms.max_calls
        if ceiling is not None:
            if (refused := self.refusal()) is not None:
                raise refused
            if not row.reserved:
                self._write_ahead(ceiling)
            row.reserved -= 1
        row.requests += 1

    def give_back(self) -> None:
        """Take back the permit of a request that was not sent.

        What the file counts is not lowered before it is next written, so it never counts less than was
        sent. It is written as soon as a crash would waste more than a block.

        Raises StoreError: the counts could not be written.
        """
        row = self._row
        row.requests -= 1
        if self._terms.max_calls is not None:
            row.reserved += 1
            if row.reserved > BLOCK:
                row.reserved = BLOCK // 2
                self._file.write()

    def settle(self, usage: Usage, most_usd: float = 0.0) -> Usage:
        """Book what an answer took; the same with its price, where that is known and the host told none.
        ``most_usd`` is what was set aside for it."""
        row, reported = self._row, usage.cost_usd
        usage = priced(usage, self._terms.price)
        cost = usage.cost_usd
        if reported is not None and cost is not None:
            row.priced_by = _HOSTS_WORD
        if cost is not None and (reported is not None or most_usd):
            self._doubt_bill(usage, most_usd, self._terms.price)
        row.book(usage)
        return usage

    def _doubt_bill(self, usage: Usage, most_usd: float, price: Price | None) -> None:
        """Warn of a bill that no budget can prevent: above what was set aside, or nothing beside tokens."""
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

    def park(self, usd: float = 0.0, rank: int = 0) -> Awaitable[None] | None:
        """Hold a permit and ``usd`` for a request of a batch job that is yet to be submitted, in memory only:
        at once (None), or when what is returned has been awaited, where money is short for the moment.

        Raises QuotaExhausted: a ceiling or a budget does not allow it; so does the awaitable.
        """
        if (refused := self.refusal()) is not None:
            raise refused
        money = self.budget_gate.take(self.fund, usd, rank, parked=True) if usd else None
        if money is None:
            self._parked += 1
            return None
        return self._park_when(money, usd)

    async def _park_when(self, money: Future[None], usd: float) -> None:
        await self.budget_gate.granted(self.fund, usd, money, parked=True)
        if (refused := self.refusal()) is not None:
            self.budget_gate.put_back(self.fund, usd, parked=True)
            raise refused
        self._parked += 1

    def unpark(self, usd: float = 0.0) -> None:
        """Give back what `park` held for one request: it will not be sent in a job."""
        self._parked -= 1
        if usd:
            self.budget_gate.put_back(self.fund, usd, parked=True)

    def submit(self, tag: str, requests: int, usd: float = 0.0, dearest_usd: float = 0.0) -> None:
        """Make what was parked for the requests of a job, ``usd`` in all, the job's, and write it down: to be
        called before the host is told. Once for a tag: a job that is submitted anew after a crash has it
        already.

        Raises StoreError: it could not be written, so nothing may be sent; all stays parked.
        """
        row = self._row
        if tag in row.jobs:
            return
        row.jobs[tag] = JobAccount(requests, usd, dearest_usd)
        row.requests += requests
        try:
            self._file.write()
        except StoreError:
            del row.jobs[tag]
            row.requests -= requests
            raise
        self._parked -= requests
        if usd:
            self.fund.unpark(usd, requests)

    def open_jobs(self) -> dict[str, JobAccount]:
        """The jobs that were submitted and are not booked, by tag."""
        return dict(self._row.jobs)

    def bill(self) -> JobBill:
        """To sum up the replies of a job, at the batch price."""
        price = self._terms.batch_price
        return JobBill(price, lambda usage, most_usd: self._doubt_bill(usage, most_usd, price))

    def priced_in_batch(self, usage: Usage) -> Usage:
        """What an answer of a job took, with its price; nothing is booked."""
        return priced(usage, self._terms.batch_price)

    def settle_job(self, tag: str, bill: JobBill) -> None:
        """Book a job's replies and write that down; permits and money of what was not carried out come back.
        Once for a tag: again, it does nothing. An empty ``bill`` is that of a job that never came about.

        Raises StoreError: it could not be written; to be called again.
        """
        row = self._row
        if tag in row.booked:
            return
        before = msgspec.structs.replace(row, jobs=dict(row.jobs), booked=list(row.booked))
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
        try:
            self._file.write()
        except StoreError:
            for name in ModelAccount.__struct_fields__:
                setattr(row, name, getattr(before, name))
            raise
        self.budget_gate.changed()

    def _write_ahead(self, ceiling: int) -> None:
        """Write that a block of requests may be sent."""
        self._row.reserved = min(BLOCK, ceiling - self._row.requests)
        try:
            self._file.write()
        except StoreError:
            self._row.reserved = 0
            raise


# --- Reservation of one live request


class Reservation:
    """At most ``usd``, set aside by `take` before each attempt, which is then `sent`, and settled after it.
    What nobody has settled of an attempt when the next one begins, or at `close`, may have been spent.
    ``bounds``: an attempt cannot cost more; else ``usd`` is what earlier ones have cost."""

    def __init__(self, meter: Meter, usd: float, rank: int, *, bounds: bool = True) -> None:
        self._meter = meter
        self._bounds = bounds
        self._rank = rank
        self._held = self._sent = False
        self.usd = usd

    def refusal(self) -> QuotaExhausted | None:
        """What `take` would raise now, of a budget."""
        if self._held:
            return None
        return self._meter.budget_gate.refusal(self._meter.fund, self.usd, self._rank)

    def take(self) -> Awaitable[None] | None:
        """Set the money aside: at once (None), or when what is returned has been awaited.

        Raises QuotaExhausted: a budget does not reach for it; so does the awaitable; StoreError: the
        reservation could not be written, so nothing may be sent.
        """
        if self._sent:
            self.close()
        if self._held:
            return None
        money = self._meter.budget_gate.take(self._meter.fund, self.usd, self._rank)
        if money is None:
            self._held = True
            return None
        return self._take_when(money)

    async def _take_when(self, money: Future[None]) -> None:
        await self._meter.budget_gate.granted(self._meter.fund, self.usd, money)
        self._held = True

    def settle(self, usage: Usage) -> Usage:
        """Book what an answer took; the same with its price. What nobody told the tokens of may have cost all
        that was set aside."""
        usage = self._meter.settle(usage, self.usd if self._held and self._bounds else 0.0)
        if self._held and usage.cost_usd is not None:
            self._held = self._sent = False
            self._meter.budget_gate.spend(self._meter.fund, self.usd, usage.cost_usd)
        return usage

    def sent(self) -> None:
        """The request goes out now."""
        self._sent = True

    def unspent(self) -> None:
        """The request was not sent after all, or was answered with an error that is not billed."""
        if self._held:
            self._held = self._sent = False
            self._meter.budget_gate.put_back(self._meter.fund, self.usd)

    def close(self) -> None:
        """It is over: who can say what became of a request that was sent and is not settled?"""
        if self._held and self._sent:
            self._held = self._sent = False
            self._meter.budget_gate.lose(self._meter.fund, self.usd)
        else:
            self.unspent()


# --- The meters of a folder's models

_log = logging.getLogger("coeval")


class Ledger:
    """The counts of ``usage.json``, for the only process that writes it.

    Parameters
    ----------
    path:
        the file; absent is empty. Models it names and this run does not are kept as they stand.
    terms:
        by model; one that is not named is counted, not limited.
    budget_usd:
        the most money for all models together, over the life of the file; None: any.
    recorded:
        what the folder's own records took, by model: the counts are never less.

    Raises
    ------
    StoreError
        the file is damaged and a ceiling or a budget depends on it.
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
            ceilings = [(each.max_calls, each.max_cost_usd) for each in self._terms.values()]
            if budget_usd is not None or any(each != (None, None) for each in ceilings):
                raise StoreError(
                    f"{path} cannot be used ({error}), and a ceiling depends on what it counts. Restore it "
                    "from a copy, or move it away: then requests count from zero, and costs from what the "
                    "folder's records say."
                ) from error
            self._file.set_aside()
        if self._file.take_up(recorded):
            self._file.write()  # for those who read it, and for a start that is killed at once
        self.budget_gate = BudgetGate(self._file, budget_usd)
        self._meters: dict[str, Meter] = {}
        self._doubted: set[tuple[str, str]] = set()
        self.warn: Callable[[str], None] = _log.warning
        """Called once for each kind of thing in a model's bill that may not be as it should."""

    @property
    def accounts(self) -> Collection[ModelAccount]:
        """What each model has used, those that are not asked now included."""
        return self._file.rows.values()

    def meter(self, name: str) -> Meter:
        if (known := self._meters.get(name)) is not None:
            return known
        row, terms = self._file.rows.setdefault(name, ModelAccount()), self._terms.get(name, Terms())
        row.priced_by = terms.priced_by
        fund = self.budget_gate.fund(name, row, terms.max_cost_usd)
        self._meters[name] = meter = Meter(self._file, self.budget_gate, fund, terms, self._doubt)
        return meter

    def _doubt(self, name: str, kind: str, sentence: str) -> None:
        if (name, kind) not in self._doubted:
            self._doubted.add((name, kind))
            self.warn(sentence)

    def flush(self) -> None:
        """Write the counts as they stand, reservations kept."""
        self.budget_gate.trim()
        self._file.write()

    def close(self) -> None:
        """Write the exact counts: what was reserved and not sent is given back. No file is made where nothing
        was sent."""
        rows = self._file.rows.values()
        for row in rows:
            row.reserved, row.reserved_usd = 0, 0.0
        if self._file.path.exists() or any(row.requests for row in rows):
            self._file.write()
