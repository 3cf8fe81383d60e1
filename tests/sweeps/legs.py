"""Legs for tests: a leg process over a real server, its task's prompts in a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cli.eval_process import surroundings, write_prompts

from coeval.benchmarks.run.eval_spec import EvalSpec, TaskRequest
from coeval.core.model import ModelSpec
from coeval.core.records import SamplingParameters
from coeval.sweeps.leg import Leg, LegResult, Server
from coeval.sweeps.leg_files import read_progress, read_result, write_leg
from coeval.sweeps.servers.process_group import is_marked, processes
from coeval.sweeps.servers.server_record import ServerRecord, read_record

KIND = "punctuation:no_comma"
LONG_S = 120.0
SIMULATE = f"{sys.executable} -m coeval simulate --port {{port}} --model {{name}}:skill=0.5"


def a_leg(
    folder: Path, template: str | None = SIMULATE, *, prompts: int = 12, runs: int = 1, **of_server: Any
) -> Leg:
    """IFEval on some prompts of its own; answers in ``folder/out``."""
    file = write_prompts(folder / "prompts.jsonl", KIND, [f"Say {n}." for n in range(prompts)])
    place = folder / "legs" / "leg"
    server = None
    if template is not None:
        given = {"checkpoint": "/ckpt/step_10", "name": "tiny", "wait_s": 0.05, **of_server}
        server = Server(template=template, **given)
    evaluation = EvalSpec(
        output=folder / "out",
        tasks=(TaskRequest(name="ifeval", given={"ifeval/prompts": file}, runs=tuple(range(runs))),),
        tested=ModelSpec(name="tiny", interface="vllm", model="tiny", max_concurrency=8),
        sampling=SamplingParameters(max_tokens=16),
        mode="inference",
        checkpoint="/ckpt/step_10@10",
        account=place / "account",
    )
    leg = Leg(name="step_10", folder=place, evaluation=evaluation, server=server)
    write_leg(leg)
    return leg


class LegProcess:
    """A leg as its engine starts it."""

    def __init__(self, leg: Leg, env: Mapping[str, str] | None = None) -> None:
        self.leg = leg
        self.process = subprocess.Popen(
            [sys.executable, "-m", "coeval.cli.sweep.leg_process", leg.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **surroundings(leg.folder), **(env or {})},
            start_new_session=True,
        )

    def cut(self) -> None:
        """Whoever started it is gone."""
        if self.process.stdin is not None:
            self.process.stdin.close()

    def end(self, within_s: float = LONG_S) -> int:
        code = self.process.wait(within_s)
        self.cut()
        if self.process.stderr is not None:
            self.process.stderr.close()
        return code

    def result(self) -> LegResult:
        """Of a leg that has ended by itself."""
        assert self.end() == 0, self.log()
        result = read_result(self.leg.folder)
        assert result is not None
        return result

    def log(self) -> str:
        return (self.leg.folder / "leg.log").read_text(errors="replace")

    def until(self, true: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + LONG_S
        while not true():
            assert self.process.poll() is None, f"it ended before {what}: {self.log()}"
            assert time.monotonic() < until, f"never {what}: {self.log()}"
            time.sleep(0.01)

    def state(self) -> str:
        progress = read_progress(self.leg.folder)
        return progress.state if progress is not None else ""

    def record(self) -> ServerRecord:
        """Of its server, once that is started."""
        self.until(lambda: (read_record(self.leg.folder) or NONE).group > 0, "a server was started")
        record = read_record(self.leg.folder)
        assert record is not None
        return record


NONE = ServerRecord(mark="", port=0)


def answers(leg: Leg, run: int = 0) -> list[dict[str, Any]]:
    file = leg.evaluation.output / f"run_{run}" / "ifeval" / "responses.jsonl"
    return (
        [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    )


def good_ids(leg: Leg, run: int = 0) -> list[str]:
    return sorted(line["id"] for line in answers(leg, run) if line.get("status", "ok") == "ok")


def left_of(record: ServerRecord) -> list[int]:
    """Processes of a server, looked for in another way than the product does where it can be."""
    return [pid for pid in processes() if is_marked(pid, record.mark, record.output)]
