"""What is sent, what comes back, and what each failure is called."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from raw_server import (
    KEY,
    OK,
    Client,
    Script,
    Server,
    call,
    client,
    cut_in_the_headers,
    cut_off,
    endless_headers,
    hang,
    reply,
    reset,
    server,
    until,
)

from coeval.core import foreign
from coeval.core.errors import (
    AccessDenied,
    AccountSpent,
    BadRequest,
    ConnectionFailed,
    ContentFiltered,
    Misshapen,
    ModelError,
    NotFound,
    RateLimited,
    RequestTimeout,
    Unreadable,
    UsageError,
)
from coeval.core.redaction import Redactor
from coeval.models.pacing.limits import Limiter
from coeval.models.signers import Signer
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.endpoint import LOOPBACK_WAIT_S, Endpoint
from coeval.models.transport.http import Http


async def test_an_answer_carries_its_value_and_the_request_was_as_asked() -> None:
    async with server(OK) as fake, client(fake) as asking:
        answered = await asking.post(b'{"model": "m"}')
        assert answered == ("fine", 0.0, 1)
        request = fake.requested[0]
        assert request.line == "POST /v1/chat HTTP/1.1"
        assert request.body == b'{"model": "m"}'
        assert request.headers["authorization"] == f"Bearer {KEY}"
        assert request.headers["content-type"] == "application/json"
        assert request.headers["user-agent"].startswith("coeval/")
        await asking.get()
        assert fake.requested[1].line == "GET /v1/models HTTP/1.1"
        assert fake.requested[1].body == b""


async def test_one_connection_serves_all_that_follows_errors_included() -> None:
    async with server(OK, reply(500, {"error": "x" * 5000}), reply(404, {}), OK) as fake:
        async with client(fake) as asking:
            await asking.post()
            assert isinstance(await asking.error(), NotFound)
            await asking.post()
        assert {request.connection for request in fake.requested} == {1}
        await until(lambda: not fake.serving)


async def test_a_body_over_a_mebibyte_arrives_whole() -> None:
    async with server(OK, reply(500), OK) as fake, client(fake) as asking:
        body = b"x" * ((1 << 20) + 17)
        await asking.post(body)
        await asking.post(body)  # a retry sends it again from its beginning
        assert [request.body for request in fake.requested] == [body] * 3


@pytest.mark.parametrize(
    "fault",
    [reset, cut_off, cut_in_the_headers]
    + [reply(status) for status in (409, 425, 429, 499, 500, 502, 503, 529)],
)
async def test_what_may_pass_is_tried_again(fault: bytes | Script) -> None:
    async with server(fault, fault, OK) as fake, client(fake) as asking:
        answered = await asking.post(decode=decode_strictly)
        assert answered.value == "fine"
        assert answered.attempts == asking.permits == len(fake.requested) == 3
        assert 0.25 <= asking.time.slept[0] <= 0.5
        assert 0.5 <= asking.time.slept[1] <= 1.0
        assert asking.limiter.in_flight == 0


UNREADABLE = {
    "a web page": reply(200, b"<html>busy</html>"),
    "another thing": reply(200, {"other": 1}),
    "no text": reply(200, b"\xff\xfe"),
    "an unknown coding": reply(200, b"packed", Content_Encoding="br"),
    "a damaged coding": reply(200, b"packed", Content_Encoding="gzip"),
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "the wish to be asked again": reply(200, b"<html>busy</html>", x_should_retry="true"),
}


@pytest.mark.parametrize("answer", UNREADABLE.values(), ids=UNREADABLE)
async def test_what_cannot_be_read_is_asked_for_once_more_at_most(answer: bytes) -> None:
    async with server(answer, OK) as fake, client(fake) as asking:
        assert (await asking.post(decode=decode_strictly)).attempts == 2
    async with server(answer) as fake, client(fake) as asking:
        error = await asking.error(decode=decode_strictly)
        assert isinstance(error, Unreadable)
        assert (error.attempts, error.retry_advised) == (2, False)
        assert asking.permits == len(fake.requested) == 2


async def test_other_faults_between_do_not_add_to_what_cannot_be_read() -> None:
    page, busy = UNREADABLE["a web page"], reply(503)
    async with server(busy, page, busy, busy, page) as fake, client(fake) as asking:
        assert (await asking.error(decode=decode_strictly)).attempts == len(fake.requested) == 5


def decode_strictly(reply: HttpReply, redactor: Redactor) -> str:
    content = foreign.decode(reply.body, dict[str, Any])
    if "text" not in content:
        raise Misshapen("no text")
    return str(content["text"])


async def test_a_hanging_or_trickling_server_ends_in_a_timeout_at_the_second_attempt() -> None:
    for script in (hang, endless_headers):
        async with server(script) as fake, client(fake) as asking:
            error = await asking.error(timeout_s=0.02)
            assert isinstance(error, RequestTimeout)
            assert "no answer within 0.02 s; raise parameters.timeout_s" in str(error)
            assert (error.attempts, error.retry_advised) == (2, False)
            assert len(fake.requested) == 2


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (308, NotFound),
        (400, BadRequest),
        (401, AccessDenied),
        (402, AccountSpent),
        (403, AccessDenied),
        (404, NotFound),
        (405, BadRequest),
        (413, BadRequest),
        (422, BadRequest),
    ],
)
async def test_what_cannot_pass_is_not_tried_again(status: int, kind: type[ModelError]) -> None:
    async with server(reply(status, {"error": {"message": "the model is unknown"}}, Location="/x")) as fake:
        async with client(fake) as asking:
            error = await asking.error()
        assert type(error) is kind
        assert (error.attempts, error.status) == (1, status)
        assert f"POST 127.0.0.1:{fake.port}/v1/chat answered {status}" in str(error)
        assert "the model is unknown" in str(error)


async def test_a_refused_connection_names_place_and_cause() -> None:
    async with server(OK) as fake:
        pass
    async with client(fake) as asking:
        error = await asking.error()
    assert isinstance(error, ConnectionFailed)
    assert f"POST 127.0.0.1:{fake.port}/v1/chat: no connection" in str(error)
    assert f"errors for {LOOPBACK_WAIT_S:.0f} s" in str(error)
    assert 60 < error.attempts < 160, "two to four seconds apart"


async def test_tls_spoken_to_a_plain_server_is_told_at_once() -> None:
    async def answer_anything(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(reply(400, b"this is plain HTTP"))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer_anything, "127.0.0.1", 0) as listening:
        asking = Client(f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1")
        try:
            error = await asking.error()
        finally:
            await asking.http.aclose()
    assert isinstance(error, ConnectionFailed)
    assert "check whether base_url should begin with http://" in str(error)
    assert (error.attempts, error.retry_advised) == (1, False)


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"])
async def test_a_certificate_that_is_not_trusted_names_the_variables(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(other, raising=False)
    bundle = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(bundle)
    monkeypatch.setenv(name, str(bundle))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    fake = Server([OK])
    async with await asyncio.start_server(fake.accept, "127.0.0.1", 0, ssl=context) as listening:
        asking = Client(f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1")
        error = await asking.error()
        await asking.http.aclose()
    assert isinstance(error, ConnectionFailed)
    assert "the server's certificate was refused" in str(error)
    assert "REQUESTS_CA_BUNDLE, which goes first, or SSL_CERT_FILE" in str(error)
    assert (error.attempts, fake.requested) == (1, [])


async def test_an_answer_in_pieces_or_packed_is_an_answer() -> None:
    body = b'{"text": "fine"}'
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n" + body + b"\r\n0\r\n\r\n"
    packed = reply(200, gzip.compress(body), Content_Encoding="gzip")
    async with server(chunked, packed, OK + OK, OK) as fake, client(fake) as asking:
        assert [(await asking.post()).value for _ in range(4)] == ["fine"] * 4
        assert [requested.connection for requested in fake.requested] == [1, 1, 1, 2]


async def test_a_coding_that_nobody_asked_for_is_named() -> None:
    async with server(reply(200, b"packed", Content_Encoding="br")) as fake, client(fake) as asking:
        error = await asking.error()
    assert isinstance(error, Unreadable)
    assert "the content coding 'br' is not one we read" in str(error)


async def test_the_dialects_reading_of_an_error_decides() -> None:
    def explain(refusal: HttpReply, redactor: Redactor) -> ModelError | None:
        by = refusal.headers["x-refused-by"]
        return (
            ContentFiltered(f"{by}: {json.loads(refusal.body)['reason']}") if refusal.status == 500 else None
        )

    async with (
        server(reply(500, {"reason": "blocked"}, X_Refused_By="policy")) as fake,
        client(fake) as asking,
    ):
        error = await asking.error(explain=explain)
        assert isinstance(error, ContentFiltered)
        assert str(error) == f"POST 127.0.0.1:{fake.port}/v1/chat answered 500: policy: blocked"
        assert (error.attempts, error.status) == (1, 500)


async def test_an_error_found_in_a_good_body_is_taken_as_it_is() -> None:
    def decode_envelope(reply: HttpReply, redactor: Redactor) -> str:
        content = json.loads(reply.body)
        if "error" in content:
            raise RateLimited(content["error"], status=429)
        return str(content["text"])

    async with server(reply(200, {"error": "upstream is busy"}), OK) as fake, client(fake) as asking:
        assert (await asking.post(decode=decode_envelope)).attempts == 2
        assert len(fake.requested) == 2


async def test_no_message_repeats_a_key_a_query_or_a_header() -> None:
    echo = reply(401, {"error": {"message": f"Bearer {KEY} is not a key"}})
    filtered = reply(400, f"you sent {KEY}".encode())

    def explain(refusal: HttpReply, redactor: Redactor) -> ModelError | None:
        return BadRequest(refusal.body.decode()) if refusal.status == 400 else None

    async with server(echo, filtered, reset) as fake, client(fake) as asking:
        for _ in range(3):
            with pytest.raises(ModelError) as caught:
                await asking.http.post(asking.endpoint, "/chat?key=hidden", b"{}", call(explain=explain))
            assert KEY not in str(caught.value)
            assert "hidden" not in str(caught.value)
            assert f"127.0.0.1:{fake.port}/v1/chat" in str(caught.value)


def test_a_key_with_a_line_break_is_refused_without_being_shown() -> None:
    with pytest.raises(UsageError, match="Authorization header") as caught:
        Endpoint("http://host/v1", Signer({"Authorization": f"Bearer {KEY}\n"}), Limiter())
    assert KEY not in str(caught.value)


async def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(OK) as fake:
        monkeypatch.setenv("http_proxy", f"http://who:secret@127.0.0.1:{fake.port}")
        monkeypatch.setenv("no_proxy", "other.invalid")
        http = Http()
        endpoint = Endpoint("http://api.invalid/v1", Signer({"Authorization": f"Bearer {KEY}"}), Limiter())
        await http.post(endpoint, "/chat", b"{}", call())
        await http.aclose()
        assert fake.requested[0].line == "POST http://api.invalid/v1/chat HTTP/1.1"
        assert fake.requested[0].headers["proxy-authorization"] == "Basic d2hvOnNlY3JldA=="
        assert fake.requested[0].headers["authorization"] == f"Bearer {KEY}"
        assert Endpoint("http://other.invalid/v1", None, Limiter()).proxy is None
