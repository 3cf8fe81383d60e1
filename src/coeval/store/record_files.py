"""JSONL files whose lines are read, each with its position."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import accumulate, chain
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar, cast

import msgspec

from coeval.core.errors import StoreError, Undecodable
from coeval.core.foreign import decode, lines_decoder
from coeval.store.jsonl import Lines, groups_of_lines, line_at

PartT = TypeVar("PartT", bound=msgspec.Struct)
RecordT = TypeVar("RecordT", bound=msgspec.Struct)

NOTHING: Mapping[Path, Collection[int]] = MappingProxyType({})
NO_LINES: Mapping[Path, list[bytes]] = MappingProxyType({})

_AT_ONCE = 4_096
_OFFSET_BITS = 44
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


class RecordFiles:
    """Files whose lines are read; a position is a file with an offset, as one number.

    ``damaged``: the lines that are no records, by file and offset.
    """

    def __init__(self) -> None:
        self.damaged: list[tuple[Path, int]] = []
        self._paths: list[Path] = []
        self._instead: Mapping[Path, list[bytes]] = NO_LINES

    def lines(
        self,
        paths: Iterable[Path],
        part: type[PartT],
        without: Mapping[Path, Collection[int]] = NOTHING,
        instead: Mapping[Path, list[bytes]] = NO_LINES,
    ) -> Iterator[tuple[int, PartT]]:
        """The position and the decoded part of each line that is one.

        Of files in ``instead`` the lines given there are taken for theirs, and loaded from there; lines at
        the offsets that ``without`` names are left out.

        Raises
        ------
        StoreError
            a file cannot be read.
        """
        self._instead = {**self._instead, **instead}
        read = lines_decoder(part)
        groups = self._groups(paths, without, instead)
        return chain.from_iterable(self._decoded(part, read, *group) for group in groups)

    def _groups(
        self,
        paths: Iterable[Path],
        without: Mapping[Path, Collection[int]],
        instead: Mapping[Path, list[bytes]],
    ) -> Iterator[tuple[int, list[bytes], Collection[int]]]:
        """Lines that follow each other, the position of the first, and which offsets to leave out."""
        for path in paths:
            number = len(self._paths)
            self._paths.append(path)
            groups = _groups_of(instead[path]) if path in instead else groups_of_lines(path)
            left_out = () if path in instead else without.get(path, ())
            for offset, texts in groups:
                yield (number << _OFFSET_BITS) + offset, texts, left_out

    def _decoded(
        self,
        part: type[PartT],
        read: Callable[[list[bytes]], list[PartT | Undecodable]],
        position: int,
        texts: list[bytes],
        left_out: Collection[int],
    ) -> Iterator[tuple[int, PartT]]:
        """The records of a group; of a million lines nothing is called that is not needed."""
        records = read(texts)
        positions = accumulate(map(len, texts[:-1]), initial=position)
        if left_out or {*map(type, records)} != {part}:
            return self._sound(list(zip(positions, records, texts, strict=True)), left_out)
        return zip(positions, cast("list[PartT]", records), strict=True)

    def _sound(
        self, lines: Iterable[tuple[int, PartT | Undecodable, bytes]], left_out: Collection[int]
    ) -> Iterator[tuple[int, PartT]]:
        for position, record, text in lines:
            if position & _OFFSET_MASK in left_out:
                continue
            if not isinstance(record, Undecodable):
                yield position, record
            elif not text.isspace():
                self.damage(position)

    def damage(self, position: int) -> None:
        """Note that the line there is no record."""
        self.damaged.append((self._paths[position >> _OFFSET_BITS], position & _OFFSET_MASK))

    def line(self, position: int) -> bytes:
        """Read the line there again."""
        path, offset = self._paths[position >> _OFFSET_BITS], position & _OFFSET_MASK
        if path not in self._instead:
            return line_at(path, offset)
        for text in self._instead[path]:  # what is loaded of them are the first few
            if not offset:
                return text
            offset -= len(text)
        raise StoreError(f"{path}: no line begins at {position & _OFFSET_MASK}")

    def load(self, position: int, key: str, kind: type[RecordT]) -> RecordT:
        """Read the whole record ``key`` again."""
        try:
            return decode(self.line(position), kind)
        except Undecodable as error:
            path = self._paths[position >> _OFFSET_BITS]
            raise StoreError(f"{path}: the record {key} is damaged ({error}); see `coeval repair`") from error


def _groups_of(texts: list[bytes]) -> Iterator[Lines]:
    """Lines as `groups_of_lines` gives them: what is decoded of a million at once takes a gigabyte."""
    offset = 0
    for start in range(0, len(texts), _AT_ONCE):
        group = texts[start : start + _AT_ONCE]
        yield Lines(offset, group)
        offset += sum(map(len, group))
