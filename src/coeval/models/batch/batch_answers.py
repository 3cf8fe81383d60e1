"""Reading what batch interfaces answer: small bodies, and files of results as large as they are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar

from msgspec import Raw

from coeval.core.errors import Undecodable, Unreadable
from coeval.core.foreign import decode
from coeval.models.batch.batch_api import BatchReply
from coeval.store.jsonl import store_error

__all__ = ["CLOCKS_APART_S", "answered_reply", "epoch_s", "read_answer", "result_lines"]

T = TypeVar("T")

CLOCKS_APART_S: Final = 3600.0
"""How far a host's clock may differ from ours."""
_LONGEST_LINE = 1 << 26


def read_answer(body: bytes, kind: type[T], what: str) -> T:
    """An answer of the interface in its shape; Unreadable where it has another."""
    try:
        return decode(body, kind)
    except Undecodable as error:
        raise Unreadable(f"the host's answer is not {what} ({error})") from error


def result_lines(results: Path) -> Iterator[bytes]:
    """The lines of a file that was downloaded whole: so the last one counts without a line feed, too.

    Raises
    ------
    Unreadable
        a line is longer than any answer.
    StoreError
        the file cannot be read.
    """
    try:
        with results.open("rb") as file:
            while line := file.readline(_LONGEST_LINE + 1):
                if len(line) > _LONGEST_LINE:
                    raise Unreadable(f"the results have a line of more than {_LONGEST_LINE >> 20} MiB")
                if not line.isspace():
                    yield line
    except OSError as error:
        raise store_error("read", results, error) from error


def answered_reply(custom_id: str, answer: Raw) -> BatchReply:
    """What became of a request of which no error is told: its answer, or nothing at all."""
    told = bytes(answer)
    return BatchReply(custom_id, None, b"") if told in (b"", b"null") else BatchReply(custom_id, 200, told)


def epoch_s(told: float | str | None) -> float | None:
    """A time in seconds since 1970, told as their number or as text (RFC 3339); None where it is neither."""
    if not isinstance(told, str):
        return told
    try:
        return datetime.fromisoformat(told).timestamp()
    except ValueError:
        return None
