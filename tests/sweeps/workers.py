"""Workers for tests: a worker process over a real server, its task's prompts in a file."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from cli.eval_process import surroundings, write_prompts
from cli.warm_process import WarmProcess

from coeval.benchmarks.run.eval_spec import EvalSpec, TaskRequest
from coeval.core.model import ModelSpec
from coeval.core.records import SamplingParameters
from coeval.sweeps.server_process import ServerRecord, is_port_free, read_server_record
from coeval.sweeps.worker_files import (
    Server,
    Worker,
    WorkerResult,
    read_progress,
    read_result,
    replace_worker_files,
)

MODULE = "coeval.cli.eval_framework.worker_process"
KIND = "punctuation:no_comma"
LONG_S = 120.0
SIMULATE = f"{sys.executable} -m coeval simulate --port {{port}} --model {{name}}:skill=0.5"


def odd(*faults: str) -> str:
    """A template of `odd_server`, whose checkpoint is no matter."""
    return shlex.join([*odd_words("{port}"), *faults])


def odd_words(port: object) -> list[str]:
    return [sys.executable, str(Path(__file__).with_name("odd_server.py")), str(port)]


def a_worker(
    folder: Path, template: str | None = SIMULATE, *, prompts: int = 12, runs: int = 1, **of_server: Any
) -> Worker:
    """IFEval on some prompts of its own; answers in ``folder/out``."""
    file = write_prompts(folder / "prompts.jsonl", KIND, [f"Say {n}." for n in range(prompts)])
    place = folder / "workers" / "worker"
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
    worker = Worker(name="step_10", folder=place, evaluation=evaluation, server=server)
    replace_worker_files(worker)
    return worker


def requested_at(worker: Worker, url: str) -> Worker:
    """The same, of a server that the user runs."""
    tested = worker.evaluation.tested
    assert tested is not None
    tested = msgspec.structs.replace(tested, base_url=url)
    worker = msgspec.structs.replace(
        worker, evaluation=msgspec.structs.replace(worker.evaluation, tested=tested)
    )
    replace_worker_files(worker)
    return worker


class WorkerProcess:
    """A worker as its engine starts it, forked from a process that has loaded most of it."""

    def __init__(self, worker: Worker, env: Mapping[str, str] | None = None) -> None:
        self.worker = worker
        self.out, out = os.memfd_create("out"), os.open(os.devnull, os.O_WRONLY)
        reading, self._lifeline = os.pipe()
        self.process = WarmProcess(
            worker.folder,
            module=MODULE,
            env={**surroundings(worker.folder), **(env or {})},
            streams=[out, self.out, reading],
        )
        for descriptor in (out, reading):
            os.close(descriptor)

    def cut(self) -> None:
        """Whoever started it is gone."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
        self._lifeline = -1

    def end(self) -> int:
        code = self.process.wait()
        self.cut()
        self.said = os.pread(self.out, 1 << 16, 0).decode()
        os.close(self.out)
        return code

    def result(self) -> WorkerResult:
        """Of a worker that has ended in its own way."""
        assert self.end() == 0, self.said + self.log()
        result = read_result(self.worker)
        assert result is not None
        return result

    def log(self) -> str:
        file = self.worker.folder / "worker.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def until(self, true: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + LONG_S
        while not true():
            assert self.process.poll() is None, f"it ended before {what}: {self.log()}"
            assert time.monotonic() < until, f"never {what}: {self.log()}"
            time.sleep(0.01)

    def state(self) -> str:
        progress = read_progress(self.worker.folder)
        return progress.state if progress is not None else ""

    def record(self, known: Collection[str] = ()) -> ServerRecord:
        """Of its server, once that is started; not of those whose marks are known."""

        def found() -> ServerRecord | None:
            record = read_server_record(self.worker.folder)
            return record if record is not None and record.group and record.mark not in known else None

        self.until(lambda: found() is not None, "a server was started")
        record = found()
        assert record is not None
        return record


def answers(worker: Worker, run: int = 0) -> list[dict[str, Any]]:
    file = worker.evaluation.output / f"run_{run}" / "ifeval" / "responses.jsonl"
    return (
        [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    )


def good_ids(worker: Worker, run: int = 0) -> list[str]:
    return sorted(line["id"] for line in answers(worker, run) if line.get("status", "ok") == "ok")


def at_least(worker: Worker, needed: int) -> bool:
    return len(answers(worker)) >= needed


def left_of(record: ServerRecord) -> list[int]:
    """The living processes of the server's group, and those that bear its mark in any other."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            marked = record.mark.encode() in (folder / "environ").read_bytes()
            if marked or (state != "Z" and record.group and int(group) == record.group):
                found.append(int(folder.name))
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def gone(record: ServerRecord) -> bool:
    """Whether nothing of a server is left, nor of its port, in a while."""
    until = time.monotonic() + LONG_S
    while left_of(record) or not is_port_free("127.0.0.1", record.port):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
