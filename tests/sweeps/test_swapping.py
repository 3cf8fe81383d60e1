"""``--swap``: one server for many checkpoints, asked where its answers show that it holds the right one."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shlex
import signal
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from cli.eval_process import Finished
from cli.invoked import Command
from swap_server import Engine, handler_of, weights_in, write_checkpoint
from sweeping import Sweeping
from workers import gone

from coeval.core.errors import ServerDown
from coeval.sweeps.checkpoints import what_lacks
from coeval.sweeps.server_process import read_record
from coeval.sweeps.swapping import alike, as_started
from coeval.sweeps.worker_files import Server, WorkerCount
from coeval.sweeps.worker_run import KeptServer, Up, WorkerServer


class Alive:
    """A server's process, as far as a kept server looks at it."""

    def __init__(self) -> None:
        self.down = asyncio.Event()


class Started:
    """Starts servers of this process: a cold start holds all of what it is told to load."""

    key = None

    def __init__(self, server: Server, **of_engine: Any) -> None:
        self.server = server
        self.count = WorkerCount()
        assert server.folder is not None
        self.folder = server.folder
        self.folder.mkdir(exist_ok=True)
        self._of_engine = of_engine
        self.engines: list[Engine] = of_engine.pop("engines")

    @asynccontextmanager
    async def up(self, _interrupt: asyncio.Event) -> AsyncIterator[Up]:
        started = as_started(self.server)
        engine = Engine(started.checkpoint, started.name, **self._of_engine)
        self.engines.append(engine)
        http = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(engine))
        threading.Thread(target=http.serve_forever, args=(0.005,), daemon=True).start()
        try:
            yield Up(cast("Any", Alive()), f"http://127.0.0.1:{http.server_port}/v1")
        finally:
            await asyncio.to_thread(http.shutdown)
            http.server_close()


async def held(servers: list[Server], **of_engine: Any) -> list[tuple[list[int], int]]:
    """What a kept server held when it was handed out for each of these, and how many were started by then."""
    found, engines = [], list[Engine]()
    async with aclosing(KeptServer()) as kept:
        for server in servers:
            starting = cast("WorkerServer", Started(server, engines=engines, **of_engine))
            async with kept.up(starting, asyncio.Event()) as up:
                found.append((engines[-1].holds(up.name), len(engines)))
    return found


def servers_of(folder: Path, swap: Any, checkpoints: list[Path]) -> list[Server]:
    return [
        Server(template="x {port}", checkpoint=str(path), name=path.name, swap=swap, folder=folder / "slot_0")
        for path in checkpoints
    ]


@pytest.mark.parametrize("is_sglang", [False, True])
async def test_reloaded_weights_are_those_of_a_cold_start(tmp_path: Path, is_sglang: bool) -> None:
    checkpoints = [write_checkpoint(tmp_path / f"step_{n}", n) for n in range(4)]
    found = await held(servers_of(tmp_path, "reload", checkpoints), is_sglang=is_sglang)
    assert [weights for weights, _ in found] == [weights_in(str(path)) for path in checkpoints]
    assert [starts for _, starts in found] == [1, 2, 2, 2]  # the first swap is compared with a cold start


@pytest.mark.parametrize("is_sglang", [False, True])
async def test_adapters_are_served_under_their_own_names(tmp_path: Path, is_sglang: bool) -> None:
    base = write_checkpoint(tmp_path / "base", 9)
    adapters = [write_checkpoint(tmp_path / f"step_{n}", n, base=str(base)) for n in range(3)]
    assert [what_lacks(path) for path in adapters] == [None] * 3
    found = await held(servers_of(tmp_path, "lora", [base, *adapters]), is_sglang=is_sglang)
    of_base = weights_in(str(base))
    assert [weights for weights, _ in found] == [
        of_base,
        *([*of_base, *weights_in(str(path))] for path in adapters),
    ]
    assert [starts for _, starts in found] == [1, 2, 2, 2]


async def test_no_adapter_gets_a_name_that_the_server_has_had(tmp_path: Path) -> None:
    """vLLM keeps prompts' prefixes by an adapter's name, and would read back those of other weights: where
    all are served under one name, or one that was overwritten is served again under its own."""
    base = write_checkpoint(tmp_path / "base", 9)
    adapters = [write_checkpoint(tmp_path / f"step_{n}", n, base=str(base)) for n in range(3)]
    servers = servers_of(tmp_path, "lora", adapters)
    loaded: list[str] = []
    engines = list[Engine]()
    post = Engine.post

    def noting(engine: Engine, path: str, query: Any, body: Any) -> Any:
        if path.endswith("/load_lora_adapter") and "unload" not in path:
            loaded.append(f"{id(engine)} {body['lora_name']}")
        return post(engine, path, query, body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "post", noting)
        async with aclosing(KeptServer()) as kept:
            for server in servers:
                same = msgspec.structs.replace(server, name="policy")
                async with kept.up(cast("WorkerServer", Started(same, engines=engines)), asyncio.Event()):
                    pass
    assert len(engines) == 2
    assert len(loaded) == 1 + 3 + 1 + 3  # a start, a swap, the cold start that proves it, a swap
    assert len(set(loaded)) == len(loaded)


async def test_another_architecture_tokenizer_or_base_is_a_restart(tmp_path: Path) -> None:
    first = write_checkpoint(tmp_path / "a", 1)
    wider = write_checkpoint(tmp_path / "b", 2, config='{"hidden_size": 16}')
    other = write_checkpoint(tmp_path / "c", 3)
    (other / "tokenizer.json").write_text('{"added_tokens": []}')
    same = write_checkpoint(tmp_path / "d", 4, config='{"hidden_size": 8, "transformers_version": "5.0"}')
    for name in ("model.safetensors.index.json", "train_results.json", "trainer_state.json"):
        (same / name).write_text(name)
    pairs = {path.name: alike(str(first), str(path), "reload") for path in (wider, other, same)}
    assert pairs == {"b": False, "c": False, "d": True}
    assert not alike(str(first), "Qwen/Qwen3-8B", "reload")
    assert not alike(str(tmp_path / "gone"), str(first), "reload")
    adapters = [write_checkpoint(tmp_path / name, 5, base=name) for name in ("qwen", "llama")]
    assert not alike(str(adapters[0]), str(adapters[1]), "lora")
    found = await held(servers_of(tmp_path, "reload", [first, wider, other]))
    assert [starts for _, starts in found] == [1, 2, 3]
    assert [weights for weights, _ in found] == [weights_in(str(path)) for path in (first, wider, other)]


async def test_a_server_that_cannot_swap_is_restarted(tmp_path: Path) -> None:
    checkpoints = [write_checkpoint(tmp_path / f"step_{n}", n) for n in range(3)]
    found = await held(servers_of(tmp_path, "reload", checkpoints), swaps=False)
    assert [starts for _, starts in found] == [1, 2, 3]
    adapter = write_checkpoint(tmp_path / "adapter", 7, base=str(checkpoints[0]))
    with pytest.raises(ServerDown, match=r"does not load it: /v1/load_lora_adapter failed: 404"):
        await held(servers_of(tmp_path, "lora", [adapter]), swaps=False)


class Swapped(Sweeping):
    """Sweeps of checkpoints whose servers can swap weights."""

    def server_command(self) -> str:
        script = Path(__file__).with_name("swap_server.py")
        return f"{shlex.join([sys.executable, str(script)])} {{port}} {{checkpoint}} {{name}}"

    path = ""

    def environment(self) -> dict[str, str]:
        return super().environment() | ({"PATH": self.path} if self.path else {})

    def prepared(self, steps: int) -> None:
        for step in range(1, steps + 1):
            write_checkpoint(self.checkpoints / f"step_{step}", step)

    def texts(self, step: int) -> list[str]:
        return sorted(answer["response"] for answer in self.answers(step, "ifeval"))

    def starts(self, *steps: int) -> int:
        """Of servers, by what the workers report."""
        folders = (self.out / "sweep" / "workers" / f"step_{step}" / "result.json" for step in steps)
        return sum(json.loads(file.read_text())["starts"] for file in folders)


@pytest.mark.process
async def test_a_sweep_with_one_server_has_the_answers_of_one_with_many(tmp_path: Path) -> None:
    sweeping = Swapped(tmp_path)
    sweeping.prepared(3)
    ended = await sweeping.run("--swap", "reload")
    assert ended.code == 0, ended.err
    asked = [json.dumps([{"role": "user", "content": f"Say {n}."}]) for n in range(sweeping.prompts)]
    for step in (1, 2, 3):
        started = Engine(str(sweeping.checkpoints / f"step_{step}"), "x")
        assert sweeping.texts(step) == sorted(started.answer("x", messages) for messages in asked)
    assert sweeping.starts(1, 2, 3) == 2
    assert not list((sweeping.out / "sweep" / "workers").glob("*/server.json"))


@pytest.mark.process
async def test_a_sweep_of_adapters_on_their_base(tmp_path: Path) -> None:
    sweeping = Swapped(tmp_path)
    base = write_checkpoint(tmp_path / "base", 9)
    for step in (1, 2):
        write_checkpoint(sweeping.checkpoints / f"step_{step}", step, base=str(base))
    ended = await sweeping.run("--swap", "lora", "--base-model", base)
    assert ended.code == 0, ended.err
    assert len({str(sweeping.texts(step)) for step in range(3)}) == 3
    assert sweeping.starts(0, 1, 2) == 2


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
async def test_a_kept_server_ends_with_its_worker_and_the_sweep_goes_on(tmp_path: Path) -> None:
    sweeping = Swapped(tmp_path, prompts=40)
    sweeping.prepared(3)
    process = sweeping.start("--swap", "reload")
    place = sweeping.out / "sweep" / "workers" / "slot_0"
    while not (sweeping.answers(2, "ifeval") and (record := read_record(place)) and record.group):
        assert process.poll() is None
        await asyncio.sleep(0.01)
    os.kill(record.worker, signal.SIGKILL)
    ended = Finished(process.wait(), *await process.output())
    assert ended.code == 0, ended.err
    assert gone(record)
    for step in (1, 2, 3):
        assert len(sweeping.answers(step, "ifeval")) == 40
    assert len({str(sweeping.texts(step)) for step in (1, 2, 3)}) == 3


def test_what_cannot_be_swapped_is_refused(tmp_path: Path, coeval: Command) -> None:
    sweeping = Swapped(tmp_path)
    sweeping.prepared(1)
    for words, said in (
        (("--engine", "slurm"), "--swap reload needs --engine local"),
        (("--server-command", "transformers"), "`transformers serve` cannot do that"),
        (("--external", "http://127.0.0.1:9/v1"), "--swap is for servers that the sweep starts"),
    ):
        ended = coeval(*sweeping.flags("--swap", "reload", *words))
        assert ended.code == 1
        assert said in ended.err


FAULTS: list[dict[str, float]] = [
    {},
    {"stale": 1.0},
    {"left": 1.0},
    {"stale": 0.3},
    {"half": 0.3},
    {"fails": 0.2},
    {"stale": 0.2, "half": 0.2, "fails": 0.1},
    {"left": 1.0, "half": 0.2},
]


@pytest.mark.system
async def test_stale_and_half_loaded_weights_are_never_asked(tmp_path: Path) -> None:
    """500 trials of three checkpoints each, over all faults, both kinds of server, and both kinds of swap."""
    checkpoints = [write_checkpoint(tmp_path / f"step_{n}", n) for n in range(3)]
    adapters = [write_checkpoint(tmp_path / f"lora_{n}", n, base=str(checkpoints[0])) for n in range(3)]
    wrong, saved, swapped = 0, Counter[int](), Counter[str]()
    for trial in range(500):
        swap = ("reload", "lora")[trial % 2]
        faults = FAULTS[trial // 4 % len(FAULTS)]
        needed = adapters if swap == "lora" else checkpoints
        found = await held(
            servers_of(tmp_path, swap, needed),
            is_sglang=bool(trial // 2 % 2),
            faults=faults,
            random=random.Random(trial),
        )
        base = weights_in(str(checkpoints[0])) if swap == "lora" else []
        wrong += sum(
            weights != [*base, *weights_in(str(path))]
            for (weights, _), path in zip(found, needed, strict=True)
        )
        swapped[str(faults)] += found[-1][1] == 2
        saved[found[-1][1]] += 1
    assert wrong == 0
    assert swapped["{}"] >= 60, "a server without faults goes on"
    assert swapped[str(FAULTS[1])] == swapped[str(FAULTS[2])] == 0
    assert saved[2] + saved[3] == 500
