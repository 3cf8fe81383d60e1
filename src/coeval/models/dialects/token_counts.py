"""Read token counts as hosts report them: money and limits depend on them, and no answer is lost for their
sake.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from coeval.core import foreign
from coeval.core.errors import Undecodable
from coeval.core.records import Usage

__all__ = ["UNCOUNTED", "Count", "Counts", "cache_apart"]

_MOST_TOKENS = 1 << 24
"""Of an answer or a prompt: the largest contexts hold 10 million. A body's size does not tell."""
_MOST_DIGITS = 16

UNCOUNTED = Usage(uncounted=True)
"""The usage of an answer whose host reports none that can be read."""

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_MOST_TOKENS)]
"""A count as it should be: what is none is refused where it is decoded, and read by `Counts` then."""


class Counts:
    """Read the counts of one answer one by one.

    ``uncounted`` becomes True where a count that every answer has is missing, or any count cannot be:
    negative, no whole number, or more than any context holds. Such a count reads as zero, which nobody may
    take for what the answer cost.
    """

    __slots__ = ("uncounted",)

    def __init__(self) -> None:
        self.uncounted: Literal[True] | msgspec.UnsetType = msgspec.UNSET

    def needed(self, told: msgspec.Raw) -> int:
        """A count that every answer has."""
        number = self.optional(told)
        if number is msgspec.UNSET:
            self.uncounted = True
            return 0
        return number

    def optional(self, told: msgspec.Raw) -> int | msgspec.UnsetType:
        """A count that hosts may leave out or give as null, which is UNSET."""
        text = bytes(told)
        if text in (b"", b"null"):
            return msgspec.UNSET
        if text.isdigit():  # as nearly all are; the length bounds what Python is asked to read
            number = float(text) if len(text) <= _MOST_DIGITS else -1.0
        else:
            try:
                number = foreign.decode(text, float)
            except Undecodable:
                number = -1.0
        if not (0 <= number <= _MOST_TOKENS and number.is_integer()):
            self.uncounted = True
            return 0
        return int(number)


def cache_apart(
    rest: int,
    output: int,
    read: int | msgspec.UnsetType,
    written: int | msgspec.UnsetType,
    reasoning: int | msgspec.UnsetType = msgspec.UNSET,
    uncounted: Literal[True] | msgspec.UnsetType = msgspec.UNSET,
) -> Usage:
    """The usage of a host that reports what its cache read and wrote apart from the ``rest`` of the prompt;
    ours is of the whole prompt."""
    return Usage(
        rest + (read or 0) + (written or 0),
        output,
        cached_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=reasoning,
        uncounted=uncounted,
    )
