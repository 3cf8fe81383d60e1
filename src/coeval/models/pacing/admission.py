"""Which requests of a model may still be sent: its quota, budget and refusals; and in which order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec

from coeval.core import errors
from coeval.core.model import ModelSpec, count_prompt_bytes, mark_if_uncounted, max_tokens_of_all_answers
from coeval.core.options import CONTINUE, max_tokens
from coeval.core.records import Completion, Request, Usage
from coeval.core.text import digest
from coeval.models.metering.meter import Meter

# This many 401, 403 or 404 before any answer stop a model, as do so many replies in a row that its account is
# empty: one proves little, since a gateway may have another account.
REFUSALS_TO_STOP = 3
# This many 401 in a row stop a model that has answered: its key is no longer valid.
DENIALS_TO_STOP = 20


class Admission:
    """Permits a model's requests, until its quota or budget is used up or its host keeps refusing it.
    ``meter`` is its account; None if none is kept."""

    def __init__(self, name: str, meter: Meter | None = None) -> None:
        self._name = name
        self._meter = meter
        self._answered = False
        self._refusals = 0
        self._denials = self._unpaid = 0
        self._reason: str | None = None
        self._dearest_usd: float | None = None
        self._ahead: asyncio.Future[None] | None = None
        # Books an answer's usage as soon as it comes; returns it with its price, if known.
        self.settle: Callable[[Usage], Usage] = (lambda usage: usage) if meter is None else meter.book_answer

    def raise_if_stopped(self) -> None:
        if self._reason is not None:
            raise errors.ModelStopped(self._reason)

    def take_permit(self) -> None:
        """Count a request that is about to be sent. Raises ModelStopped, or as `Meter.reserve_request`."""
        self.raise_if_stopped()
        if self._meter is not None:
            self._meter.reserve_request()

    def return_permit(self) -> None:
        """Return the permit of a request that was not sent, for want of a connection."""
        if self._meter is not None:
            self._meter.return_request()

    @property
    def is_priced(self) -> bool:
        """Check whether requests need a `Reservation`."""
        return self._meter is not None and self._meter.is_priced

    @property
    def has_budget(self) -> bool:
        """Check whether a budget limits the costs that answers report."""
        return self._meter is not None and bool(self._meter.fund.budgets)

    @asynccontextmanager
    async def reserve_reported_cost(self, priority: int) -> AsyncIterator[Reservation | None]:
        """Reserve what the dearest answer so far cost, for a model with a budget but no price; None if they
        cost nothing. The first request goes ahead of the others, since no cost is known before it."""
        while self._dearest_usd is None and self._ahead is not None:
            await asyncio.wait((self._ahead,))
        if self.is_priced or not self.has_budget or self._dearest_usd == 0:
            yield None
        elif self._dearest_usd is not None:
            yield Reservation(self, self._dearest_usd, priority, bounds=False)
        else:
            first = self._ahead = asyncio.get_running_loop().create_future()
            mean_usd = self.account.spent_usd / max(1, self.account.requests)  # before this process, too
            try:
                yield Reservation(self, mean_usd, priority, bounds=False)
            finally:
                self._ahead = None
                first.set_result(None)

    def record_reported_cost(self, usage: Usage) -> None:
        self._dearest_usd = max(self._dearest_usd or 0.0, usage.cost_usd or 0.0)

    def make_reservation(self, prompt_bytes: int, answer_tokens: int | None, priority: int) -> Reservation:
        return Reservation(self, self.most_usd(prompt_bytes, answer_tokens), priority)

    def most_usd(self, prompt_bytes: int, answer_tokens: int | None, *, batched: bool = False) -> float:
        """Return the most that a request of a priced model may cost; 0 if neither its answer nor a budget has
        a bound. Raises QuotaExhausted: its answer has no bound, and a budget needs one."""
        if answer_tokens is None and not self.account.has_budget:
            return 0.0
        if answer_tokens is None:
            raise errors.QuotaExhausted(
                f"model {self._name} has a budget, and is not called without max_tokens: the cost of an "
                "answer would have no bound. Set parameters.max_tokens to 1 or more"
            )
        return self.account.most_usd(prompt_bytes, answer_tokens, batched=batched)

    @property
    def account(self) -> Meter:
        """Return the account of a model that has one."""
        if self._meter is None:
            raise ValueError("a model without an account has no budget")
        return self._meter

    async def call_once(
        self,
        request: Request,
        spec: ModelSpec,
        call: Callable[[Request], Awaitable[Completion]],
        reservation: Reservation | None = None,
    ) -> Completion:
        """Call the model once, with a permit and a reservation, and book the answer. A call that raises
        Draining was not made. An error costs nothing unless it says so; a request that timed out may have
        spent its money."""
        if reservation is None and self.is_priced:
            tokens = max_tokens_of_all_answers(request.sampling, spec)
            reservation = self.make_reservation(count_prompt_bytes(request), tokens, request.priority)
        permit = self if reservation is None else reservation
        try:
            while (money := permit.take_permit()) is not None:
                await money
            try:
                completion = mark_if_uncounted(await call(request))
            except errors.Draining:
                permit.return_permit()
                raise
            usage = permit.settle(completion.usage)
        except errors.ModelError as error:
            if error.usage is not None:
                error.usage = permit.settle(error.usage)
            elif reservation is not None and not isinstance(error, errors.RequestTimeout):
                reservation.release()
            raise
        finally:
            if reservation is not None:
                reservation.release_or_book_uncertain()
        if usage is completion.usage:  # as without a price
            return completion
        return msgspec.structs.replace(completion, usage=usage)

    def refusal(self) -> errors.Gap | None:
        """Return what `take_permit` would raise now, without counting a request."""
        if self._reason is not None:
            return errors.ModelStopped(self._reason)
        return None if self._meter is None else self._meter.refusal()

    def record_outcome(self, error: errors.ModelError | None) -> None:
        """Record that a request was answered (None) or failed for good."""
        if error is None:
            self._answered = True
            self._denials = self._unpaid = 0
        elif isinstance(error, errors.AccessDenied | errors.NotFound):
            self._count_refusal_and_maybe_stop(error)

    def stop_at_refused_limit(self, error: errors.ModelError, *, judge: bool) -> None:
        way_out = f"Correct {max_tokens(judge=judge)}"
        self._stop("its host refuses answers of that length", error, way_out)

    def _count_refusal_and_maybe_stop(self, error: errors.AccessDenied | errors.NotFound) -> None:
        self._refusals += 1
        self._denials += error.status == 401
        self._unpaid += isinstance(error, errors.AccountSpent)
        if self._unpaid >= REFUSALS_TO_STOP:
            self._stop("its account or budget is used up", error, "Add credit, or raise the limit")
        if self._denials >= DENIALS_TO_STOP:
            self._stop(f"its last {self._denials} requests were all refused", error, "Correct its key")
        if not self._answered and self._refusals >= REFUSALS_TO_STOP:
            why = f"its first {self._refusals} requests were all refused"
            self._stop(why, error, "Correct its key, model id or base_url")

    def _stop(self, why: str, error: errors.ModelError, way_out: str) -> None:
        if self._reason is not None:
            return
        stopped = f"model {self._name} is no longer called: {why} ({error})"
        self._reason = f"{stopped}. {way_out}, and run again with {CONTINUE}."


class Reservation:
    """The permit and the money of one live request of a model with an account: ``usd`` is set aside before
    each attempt and settled after it. An attempt that was sent and not settled when the next one begins, or
    at `close`, may have been billed. ``bounds``: an attempt cannot cost more; else ``usd`` is what earlier
    requests cost."""

    def __init__(self, admission: Admission, usd: float, priority: int, *, bounds: bool = True) -> None:
        self._admission = admission
        self._meter = admission.account
        self._gate, self._fund = self._meter.budget_gate, self._meter.fund
        self._bounds = bounds
        self._priority = priority
        self._held = self._sent = False
        self.usd = usd

    def take_permit(self) -> Awaitable[None] | None:
        """Set the money aside and take a permit. Await what is returned, then call it again. Raises as
        `Admission.take_permit`; QuotaExhausted, as the awaitable does: a budget cannot pay for it;
        StoreError: the reservation could not be written, so nothing may be sent."""
        self._admission.raise_if_stopped()
        if self._sent:
            self.release_or_book_uncertain()
        if not self._held:
            money = self._gate.set_aside(self._fund, self.usd, self._priority)
            if money is not None:
                return self._await_grant(money)
            self._held = True
        self._admission.take_permit()
        self._sent = True
        return None

    async def _await_grant(self, money: asyncio.Future[None]) -> None:
        await self._gate.await_grant(self._fund, self.usd, money)
        self._held = True

    def refusal(self) -> errors.Gap | None:
        """Return what `take_permit` would raise now, without counting a request."""
        refused = self._admission.refusal()
        if refused is not None or self._held:
            return refused
        return self._gate.refusal(self._fund, self.usd, self._priority)

    def settle(self, usage: Usage) -> Usage:
        """Book an answer's usage; return it with its cost. Without tokens, all that is held may be spent."""
        usage = self._meter.book_answer(usage, self.usd if self._held and self._bounds else 0.0)
        if self._held and usage.cost_usd is not None:
            self._held = self._sent = False
            self._gate.release_booked(self._fund, self.usd, usage.cost_usd)
        return usage

    def return_permit(self) -> None:
        """Return the permit and the money of a request that was not sent."""
        self._admission.return_permit()
        self.release()

    def release(self) -> None:
        """Release the money of a request that was not sent, or whose error is not billed."""
        if self._held:
            self._held = self._sent = False
            self._gate.put_back(self._fund, self.usd)

    def release_or_book_uncertain(self) -> None:
        """End the request. If it was sent and not settled, its money is booked as uncertain."""
        if self._held and self._sent:
            self._held = self._sent = False
            self._gate.book_uncertain(self._fund, self.usd)
        else:
            self.release()


# --- Order of requests that share a cached prefix

# Anthropic's cache keeps a prefix for five minutes from its last use, by another clock.
_KEPT_S = 240.0
# Prefixes to remember; a forgotten one only costs a wait.
_MOST = 8192


class SharedPrefixes:
    """Sends one of the requests that share a prefix first; the others follow when it has ended. A host caches
    a prefix with the first answer. Requests sent at the same time would each pay for writing it, and none
    would read it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ahead: dict[str, asyncio.Future[None]] = {}
        self._used: dict[str, float] = {}

    @asynccontextmanager
    async def wait_turn(self, request: Request) -> AsyncIterator[None]:
        """Wait until a request may be sent; it has been sent when the context ends."""
        prefix = _hash_prefix(request)
        ahead = self._ahead.get(prefix)
        if ahead is None and self._clock() - self._used.get(prefix, float("-inf")) >= _KEPT_S:
            self._ahead[prefix] = first = asyncio.get_running_loop().create_future()
            try:
                yield
            finally:
                del self._ahead[prefix]
                first.set_result(None)
                self._mark_used(prefix)
            return
        if ahead is not None:
            await asyncio.wait((ahead,))
        yield
        self._mark_used(prefix)

    def _mark_used(self, prefix: str) -> None:
        self._used.pop(prefix, None)
        self._used[prefix] = self._clock()
        if len(self._used) > _MOST:
            del self._used[next(iter(self._used))]


def _hash_prefix(request: Request) -> str:
    """Hash what a request shares: all messages but the last, and the start of that one."""
    *before, last = request.messages
    whole = (part for message in before for part in (message.role, message.content))
    return digest(*whole, last.role, last.content[: request.shared])
