"""What answers and judgments on record are held against: hashes of what they are made from."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

_DIGITS = 16
"""Of `coeval.core.text.digest`."""


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


class PackedContents(msgspec.Struct, frozen=True, array_like=True):
    """The same in a tenth of the memory: rows and hashes in arrays."""

    item_rows: bytes
    items: bytes
    older_items: dict[int, list[ItemContents]]
    judged: list[tuple[str, bytes, bytes]]
    older_judged: dict[str, dict[int, set[str]]]


def packed(contents: Contents) -> PackedContents:
    return PackedContents(
        array("I", contents.items).tobytes(),
        bytes.fromhex("".join(asked + content for asked, content in contents.items.values())),
        contents.older_items,
        [
            (end, array("I", inputs).tobytes(), bytes.fromhex("".join(inputs.values())))
            for end, inputs in contents.judged.items()
        ],
        contents.older_judged,
    )


def unpacked(kept: PackedContents) -> Contents:
    contents = Contents()
    hashes = _hashes(kept.items)
    contents.items.update(zip(_rows(kept.item_rows), map(ItemContents, hashes, hashes), strict=True))
    contents.older_items |= kept.older_items
    for end, rows, inputs in kept.judged:
        contents.judged[end].update(zip(_rows(rows), _hashes(inputs), strict=True))
    contents.older_judged |= kept.older_judged
    return contents


def _rows(data: bytes) -> array[int]:
    rows = array("I")
    rows.frombytes(data)
    return rows


def _hashes(data: bytes) -> Iterator[str]:
    digits = data.hex()
    return (digits[at : at + _DIGITS] for at in range(0, len(digits), _DIGITS))
