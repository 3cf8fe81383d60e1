"""Files to and from a host, as large as they are, and what each failure is called."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from coeval.core.errors import AccessDenied, BadRequest, ConnectionFailed, NotFound, RateLimited, ServerFault
from coeval.models.batch.batch_http import BatchHttp, UploadForm
from coeval.models.dialects.gemini import GEMINI
from coeval.models.pacing.limits import Limiter
from coeval.models.signers import RequestSigner, Signer
from coeval.models.transport.endpoint import Endpoint

KEY = "sk-planted-4471-aa90-17bb-secret"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def _served(
    *handlers: Handler, signer: Signer | None = None, **more: Any
) -> AsyncIterator[tuple[BatchHttp, list[float]]]:
    """A host that answers with each handler in turn, the last again and again; what waited, in seconds."""
    left, waits = list(handlers), list[float]()

    async def answer(request: web.Request) -> web.StreamResponse:
        return await (left.pop(0) if len(left) > 1 else left[0])(request)

    async def no_wait(seconds: float) -> None:
        waits.append(seconds)

    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        signer = signer or Signer({"Authorization": f"Bearer {KEY}"})
        endpoint = Endpoint(str(server.make_url("/v1")), signer, Limiter(), [KEY])
        http = BatchHttp(endpoint, sleep=no_wait, **more)
        try:
            yield http, waits
        finally:
            await http.aclose()


def _says(status: int, text: str = "", headers: Mapping[str, str] | None = None) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=text, headers=headers)

    return answer


async def _echo(request: web.Request) -> web.Response:
    said = await request.read()
    shown = {name: request.headers.get(name) for name in ("Authorization", "Content-Type", "X-Mine")}
    return web.json_response({"path": request.path_qs, "length": len(said), **shown})


async def test_a_call_is_signed_and_sent_as_it_stands() -> None:
    async with _served(_echo) as (http, _):
        said = (await http.send("POST", "/batches?a=b%3Ac", b"{}", headers={"X-Mine": "1"})).body
    assert b'"path": "/v1/batches?a=b%3Ac"' in said
    assert f'"Authorization": "Bearer {KEY}"'.encode() in said
    assert b'"Content-Type": "application/json"' in said
    assert b'"X-Mine": "1"' in said


@pytest.mark.parametrize("form", [False, True])
async def test_a_file_is_sent_with_its_length_and_read_in_pieces(tmp_path: Path, form: bool) -> None:
    file, pieces = tmp_path / "requests.jsonl", list[int]()
    file.write_bytes(b'{"a": "' + b"x" * (5 << 20) + b'"}\n')

    async def take(request: web.Request) -> web.Response:
        assert request.content_length is not None
        assert request.content_length >= file.stat().st_size
        if not form:
            async for piece in request.content.iter_any():
                pieces.append(len(piece))
            return web.Response(text=request.headers["Content-Type"])
        parts = await request.post()
        sent = parts["file"]
        assert isinstance(sent, web.FileField)
        pieces.append(len(sent.file.read()))
        purpose = parts["purpose"]
        assert isinstance(purpose, str)
        return web.Response(text=f"{purpose} {sent.filename} {list(parts)}")

    async with _served(take) as (http, _):
        sent = UploadForm({"purpose": "batch"}, file) if form else file
        reply = await http.send("POST", "/files", sent)
    assert sum(pieces) == file.stat().st_size
    assert reply.body == (b"batch requests.jsonl ['purpose', 'file']" if form else b"application/jsonl")


async def test_what_may_be_sent_again_is_and_waits_as_long_as_the_host_asks() -> None:
    busy = _says(429, "later", {"Retry-After": "7"})
    async with _served(busy, _says(503), _says(200, "fine")) as (http, waits):
        assert (await http.send("GET", "/batches/b1")).body == b"fine"
    assert len(waits) == 2
    assert waits[0] >= 7


async def test_what_makes_a_job_is_sent_again_only_where_it_was_turned_away() -> None:
    async with _served(_says(429), _says(500, "half done")) as (http, waits):
        with pytest.raises(ServerFault, match="half done"):
            await http.send("POST", "/batches", b"{}")
    assert len(waits) == 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, BadRequest), (413, BadRequest), (401, AccessDenied), (404, NotFound), (429, RateLimited)],
)
async def test_refusals_have_the_names_of_live_ones_and_quote_no_key(status: int, kind: type) -> None:
    async with _served(_says(status, f'{{"error": {{"message": "bad {KEY}"}}}}')) as (http, _):
        with pytest.raises(kind) as refused:
            await http.send("POST", "/batches", b"{}")
    assert "bad [redacted]" in str(refused.value)
    assert KEY not in str(refused.value)


async def test_a_host_that_says_by_a_400_that_a_key_is_none_denies_access() -> None:
    trouble = {"code": 400, "message": f"bad {KEY}", "details": [{"reason": "API_KEY_INVALID"}]}
    async with _served(_says(400, json.dumps({"error": trouble})), explain=GEMINI.explain) as (http, _):
        with pytest.raises(AccessDenied) as refused:
            await http.send("POST", "/batches", b"{}")
    assert ("bad [redacted]" in str(refused.value), refused.value.status) == (True, 400)


async def test_a_download_that_is_cut_off_begins_anew(tmp_path: Path) -> None:
    whole = b'{"custom_id": "a"}\n' * 100_000

    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(whole))})
        await response.prepare(request)
        await response.write(whole[: 1 << 20])
        assert request.transport is not None
        request.transport.abort()
        return response

    async def give(_: web.Request) -> web.Response:
        return web.Response(body=whole)

    into = tmp_path / "results.jsonl"
    async with _served(cut, give) as (http, waits):
        await http.download("/files/f/content", into)
    assert into.read_bytes() == whole
    assert len(waits) == 1


async def test_another_host_is_shown_no_credential() -> None:
    async with _served(_echo) as (there, _), _served(_echo) as (http, _):
        said = (await http.send("GET", f"{there.url}/results")).body
        ours = (await http.send("GET", f"{http.url}/results")).body
    assert b'"Authorization": null' in said
    assert KEY.encode() in ours


async def test_a_token_that_is_refused_is_renewed_once() -> None:
    class Renewing(RequestSigner):
        async def headers(self, method: str, url: str, body: bytes | None, now: float) -> Mapping[str, str]:
            return {"Authorization": f"Bearer token-{len(refused)}"}

        def discard_refused(self, headers: Mapping[str, str]) -> bool:
            refused.append(headers["Authorization"])
            return len(refused) == 1

    refused = list[str]()
    async with _served(_says(401), _echo, signer=Renewing({})) as (http, _):
        assert b"token-1" in (await http.send("GET", "/batches")).body
    async with _served(_says(401), signer=Renewing({})) as (http, _):
        with pytest.raises(AccessDenied):
            await http.send("GET", "/batches")


async def test_a_host_that_is_away_is_told_as_for_live_requests() -> None:
    http = BatchHttp(Endpoint("http://127.0.0.1:9/v1", None, Limiter()), sleep=_at_once)
    with pytest.raises(ConnectionFailed, match=r"POST 127.0.0.1:9/v1/batches: no connection"):
        await http.send("POST", "/batches", b"{}")
    await http.aclose()


async def _at_once(_: float) -> None: ...


async def test_a_large_body_is_sent_piece_by_piece() -> None:
    async with _served(_echo) as (http, _):
        said = (await http.send("PUT", "/part", b"x" * (5 << 20))).body
    assert b'"length": 5242880' in said
