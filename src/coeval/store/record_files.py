"""JSONL files whose lines are read, and read on when more has been added to them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate, chain
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar, cast

import msgspec

from coeval.core.errors import StoreError, Undecodable
from coeval.core.foreign import decode, lines_decoder
from coeval.core.plain_file import open_file
from coeval.store.jsonl import Lines, groups_of_lines, line_at

PartT = TypeVar("PartT", bound=msgspec.Struct)
RecordT = TypeVar("RecordT", bound=msgspec.Struct)

NOTHING: Mapping[Path, Collection[int]] = MappingProxyType({})
NO_LINES: Mapping[Path, list[bytes]] = MappingProxyType({})

_AT_ONCE = 4_096
_OFFSET_BITS = 44
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
_CHUNK = 1 << 18
_NEWLINE = b"\n"


class Overtaken(Exception):
    """What has been added to files changes what was read of them before."""


class ReadFile:
    """How far a file has been read: ``end`` is an offset, ``sum`` the SHA-256 up to there, if it is wanted.
    ``whole``: the last line that was read has its newline."""

    __slots__ = ("end", "path", "sum", "whole")

    def __init__(self, path: Path, *, summed: bool) -> None:
        self.path = path
        self.end = 0
        self.whole = True
        self.sum = hashlib.sha256() if summed else None

    def skip(self, end: int, *, whole: bool) -> None:
        """Go to where an earlier reading ended, or to the end of a file that is shorter now.

        Raises
        ------
        OSError
            the file cannot be read.
        """
        data = memoryview(bytearray(_CHUNK))
        with open_file(self.path, buffering=0) as file:
            while self.end < end and (size := file.readinto(data[: end - self.end])):
                if self.sum is not None:
                    self.sum.update(data[:size])
                self.end += size
        self.whole = whole


class RecordFiles:
    """Files whose lines are read; a position is a file with an offset, as one number.

    ``damaged``: the lines that are no records, by file and offset. ``summed``: the hash of what is read is
    kept. Nothing more is read once it is ``stop_at``, in seconds of `time.monotonic`.
    """

    def __init__(self, *, summed: bool = False) -> None:
        self.damaged: list[tuple[Path, int]] = []
        self.files: list[ReadFile] = []
        self.stop_at = inf
        self._summed = summed
        self._instead: Mapping[Path, list[bytes]] = NO_LINES

    def lines(
        self,
        paths: Iterable[Path],
        part: type[PartT],
        without: Mapping[Path, Collection[int]] = NOTHING,
        instead: Mapping[Path, list[bytes]] = NO_LINES,
    ) -> Iterator[tuple[int, PartT]]:
        """The position and the decoded part of each line that is one; of a file that has been read, of those
        that have been added since.

        Of files in ``instead`` the lines given there are taken for theirs, and loaded from there; lines at
        the offsets that ``without`` names are left out.

        Raises
        ------
        StoreError
            a file cannot be read.
        Overtaken
            the last line that was read goes on.
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
        numbers = {file.path: number for number, file in enumerate(self.files)}
        with _Summing() as summing:
            for path in paths:
                number = numbers.setdefault(path, len(self.files))
                if number == len(self.files):
                    self.files.append(ReadFile(path, summed=self._summed))
                file = self.files[number]
                cut = not file.whole
                groups = _groups_of(instead[path]) if path in instead else groups_of_lines(path, file.end)
                for offset, texts, data in groups:
                    if time.monotonic() >= self.stop_at:
                        return
                    if cut and not data.startswith(_NEWLINE):
                        raise Overtaken
                    cut = False
                    summing.add(file, data)
                    yield (
                        (number << _OFFSET_BITS) + offset,
                        texts,
                        () if path in instead else without.get(path, ()),
                    )

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
        self.damaged.append((self.files[position >> _OFFSET_BITS].path, position & _OFFSET_MASK))

    def line(self, position: int) -> bytes:
        """Read the line there again."""
        path, offset = self.files[position >> _OFFSET_BITS].path, position & _OFFSET_MASK
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
            path = self.files[position >> _OFFSET_BITS].path
            raise StoreError(f"{path}: the record {key} is damaged ({error}); see `coeval repair`") from error


def same_file(one: int, other: int) -> bool:
    """Whether two positions are in one file."""
    return one >> _OFFSET_BITS == other >> _OFFSET_BITS


class _Summing:
    """Hashes bytes in a thread of its own, which they leave the interpreter free for."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def __enter__(self) -> _Summing:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def add(self, file: ReadFile, data: bytes) -> None:
        """``data`` has been read of the file."""
        file.end += len(data)
        file.whole = data.endswith(_NEWLINE)
        if file.sum is None:
            return
        if self._last is not None:
            self._last.result()  # what waits to be hashed takes memory
        self._last = self._thread.submit(file.sum.update, data)


def _groups_of(texts: list[bytes]) -> Iterator[Lines]:
    """Lines as `groups_of_lines` gives them: what is decoded of a million at once takes a gigabyte."""
    offset = 0
    for start in range(0, len(texts), _AT_ONCE):
        group = texts[start : start + _AT_ONCE]
        yield Lines(offset, group, b"".join(group))
        offset += sum(map(len, group))
