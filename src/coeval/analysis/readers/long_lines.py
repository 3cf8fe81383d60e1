"""Files with lines that are too long for the reader's tables: a copy that holds what the tables take.

Answers are cut when they are made, but older files, other programs and damage know no such limit.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec

from coeval.core.errors import Undecodable
from coeval.core.foreign import decode
from coeval.store.jsonl import is_torn, store_error

__all__ = ["LONGEST_LINE", "without_long_lines"]

LONGEST_LINE = 1 << 24
"""Bytes: ``maximum_object_size`` of DuckDB, which reads no file with a line of much more."""

_NO_RECORD = b"!"
_BEGINNING = 64
_LONGEST_TEXT = 1 << 16


def without_long_lines(path: Path, columns: Collection[str], folder: Path) -> Path:
    """``path``, or a copy of it in ``folder`` of the same name where it has lines over `LONGEST_LINE`.

    Of such a line the copy holds the fields named by ``columns``, so no record is lost, and of long texts
    the beginning; a line that is none stays none, and a torn last one torn.
    """
    copy = folder / path.name
    found = False
    try:
        if path.stat().st_size <= LONGEST_LINE:
            return path
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as lines, copy.open("wb") as out:
            for line in lines:
                long = len(line) > LONGEST_LINE
                found = found or long
                out.write(_shortened(line, columns) if long else line)
        if not found:
            copy.unlink()
    except OSError as error:
        raise store_error("read", path, error) from error
    return copy if found else path


def _shortened(line: bytes, columns: Collection[str]) -> bytes:
    if is_torn(line):
        return line[:_BEGINNING]
    try:
        fields = decode(line, dict[str, msgspec.Raw])
        kept = msgspec.json.encode({name: _beginning(fields[name]) for name in columns if name in fields})
    except Undecodable:
        return _NO_RECORD + b"\n"
    return (kept if len(kept) <= LONGEST_LINE else _NO_RECORD) + b"\n"


def _beginning(value: msgspec.Raw) -> msgspec.Raw | str:
    """A value, or the first characters of a text that no table takes whole; blanks aside, so that what is
    empty and what is not can still be told apart."""
    if len(value) <= _LONGEST_TEXT:
        return value
    text = decode(value)
    return text.lstrip()[:_LONGEST_TEXT] if isinstance(text, str) else value
