"""Where the lines of each item's records lie: sixteen bytes a line, so that one item of a million judgments
is read whole in a millisecond."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np

from coeval.core.errors import Undecodable
from coeval.core.foreign import decoder
from coeval.core.good import by_id
from coeval.core.records import Kept
from coeval.store.record_files import RecordFiles
from coeval.store.record_index import RecordPart

__all__ = ["ItemLines"]

KeptT = TypeVar("KeptT", bound=Kept)


class _OfItem(RecordPart, frozen=True):
    """A line of a run or of ``eval-framework``; an item's own has its id alone."""

    datapoint_id: str = ""
    item: str = ""


class ItemLines:
    """The lines of some files, by the item that they are of.

    Raises
    ------
    StoreError
        a file cannot be read.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = RecordFiles()
        keys, positions = array("q"), array("Q")
        for position, part in self._files.lines(files, _OfItem):
            keys.append(hash(part.datapoint_id or part.item or part.id))
            positions.append(position)
        of_lines = np.frombuffer(keys, np.int64)
        order = np.argsort(of_lines, kind="stable")
        self._keys, self._positions = of_lines[order], np.frombuffer(positions, np.uint64)[order]

    def records(self, item: str, kind: type[KeptT], wanted: Callable[[KeptT], bool]) -> list[KeptT]:
        """Of the records of a kind that are ``wanted`` those that count, in the order of the files.

        Lines that are none are left out; files that were replaced meanwhile may hold another item's."""
        return list(by_id(filter(wanted, self._records(item, kind))).values())

    def _records(self, item: str, kind: type[KeptT]) -> Iterator[KeptT]:
        read = decoder(kind)
        begin, end = (np.searchsorted(self._keys, hash(item), side) for side in ("left", "right"))
        for position in self._positions[begin:end].tolist():
            try:
                yield read(self._files.line(position))
            except Undecodable:
                continue
