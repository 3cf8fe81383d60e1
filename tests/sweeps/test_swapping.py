"""``--swap lora``: one server for many adapters, asked where its answers show that it holds the right one."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from cli.invoked import Command, Ended
from fakes.threaded import http_in_a_thread
from swap_server import Engine, handler_of, weights_in, write_checkpoint
from sweeping import Sweeping
from workers import gone

from coeval.core.errors import ServerDown
from coeval.sweeps.checkpoints import why_incomplete
from coeval.sweeps.server_process import read_server_record
from coeval.sweeps.swapping import with_base_model_of_adapter
from coeval.sweeps.worker_files import Server, WorkerCount
from coeval.sweeps.worker_run import KeptServer, Up, WorkerServer


class Alive:
    """A server's process, as far as a kept server looks at it."""

    def __init__(self) -> None:
        self.down = asyncio.Event()


class Started:
    """Starts servers of this process: a cold start holds all of what it is told to load. ``faults`` are those
    of each server, by its number."""

    key = None

    def __init__(
        self,
        server: Server,
        engines: list[Engine],
        faults: Mapping[int, str] = {},
        *,
        is_sglang: bool = False,
    ) -> None:
        self.server = server
        self.count = WorkerCount()
        assert server.folder is not None
        self.folder = server.folder
        self.folder.mkdir(exist_ok=True)
        self._is_sglang = is_sglang
        self._faults = faults
        self.engines = engines

    @asynccontextmanager
    async def serve(self, _interrupt: asyncio.Event) -> AsyncIterator[Up]:
        started = with_base_model_of_adapter(self.server)
        fault = self._faults.get(len(self.engines), "")
        engine = Engine(started.checkpoint, started.name, fault, is_sglang=self._is_sglang)
        self.engines.append(engine)
        with http_in_a_thread(handler_of(engine)) as url:
            yield Up(cast("Any", Alive()), f"{url}/v1")


async def held(servers: list[Server], dies_at: int = -1, **of_engine: Any) -> list[tuple[list[int], int]]:
    """What a kept server held when it was handed out for each of these, and how many were started by then.
    The server of number ``dies_at`` is down when the next one is due."""
    found, engines = [], list[Engine]()
    async with aclosing(KeptServer()) as kept:
        for number, server in enumerate(servers):
            starting = cast("WorkerServer", Started(server, engines, **of_engine))
            async with kept.serve(starting, asyncio.Event()) as up:
                found.append((engines[-1].holds(up.name), len(engines)))
                if number == dies_at:
                    up.process.down.set()
    return found


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "base", 9)


def adapters_of(base: Path, count: int) -> list[Path]:
    return [write_checkpoint(base.with_name(f"step_{n}"), n, base=str(base)) for n in range(count)]


def servers_of(checkpoints: list[Path]) -> list[Server]:
    return [
        Server(
            template="x {port}",
            checkpoint=str(path),
            name=path.name,
            serves_adapters=True,
            folder=path.with_name("slot_0"),
        )
        for path in checkpoints
    ]


def weights_with(base: Path, adapters: list[Path]) -> list[list[int]]:
    return [[*weights_in(str(base)), *weights_in(str(path))] for path in adapters]


@pytest.mark.parametrize("is_sglang", [False, True])
async def test_adapters_are_served_under_their_own_names(base: Path, is_sglang: bool) -> None:
    adapters = adapters_of(base, 4)
    assert [why_incomplete(path) for path in adapters] == [None] * 4
    found = await held(servers_of([base, *adapters]), is_sglang=is_sglang)
    assert [weights for weights, _ in found] == [weights_in(str(base)), *weights_with(base, adapters)]
    # The first adapter of a server is as after a start; the first swap is compared with that of another one.
    assert [starts for _, starts in found] == [1, 1, 2, 2, 2]


@pytest.mark.parametrize("is_sglang", [False, True])
async def test_the_first_swap_of_a_later_server_is_compared_too(base: Path, is_sglang: bool) -> None:
    """The third server keeps a part of the old weights at every load; those before it do not."""
    adapters = adapters_of(base, 6)
    found = await held(servers_of(adapters), dies_at=2, faults={2: "left"}, is_sglang=is_sglang)
    assert [weights for weights, _ in found] == weights_with(base, adapters)
    assert [starts for _, starts in found] == [1, 2, 2, 3, 4, 5]


@pytest.mark.parametrize("is_sglang", [False, True])
@pytest.mark.parametrize("fault", ["stale", "left", "fails", "mute"])
async def test_a_server_that_loads_no_second_adapter_is_restarted(
    base: Path, fault: str, is_sglang: bool
) -> None:
    adapters = adapters_of(base, 4)
    found = await held(servers_of(adapters), faults=dict.fromkeys(range(4), fault), is_sglang=is_sglang)
    assert [weights for weights, _ in found] == weights_with(base, adapters)
    assert [starts for _, starts in found] == [1, 2, 3, 4]


async def test_no_adapter_gets_a_name_that_the_server_has_had(base: Path) -> None:
    """vLLM keeps prompts' prefixes by an adapter's name, and would read back those of other weights: where
    all are served under one name, or one that was overwritten is served again under its own."""
    loaded: list[str] = []
    engines = list[Engine]()
    post = Engine.post

    def noting(engine: Engine, path: str, body: Any) -> Any:
        if path.endswith("/load_lora_adapter"):
            loaded.append(f"{id(engine)} {body['lora_name']}")
        return post(engine, path, body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "post", noting)
        async with aclosing(KeptServer()) as kept:
            for server in servers_of(adapters_of(base, 4)):
                same = msgspec.structs.replace(server, name="policy")
                async with kept.serve(cast("WorkerServer", Started(same, engines)), asyncio.Event()):
                    pass
    assert len(engines) == 2
    assert len(loaded) == 1 + 1 + 2 + 1  # a start each, the swap that is compared before the third, a swap
    assert len(set(loaded)) == len(loaded)


async def test_an_adapter_of_another_base_is_a_restart(base: Path) -> None:
    other = write_checkpoint(base.with_name("other"), 8)
    adapters = [*adapters_of(base, 3), write_checkpoint(base.with_name("of_other"), 5, base=str(other))]
    found = await held(servers_of(adapters))
    assert [starts for _, starts in found] == [1, 2, 2, 3]
    assert found[-1][0] == [*weights_in(str(other)), *weights_in(str(adapters[-1]))]


async def test_a_server_that_cannot_load_adapters_is_told(base: Path) -> None:
    with pytest.raises(ServerDown, match=r"does not load it: /v1/load_lora_adapter failed: 404"):
        await held(servers_of(adapters_of(base, 1)), faults={0: "lacks"})


class Swapped(Sweeping):
    """Sweeps of adapters."""

    def server_command(self) -> str:
        script = Path(__file__).with_name("swap_server.py")
        return f"{shlex.join([sys.executable, str(script)])} {{port}} {{checkpoint}} {{name}}"

    path = ""

    def environment(self) -> dict[str, str]:
        return super().environment() | ({"PATH": self.path} if self.path else {})

    def prepared(self, base: Path, steps: int) -> None:
        for step in range(1, steps + 1):
            write_checkpoint(self.checkpoints / f"step_{step}", step, base=str(base))

    def texts(self, step: int) -> list[str]:
        return sorted(answer["response"] for answer in self.answers(step, "ifeval"))

    def starts(self, *steps: int) -> int:
        """Of servers, by what the workers report."""
        folders = (self.out / "sweep" / "workers" / f"step_{step}" / "result.json" for step in steps)
        return sum(json.loads(file.read_text())["starts"] for file in folders)


@pytest.mark.process
async def test_a_sweep_with_one_server_has_the_answers_of_one_with_many(tmp_path: Path, base: Path) -> None:
    sweeping = Swapped(tmp_path)
    sweeping.prepared(base, 3)
    ended = await sweeping.run("--swap", "lora", "--base-model", base)
    assert ended.code == 0, ended.err
    asked = [json.dumps([{"role": "user", "content": f"Say {n}."}]) for n in range(sweeping.prompts)]
    for step in range(4):
        started = Engine(str(base), "x")
        if step:
            started.adapters["x"] = weights_in(str(sweeping.checkpoints / f"step_{step}"))
        assert sweeping.texts(step) == sorted(started.answer("x", messages) for messages in asked)
    assert sweeping.starts(0, 1, 2, 3) == 2
    assert not list((sweeping.out / "sweep" / "workers").glob("*/server.json"))


@pytest.mark.process
async def test_an_adapter_that_would_be_served_as_a_model_is_refused(tmp_path: Path) -> None:
    sweeping = Swapped(tmp_path)
    write_checkpoint(sweeping.checkpoints / "step_1", 1, base="Qwen/Qwen3-8B")
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    sweeping.path = f"{program.parent}:{os.environ['PATH']}"
    ended = await sweeping.run("--server-command", "vllm")
    assert ended.code == 3
    assert "step_1 is a LoRA adapter: --swap lora serves it on its base model" in ended.err


@pytest.mark.process
async def test_a_kept_server_ends_with_its_worker_and_the_sweep_goes_on(tmp_path: Path, base: Path) -> None:
    sweeping = Swapped(tmp_path, prompts=40)
    sweeping.prepared(base, 3)
    process = sweeping.start("--swap", "lora")
    place = sweeping.out / "sweep" / "workers" / "slot_0"
    while not (sweeping.answers(2, "ifeval") and (record := read_server_record(place)) and record.group):
        assert process.poll() is None
        await asyncio.sleep(0.01)
    os.kill(record.worker, signal.SIGKILL)
    ended = Ended(process.wait(), *await process.output())
    assert ended.code == 0, ended.err
    assert gone(record)
    for step in (1, 2, 3):
        assert len(sweeping.answers(step, "ifeval")) == 40
    assert len({str(sweeping.texts(step)) for step in (1, 2, 3)}) == 3


def test_what_cannot_be_swapped_is_refused(tmp_path: Path, base: Path, coeval: Command) -> None:
    sweeping = Swapped(tmp_path)
    sweeping.prepared(base, 1)
    for words, said in (
        (("--engine", "slurm"), "--swap lora needs --engine local"),
        (("--server-command", "transformers"), "`transformers serve` cannot do that"),
        (("--external", "http://127.0.0.1:9/v1"), "--swap is for servers that the sweep starts"),
    ):
        ended = coeval(*sweeping.flags("--swap", "lora", *words))
        assert ended.code == 1
        assert said in ended.err
