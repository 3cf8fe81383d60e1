"""No answer larger than a run can keep: what a model says beyond its limit is cut off, and marked so."""

from __future__ import annotations

import msgspec

from coeval.core.model import Model
from coeval.core.records import Completion, Request
from coeval.core.text import cut_to_bytes

__all__ = ["BoundedModel"]

_LONGEST_REASON = 200
"""Characters of a finish reason; the longest that hosts document has 24."""


class BoundedModel(Model):
    """A model whose answers are cut to ``most`` bytes of UTF-8: text, reasoning and refusal each."""

    def __init__(self, model: Model, most: int) -> None:
        self.name = model.name
        self.interface = model.interface
        self._model = model
        self._most = most

    async def reach(self) -> None:
        await self._model.reach()

    async def complete(self, request: Request) -> Completion:
        completion = await self._model.complete(request)
        said = (completion.text, completion.reasoning or "", completion.refusal or "")
        if sum(map(len, said)) * 4 <= self._most and len(completion.finish_reason) <= _LONGEST_REASON:
            return completion  # as nearly all are
        return _cut(completion, self._most)


def _cut(completion: Completion, most: int) -> Completion:
    text = cut_to_bytes(completion.text, most)
    reasoning, refusal = completion.reasoning, completion.refusal
    return msgspec.structs.replace(
        completion,
        text=text,
        reasoning=None if reasoning is None else cut_to_bytes(reasoning, most),
        refusal=None if refusal is None else cut_to_bytes(refusal, most),
        finish_reason=completion.finish_reason[:_LONGEST_REASON],
        truncated=completion.truncated or len(text) < len(completion.text),
    )
