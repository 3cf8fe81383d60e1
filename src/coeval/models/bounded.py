"""No answer larger than a run can keep: what a model says beyond its limit is cut off, and marked so."""

from __future__ import annotations

import msgspec

from coeval.core.records import Completion
from coeval.core.text import cut_to_bytes

__all__ = ["LONGEST_REASON", "bounded"]

LONGEST_REASON = 200
"""Characters of a finish reason; the longest that hosts document has 24."""


def bounded(completion: Completion, most: int) -> Completion:
    """The answer cut to ``most`` bytes of UTF-8: text, reasoning and refusal each."""
    said = len(completion.text) + len(completion.reasoning or "") + len(completion.refusal or "")
    if said * 4 <= most and len(completion.finish_reason) <= LONGEST_REASON:
        return completion
    return _cut(completion, most)


def _cut(completion: Completion, most: int) -> Completion:
    text = cut_to_bytes(completion.text, most)
    reasoning, refusal = completion.reasoning, completion.refusal
    return msgspec.structs.replace(
        completion,
        text=text,
        reasoning=None if reasoning is None else cut_to_bytes(reasoning, most),
        refusal=None if refusal is None else cut_to_bytes(refusal, most),
        finish_reason=completion.finish_reason[:LONGEST_REASON],
        truncated=completion.truncated or len(text) < len(completion.text),
    )
