"""A unit of work, and asking a model until the answer is what was asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from coeval.core.errors import AskError, CutOff, EmptyReply, ModelError, Unparsable
from coeval.core.model import Model
from coeval.core.records import Completion, Kept, Request, Usage

ValueT = TypeVar("ValueT")


class Work(Protocol):
    """One record to be made.

    ``weight`` is the number of records that this one may bring about, itself included: it bounds
    how many are begun ahead of what follows from them. ``model`` is who is asked; ``calls`` how
    often it has been, so far.
    """

    @property
    def key(self) -> str: ...
    @property
    def phase(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def weight(self) -> int: ...
    @property
    def calls(self) -> int: ...

    async def do(self) -> Kept:
        """Make the record.

        Raises
        ------
        Gap
            nothing was asked; the record stays owed.
        AskError
            it failed; `failed` makes the record that says so.
        """

    def failed(self, error: Exception) -> Kept: ...


class Tally:
    """What asking for a record cost: tokens of all answers, those that failed among them; the last answer.

    ``attempts`` counts askings for the same thing, ``calls`` all askings: they differ where a
    record is asked for in several parts.
    """

    __slots__ = ("attempts", "calls", "last", "usage")

    def __init__(self) -> None:
        self.attempts = self.calls = 0
        self.usage: Usage | None = None
        self.last: Completion | None = None

    def count(self, completion: Completion) -> None:
        self.last = completion
        self.spend(completion.usage)

    def spend(self, usage: Usage) -> None:
        self.usage = usage if self.usage is None else self.usage + usage

    def merge(self, other: Tally) -> None:
        """Take in what asking for another part of the same record cost."""
        self.attempts = max(self.attempts, other.attempts)
        self.calls += other.calls
        self.last = other.last or self.last
        if other.usage is not None:
            self.spend(other.usage)


async def ask(
    model: Model,
    make: Callable[[int], Request],
    parse: Callable[[Completion], ValueT],
    *,
    retries: int,
    tally: Tally,
) -> ValueT:
    """Ask until ``parse`` accepts the answer, at most ``1 + retries`` times.

    ``make(i)`` is the request of the i-th asking, from 0. A reply that ``parse`` refuses with a
    `ReplyError`, and a request that failed for a passing reason, is asked anew; what can only
    fail again is not. ``tally`` counts every asking, whatever comes of it.

    Raises
    ------
    AskError
        the last failure.
    Gap
        nothing could be asked.
    """
    for attempt in range(retries + 1):
        request = make(attempt)
        tally.attempts += 1
        tally.calls += 1
        try:
            completion = await model.complete(request)
            tally.count(completion)
            return _parsed(parse, completion, request)
        except AskError as error:
            advised = not isinstance(error, ModelError) or error.retry_advised
            if isinstance(error, ModelError) and error.usage is not None:
                tally.spend(error.usage)
            if attempt == retries or not error.retryable or not advised:
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


def _parsed(parse: Callable[[Completion], ValueT], completion: Completion, request: Request) -> ValueT:
    """What ``parse`` makes of an answer. One that was cut off fails by that name, whatever it lacks; not
    where a single token was asked for, with its log-probabilities."""
    try:
        return parse(completion)
    except (EmptyReply, Unparsable) as error:
        if not completion.truncated or request.top_logprobs is not None:
            raise
        raise CutOff(f"the answer was cut off at max_tokens, so that {error}", raw=error.raw) from error
