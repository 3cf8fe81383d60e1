"""Token counts as hosts tell them, read with care: money and limits hang on them, and no answer is lost for
their sake.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from coeval.core import foreign
from coeval.core.errors import Undecodable
from coeval.core.records import Usage

__all__ = ["Count", "cache_apart", "count", "count_if_told"]

_MOST_TOKENS = 1 << 24
"""Of an answer or a prompt: the largest contexts hold 10 million. A body's size does not tell."""
_MOST_DIGITS = 16

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_MOST_TOKENS)]
"""A count as it should be: what is none is refused where it is decoded, and read by `count` then."""


def count(told: msgspec.Raw) -> int:
    """A count; zero where it is left out or cannot be: negative, no whole number, or more than any context
    holds."""
    text = bytes(told)
    if text.isdigit():  # as nearly all are; the length bounds what Python is asked to read
        return _believable(int(text)) if len(text) <= _MOST_DIGITS else 0
    try:
        number = foreign.decode(text, float)
    except Undecodable:
        return 0
    return _believable(int(number)) if number.is_integer() else 0


def count_if_told(told: msgspec.Raw) -> int | msgspec.UnsetType:
    """As `count`; UNSET where it is left out or null."""
    return msgspec.UNSET if bytes(told) in (b"", b"null") else count(told)


def _believable(tokens: int) -> int:
    return tokens if 0 <= tokens <= _MOST_TOKENS else 0


def cache_apart(
    rest: int,
    output: int,
    read: int | msgspec.UnsetType,
    written: int | msgspec.UnsetType,
    reasoning: int | msgspec.UnsetType = msgspec.UNSET,
) -> Usage:
    """The usage of a host that tells what its cache read and wrote apart from the ``rest`` of the prompt;
    ours is of the whole prompt."""
    return Usage(
        rest + (read or 0) + (written or 0),
        output,
        cached_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=reasoning,
    )
