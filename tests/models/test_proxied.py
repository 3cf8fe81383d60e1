"""What goes through a proxy is treated as all the rest, though another library sends it."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys

import pytest
from raw_server import OK, Client, hang, reply, reset, server

from coeval.core.errors import AccessDenied, ConnectionFailed, RateLimited, RequestTimeout, Unreadable
from coeval.models.transport import body as body_module

TARGET = "http://api.invalid/v1"


@pytest.fixture(autouse=True)
def _no_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "other.invalid")


async def test_retries_and_the_proxys_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    away = reply(429, Retry_After="7")
    async with server(away, reset, OK) as fake:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{fake.port}")
        asking = Client(TARGET)
        answered = await asking.post(b"x" * (1 << 21))
        await asking.http.aclose()
        assert (answered.value, answered.attempts) == ("fine", 3)
        assert 7 <= asking.time.slept[0] <= 7.7
        assert [len(requested.body) for requested in fake.requested] == [1 << 21] * 3
        assert {requested.headers["host"] for requested in fake.requested} == {"api.invalid"}


@pytest.mark.process
@pytest.mark.parametrize(
    ("answer", "kind"), [(reply(407), AccessDenied), (reply(429), RateLimited), (hang, RequestTimeout)]
)
async def test_failures_have_the_same_names(
    answer: bytes, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(answer) as fake:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{fake.port}")
        asking = Client(TARGET)
        assert type(await asking.error(timeout_s=0.05)) is kind
        await asking.http.aclose()


async def test_bodies_are_unpacked_bounded_and_read_as_on_the_straight_wire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(body_module, "LARGEST_BODY", 1 << 20)
    said = json.dumps({"text": "Grüße"}, ensure_ascii=False)
    answers = [
        reply(200, gzip.compress(said.encode("utf-8-sig")), Content_Encoding="gzip"),
        reply(200, said.encode(), Content_Encoding="none"),
    ]
    async with server(*answers, reply(200, bytes(1 << 21))) as fake:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{fake.port}")
        asking = Client(TARGET)
        assert [(await asking.post()).value for _ in answers] == ["Grüße"] * 2
        assert {requested.headers["accept-encoding"] for requested in fake.requested} == {"identity"}
        error = await asking.error()
        await asking.http.aclose()
        assert isinstance(error, Unreadable)
        assert "a body of more than 1 MiB" in str(error)
        assert len(fake.requested) == 2 + 2


@pytest.mark.parametrize("target", [TARGET, TARGET.replace("http", "https")])
async def test_a_proxy_that_is_away_is_named(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(OK) as fake:
        pass
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{fake.port}")
    asking = Client(target)
    error = await asking.error()
    await asking.http.aclose()
    assert isinstance(error, ConnectionFailed)
    assert "no connection to the proxy" in str(error)
    assert "NO_PROXY" in str(error)


@pytest.mark.process
def test_without_a_proxy_its_library_is_not_loaded() -> None:
    code = """
import asyncio, sys
from coeval.core.errors import ModelError
from coeval.models.transport.call import Call
from coeval.models.transport.http import Endpoint, Http
from coeval.models.pacing.limits import Limiter

async def main():
    http = Http(sleep=lambda s: asyncio.sleep(0))
    try:
        call = Call(bytes, None, 9.0, 0, lambda: None)
        endpoint = Endpoint("http://127.0.0.1:1", None, Limiter())
        endpoint.set_wait(0.0)
        await http.get(endpoint, "", call)
    except ModelError as error:
        print(type(error).__name__, "aiohttp" in sys.modules)
    await http.aclose()

asyncio.run(main())
"""
    env = os.environ | {"no_proxy": "*"}
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert shown.stdout == "ConnectionFailed False\n"
