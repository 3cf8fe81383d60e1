"""Workers as processes of this machine: how they end, and how they are ended."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from coeval.benchmarks.run.eval_spec import EvalSpec
from coeval.store.jsonl import started
from coeval.sweeps.engine import LocalEngine, WorkerSlot, local_slots
from coeval.sweeps.worker_files import Worker

STAND_IN = Path(__file__).with_name("stand_in_worker.py")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> LocalEngine:
    monkeypatch.setattr(
        "coeval.sweeps.engine.worker_command",
        lambda folder: (sys.executable, str(STAND_IN), str(folder)),
    )
    return LocalEngine(local_slots(["0", "1", "GPU-2"], 2), os.environ)


def worker(tmp_path: Path, how: str) -> Worker:
    folder = tmp_path / how
    return Worker(name=how, folder=folder, evaluation=EvalSpec(output=tmp_path / "out", tasks=()))


def is_there(path: Path) -> bool:
    return path.exists()


def test_slots_are_whole_groups_of_gpus() -> None:
    assert local_slots(["0", "1", "2"], 2) == [WorkerSlot(0, ("0", "1"))]
    assert local_slots(["0", "1", "2", "3"], 1, 3) == [
        WorkerSlot(0, ("0",)),
        WorkerSlot(1, ("1",)),
        WorkerSlot(2, ("2",)),
    ]
    assert local_slots([], 1, 2) == [WorkerSlot(0), WorkerSlot(1)]


@pytest.mark.process
async def test_a_worker_that_is_killed_has_failed_whatever_an_earlier_one_told(
    engine: LocalEngine, tmp_path: Path
) -> None:
    earlier = worker(tmp_path, "done")
    assert (await engine.run(earlier, WorkerSlot(0))).end == "done"
    killed = Worker(name="crash", folder=earlier.folder, evaluation=earlier.evaluation)
    result = await engine.run(killed, WorkerSlot(0))
    assert result.end == "failed"
    assert "SIGKILL" in result.problem
    assert str(earlier.folder / "worker.log") in result.problem


@pytest.mark.process
@pytest.mark.parametrize(("how", "times"), [("wait", 1), ("deaf", 2)])
async def test_cancelled_a_worker_ends_and_one_that_does_not_listen_is_killed_the_second_time(
    engine: LocalEngine, tmp_path: Path, how: str, times: int
) -> None:
    running = asyncio.create_task(engine.run(worker(tmp_path, how), WorkerSlot(0)))
    reported = tmp_path / how / ("deaf" if how == "deaf" else "pid")
    while not is_there(reported):  # noqa: ASYNC110  another process writes it
        await asyncio.sleep(0.01)
    pid = int((tmp_path / how / "pid").read_text())
    for _ in range(times):
        running.cancel()
        await asyncio.sleep(0.05)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert started(pid) is None
