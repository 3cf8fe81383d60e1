"""Which lines of some files hold the record that counts of its id, of whichever layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from coeval.core.errors import Undecodable
from coeval.core.foreign import decoder
from coeval.core.good import is_good
from coeval.core.records import Record
from coeval.store.jsonl import Line, is_torn, line_at, torn_tail, whole_lines


class Dropped(msgspec.Struct, frozen=True):
    """A line that could not be read as a record: where it starts, and why."""

    path: str
    offset: int
    reason: str


class _Identified(msgspec.Struct):
    id: str


def all_lines(path: Path) -> Iterator[Line]:
    """`whole_lines`, and at last the torn one, if the file has one."""
    yield from whole_lines(path)
    if torn := torn_tail(path):
        yield Line(path.stat().st_size - len(torn), torn)


def lines_that_count(
    files: Sequence[Path], read: Callable[[bytes], Record], dropped: list[Dropped]
) -> list[set[int]]:
    """Per file, the offsets of the lines that hold the record that counts of an id; only where an id has
    several are records read whole."""

    def good(text: bytes) -> bool:
        try:
            return is_good(read(text))
        except Undecodable:
            return False

    identify = decoder(_Identified)
    places: dict[str, tuple[int, int]] = {}
    for number, path in enumerate(files):
        for line in all_lines(path):
            try:
                key = identify(line.text).id
            except Undecodable as error:
                reason = "the last line was cut off" if is_torn(line.text) else str(error)
                dropped.append(Dropped(str(path), line.offset, reason))
                continue
            earlier = places.get(key)
            if earlier is None or good(line.text) or not good(line_at(files[earlier[0]], earlier[1])):
                places[key] = number, line.offset
    wanted: list[set[int]] = [set() for _ in files]
    for number, offset in places.values():
        wanted[number].add(offset)
    return wanted
