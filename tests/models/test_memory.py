"""What a process needs while a server does its best to fill its memory: measured from outside."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest
from packing import bomb
from raw_server import Script, reply, server

pytestmark = pytest.mark.process


ASKING = r"""
import asyncio, json, re, resource, sys

from coeval.core.errors import ModelError
from coeval.models.transport.call import Call
from coeval.models.transport.http import Endpoint, Http
from coeval.models.pacing.limits import Limiter

def peak_mib():
    if sys.platform == "linux":  # getrusage counts what the process was forked from, too
        return int(re.search(r"VmHWM:\s*(\d+)", open("/proc/self/status").read())[1]) >> 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 20

async def main(url):
    http = Http(sleep=lambda s: asyncio.sleep(0))
    endpoint = Endpoint(url, None, Limiter())
    call = Call(lambda reply, _: json.loads(reply.body), lambda *_: None, 300.0, 0, lambda: None)
    said, peaks = "", [peak_mib()]
    for _ in range(4):
        try:
            answered = await http.post(endpoint, "/chat", b"{}", call)
            said = f"{len(answered.value)} characters"
        except ModelError as error:
            said = f"{type(error).__name__}, {error.attempts} attempts: {error}"
        peaks.append(peak_mib())
    await http.aclose()
    print(json.dumps([said, peaks]))

asyncio.run(main(sys.argv[1]))
"""


async def ask(url: str) -> tuple[str, list[int]]:
    """Ask four times in a process of its own: what came of it, and its peak memory in MiB before and after
    each."""
    asking = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ASKING, url, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(300):
            printed, _ = await asking.communicate()
    finally:
        if asking.returncode is None:
            asking.kill()
            await asking.wait()
    said, peaks = json.loads(printed)
    return said, peaks


BOMB = reply(200, bomb(1024), Content_Type="application/json", Content_Encoding="gzip")


@pytest.mark.parametrize("proxied", [False, True], ids=["straight", "by proxy"])
async def test_a_bomb_of_a_gibibyte_needs_less_than_400_mb_however_often_it_is_sent(
    proxied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(BOMB) as fake:
        if proxied:
            monkeypatch.setenv("http_proxy", fake.url.removesuffix("/v1"))
            monkeypatch.setenv("no_proxy", "other.invalid")
        said, peaks = await ask("http://api.invalid/v1" if proxied else fake.url)
        assert "a body that unpacks to more than 64 MiB" in said
        assert said.startswith("Unreadable, 2 attempts")
        assert len(fake.requested) == 8
    assert peaks[-1] < 400
    assert peaks[-1] - peaks[1] < 32, "it grows from attempt to attempt"


def in_tiny_chunks(body: bytes) -> Script:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for start in range(0, len(body), 1 << 14):
            piece = body[start : start + (1 << 14)]
            writer.write(b"".join(b"2\r\n%b\r\n" % piece[at : at + 2] for at in range(0, len(piece), 2)))
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    return write


async def test_a_million_chunks_need_no_more_than_their_body() -> None:
    text = b'"' + b"x" * ((2 << 20) - 2) + b'"'
    async with server(in_tiny_chunks(text)) as fake:
        said, peaks = await ask(fake.url)
    assert said == f"{len(text) - 2} characters"
    assert peaks[-1] - peaks[0] < 30
