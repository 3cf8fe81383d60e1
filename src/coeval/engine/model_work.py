"""A record that one model is asked for: what every such work shares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from coeval.core.errors import CoevalError, Refused, named
from coeval.core.model import Model
from coeval.core.records import Completion, Failure, Kept, Purpose, Request, Role
from coeval.engine.role_model import RoleModel
from coeval.engine.work import Tally, ask

KeptT = TypeVar("KeptT", bound=Kept)
ValueT = TypeVar("ValueT")

_LONGEST_MESSAGE = 2_000
_PURPOSE: dict[Role, Purpose] = {
    "teacher": "data_generation",
    "student": "response_collection",
    "judge": "evaluation",
}


class Asking(NamedTuple):
    """What every work needs to ask: the open models, and how often a record is asked for anew, beside the
    transport's own attempts."""

    models: Mapping[str, Model]
    retries: int


class ModelWork(ABC, Generic[KeptT]):
    """A `Work` that asks ``role_model`` for the record ``key``, of the class ``record``.

    `read` takes the record's own fields from the answer to `question`; `identity` are those that it has
    whether it is answered or fails. ``tried`` counts the askings that earlier starts recorded.
    """

    __slots__ = ()

    asking: Asking
    role_model: RoleModel
    key: str
    phase: str
    tried: int
    tally: Tally
    record: type[KeptT]

    @property
    def model(self) -> str:
        return self.role_model.name

    @property
    def calls(self) -> int:
        return self.tally.calls

    @property
    def purpose(self) -> Purpose:
        return _PURPOSE[self.role_model.role]

    @abstractmethod
    def question(self, attempt: int, /) -> Request:
        """What is asked, without what the model's role adds; ``attempt`` counts from 0 over all starts."""

    @abstractmethod
    def read(self, completion: Completion) -> dict[str, Any]:
        """The fields that an answer gives. Raises ReplyError where it gives none."""

    @abstractmethod
    def identity(self) -> dict[str, Any]: ...

    async def do(self) -> KeptT:
        return self.made(await self.ask(self.key, self.question, self.read, self.tally))

    def made(self, fields: Mapping[str, Any]) -> KeptT:
        return self.record(**{**self._making(), **fields})

    def failed(self, error: Exception) -> KeptT:
        return self.record(**self._making(), status="failed", error=reason(error))

    def _making(self) -> dict[str, Any]:
        """What the record is, what it took, and how the last answer came, whether it was good or not."""
        tally = self.tally
        fields = {**self.identity(), "usage": tally.usage, "attempts": self.tried + tally.attempts}
        if (last := tally.last) is not None:
            fields |= {
                "latency_s": round(last.latency_s, 4),
                "finish_reason": last.finish_reason,
                "reasoning": last.reasoning,
                "truncated": last.truncated,
                "dropped": last.dropped,
            }
        return fields

    def ask(
        self,
        key: str,
        question: Callable[[int], Request],
        read: Callable[[Completion], ValueT],
        tally: Tally,
    ) -> Coroutine[Any, Any, ValueT]:
        """As `engine.work.ask`, of the model in its role; ``key`` names the record, or a part of it."""

        def make(again: int) -> Request:
            attempt = self.tried + again
            return self.role_model.request(question(attempt), self.purpose, key, attempt)

        model = self.asking.models[self.role_model.name]
        return ask(model, make, read, retries=self.asking.retries, tally=tally)


def reason(error: Exception) -> Failure:
    """Why a record holds no value."""
    kind, message = (error.kind, str(error)) if isinstance(error, CoevalError) else ("internal", named(error))
    return Failure(kind, message[:_LONGEST_MESSAGE] or type(error).__name__)


def spoken(completion: Completion, who: str) -> str:
    """The answer's text. Raises Refused where the model declined; ``who`` it is, in words."""
    if completion.refusal is not None:
        raise Refused(f"{who} declined: {completion.refusal[:200]}", raw=completion.refusal)
    return completion.text
