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
_MOST_NUMBERS = 5
# A screen of sentences.
_MOST_SHOWN = 20
# Distinct sentences that are kept; each of a million rows may be wrong in other words.
_MOST_KEPT = 1_000


class TableRow(NamedTuple):
    """A row: its first line from 1 (in Parquet its number), and its columns by name or why there are none."""

    line: int
    fields: dict[str, Any] | str


class MessageLines(NamedTuple):
    """How many lines a sentence applies to, and the first few of them."""

    many: int
    first: tuple[int, ...]


class LineMessages(dict[str, MessageLines]):
    """Messages about a file's lines: sentence → its lines, from 1."""

    more = 0
    """Number of further sentences, which are not kept."""

    def note(self, sentence: str, line: int) -> None:
        lines = self.get(sentence)
        if lines is None and len(self) >= _MOST_KEPT:
            self.more += 1
            return
        count, first = lines or (0, ())
        self[sentence] = MessageLines(count + 1, (*first, line) if len(first) <= _MOST_NUMBERS else first)

    def format_lines(self, path: object) -> Iterator[str]:
        """Yield a line per sentence: ``file:7: … (also on line 9)``."""
        for sentence, (count, (first, *others)) in islice(self.items(), _MOST_SHOWN):
            listed = ", ".join(map(str, others)) + (", …" if count - 1 > len(others) else "")
            lines = f"line {listed}" if count == 2 else f"{count - 1:,} more lines: {listed}"
            yield f"{path}:{first}: {sentence}" + (f" (also on {lines})" if others else "")
        if (hidden := len(self) - _MOST_SHOWN + self.more) > 0:
            yield f"{path}: … and {hidden:,} more of the kind"


# Bytes. No prompt is as long: a longer line is another kind of file, or an unclosed quote.
LONGEST_LINE_BYTES = 64 << 20

PARQUET = b"PAR1"

# Bytes per read: few calls, little memory.
_READ_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"
# Longer marks first: UTF-32's begins with UTF-16's.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_ARROW_HINT = "an Arrow file; write it as Parquet: dataset.to_parquet('items.parquet')"
_FOREIGN_FORMATS = {
    b"\xff\xff\xff\xff": _ARROW_HINT,
    b"ARROW1": _ARROW_HINT,
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


class _HashingReader(io.RawIOBase):
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
    """A text file or a pipe, open to be read once. ``encoding`` None: by byte order mark, else UTF-8. Raises
    UsageError: the file is missing, unreadable or not text, or the encoding is unknown."""

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        """Open the file, detect its format and encoding, and skip a UTF-8 byte order mark."""
        self.path = path
        try:
            self._hashed = _HashingReader(open_file(path, buffering=0))
        except OSError as error:
            raise make_read_error(path, error) from error
        weakref.finalize(self, self._hashed.close)  # a table that is only previewed
        self._packed = io.BufferedReader(self._hashed, _READ_BYTES)
        self._plain: IO[bytes] = self._packed
        try:
            self.start = self._unpack_and_peek_start()
            self._decode = self._set_encoding_and_make_decoder(encoding or _detect_encoding(self.start))
            if encoding is None and self.start.startswith(codecs.BOM_UTF8):
                self._read_or_raise_usage_error(self._plain.read, len(codecs.BOM_UTF8))
        except UsageError:
            self.close()
            raise

    def _unpack_and_peek_start(self) -> bytes:
        """Return the first bytes, unpacked if gzipped; raises UsageError for a workbook and the like."""
        start = self._read_or_raise_usage_error(self._packed.peek, 16)
        if start.startswith(_GZIP):
            unpacked = io.BufferedReader(GzipFile(fileobj=self._packed), _READ_BYTES)
            self._plain = unpacked
            start = self._read_or_raise_usage_error(unpacked.peek, 16)
        for magic, kind in _FOREIGN_FORMATS.items():
            if start.startswith(magic):
                raise UsageError(f"{self.path} is {kind}")
        return start

    def _set_encoding_and_make_decoder(self, encoding: str | None) -> Callable[[bytes], str] | None:
        if encoding is None:
            return None
        try:
            b"".decode(encoding)  # refuses codecs that are not for text, such as hex
            decoder = codecs.getincrementaldecoder(encoding)("strict")
        except LookupError:
            raise UsageError(
                f"{self.path}: there is no encoding {encoding}; such as utf-8, cp1252, utf-16"
            ) from None
        self.encoding = encoding
        return lambda data: decoder.decode(data, not data)

    def read_next_part(self) -> bytes:
        """Read the next part as UTF-8; empty at the end."""
        while True:
            data = self._read_or_raise_usage_error(self._plain.read, _READ_BYTES)
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

    def _read_or_raise_usage_error(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            return read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise make_read_error(self.path, error) from error

    def read_line_groups(self) -> Iterator[list[bytes | None]]:
        """Yield lines without line feed, a megabyte at a time; None for one beyond `LONGEST_LINE_BYTES`."""
        held: list[bytes] = []
        size = 0
        while data := self.read_next_part():
            *whole, last = data.split(b"\n")
            if whole:
                lines: list[bytes | None] = list(whole)
                lines[0] = None if size + len(whole[0]) > LONGEST_LINE_BYTES else b"".join([*held, whole[0]])
                held, size = [], 0
                yield lines
            size += len(last)
            held = [*held, last] if size <= LONGEST_LINE_BYTES else []
        if size:
            yield [b"".join(held) if size <= LONGEST_LINE_BYTES else None]

    def finish_and_hash(self) -> SourceFile:
        """Read the rest, close the file, and return its size and hash."""
        while self._read_or_raise_usage_error(self._packed.read, _READ_BYTES):
            pass
        file = SourceFile(str(self.path), self._hashed.size, self._hashed.digest.hexdigest())
        self.close()
        return file

    def close(self) -> None:
        self._packed.close()


def _detect_encoding(start: bytes) -> str | None:
    """Return the encoding of a byte order mark; UTF-16 without one is known by its zeros beside ASCII."""
    for mark, encoding in _MARKS.items():
        if start.startswith(mark):
            return encoding
    if len(start) >= 4 and start[:4].count(0) == 2:
        return "utf-16-le" if start[1] == 0 else "utf-16-be"
    return None


def hash_file(path: Path) -> SourceFile:
    """Return size and hash of a file that another reader opens; raises UsageError like `SourceBytes`."""
    try:
        with open_file(path) as file:
            digest = hashlib.file_digest(file, "sha256")
            return SourceFile(str(path), file.tell(), digest.hexdigest())
    except OSError as error:
        raise make_read_error(path, error) from error


def make_read_error(path: Path, error: Exception) -> UsageError:
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
