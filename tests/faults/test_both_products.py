"""The same faults for both programs: what is finished stays, what is missing is told, the same command goes
on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cli.eval_process import COMMAND, surroundings, write_prompts
from fakes.openai_chat import Answer, Behaviour, Fault, fake
from ruamel.yaml import YAML

N = 60
KEY = "sk-planted-4f8Kq2Zr7Lw9Xb3T"


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Product:
    """A program in a folder of its own, on a model behind a host."""

    def __init__(self, name: str, folder: Path, url: str) -> None:
        self.name, self.folder, self.url = name, folder, url
        if name == "eval-framework":
            self.output = folder / "outputs"
            prompts = [f"Say {n}." for n in range(N)]
            self.prompts = write_prompts(folder / "prompts.jsonl", "punctuation:no_comma", prompts)
        else:
            self.output = folder / "runs" / "e"
            self._configure(None)

    def _configure(self, max_calls: int | None) -> None:
        quota: dict[str, Any] = {"quota": {"m": {"max_calls": max_calls}}} if max_calls else {}
        config = {
            "models": [
                {
                    "name": "m", "interface": "vllm", "roles": ["student"],
                    "parameters": {"base_url": self.url, "max_concurrency": 8}, "access_key": KEY,
                },
                {"name": "own", "interface": "benchmark", "roles": ["teacher"]},
            ],
            "tasks": [{
                "name": "t", "description": "Say a number.", "output_description": "A number.",
                "label_attributes": ["digit"], "target_attributes": {"digit": ["one", "two"]},
                "sampling": {"target": [0, 0], "total": N}, "rubric": {}, "category": "benchmark",
            }],
            "experiment": {"id": "e", "storage_folder": str(self.folder / "runs"), **quota},
        }  # fmt: skip
        with (self.folder / "e.yaml").open("w") as file:
            YAML(typ="safe", pure=True).dump(config, file)
        items = self.output / "phase3_datapoints" / "t.own.datapoints.jsonl"
        items.parent.mkdir(parents=True, exist_ok=True)
        if not items.exists():
            attributes = {"sampled_target_attributes": {"digit": "one"}}
            lines = [{"id": f"{n}", "prompt": f"Say {n}.", **attributes} for n in range(N)]
            items.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def words(self, max_calls: int | None) -> list[str]:
        if self.name == "eval-framework":
            how = ["--tasks", "ifeval", "--ifeval-input", str(self.prompts), "--model", "m"]
            how += ["--base-url", self.url, "--api-key", KEY, "--num-threads", "8", "--top-k", "5"]
            return [*COMMAND, *how, *(["--max-calls", str(max_calls)] if max_calls else [])]
        self._configure(max_calls)
        again = ["--continue"] if (self.output / "meta.json").exists() else []
        return [sys.executable, "-m", "coeval", "run", "--config", str(self.folder / "e.yaml"), *again]

    def start(self, max_calls: int | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.words(max_calls), cwd=self.folder, env={**os.environ, **surroundings(self.folder)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, max_calls: int | None = None) -> Ended:
        return ended(self.start(max_calls))

    def answers(self) -> dict[str, dict[str, Any]]:
        """The good answers on disk."""
        found = {}
        for path in self.output.rglob("*responses.jsonl"):
            for line in path.read_text().splitlines():
                record = json.loads(line)
                if record.get("status", "ok") == "ok":
                    found[record["id"]] = record
        return found

    def errors(self) -> list[dict[str, Any]]:
        path = self.output / "run_errors.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def sent(self) -> int:
        counted: dict[str, Any] = json.loads((self.output / "usage.json").read_text())
        return int(counted["models"]["m"]["requests"])


def ended(process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in err
    assert "internal error" not in err
    assert "Logging error" not in err
    assert KEY not in out + err
    return Ended(process.returncode, out, err)


@pytest.fixture(params=["coeval run", "eval-framework"])
def product(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def good(_: list[dict[str, Any]]) -> Behaviour:
    return Answer("one")


async def in_thread(call: Callable[..., Ended], *arguments: Any) -> Ended:
    return await asyncio.to_thread(call, *arguments)


async def test_it_ends_well(product: str, tmp_path: Path) -> None:
    async with fake(reply=good, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        done = await in_thread(program.run)
        assert (done.code, len(program.answers()), program.errors()) == (0, N, [])
        assert program.sent() == len(server.asked) == N + 1, "the probe counts"
        again = await in_thread(program.run)
        assert (again.code, len(server.asked)) == (0, N + 1), "nothing is owed, nobody is asked"


async def test_a_key_that_is_refused_stops_it_before_anything_is_asked(product: str, tmp_path: Path) -> None:
    async with fake(
        reply=lambda _: Fault(401, f"Incorrect API key provided: {KEY}"), extra_fields=["top_k"]
    ) as server:
        program = Product(product, tmp_path, server.url)
        done = await in_thread(program.run)
    assert done.code == 2
    assert "401" in done.err
    assert len(server.asked) == 1
    assert program.answers() == {}


async def test_a_key_that_is_refused_on_the_way_stops_that_model(product: str, tmp_path: Path) -> None:
    """What was answered stays; the failures are listed; with the key mended the same command goes on."""
    broken, asked = True, 0

    def reply(_: list[dict[str, Any]]) -> Behaviour:
        nonlocal asked
        asked += 1
        return Fault(401, "no longer valid") if broken and asked > 20 else Answer("one")

    async with fake(reply=reply, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        done = await in_thread(program.run)
        assert done.code == 3
        assert "401" in done.err
        assert len(program.answers()) == 19
        assert {error["model"] for error in program.errors()} == {"m"}
        assert "401" in (program.output / "run.log").read_text()
        assert "What failed, and why: " in done.err
        assert len(server.asked) < N, "it was given up"
        broken = False
        again = await in_thread(program.run)
    assert (again.code, len(program.answers())) == (0, N)


async def test_a_ceiling_is_never_passed_and_is_told(product: str, tmp_path: Path) -> None:
    async with fake(reply=good, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        done = await in_thread(program.run, 25)
        assert done.code == 3
        assert "25 of the 25 requests" in done.out + done.err
        assert "max-calls" in (done.out + done.err).replace("max_calls", "max-calls")
        assert len(server.asked) == program.sent() == 25
        assert len(program.answers()) == 24
        again = await in_thread(program.run, 25)
        assert (again.code, len(server.asked)) == (3, 25)
        last = await in_thread(program.run, 2 * N)
        assert (last.code, len(program.answers())) == (0, N)


async def test_ctrl_c_keeps_what_is_finished(product: str, tmp_path: Path) -> None:
    def reply(_: list[dict[str, Any]]) -> Behaviour:
        time.sleep(0.02)
        return Answer("one")

    async with fake(reply=reply, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        process = program.start()
        await server.arrived(15)
        process.send_signal(signal.SIGINT)
        done = await in_thread(ended, process)
        assert done.code == 130
        kept = len(program.answers())
        assert 10 <= kept < N
        asked = len(server.asked)
        again = await in_thread(program.run)
        assert (again.code, len(program.answers())) == (0, N)
        assert len(server.asked) - asked <= N - kept + 1, "what was finished is not asked again"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    how = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    if sys.platform != "linux" or subprocess.run(how, check=False, capture_output=True).returncode:
        pytest.skip("this system lets nobody mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def remount(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=8m", str(folder)], check=True)


@pytest.mark.slow
async def test_a_full_disk_ends_it_with_one_message(product: str, small_disk: Path) -> None:
    async with fake(reply=lambda _: Answer("one " * 800), extra_fields=["top_k"]) as server:
        program = Product(product, small_disk, server.url)
        done = await in_thread(program.run)
        assert done.code == 1
        assert "is full" in done.err
        kept = set(program.answers())
        assert kept
        remount(small_disk)
        again = await in_thread(program.run)
    assert again.code == 0
    assert kept < set(program.answers())
    assert len(program.answers()) == N


async def test_a_log_that_is_no_file_is_named(product: str, tmp_path: Path) -> None:
    async with fake(reply=good, extra_fields=["top_k"]) as server:
        program = Product(product, tmp_path, server.url)
        (program.output / "run.log").mkdir(parents=True)
        done = await in_thread(program.run)
        assert done.code == 1
        assert "run.log: it is a folder, not a file" in done.err
        assert server.asked == []
