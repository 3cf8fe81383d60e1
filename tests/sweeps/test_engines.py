"""Workers as processes of this machine, as tasks of Ray, and as submitit's jobs: how they end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes.ray_cluster import ActorDiedError, DyingCluster, RaySystemError, ray_cluster

from coeval.benchmarks.run.eval_spec import EvalSpec
from coeval.core.errors import UsageError
from coeval.store.jsonl import running_process_start_time
from coeval.sweeps.engine import (
    LocalEngine,
    RayEngine,
    SweepEngine,
    WorkerSlot,
    cancel_leftover_jobs,
    join_or_start_ray,
    make_slots,
    open_slurm,
    wait_for_result,
)
from coeval.sweeps.worker_files import Worker, WorkerResult, read_result, replace_worker_files, write_result

STAND_IN = Path(__file__).with_name("stand_in_worker.py")
cluster = ray_cluster
KEY = "sk-of-the-tested-model"


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_KEY", "that of the shell")
    monkeypatch.setattr(
        "coeval.sweeps.engine.make_worker_command",
        lambda folder: (sys.executable, str(STAND_IN), str(folder)),
    )


@pytest.fixture(params=["ray", "slurm"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SweepEngine]:
    environment = {"MODEL_KEY": KEY, "OTHER": "not handed on"}
    if request.param == "ray":
        request.getfixturevalue("cluster")
        opened: SweepEngine = join_or_start_ray(2, None, environment)
    else:
        opened = open_slurm(1, 2, environment, tmp_path / "slurm", {"cluster": "local", "timeout_min": 5})
    yield opened
    await opened.aclose()


@pytest.fixture
def local() -> LocalEngine:
    return LocalEngine(make_slots(["0", "1", "GPU-2"], 2), os.environ)


def worker(tmp_path: Path, how: str) -> Worker:
    evaluation = EvalSpec(output=tmp_path / "out", tasks=())
    return Worker(name=how, folder=tmp_path / how, evaluation=evaluation, key_variable="MODEL_KEY")


def number_in(path: Path) -> int:
    return int(path.read_text() or 0) if path.exists() else 0


def written_below(folder: Path) -> str:
    files = (file for file in folder.rglob("*") if file.is_file())
    return "\n".join(file.read_bytes().decode(errors="replace") for file in files)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def there(path: Path) -> int:
    async with asyncio.timeout(60):
        while not (number := number_in(path)):  # noqa: ASYNC110  another process writes it
            await asyncio.sleep(0.05)
    return number


async def gone(pid: int) -> None:
    """A little later than its result."""
    async with asyncio.timeout(30):
        while running_process_start_time(pid) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def is_there(path: Path) -> bool:
    return path.exists()


def test_slots_are_whole_groups_of_gpus() -> None:
    assert make_slots(["0", "1", "2"], 2) == [WorkerSlot(0, ("0", "1"))]
    assert make_slots(["0", "1", "2", "3"], 1, 3) == [
        WorkerSlot(0, ("0",)),
        WorkerSlot(1, ("1",)),
        WorkerSlot(2, ("2",)),
    ]
    assert make_slots([], 1, 2) == [WorkerSlot(0), WorkerSlot(1)]


@pytest.mark.process
async def test_a_worker_that_is_killed_has_failed_whatever_an_earlier_one_told(
    local: LocalEngine, tmp_path: Path
) -> None:
    earlier = worker(tmp_path, "done")
    assert (await local.run(earlier, WorkerSlot(0))).end == "done"
    killed = Worker(name="crash", folder=earlier.folder, evaluation=earlier.evaluation)
    result = await local.run(killed, WorkerSlot(0))
    assert result.end == "failed"
    assert "SIGKILL" in result.problem
    assert str(earlier.folder / "worker.log") in result.problem


@pytest.mark.process
@pytest.mark.parametrize(("how", "times"), [("wait", 1), ("deaf", 2)])
async def test_cancelled_a_worker_ends_and_one_that_does_not_listen_is_killed_the_second_time(
    local: LocalEngine, tmp_path: Path, how: str, times: int
) -> None:
    running = asyncio.create_task(local.run(worker(tmp_path, how), WorkerSlot(0)))
    pid = await there(tmp_path / how / "pid")
    while how == "deaf" and not is_there(tmp_path / how / "deaf"):  # noqa: ASYNC110  another process writes it
        await asyncio.sleep(0.01)
    for _ in range(times):
        running.cancel()
        await asyncio.sleep(0.05)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert running_process_start_time(pid) is None


@pytest.mark.system
async def test_a_worker_has_its_gpus_and_its_key_and_tells_its_end(
    engine: SweepEngine, tmp_path: Path
) -> None:
    assert len(engine.slots) == 2
    result = await engine.run(worker(tmp_path, "done"), engine.slots[0])
    assert result.end == "done"
    key = tmp_path / "done" / "key"
    assert key.read_text() == KEY
    key.unlink()
    assert KEY not in written_below(tmp_path)
    if type(engine).__name__ == "RayEngine":
        assert len((tmp_path / "done" / "gpus").read_text().split(",")) == 2


@pytest.mark.system
async def test_a_worker_that_dies_without_a_word_has_failed(engine: SweepEngine, tmp_path: Path) -> None:
    result = await engine.run(worker(tmp_path, "crash"), engine.slots[0])
    assert result.end == "failed"
    assert "before" in result.problem
    assert "worker.log" in result.problem


@pytest.mark.system
async def test_cancelled_the_worker_ends_by_itself(engine: SweepEngine, tmp_path: Path) -> None:
    running = asyncio.create_task(engine.run(worker(tmp_path, "wait"), engine.slots[0]))
    pid = await there(tmp_path / "wait" / "pid")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await gone(pid)


@pytest.mark.process
async def test_a_worker_outlives_no_worker_that_is_killed(engine: SweepEngine, tmp_path: Path) -> None:
    """Its lifeline ends with whoever waits beside it; what it says then is its end."""
    running = asyncio.create_task(engine.run(worker(tmp_path, "wait"), engine.slots[0]))
    pid = await there(tmp_path / "wait" / "pid")
    os.kill(parent(pid), signal.SIGKILL)
    result = await running
    assert result.end == "interrupted"
    await gone(pid)


async def test_as_many_slots_as_the_cluster_has_gpus_for(cluster: Any) -> None:
    assert len(join_or_start_ray(1, None, {}).slots) == 4
    assert join_or_start_ray(1, 3, {}).slots == (WorkerSlot(0), WorkerSlot(1), WorkerSlot(2))
    with pytest.raises(UsageError, match=r"has 4 GPUs, and a slot takes 8 \(--tp-size\)"):
        join_or_start_ray(8, None, {})


@pytest.mark.parametrize("part", ["head", "node"])
async def test_a_cluster_that_is_dead_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Its tasks never end, and are not waited for; Ray, which would end this process, is left."""
    monkeypatch.setattr("coeval.sweeps.engine._LOOKS", 3)
    monkeypatch.setattr("coeval.sweeps.engine._LOOK_S", 0.1)
    async with DyingCluster() as dying:
        engine = RayEngine(dying, 1, 0, {}, ours=True)
        lost = asyncio.create_task(engine.wait_until_lost())
        running = asyncio.create_task(engine.run(worker(tmp_path, "wait"), engine.slots[0]))
        await asyncio.sleep(0.5)
        assert not lost.done()
        port = dying.port(part)
        await dying.end(part)
        async with asyncio.timeout(30):
            assert await lost == f"the Ray cluster no longer answers at 127.0.0.1:{port}"
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (dying.left, dying.cancelled, len(dying.tasks)) == (1, 0, 1)
        result = await engine.run(worker(tmp_path, "later"), engine.slots[0])
        assert (result.end, result.again, len(dying.tasks)) == ("failed", False, 1)


@pytest.mark.parametrize(
    "error",
    [
        RaySystemError("System error: Broken pipe"),
        ActorDiedError("The actor died unexpectedly"),
        ConnectionError("Ray Client is not connected"),
        ConnectionResetError("Connection reset by peer"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_cluster_that_takes_no_tasks_is_lost(tmp_path: Path, error: Exception) -> None:
    async with DyingCluster(error) as dying:
        engine = RayEngine(dying, 1, 0, {}, ours=False)
        result = await engine.run(worker(tmp_path, "wait"), engine.slots[0])
        said = f"the Ray cluster accepts no more tasks ({type(error).__name__}: {error})"
        assert (result.end, result.problem, result.again) == ("failed", said, False)
        async with asyncio.timeout(30):
            assert await engine.wait_until_lost() == said
        assert dying.left == 0, "who joined the cluster leaves it"


@pytest.mark.process
def test_jobs_of_a_sweep_that_was_killed_are_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their numbers, which submitit's files have; those that have ended are left."""
    reported = tmp_path / "told"
    program = tmp_path / "bin" / "scancel"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho $1 >> {reported}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    for name in ("41_submitted.pkl", "42_submitted.pkl", "41_0_result.pkl", "x_submitted.pkl"):
        (tmp_path / name).touch()
    cancel_leftover_jobs(tmp_path)
    cancel_leftover_jobs(tmp_path)
    assert reported.read_text() == "42\n"


async def test_what_a_worker_of_an_earlier_start_tells_late_is_not_its_successors(tmp_path: Path) -> None:
    earlier = msgspec.structs.replace(worker(tmp_path, "wait"), start="1")
    later = msgspec.structs.replace(earlier, start="2")
    replace_worker_files(later)
    write_result(earlier, WorkerResult(end="interrupted"))
    assert read_result(later) is None
    write_result(later, WorkerResult(end="done"))
    assert (await wait_for_result(later, "")).end == "done"


@pytest.mark.process
def test_a_machine_without_slurm_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--engine slurm"):
        open_slurm(1, None, {}, tmp_path, {})
