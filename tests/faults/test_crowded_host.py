"""A host that takes few connections, or answers nobody: what asking it comes to, over real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from cli.warm_process import EVAL_FRAMEWORK, WarmProcess
from small_runs import errors, experiment, folder_of, run

from coeval.core.errors import AskError
from coeval.core.model import ModelSpec
from coeval.core.records import Message, Request
from coeval.models.keys import Keys
from coeval.models.open import Models
from coeval.models.transport.http import Http

CONNECTIONS = 8
HURRY = 50.0
BODY = msgspec.json.encode({"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]})
REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
HELLO = Request(messages=(Message("user", "hello"),))


@dataclass
class Host:
    """It keeps ``most`` connections; a further one it resets, or refuses, as it does not listen any more."""

    manner: Literal["resets", "refuses", "ignores"]
    most: int = CONNECTIONS
    answer_s: float = 0.01
    requests: int = 0
    url: str = ""
    serving: set[asyncio.Task[None]] = field(default_factory=set)

    async def listen(self, listener: socket.socket) -> None:
        while self.manner != "refuses" or len(self.serving) < self.most:
            connection, _ = await asyncio.get_running_loop().sock_accept(listener)
            if len(self.serving) < self.most:
                task = asyncio.create_task(self.serve(connection))
                self.serving.add(task)
                task.add_done_callback(self.serving.discard)
                continue
            # Closed so that the other side reads ECONNRESET.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        listener.close()

    async def serve(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
                self.requests += 1
                if self.manner == "ignores":
                    await asyncio.Event().wait()
                await asyncio.sleep(self.answer_s)
                writer.write(REPLY)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the other side closed
        finally:
            writer.transport.abort()


@asynccontextmanager
async def hosting(host: Host) -> AsyncIterator[Host]:
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        listener.setblocking(False)
        host.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        listening = asyncio.create_task(host.listen(listener))
        try:
            yield host
        finally:
            for task in (listening, *host.serving):
                task.cancel()
            await asyncio.gather(listening, *host.serving, return_exceptions=True)
            await asyncio.sleep(0)  # an aborted transport closes its socket a turn later


async def ask(url: str, calls: int, **parameters: float) -> Counter[str]:
    """What became of so many calls made at once: "fine", or the kind of the error.

    Waiting before another attempt takes no time worth the name, so eight attempts are soon over.
    """
    spec = ModelSpec(name="m", interface="vllm", model="m", base_url=url, **parameters)  # type: ignore[arg-type]
    keys = Keys.load(None, env={}, cwd=Path("/nonexistent"), home=Path("/nonexistent"))
    http = Http(sleep=lambda seconds: asyncio.sleep(seconds / HURRY))
    async with Models([spec], keys, http=http) as models:

        async def one() -> str:
            try:
                return (await models["m"].complete(HELLO)).text
            except AskError as error:
                return error.kind

        return Counter(await asyncio.gather(*(one() for _ in range(calls))))


@pytest.mark.process
@pytest.mark.parametrize(("manner", "start"), [("resets", 16), ("refuses", 256)])
async def test_a_host_that_keeps_eight_connections_answers_every_call_in_the_end(
    manner: Literal["resets", "refuses"], start: int
) -> None:
    async with asyncio.timeout(120), hosting(Host(manner)) as host:
        assert await ask(host.url, 1_000, start_concurrency=start) == {"fine": 1_000}
        assert host.requests == 1_000, "none was sent twice"


@pytest.mark.system
async def test_forty_calls_to_a_host_that_never_answers_end_within_a_minute(tmp_path: Path) -> None:
    async with hosting(Host("ignores", most=1_000)) as host:
        file = experiment(tmp_path, host.url, total=40, parameters={"timeout_s": 1})
        async with asyncio.timeout(60):
            summary = await run(file, hurried=False)
        assert summary.exit_code == 3
        assert summary.phases["data_generation"].failed == {"timeout": 40}
        assert all("no answer within 1 s" in line.message for line in errors(folder_of(file)))
        assert 40 < host.requests <= 80


# A host that is away when a program starts is told at once, by name and reason, and nothing is begun.

SOON_S = 25.0
"""A request is sent eight times, which takes twice as long."""


@pytest.fixture(params=["refuses", "cannot be resolved"])
def host(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A host that is away, and what is said of it."""
    if request.param == "refuses":
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            yield f"127.0.0.1:{bound.getsockname()[1]}", "no connection (Connection refused)"
    else:
        yield "nowhere.invalid", "the host name cannot be resolved"


@pytest.mark.process
def test_coeval_run_tells_it_soon(host: tuple[str, str], tmp_path: Path) -> None:
    where, reason = host
    file = experiment(tmp_path, f"http://{where}/v1", settings={"probe_mode": "full"})
    process = WarmProcess("run", "--config", file, cwd=tmp_path)
    err = process.communicate(SOON_S).err
    assert process.returncode == 2
    assert "5 of 5 models do not answer" in err
    assert f"teacher: POST {where}/v1/chat/completions: {reason}" in err.replace("\n", " ")
    assert not folder_of(file).meta.exists()


@pytest.mark.process
def test_eval_framework_tells_it_soon(host: tuple[str, str], tmp_path: Path) -> None:
    where, reason = host
    prompt = {"key": 1, "prompt": "Why?", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    (tmp_path / "prompts.jsonl").write_text(json.dumps(prompt) + "\n")
    how = ["--tasks", "ifeval", "--ifeval-input", "prompts.jsonl", "--model", "m", "--output-dir", "out"]
    process = WarmProcess(*how, "--base-url", f"http://{where}/v1", module=EVAL_FRAMEWORK, cwd=tmp_path)
    err = process.communicate(SOON_S).err
    assert process.returncode == 2
    assert f"POST {where}/v1/chat/completions: {reason}" in err.replace("\n", " ")


@pytest.mark.system
def test_a_name_service_that_is_away_holds_up_no_program(tmp_path: Path) -> None:
    file = experiment(tmp_path, "http://slow.invalid/v1", settings={"probe_mode": "full"})
    program = (
        "import socket, sys, time; socket.getaddrinfo = lambda *_, **__: time.sleep(120)\n"
        "from coeval.cli.entry import coeval; coeval()"
    )
    words = [sys.executable, "-c", program, "run", "--config", str(file)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=SOON_S, check=False)
    assert done.returncode == 2
    assert "no answer from the name service" in done.stderr
