"""Whether a model is still asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from coeval.core.errors import (
    AccessDenied,
    AccountSpent,
    Draining,
    Gap,
    ModelError,
    ModelStopped,
    NotFound,
    QuotaExhausted,
    RequestTimeout,
)
from coeval.core.model import ModelSpec, count_prompt_bytes, mark_uncounted, max_answer_tokens
from coeval.core.options import CONTINUE, max_tokens
from coeval.core.records import Completion, Request, Usage
from coeval.core.text import digest
from coeval.models.metering.meter import Meter, Reservation

# So many 401, 403 or 404 in a row, with no answer before them, end a model; so many that say that no money is
# left, with no answer between them: a gateway may have another account.
REFUSALS_TO_STOP = 3
# So many 401 in a row end a model that has answered: its key is no longer good.
DENIALS_TO_STOP = 20


class Admission:
    """A model's right to be asked: as far as its ceiling goes, until all its first requests are refused, or
    its key is in the end.

    ``meter`` is its account, None where nobody keeps one.
    """

    def __init__(self, name: str, meter: Meter | None = None) -> None:
        self._name = name
        self._meter = meter
        self._answered = False
        self._refusals = 0
        self._denials = self._unpaid = 0
        self._reason: str | None = None
        self._dearest_usd: float | None = None
        self._ahead: asyncio.Future[None] | None = None
        # Books what an answer took, as soon as it is there; the same with its price, where that is known.
        self.settle: Callable[[Usage], Usage] = (lambda usage: usage) if meter is None else meter.settle

    def permit(self) -> None:
        """Called before each request sent; raises ModelStopped, or what the meter raises."""
        if self._reason is not None:
            raise ModelStopped(self._reason)
        if self._meter is not None:
            self._meter.reserve()

    def unsent(self) -> None:
        """The request was not sent after all, for want of a connection: its permit can be used again."""
        if self._meter is not None:
            self._meter.give_back()

    @property
    def priced(self) -> bool:
        """Whether requests need a `Reservation`."""
        return self._meter is not None and self._meter.priced

    @property
    def has_budget(self) -> bool:
        """Whether a budget holds for what its answers say that they cost."""
        return self._meter is not None and bool(self._meter.fund.budgets)

    @asynccontextmanager
    async def at_reported_cost(self, rank: int) -> AsyncIterator[Reservation | None]:
        """The money for a request without a price, under a budget: what the dearest answer so far cost,
        None where they cost nothing. The first one goes ahead, as nobody knows it before."""
        while self._dearest_usd is None and self._ahead is not None:
            await asyncio.wait((self._ahead,))
        if self.priced or not self.has_budget or self._dearest_usd == 0:
            yield None
        elif self._dearest_usd is not None:
            yield Reservation(self._account, self._dearest_usd, rank, bounds=False)
        else:
            first = self._ahead = asyncio.get_running_loop().create_future()
            mean_usd = self._account.spent_usd / max(1, self._account.requests)  # before this process, too
            try:
                yield Reservation(self._account, mean_usd, rank, bounds=False)
            finally:
                self._ahead = None
                first.set_result(None)

    def learn_cost(self, usage: Usage) -> None:
        """Remember what an answer said it cost."""
        self._dearest_usd = max(self._dearest_usd or 0.0, usage.cost_usd or 0.0)

    def reservation(self, prompt_bytes: int, answer_tokens: int | None, rank: int) -> Reservation:
        """The money for a request of a `priced` model; raises as `most_usd`."""
        return Reservation(self._account, self.most_usd(prompt_bytes, answer_tokens), rank)

    def most_usd(self, prompt_bytes: int, answer_tokens: int | None, *, batched: bool = False) -> float:
        """The most that a request of a `priced` model may cost, whose prompt takes so many bytes; 0 where
        nothing bounds its answer and no budget needs a bound.

        Raises QuotaExhausted: nothing bounds its answer, and a budget does.
        """
        if answer_tokens is None and not self._account.budgeted:
            return 0.0
        if answer_tokens is None:
            raise QuotaExhausted(
                f"model {self._name} has a budget, and is not called without max_tokens: the cost of an "
                "answer would have no bound. Set parameters.max_tokens to 1 or more"
            )
        return self._account.most_usd(prompt_bytes, answer_tokens, batched=batched)

    @property
    def _account(self) -> Meter:
        if self._meter is None:
            raise ValueError("a model without an account has no budget")
        return self._meter

    def permit_at(self, reservation: Reservation) -> Awaitable[None] | None:
        """As `permit`, with its money set aside; what is returned is to be awaited before it is called
        again."""
        if self._reason is not None:
            raise ModelStopped(self._reason)
        if (money := reservation.take()) is None:
            self.permit()
            reservation.sent()
        return money

    def unsent_at(self, reservation: Reservation) -> None:
        self.unsent()
        reservation.unspent()

    def refusal_at(self, reservation: Reservation) -> Gap | None:
        return self.refusal() or reservation.refusal()

    async def asked(
        self,
        request: Request,
        spec: ModelSpec,
        call: Callable[[Request], Awaitable[Completion]],
        reservation: Reservation | None = None,
    ) -> Completion:
        """Have a request answered once that is permitted and paid for, and book it. A call that raises
        Draining was not made. An error costs nothing, unless it says so; who hangs may have spent the
        money."""
        if reservation is None and self.priced:
            tokens = max_answer_tokens(request.sampling, spec)
            reservation = self.reservation(count_prompt_bytes(request), tokens, request.rank)
        permit: Callable[[], Awaitable[None] | None] = self.permit
        unsent, settle = self.unsent, self.settle
        if reservation is not None:
            permit, unsent = partial(self.permit_at, reservation), partial(self.unsent_at, reservation)
            settle = reservation.settle
        try:
            while (money := permit()) is not None:
                await money
            try:
                completion = mark_uncounted(await call(request))
            except Draining:
                unsent()
                raise
            usage = settle(completion.usage)
        except ModelError as error:
            if error.usage is not None:
                error.usage = settle(error.usage)
            elif reservation is not None and not isinstance(error, RequestTimeout):
                reservation.unspent()
            raise
        finally:
            if reservation is not None:
                reservation.close()
        if usage is completion.usage:  # as without a price
            return completion
        return msgspec.structs.replace(completion, usage=usage)

    def refusal(self) -> Gap | None:
        """What `permit` would raise now, for those who wait for their turn; it counts nothing."""
        if self._reason is not None:
            return ModelStopped(self._reason)
        return None if self._meter is None else self._meter.refusal()

    def ended(self, error: ModelError | None) -> None:
        """A request was answered (None), or failed for good."""
        if error is None:
            self._answered = True
            self._denials = self._unpaid = 0
        elif isinstance(error, AccessDenied | NotFound):
            self._refused(error)

    def stop_above_limit(self, error: ModelError, *, judge: bool) -> None:
        """Stop calling the model: its host refuses the limit on answers, whatever the prompt is."""
        way_out = f"Correct {max_tokens(judge=judge)}"
        self._stop("its host refuses answers of that length", error, way_out)

    def _refused(self, error: AccessDenied | NotFound) -> None:
        self._refusals += 1
        self._denials += error.status == 401
        self._unpaid += isinstance(error, AccountSpent)
        if self._unpaid >= REFUSALS_TO_STOP:
            self._stop("its account or budget is used up", error, "Add credit, or raise the limit")
        if self._denials >= DENIALS_TO_STOP:
            self._stop(f"its last {self._denials} requests were all refused", error, "Correct its key")
        if not self._answered and self._refusals >= REFUSALS_TO_STOP:
            why = f"its first {self._refusals} requests were all refused"
            self._stop(why, error, "Correct its key, model id or base_url")

    def _stop(self, why: str, error: ModelError, way_out: str) -> None:
        if self._reason is not None:
            return
        stopped = f"model {self._name} is no longer called: {why} ({error})"
        self._reason = f"{stopped}. {way_out}, and run again with {CONTINUE}."


# --- Order of requests that share a cached prefix

# Anthropic's cache keeps a prefix for five minutes from its last use; the clocks are not the same.
_KEPT_S = 240.0
# Prefixes that are remembered. One that is forgotten costs a turn.
_MOST = 8192


class SharedPrefixes:
    """One of the requests that begin alike goes ahead; the others follow when it has ended, however it did.

    A host's cache has a prefix from the first answer on: requests that are sent at once would each pay for
    writing it, and none would read it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ahead: dict[str, asyncio.Future[None]] = {}
        self._used: dict[str, float] = {}

    @asynccontextmanager
    async def turn(self, request: Request) -> AsyncIterator[None]:
        """Wait until a request may be sent; it has been when this ends."""
        prefix = _prefix(request)
        ahead = self._ahead.get(prefix)
        if ahead is None and self._clock() - self._used.get(prefix, float("-inf")) >= _KEPT_S:
            self._ahead[prefix] = first = asyncio.get_running_loop().create_future()
            try:
                yield
            finally:
                del self._ahead[prefix]
                first.set_result(None)
                self._use(prefix)
            return
        if ahead is not None:
            await asyncio.wait((ahead,))
        yield
        self._use(prefix)

    def _use(self, prefix: str) -> None:
        self._used.pop(prefix, None)
        self._used[prefix] = self._clock()
        if len(self._used) > _MOST:
            del self._used[next(iter(self._used))]


def _prefix(request: Request) -> str:
    """What stands for all that a request shares."""
    *before, last = request.messages
    whole = (part for message in before for part in (message.role, message.content))
    return digest(*whole, last.role, last.content[: request.shared])
