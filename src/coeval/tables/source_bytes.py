"""Bytes of a user's file as UTF-8: hashed as stored, unpacked, recoded, in bounded lines.

The format is detected by the first bytes, not by the name: a workbook called ``data.csv`` is recognised.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import weakref
import zlib
from collections.abc import Callable, Iterator
from gzip import GzipFile
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from coeval.core.errors import UsageError
from coeval.core.regular_files import open_file

# --- Rows and their problems

# Line numbers of one sentence, on a line.
_LISTED = 5
# A screen of sentences.
_MOST_SHOWN = 20
# Sentences of a file that are told apart; a million rows may each be wrong in words of their own.
_MOST_KEPT = 1_000


class TableRow(NamedTuple):
    """A row. ``line`` is its first line from 1 (its number in a Parquet file). ``fields`` are its
    columns by name, or a string that says why there are none."""

    line: int
    fields: dict[str, Any] | str


class LinesSaid(NamedTuple):
    """The lines that a sentence applies to: their number, and the first few."""

    many: int
    first: tuple[int, ...]


class Reported(dict[str, LinesSaid]):
    """Messages on a file's lines: each sentence with its lines, from 1."""

    more = 0
    """Number of further sentences, which are not kept."""

    def note(self, sentence: str, number: int) -> None:
        known = self.get(sentence)
        if known is None and len(self) >= _MOST_KEPT:
            self.more += 1
            return
        count, first = known or (0, ())
        self[sentence] = LinesSaid(count + 1, (*first, number) if len(first) <= _LISTED else first)

    def of(self, path: object) -> Iterator[str]:
        """Format a line per sentence: ``file:7: … (also on line 9)``."""
        for sentence, (count, (first, *others)) in islice(self.items(), _MOST_SHOWN):
            listed = ", ".join(map(str, others)) + (", …" if count - 1 > len(others) else "")
            lines = f"line {listed}" if count == 2 else f"{count - 1:,} more lines: {listed}"
            yield f"{path}:{first}: {sentence}" + (f" (also on {lines})" if others else "")
        if (rest := len(self) - _MOST_SHOWN + self.more) > 0:
            yield f"{path}: … and {rest:,} more of the kind"


# Bytes. No prompt is as long: a longer line is another kind of file, or an unclosed quote.
LONGEST_LINE = 64 << 20

PARQUET = b"PAR1"

# Bytes per read: few calls, little memory.
_CHUNK = 1 << 20
_GZIP = b"\x1f\x8b"
# The longer before the shorter that it begins with.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_AN_ARROW = "an Arrow file; write it as Parquet: dataset.to_parquet('items.parquet')"
_OTHERS = {
    b"\xff\xff\xff\xff": _AN_ARROW,
    b"ARROW1": _AN_ARROW,
    b"PK\x03\x04": "an Excel workbook (or another ZIP archive); save it as CSV UTF-8, or unpack it",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save it as CSV UTF-8",
    b"BZh": "packed by bzip2; unpack it, or pack it by gzip",
    b"\xfd7zXZ": "packed by xz; unpack it, or pack it by gzip",
    b"\x28\xb5\x2f\xfd": "packed by zstd; unpack it, or pack it by gzip",
    b"%PDF": "a PDF; give the table that it was made from, as CSV or JSON lines",
    b"SQLite format 3": "a database of SQLite; export the table as CSV",
}


class SourceFile(msgspec.Struct, frozen=True):
    """A file that was read: size in bytes, and SHA-256 in hex."""

    path: str
    bytes: int
    sha256: str


class _Hashed(io.RawIOBase):
    """A file that is hashed while it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self.digest.update(data)
        self.size += len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


class SourceBytes:
    """A text file, or a pipe, open for reading once. ``encoding``: None for UTF-8 or the byte order mark's.

    Raises UsageError: it is not there, may not be read, is no file of text, or the encoding is unknown.
    """

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        self.path = path
        try:
            self._hashed = _Hashed(open_file(path, buffering=0))
        except OSError as error:
            raise unreadable(path, error) from error
        weakref.finalize(self, self._hashed.close)  # of a table that is looked at and then left
        self._packed = io.BufferedReader(self._hashed, _CHUNK)
        self._plain: IO[bytes] = self._packed
        try:
            self.start = self._begin()
            self._decode = self._decoder(encoding or _marked(self.start))
            if encoding is None and self.start.startswith(codecs.BOM_UTF8):
                self._guarded(self._plain.read, len(codecs.BOM_UTF8))
        except UsageError:
            self.close()
            raise

    def _begin(self) -> bytes:
        """The first bytes, which say what the file is; what is packed is unpacked from here on."""
        start = self._guarded(self._packed.peek, 16)
        if start.startswith(_GZIP):
            unpacked = io.BufferedReader(GzipFile(fileobj=self._packed), _CHUNK)
            self._plain = unpacked
            start = self._guarded(unpacked.peek, 16)
        for magic, kind in _OTHERS.items():
            if start.startswith(magic):
                raise UsageError(f"{self.path} is {kind}")
        return start

    def _decoder(self, encoding: str | None) -> Callable[[bytes], str] | None:
        if encoding is None:
            return None
        try:
            b"".decode(encoding)  # some that the codecs know are of bytes
            decoder = codecs.getincrementaldecoder(encoding)("strict")
        except LookupError:
            raise UsageError(
                f"{self.path}: there is no encoding {encoding}; such as utf-8, cp1252, utf-16"
            ) from None
        self.encoding = encoding
        return lambda data: decoder.decode(data, not data)

    def read(self) -> bytes:
        """Read the next part as UTF-8; empty at the end."""
        while True:
            data = self._guarded(self._plain.read, _CHUNK)
            if self._decode is None:
                return data
            try:
                text = self._decode(data)
            except UnicodeDecodeError as error:
                raise UsageError(
                    f"{self.path} is not {self.encoding}: {error.reason}; name another encoding, or save "
                    "it as UTF-8"
                ) from error
            if text or not data:
                return text.encode()

    def _guarded(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            return read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise unreadable(self.path, error) from error

    def groups_of_lines(self) -> Iterator[list[bytes | None]]:
        """Yield all lines without their ``\n``, about a megabyte at a time; None for one beyond
        `LONGEST_LINE`."""
        held: list[bytes] = []
        size = 0
        while data := self.read():
            *whole, last = data.split(b"\n")
            if whole:
                lines: list[bytes | None] = list(whole)
                lines[0] = None if size + len(whole[0]) > LONGEST_LINE else b"".join([*held, whole[0]])
                held, size = [], 0
                yield lines
            size += len(last)
            held = [*held, last] if size <= LONGEST_LINE else []
        if size:
            yield [b"".join(held) if size <= LONGEST_LINE else None]

    def finish(self) -> SourceFile:
        """Read the rest, close the file, and return its size and hash."""
        while self._guarded(self._packed.read, _CHUNK):
            pass
        found = SourceFile(str(self.path), self._hashed.size, self._hashed.digest.hexdigest())
        self.close()
        return found

    def close(self) -> None:
        self._packed.close()


def _marked(start: bytes) -> str | None:
    """The encoding that a byte order mark says; UTF-16 without one is known by the zeros of its ASCII."""
    for mark, encoding in _MARKS.items():
        if start.startswith(mark):
            return encoding
    if len(start) >= 4 and start[:4].count(0) == 2:
        return "utf-16-le" if start[1] == 0 else "utf-16-be"
    return None


def file_of(path: Path) -> SourceFile:
    """Return size and hash of a file that is read in another way; raises UsageError as `SourceBytes`."""
    try:
        with open_file(path) as file:
            digest = hashlib.file_digest(file, "sha256")
            return SourceFile(str(path), file.tell(), digest.hexdigest())
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> UsageError:
    """Make a UsageError that names the file and the reason."""
    match error:
        case FileNotFoundError():
            return UsageError(f"there is no file {path}")
        case EOFError():
            return UsageError(f"{path} is cut off; fetch or pack it again")
        case OSError(strerror=str(reason)):
            return UsageError(f"cannot read {path}: {reason}")
        case _:
            return UsageError(f"{path} is damaged: {error}")
