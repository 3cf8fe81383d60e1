"""The same sweep here, on Ray and by Slurm: one table; and a worker of the cluster that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.ray_cluster import ray_cluster

pytestmark = pytest.mark.slow
cluster = ray_cluster
COEVAL = (sys.executable, "-m", "coeval")
TASK = "ifeval"
N = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints, three prompts of one's own, and the settings of an engine."""
    place = tmp_path_factory.mktemp("sweep")
    for step in (10, 20):
        checkpoint = place / "ckpts" / f"step_{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "config.json").write_text("{}")
        (checkpoint / "model.safetensors").write_text("")
    asked = [
        {"key": n, "prompt": f"Question {n}", "kwargs": [{}], "instruction_id_list": ["punctuation:no_comma"]}
        for n in range(N)
    ]
    (place / "prompts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in asked))
    (place / "slurm.yaml").write_text("engine: slurm\nslurm: {cluster: local, timeout_min: 5}\n")
    return place


def words(folder: Path, out: Path, *more: str, latency_s: float = 0.0) -> list[str]:
    serving = f"{sys.executable} -m coeval simulate --port {{port}} --latency {latency_s}"
    return [
        *COEVAL, "sweep", "--checkpoints", str(folder / "ckpts"), "--out", str(out), "--tasks", TASK,
        "--n-samples", f"{TASK}=2", "--task-option", f"ifeval-input={folder / 'prompts.jsonl'}",
        "--server-command", f"{serving} --model {{name}}:skill=0.5", *more,
    ]  # fmt: skip


def table(out: Path) -> dict[str, Any]:
    """What every sample of every checkpoint came to."""
    return {
        str(path.relative_to(out)): json.loads(path.read_text())["metrics"]
        for path in sorted(out.glob("step_*/run_*/*/summary.json"))
    }


def answered(out: Path) -> list[list[str]]:
    return [
        sorted(json.loads(line)["id"] for line in path.read_text().splitlines())
        for path in sorted(out.glob("step_*/run_*/*/responses.jsonl"))
    ]


def test_every_engine_comes_to_the_same_table(folder: Path, tmp_path: Path, cluster: Any) -> None:
    address = cluster.get_runtime_context().gcs_address
    ways = {
        "local": ["--slots", "2"],
        "ray": ["--engine", "ray"],
        "slurm": ["--config", str(folder / "slurm.yaml"), "--slots", "2"],
    }
    for name, how in ways.items():
        done = subprocess.run(
            words(folder, tmp_path / name, *how),
            env={**os.environ, "RAY_ADDRESS": address}, capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert len(table(tmp_path / "local")) == 4
    assert table(tmp_path / "ray") == table(tmp_path / "local") == table(tmp_path / "slurm")


def workers_of(out: Path) -> Iterator[int]:
    """The processes of a sweep's workers."""
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = place.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if "worker_process" in command and str(out) in command:
            yield int(place.parent.name)


def test_what_a_killed_worker_of_ray_left_is_done_by_another(
    folder: Path, tmp_path: Path, cluster: Any
) -> None:
    out = tmp_path / "out"
    address = cluster.get_runtime_context().gcs_address
    with subprocess.Popen(
        words(folder, out, "--engine", "ray", "--num-threads", "1", latency_s=0.5),
        env={**os.environ, "RAY_ADDRESS": address}, stderr=subprocess.PIPE, text=True,
    ) as sweep:  # fmt: skip
        while not any(out.glob("step_*/run_*/*/responses.jsonl")) and sweep.poll() is None:
            time.sleep(0.05)
        worker = next(workers_of(out))
        worker = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(worker, signal.SIGKILL)
        assert sweep.stderr is not None
        told = sweep.stderr.read()
    assert sweep.returncode == 0, told
    assert answered(out) == [[str(n) for n in range(N)]] * 4
    assert list(workers_of(out)) == []
