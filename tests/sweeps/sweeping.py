"""Sweeps for tests: checkpoints that simulated models stand for, whose skill is their step in hundredths."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cli.eval_process import Finished, surroundings, write_prompts
from cli.warm_process import WarmProcess

from coeval.benchmarks.assets.library import Library, Presence
from coeval.simulation.server import make_app
from coeval.simulation.simulated_model import SimulatedModel
from coeval.simulation.traits import parse_model_option

JUDGE = "judge-1"
NO_COMMAS = "punctuation:no_comma"


def needs(*assets: str) -> None:
    """Skip where what a judged benchmark is made of was never fetched."""
    library = Library()
    if absent := [name for name in assets if library.presence(name)[0] is Presence.ABSENT]:
        pytest.skip(f"needs coeval datasets fetch {' '.join(absent)}")


@dataclass
class Sweeping:
    """A training run and its sweep into ``folder/out``. IFEval has ``prompts`` of its own."""

    folder: Path
    prompts: int = 6
    words: list[str] = field(default_factory=list)
    server_options: str = ""

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "run_a"

    def trained(self, *steps: int) -> None:
        """Checkpoints of these steps are there."""
        for step in steps:
            place = self.checkpoints / f"global_step_{step}" / "actor_hf"
            place.mkdir(parents=True)
            (place / "config.json").write_text("{}")
            (place / "model.safetensors").write_text("weights")

    def flags(self, *more: object) -> list[str]:
        """Those of a sweep of IFEval's own prompts; what comes later holds."""
        file = self.folder / "prompts.jsonl"
        if not file.exists():
            write_prompts(file, NO_COMMAS, [f"Say {n}." for n in range(self.prompts)])
        return [
            *("sweep", "--checkpoints", str(self.checkpoints), "--out", str(self.out)),
            *("--tasks", "ifeval", "--n-samples", "ifeval=2", "--task-option", f"ifeval-input={file}"),
            *("--server-command", self.server_command()),
            *self.words,
            *map(str, more),
        ]

    def server_command(self) -> str:
        script = self.folder / "serve.sh"
        if not script.exists():
            python = shlex.quote(sys.executable)
            options = f",{self.server_options}" if self.server_options else ""
            script.write_text(
                "#!/bin/sh\n"
                f'exec {python} -m coeval simulate --port "$2" --model "$1:skill=0.${{1#step_}}{options}"\n'
            )
            script.chmod(0o755)
        return f"{shlex.quote(str(script))} {{name}} {{port}}"

    def served_otherwise(self, options: str) -> None:
        """From the next start of a server on."""
        self.server_options = options
        (self.folder / "serve.sh").unlink(missing_ok=True)

    def environment(self) -> dict[str, str]:
        return surroundings(self.folder)

    def start(self, *more: object) -> WarmProcess:
        return WarmProcess(*self.flags(*more), cwd=self.folder, env=self.environment())

    async def run(self, *more: object) -> Finished:
        process = self.start(*more)
        written = await process.output()
        return Finished(process.wait(), *written)

    def journal(self) -> list[dict[str, Any]]:
        file = self.out / "sweep" / "jobs.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def concluded(self) -> list[tuple[int, str, int]]:
        """The jobs that are done, as often as the journal says so."""
        lines = self.journal()
        return sorted((x["step"], x["label"], x["run"]) for x in lines if x["state"] == "concluded")

    def value(self, step: int, task: str, run: int = 0) -> float:
        """The first figure that a task has."""
        summary = self.out / f"step_{step}" / f"run_{run}" / task / "summary.json"
        metrics = json.loads(summary.read_text())["metrics"]
        value: float = next(found for metric in metrics.values() if (found := metric["value"]) is not None)
        return value

    def answers(self, step: int, task: str, run: int = 0) -> list[dict[str, Any]]:
        file = self.out / f"step_{step}" / f"run_{run}" / task / "responses.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def set_aside(self, step: int, task: str) -> list[Path]:
        """Files of answers of other settings, of the first sample."""
        return list((self.out / f"step_{step}" / "run_0" / task).glob("responses.*-*.jsonl"))


@dataclass
class JudgeHost:
    """A simulated judge, and what it was asked."""

    url: str = ""
    requested: int = 0

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--judge-model", JUDGE, "--judge-base-url", self.url)


@asynccontextmanager
async def judge_host(models: Iterable[str] = (f"{JUDGE}:noise=0.05",)) -> AsyncIterator[JudgeHost]:
    host = JudgeHost()

    @web.middleware
    async def counted(request: web.Request, handler: Any) -> web.StreamResponse:
        host.requested += request.path.endswith("/completions")
        answer: web.StreamResponse = await handler(request)
        return answer

    app = make_app([SimulatedModel(parse_model_option(text, {})) for text in models])
    app.middlewares.append(counted)
    async with TestServer(app) as server:
        host.url = f"http://127.0.0.1:{server.port}/v1"
        yield host
