"""What answers and judgments on record are held against: hashes of what they are made from."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple


class ItemContents(NamedTuple):
    """What an item's answers and judgments are made from. Older layouts recorded no ``input_hash``:
    their records, and those of items that are not there, are taken as they are."""

    asked: str
    content: str


class Contents:
    """Those of items by their row; ``judged``, what judgments are made from, of answers by the end of their
    ids too. ``older…`` is what stood there before it was made anew: few, whatever the size of a run."""

    def __init__(self) -> None:
        self.items: dict[int, ItemContents] = {}
        self.older_items: dict[int, list[ItemContents]] = {}
        self.judged: defaultdict[str, dict[int, str]] = defaultdict(dict)
        self.older_judged: defaultdict[str, dict[int, set[str]]] = defaultdict(dict)
