"""Answers from bytes: every framing, however it is cut, and what is not taken for an answer."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packing import packed

from coeval.models.transport.body import NotHttp
from coeval.models.transport.connection import LARGEST_HEAD, HttpReply, ReplyParser

TEXT = b'{"text": "fine"}' * 40
HEAD = b"HTTP/1.1 200 OK\r\n"


def sized(body: bytes, *fields: str, start: bytes = HEAD) -> bytes:
    lines = "".join(f"{field}\r\n" for field in (*fields, f"Content-Length: {len(body)}"))
    return start + lines.encode() + b"\r\n" + body


def chunks(body: bytes, size: int, end: bytes = b"0\r\n\r\n") -> bytes:
    pieces = (body[at : at + size] for at in range(0, len(body), size))
    return b"".join(b"%x;note=1\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + end


CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\nX-Kept: yes\r\n\r\n"


class Case(NamedTuple):
    sent: bytes
    status: int = 200
    body: bytes = TEXT
    keep_alive: bool = True
    by_closing: bool = False


CASES = {
    "sized": Case(sized(TEXT)),
    "empty": Case(sized(b""), body=b""),
    "no reason phrase": Case(sized(TEXT, start=b"HTTP/1.1 200\r\n")),
    "closing": Case(sized(TEXT, "Connection: close"), keep_alive=False),
    "HTTP/1.0": Case(sized(TEXT, start=b"HTTP/1.0 200 OK\r\n"), keep_alive=False),
    "HTTP/1.0 kept": Case(sized(TEXT, "Connection: keep-alive", start=b"HTTP/1.0 200 OK\r\n")),
    "chunked": Case(CHUNKED + chunks(TEXT, 100)),
    "one byte a chunk": Case(CHUNKED + chunks(TEXT, 1)),
    "trailers": Case(CHUNKED + chunks(TEXT, 99, b"0\r\nRetry-After: 5\r\nX-Kept: no\r\n\r\n")),
    "until it closes": Case(HEAD + b"\r\n" + TEXT, keep_alive=False, by_closing=True),
    "until it closes, empty": Case(HEAD + b"\r\n", body=b"", keep_alive=False, by_closing=True),
    "HTTP/1.0 until it closes": Case(b"HTTP/1.0 200 OK\r\n\r\n" + TEXT, keep_alive=False, by_closing=True),
    "204": Case(b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    "304 with a length": Case(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, b""),
    "after interim answers": Case(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n" + sized(TEXT)
    ),
    "an error": Case(sized(TEXT, start=b"HTTP/1.1 529 \xc3\x9cberlast\r\n"), 529),
    "an offer to upgrade": Case(sized(TEXT, "Upgrade: h2c", "Connection: upgrade")),
    "gzip": Case(sized(packed(TEXT), "Content-Encoding: gzip")),
    "an error in a coding we do not know": Case(
        sized(TEXT, "Content-Encoding: br", start=b"HTTP/1.1 429 Slow\r\n"), 429, b""
    ),
    "lines without CR": Case(b"HTTP/1.1 200 OK\nX: y\nContent-Length: %d\n\n" % len(TEXT) + TEXT),
    "a folded line": Case(sized(TEXT, "X: a\r\n b")),
    "odd characters in a header": Case(sized(TEXT, "X: \x01\x7f\x1b[31m")),
    "blanks after a chunk's size": Case(CHUNKED + b"%x  \r\n" % len(TEXT) + TEXT + b"\r\n0\r\n\r\n"),
    "coded and chunked": Case(
        HEAD
        + b"Content-Encoding: gzip, identity\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunks(packed(TEXT), 7)
    ),
}


def read(*pieces: bytes) -> tuple[HttpReply, bool]:
    """The answer that the pieces make, and whether its connection may be used again."""
    answer = ReplyParser()
    done = [answer.feed(piece) for piece in pieces]
    assert not any(done[:-1])
    assert done[-1] or answer.is_whole_at_end()
    return HttpReply.read(answer.status, answer.headers, answer.body), answer.keep_alive


def cut(data: bytes, places: list[int]) -> list[bytes]:
    return [data[start:end] for start, end in pairwise([0, *sorted(set(places)), len(data)]) if start < end]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_framing_is_read_whole_and_byte_by_byte(case: Case) -> None:
    reply, keep_alive = read(case.sent)
    assert (reply.status, reply.body, keep_alive) == (case.status, case.body, case.keep_alive)
    assert read(*(case.sent[at : at + 1] for at in range(len(case.sent)))) == (reply, keep_alive)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_nothing_short_of_the_whole_is_an_answer(case: Case) -> None:
    for length in range(0, len(case.sent), 1 + len(case.sent) // 60):
        answer = ReplyParser()
        assert not (answer.feed(case.sent[:length]) if length else False)
        assert answer.is_whole_at_end() == (case.by_closing and length >= case.sent.find(b"\r\n\r\n") + 4)
        assert answer.begun == (length > 0)


NAMES = st.from_regex(r"x-[a-z0-9]{1,9}", fullmatch=True)
VALUES = st.from_regex(r"([!-~]{1,9})?", fullmatch=True)


@given(st.sampled_from(list(CASES.values())), st.data())
def test_how_the_bytes_are_cut_does_not_matter(case: Case, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(case.sent)), max_size=12))
    assert read(*cut(case.sent, places)) == read(case.sent)


@pytest.mark.process
@given(
    st.dictionaries(NAMES, VALUES),
    st.binary(max_size=300).map(b'{"'.__add__),
    st.integers(1, 300),
    st.data(),
)
def test_any_headers_and_body_come_through(
    fields: dict[str, str], body: bytes, size: int, data: st.DataObject
) -> None:
    head = "".join(f"{name.upper()}: {value} \r\n" for name, value in fields.items()).encode()
    sent = HEAD + head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks(body, size)
    reply, keep_alive = read(*cut(sent, data.draw(st.lists(st.integers(0, len(sent)), max_size=8))))
    assert reply == HttpReply(200, fields | {"transfer-encoding": "chunked"}, body)
    assert keep_alive


def test_header_names_are_lower_case_the_first_of_several_counts_and_trailers_do_not() -> None:
    reply, _ = read(sized(b"", "Retry-After: 5", "RETRY-AFTER: 9", "X-Empty:", "X-Latin: \xe9"))
    assert reply.headers["retry-after"] == "5"
    assert reply.headers["x-empty"] == ""
    assert reply.headers["x-latin"] == "Ã©"
    trailed, _ = read(CASES["trailers"].sent)
    assert trailed.headers == {"transfer-encoding": "chunked", "x-kept": "yes"}


@pytest.mark.parametrize("rest", [b"x", b"\0", sized(b"smuggled"), HEAD])
@pytest.mark.parametrize("kind", ["sized", "chunked", "204", "gzip"])
def test_what_follows_an_answer_spoils_the_connection_and_not_the_answer(kind: str, rest: bytes) -> None:
    case = CASES[kind]
    reply, keep_alive = read(case.sent + rest)
    assert (reply.status, reply.body, keep_alive) == (case.status, case.body, False)


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "Expected HTTP/"),
        (b"HTTP/1.1 abc\r\n\r\n", ""),
        (b"\x15\x03\x01\x00\x02\x02", ""),
        (b"<html>", ""),
        (HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", "Content-Length"),
        (HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "Transfer-Encoding"),
        (HEAD + b"Content-Length: -1\r\n\r\n", ""),
        (HEAD + b"Content-Length: 99999999999999999999\r\n\r\n", "overflow"),
        (HEAD + b"X: a\0b\r\nContent-Length: 0\r\n\r\n", "a NUL in a header"),
        (HEAD + b"X\0: a\r\nContent-Length: 0\r\n\r\n", ""),
        (HEAD + b"X: a\rb\r\nContent-Length: 0\r\n\r\n", ""),
        (HEAD + b"X : a\r\nContent-Length: 0\r\n\r\n", ""),
        (CHUNKED + b"0\r\nX: a\0b\r\n\r\n", "a NUL in a header"),
        (HEAD + b"No colon\r\n\r\n", ""),
        (CHUNKED + b"nothing\r\n", ""),
        (CHUNKED + b"2\r\nabc\r\n", ""),
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "'gzip, chunked' is not one we read"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nabc", "another protocol"),
        (sized(b"abc", "Content-Encoding: br"), "'br' is not one we read"),
        (sized(b"abc", "Content-Encoding: gzip"), "damaged"),
        (sized(packed(TEXT)[:-9], "Content-Encoding: gzip"), "cut off"),
        (HEAD + b"X-Long: " + b"x" * 70_000 + b"\r\n\r\n", "more than 64 KiB"),
        (HEAD + b"".join(b"X-%d: %b\r\n" % (n, b"y" * 1000) for n in range(300)), "256 KiB"),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_said_to_be_none(sent: bytes, words: str) -> None:
    with pytest.raises(NotHttp) as caught:
        read(sent)
    assert words in str(caught.value)
    with pytest.raises(NotHttp):
        read(*(sent[at : at + 997] for at in range(0, len(sent), 997)))


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (HEAD, b"X: y\r\n"),
        (HEAD + b"X: ", b"endless"),
        (CHUNKED + b"0\r\nX: ", b"trailer"),
        (CHUNKED + b"1;", b"ext"),
    ],
)
def test_headers_trailers_and_extensions_without_end_are_cut_short(start: bytes, more: bytes) -> None:
    answer = ReplyParser()
    answer.feed(start)

    def go_on() -> None:
        for _ in range(LARGEST_HEAD // 1000):
            answer.feed(more * (1200 // len(more)))

    with pytest.raises(NotHttp, match="256 KiB"):
        go_on()
