"""Reading what batch interfaces answer: small bodies, and files of results as large as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar

from msgspec import Raw

from coeval.core.errors import Undecodable, Unreadable
from coeval.core.foreign import decode
from coeval.models.batch.batch_api import BatchReply, DamagedResult
from coeval.store.jsonl import store_error

__all__ = ["CLOCKS_APART_S", "answered_reply", "epoch_s", "read_answer", "readable", "result_lines"]

T = TypeVar("T")

CLOCKS_APART_S: Final = 3600.0
"""How far a host's clock may differ from ours."""
_LONGEST_LINE = 1 << 26
"""Bytes: 64 MiB, longer than any answer, so that a file without line feeds does not fill the memory."""


def read_answer(body: bytes, kind: type[T], what: str) -> T:
    """An answer of the interface in its shape; Unreadable where it has another."""
    try:
        return decode(body, kind)
    except Undecodable as error:
        raise Unreadable(f"the host's answer is not {what} ({error})") from error


def result_lines(results: Path) -> Iterator[bytes]:
    """The lines of a file that was downloaded whole: so the last one counts without a line feed, too. Of a
    line that is longer than any answer, only the beginning, which is no JSON.

    Raises
    ------
    StoreError
        the file cannot be read.
    """
    try:
        with results.open("rb") as file:
            while line := file.readline(_LONGEST_LINE):
                if not line.isspace():
                    yield line
                while line and not line.endswith(b"\n"):
                    line = file.readline(_LONGEST_LINE)
    except OSError as error:
        raise store_error("read", results, error) from error


def readable(
    results: Iterable[bytes], read: Callable[[bytes], BatchReply], noun: str = "line"
) -> Iterator[BatchReply | DamagedResult]:
    """Each result as ``read`` makes it out; what that cannot (Undecodable, Unreadable), as a `DamagedResult`.
    ``noun``: what a person counts."""
    for number, result in enumerate(results, 1):
        reply: BatchReply | DamagedResult
        try:
            reply = read(result)
        except (Undecodable, Unreadable) as error:
            reply = DamagedResult(f"{noun} {number:,}", str(error))
        yield reply


def answered_reply(custom_id: str, answer: Raw) -> BatchReply:
    """What became of a request of which no error is told: its answer. Raises Unreadable where there is none:
    that says nothing of what was done."""
    told = bytes(answer)
    if told in (b"", b"null"):
        raise Unreadable("it holds neither an answer nor an error")
    return BatchReply(custom_id, 200, told)


def epoch_s(told: float | str | None) -> float | None:
    """A time in seconds since 1970, told as their number or as text (RFC 3339); None where it is neither."""
    if not isinstance(told, str):
        return told
    try:
        return datetime.fromisoformat(told).timestamp()
    except ValueError:
        return None
