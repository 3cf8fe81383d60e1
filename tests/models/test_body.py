"""Bodies: unpacked piece by piece, bounded, and without a byte order mark."""

from __future__ import annotations

import json
import tracemalloc
import zlib
from collections.abc import Iterable
from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packing import bomb, packed

from coeval.models.transport import body as body_module
from coeval.models.transport.body import LARGEST_BODY, Body, NotHttp

TEXT = b'{"text": "fine"}' * 40


def unpacked(pieces: Iterable[bytes], coding: str | None = None) -> bytes:
    body = Body(coding)
    for piece in pieces:
        body.add(piece)
    return body.read()


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


CODED = {
    "gzip": ("gzip", packed(TEXT)),
    "x-gzip": ("X-GZIP", packed(TEXT)),
    "deflate": ("deflate", zlib.compress(TEXT)),
    "none": ("none", TEXT),
    "identity": ("identity", TEXT),
    "nothing": ("", TEXT),
}


@pytest.mark.parametrize(("coding", "sent"), CODED.values(), ids=CODED)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_codings_are_undone_however_the_body_is_cut(coding: str, sent: bytes, size: int) -> None:
    assert unpacked(cut(sent, size), coding) == TEXT


@given(st.binary(max_size=400), st.integers(1, 400), st.integers(0, 9))
def test_any_bytes_come_back(content: bytes, size: int, level: int) -> None:
    text = b'{"' + content
    assert unpacked(cut(zlib.compress(text, level), size), "deflate") == text


def test_what_unpacks_to_whole_pieces_and_one_byte_less_and_more_is_whole() -> None:
    for length in (1 << 20, (1 << 20) - 1, (1 << 20) + 1, 3 << 20):
        content = bytes(range(1, 251)) * (length // 250 + 1)
        assert unpacked([packed(content[:length])], "gzip") == content[:length]


@pytest.mark.parametrize(
    ("coding", "sent", "words"),
    [
        ("br", b"abc", "the content coding 'br' is not one we read"),
        ("gzip, zstd", b"abc", "the content coding 'gzip, zstd' is not one we read"),
        ("gzip, gzip", packed(packed(TEXT)), "the content coding 'gzip, gzip' is not one we read"),
        ("gzip", b"abc", "damaged"),
        ("deflate", b"\x78\x9c\xff\xff\xff", "damaged"),
        ("gzip", packed(TEXT)[:-9], "cut off"),
        ("gzip", packed(TEXT) + b"more", "damaged"),
    ],
)
def test_what_cannot_be_unpacked_says_why(coding: str, sent: bytes, words: str) -> None:
    for size in (1, len(sent)):
        with pytest.raises(NotHttp, match=words):
            unpacked(cut(sent, size), coding)


@pytest.mark.parametrize("coding", [None, "gzip", "br"])
def test_a_body_of_nothing_needs_no_unpacking(coding: str | None) -> None:
    assert unpacked([], coding) == b""


# Size


def test_a_body_is_limited_as_it_comes_and_as_it_unpacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_module, "LARGEST_BODY", 1 << 20)
    most = b"x" * (1 << 20)
    assert unpacked([most]) == unpacked([packed(most)], "gzip") == most
    for pieces, coding in (
        ([most, b"x"], None),
        ([most, b"x"], "br"),
        ([packed(most + b"x")], "gzip"),
        (repeat(packed(b""), 1 << 20), "gzip"),
    ):
        with pytest.raises(NotHttp, match="more than 1 MiB"):
            unpacked(pieces, coding)


def peak_bytes(pieces: Iterable[bytes], coding: str | None) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(NotHttp, match="more than 64 MiB"):
            unpacked(pieces, coding)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.process
def test_a_bomb_costs_no_more_than_the_largest_body() -> None:
    large = bomb(192)
    assert peak_bytes([large], "gzip") < 2 * LARGEST_BODY


@pytest.mark.process
def test_a_million_pieces_cost_what_one_costs() -> None:
    tracemalloc.start()
    try:
        body = Body()
        for _ in range(1_000_000):
            body.add(b"x")
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()
    assert body.read() == b"x" * 1_000_000


# Text

SAID = json.dumps({"text": "Grüße, façade"}, ensure_ascii=False)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_byte_order_mark_is_no_part_of_a_text(encoding: str) -> None:
    sent = SAID.encode(encoding)
    assert unpacked([sent]).decode() == unpacked([packed(sent)], "gzip").decode() == SAID


@pytest.mark.parametrize("sent", [bytes(8), b"\x89PNG\r\n", b"\0", b"\xff\xfe\0\xd8", SAID.encode("latin-1")])
def test_what_is_no_utf_8_stays_as_it_is(sent: bytes) -> None:
    assert unpacked([sent]) == sent
