"""Whatever is sent to the simulated server is answered, or refused in OpenAI's shape; it goes on serving."""

from __future__ import annotations

import asyncio
import io
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

KEY = "s3cret-of-the-server"
CHAT: dict[str, Any] = {
    "model": "sim",
    "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello, wörld"}],
    "max_tokens": 20,
    "stop": ["\n\n"],
    "n": 1,
    "logprobs": True,
    "top_logprobs": 3,
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
}
CHATS = "/v1/chat/completions"
ODD_BYTES = [
    b"\x00",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\r\n\r\n",
    b"[" * 500,
    b'{"a":' * 2000,
    b"1e999",
    b'"\\ud800"',
]
ODD_HEADERS = [
    b"Authorization: Bearer \xff\xfe\xc3\x28",
    "Authorization: Bearer ключ".encode(),
    b"x-simulate-status: \xb2\xb9",
    b"x-simulate-status: 99999999999999999999",
    b"Content-Encoding: gzip",
    b"Content-Type: \x80text",
    b"Transfer-Encoding: chunked",
    b"Host: evil.example",
    b"Host: [::1",
    b"Host: 127.0.0.1:99999",
    b"Content-Length: -5",
    b"Content-Length: 99999999999999999999",
    b"X: " + b"a" * 20_000,
]


class Served:
    """The command itself, and what it prints to stderr."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.log = log

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("served") / "stderr"
    words = ["simulate", "--port", "0", "--model", "sim", "--model", "slow:latency_s=0.05,tokens_per_s=50"]
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "coeval", *words], stdout=subprocess.PIPE, stderr=errors
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            yield Served(process, int(line.split("/v1")[0].rpartition(":")[2]), log)
        finally:
            process.kill()


def mutated(rng: random.Random, body: bytes) -> bytes:
    """The body with a few bytes or pieces of it changed, doubled, moved or left out."""
    data = bytearray(body)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                data[at : at + rng.randint(1, 8)] = rng.randbytes(rng.randint(0, 8))
            case 1:
                data[at:at] = rng.choice(ODD_BYTES)
            case 2:
                del data[at : at + rng.randint(1, 40)]
            case 3:
                data[at:at] = data[: rng.randint(1, 60)]
            case _:
                data[at:at] = str(rng.choice([-1, 0, 10**30, 1.5, "null", '"x"', "[]", "{}"])).encode()
    return bytes(data)


def grown(rng: random.Random, body: dict[str, Any]) -> bytes:
    """The body with one of its values replaced by another of any type; whole as JSON."""
    value: Any = rng.choice(
        [None, -1, 2**70, 1e300, "", "x" * 1000, [], {}, [[]], {"type": "x"}, True, [1, "a"]]
    )
    changed = json.loads(json.dumps(body))
    changed[rng.choice([*changed, "tools", "tool_choice", "metadata", "stream_options", "instructions"])] = (
        value
    )
    return json.dumps(changed).encode()


async def exchanged(port: int, head: bytes, body: bytes, wait_s: float = 30) -> bytes:
    """What comes back on a connection of its own, until it is closed or nothing more comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with closing(writer):
        writer.write(head + body)
        try:
            return await asyncio.wait_for(reader.read(), wait_s)
        except (ConnectionError, TimeoutError):
            return b""


def request_bytes(path: str, body: bytes, *headers: bytes) -> bytes:
    given = {line.split(b":")[0].lower() for line in headers}
    lines = [f"POST {path} HTTP/1.1".encode(), *headers, b"Connection: close"]
    lines += [b"Host: 127.0.0.1"] if b"host" not in given else []
    framed = given & {b"content-length", b"transfer-encoding"}
    lines += [f"Content-Length: {len(body)}".encode()] if not framed else []
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def still_serves(served: Served) -> None:
    assert served.process.poll() is None
    async with ClientSession() as session, session.post(served.url + CHATS, json=CHAT) as response:
        assert response.status == 200, await response.text()
    assert served.log.read_bytes() == b""


@pytest.mark.process
async def test_500_mutated_requests_are_answered_or_refused(served: Served) -> None:
    rng = random.Random(8)
    statuses: dict[int, int] = {}
    for number in range(500):
        body = grown(rng, CHAT) if number % 2 else mutated(rng, json.dumps(CHAT).encode())
        headers = [rng.choice(ODD_HEADERS)] if rng.random() < 0.3 else []
        # A body that is announced longer than it is would be waited for.
        wait_s = 0.2 if headers and headers[0].startswith((b"Content-Length", b"Transfer")) else 30
        answer = await exchanged(served.port, request_bytes(CHATS, body, *headers), body, wait_s)
        if not answer:
            assert wait_s < 1
            continue
        status = int(answer.split(b" ", 2)[1])
        statuses[status] = statuses.get(status, 0) + 1
        assert status < 500 or b"simulated status 5" in answer, answer[:500]
        if status not in (200, 400):
            assert status in (401, 403, 404, 413, 415, 429), answer[:300]
        if status != 200 and b'"error"' in answer:
            error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
            assert error.keys() == {"message", "type", "param", "code"}
    assert statuses[200] > 30
    assert statuses[400] > 150
    await still_serves(served)


@pytest.mark.process
async def test_a_huge_prompt_is_refused_and_stalls_nobody(served: Served) -> None:
    loop = asyncio.get_running_loop()
    huge = json.dumps(
        {"model": "sim", "messages": [{"role": "user", "content": "a judge " * 7_500_000}]}
    ).encode()
    hostile = {"model": "sim", "messages": [{"role": "user", "content": "first word of " * 100_000}]}
    async with ClientSession() as session:

        async def requested(body: bytes) -> int:
            async with session.post(f"{served.url}/v1/chat/completions", data=io.BytesIO(body)) as response:
                await response.read()
                return response.status

        async def health() -> float:
            began = loop.time()
            async with session.get(f"{served.url}/health") as response:
                assert response.status == 200
            return loop.time() - began

        working = [
            asyncio.create_task(requested(huge)),
            asyncio.create_task(requested(json.dumps(hostile).encode())),
        ]
        waits = []
        while not all(task.done() for task in working):
            waits.append(await health())
            await asyncio.sleep(0.01)
        assert [task.result() for task in working] == [400, 200]
        assert len(waits) > 3  # it was served all the while: once, had the huge one been read in one piece
    await still_serves(served)


@pytest.mark.parametrize("depth", [60, 400, 5000])
async def test_deep_schemas_are_refused(served: Served, depth: int) -> None:
    for nest in (
        '{"allOf":[%s]}',
        '{"type":"object","properties":{"a":%s}}',
        '{"anyOf":[%s]}',
        '{"items":%s}',
    ):
        before, after = nest.split("%s")
        schema = before * depth + "{}" + after * depth
        body = json.dumps({**CHAT, "response_format": None}).replace(
            "null", f'{{"type":"json_schema","json_schema":{{"name":"x","schema":{schema}}}}}', 1
        )
        answer = await exchanged(
            served.port, request_bytes("/v1/chat/completions", body.encode()), body.encode()
        )
        assert answer.split(b" ", 2)[1] in (b"200", b"400"), (nest, answer[:300])
    await still_serves(served)


@pytest.mark.process
async def test_a_client_that_leaves_in_the_middle_of_a_stream_is_not_mourned(served: Served) -> None:
    body = json.dumps({"model": "slow", "messages": CHAT["messages"], "stream": True}).encode()
    for _ in range(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(request_bytes("/v1/chat/completions", body) + body)
        await reader.readuntil(b"data:")
        writer.transport.abort()
    await asyncio.sleep(0.5)
    await still_serves(served)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *[
            (name, 403)
            for name in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "10.0.0.1")
        ],
        *[(name, 200) for name in ("localhost", "localhost:1234", "127.1.2.3", "[::1]:8000")],
    ],
)
async def test_only_names_of_this_machine_are_answered(served: Served, host: str, status: int) -> None:
    async with (
        ClientSession() as session,
        session.get(f"{served.url}/v1/models", headers={"Host": host}) as response,
    ):
        assert response.status == status


@pytest.mark.process
def test_the_key_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVAL_SIMULATE_API_KEY", KEY)
    words = [sys.executable, "-m", "coeval", "simulate", "--port", "0", "--model", "sim"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().decode().split()[3].removesuffix(":")

            async def status(key: str) -> int:
                headers = {"Authorization": f"Bearer {key}"}
                async with (
                    ClientSession(headers=headers) as session,
                    session.get(f"{url}/models") as response,
                ):
                    return response.status

            assert asyncio.run(status(KEY)) == 200
            assert asyncio.run(status("x")) == 401
        finally:
            process.kill()
