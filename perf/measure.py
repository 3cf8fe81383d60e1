"""Measuring whole processes: wall time, CPU time and peak memory, from start to exit."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class LeftOut(Exception):
    """A scenario lacks a program that it measures."""


class Cost(NamedTuple):
    """Of one process: seconds of wall clock and of CPU (user and system), peak resident MB."""

    wall_s: float
    cpu_s: float
    rss_mb: float
    code: int


def environment() -> dict[str, str]:
    """This environment, with bytecode kept: it is start-up that is measured, not compiling."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    }


def run(command: Sequence[str], folder: Path, *, codes: Sequence[int] = (0,)) -> Cost:
    """Run a command in a folder and account for it alone.

    Raises
    ------
    RuntimeError
        it ended with another exit code than ``codes``; the message holds the end of its output.
    """
    with (folder / "output.txt").open("wb") as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, env=environment())
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in codes:
        raise RuntimeError(
            f"{command} ended with {process.returncode}:\n{(folder / 'output.txt').read_text()[-3000:]}"
        )
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, process.returncode)


@contextmanager
def serving(latency_s: float, *, tell_first: Path | None = None) -> Iterator[str]:
    """The cheap server in a process of its own; its base URL. ``tell_first``: see `perf.server`."""
    command = [sys.executable, "-m", "perf.server", "--latency", str(latency_s)]
    command += ["--tell-first", str(tell_first)] if tell_first else []
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)


def experiment(
    name: str, models: Mapping[str, Mapping[str, object]], tasks: int, total: int, **settings: object
) -> str:
    """An experiment file: each model's entry by name, ``tasks`` tasks of ``total`` items per teacher."""
    import msgspec

    entries = [{"name": model, **entry} for model, entry in models.items()]
    task = {
        "description": "Explain why trees grow tall.",
        "output_description": "A paragraph.",
        "target_attributes": {"kind": ["oak", "pine", "redwood"], "place": ["hill", "coast"]},
        "sampling": {"target": [1, 2], "total": total},
        "rubric": {"quality": "It is right.", "style": "It reads well."},
    }
    data = {
        "models": entries,
        "tasks": [{"name": f"task-{n}", **task} for n in range(1, tasks + 1)],
        "experiment": {"id": name, "storage_folder": "runs", **settings},
    }
    return msgspec.json.encode(data).decode()


def coeval(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "coeval", *arguments]
