"""What is remembered of a record of phases 3–5."""

from __future__ import annotations

from typing import Literal

import msgspec

Change = Literal["", "recipe", "input"]
"""How a good record differs from what would be made now: not at all, by recipe, by what it was made from."""

Emptiness = Literal["", "ended", "truncated"]
"""How an answer without text came about: the model ended it, or the limit on tokens did; "" for others."""


class Entry(msgspec.Struct, frozen=True, eq=False):
    """A recorded item or response; one object for all that are alike, so it is known by its identity.

    ``fresh``: made from the content that is there now. ``empty``: how an answer came to have no text.
    """

    good: bool
    recipe: str
    attempts: int
    fresh: bool = True
    empty: Emptiness = ""

    def change(self, recipe: str) -> Change:
        if self.recipe and self.recipe != recipe:
            return "recipe"
        return "" if self.fresh else "input"


class EvaluationEntry(Entry, frozen=True, eq=False):
    """A recorded evaluation; ``scored`` pairs each factor with the hash of its criterion, if known."""

    scored: tuple[tuple[str, str], ...] = ()
