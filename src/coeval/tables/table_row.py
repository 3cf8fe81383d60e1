"""A row of somebody's table, and what is said of many of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

_LISTED = 5
_MOST_SHOWN = 20
_MOST_KEPT = 1_000
"""Sentences of a file that are told apart; a million rows may each be wrong in words of their own."""


class TableRow(NamedTuple):
    """``line`` is where the row begins, counted from 1 (in Parquet and Arrow files, which have no lines, its
    number). ``fields`` are its columns by name; a string says why there are none."""

    line: int
    fields: dict[str, Any] | str


class LinesSaid(NamedTuple):
    """The lines that a sentence is said of: how many, and the first of them."""

    many: int
    first: tuple[int, ...]


class Told(dict[str, LinesSaid]):
    """What is said of a file's lines: each sentence with the lines it is said of, counted from 1."""

    more = 0
    """Further sentences, which are only counted."""

    def note(self, sentence: str, number: int) -> None:
        known = self.get(sentence)
        if known is None and len(self) >= _MOST_KEPT:
            self.more += 1
            return
        count, first = known or (0, ())
        self[sentence] = LinesSaid(count + 1, (*first, number) if len(first) <= _LISTED else first)

    def of(self, path: object) -> Iterator[str]:
        """A sentence a line, the first line before it: ``file:7: … (also on line 9)``."""
        for sentence, (count, (first, *others)) in islice(self.items(), _MOST_SHOWN):
            listed = ", ".join(map(str, others)) + (", …" if count - 1 > len(others) else "")
            lines = f"line {listed}" if count == 2 else f"{count - 1:,} more lines: {listed}"
            yield f"{path}:{first}: {sentence}" + (f" (also on {lines})" if others else "")
        if (rest := len(self) - _MOST_SHOWN + self.more) > 0:
            yield f"{path}: … and {rest:,} more of the kind"
