"""The same sweep here, on Ray and by Slurm: one table; and a worker of the cluster that is killed."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.eval_process import write_prompts
from fakes.ray_cluster import ray_cluster
from fakes.tiny_model import tiny_model

from coeval.benchmarks.assets.library import Library, Presence
from coeval.benchmarks.task_registry import benchmark_class

pytestmark = pytest.mark.system


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
    requested = [
        {"key": n, "prompt": f"Question {n}", "kwargs": [{}], "instruction_id_list": ["punctuation:no_comma"]}
        for n in range(N)
    ]
    (place / "prompts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in requested))
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
        reported = sweep.stderr.read()
    assert sweep.returncode == 0, reported
    assert answered(out) == [[str(n) for n in range(N)]] * 4
    assert list(workers_of(out)) == []


@pytest.mark.parametrize("part", ["gcs_server", "raylet"])
def test_a_sweep_ends_with_its_summary_where_its_own_ray_cluster_dies(
    folder: Path, tmp_path: Path, part: str
) -> None:
    """Ray says nothing of it, and would end this process after a minute."""
    out = tmp_path / "out"
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with subprocess.Popen(
        words(folder, out, "--engine", "ray", "--num-threads", "1", "--no-plot", latency_s=5.0),
        env={**environment, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as sweep:  # fmt: skip
        while not any(out.glob("step_*/run_*/*/responses.jsonl")) and sweep.poll() is None:
            time.sleep(0.05)
        [process] = processes_of(sweep.pid, f"/{part}")
        os.kill(process, signal.SIGKILL)
        said, warned = sweep.communicate(timeout=150)
    assert sweep.returncode == 3, warned
    assert f"{out}: 0 of 4 jobs done" in said
    assert "no more servers are started" in warned
    assert "2 more: left, since the Ray cluster no longer answers at" in " ".join(warned.split())
    assert list(workers_of(out)) == []


def processes_of(parent: int, program: str) -> list[int]:
    """The children of a process that run a program."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [
        int(child)
        for child in children
        if Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0].decode().endswith(program)
    ]


# A whole sweep over checkpoints of random weights, served by `transformers serve` on the CPU, to curves.
STEPS = (10, 20)


def run(*words: object) -> str:
    done = subprocess.run(
        [*COEVAL, *map(str, words)],
        env={**os.environ, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_random_checkpoints_are_served_answered_judged_and_drawn(tmp_path: Path) -> None:
    transformers = Path(sys.executable).with_name("transformers")
    if not transformers.is_file():
        pytest.skip("there is no command `transformers`: pip install '.[local]'")
    library = Library()
    absent = [
        name for name in benchmark_class("alpaca-eval").assets if library.presence(name)[0] is Presence.ABSENT
    ]
    tasks = ["ifeval"] if absent else ["ifeval", "alpaca-eval"]
    for step in STEPS:
        tiny_model(tmp_path / "ckpts" / f"global_step_{step}" / "actor_hf")
    prompts = write_prompts(tmp_path / "p.jsonl", "punctuation:no_comma", [f"Prompt {n}." for n in range(4)])
    serving = f"{transformers} serve {{checkpoint}} --host {{host}} --port {{port}} --device cpu"
    with subprocess.Popen(
        [*COEVAL, "simulate", "--port", "0", "--model", "judge"], stdout=subprocess.PIPE, text=True
    ) as judge:
        assert judge.stdout is not None
        url = next(word.rstrip(":") for word in judge.stdout.readline().split() if word.startswith("http"))
        out = tmp_path / "out"
        sweep = [
            "sweep", "--checkpoints", tmp_path / "ckpts", "--out", out, "--tasks", ",".join(tasks),
            "--n-samples", ",".join(f"{task}=2" for task in tasks), "--max-examples", 4, "--max-tokens", 16,
            "--task-option", f"ifeval-input={prompts}", "--server-command", serving,
            "--judge-model", "judge", "--judge-base-url", url,
        ]  # fmt: skip
        run(*sweep)
        run("sweep", "aggregate", "--out", out)
        run("sweep", "plot", "--runs", f"random={out}", "--plot-dir", out / "plots")
        judge.terminate()
    for task in tasks:
        for step in STEPS:
            written = json.loads((out / f"step_{step}" / task / "summary_agg.json").read_text())
            assert (written["n_runs"], written["n_items"]) == (2, 4)
            assert math.isfinite(written["mean"])
            assert written["sem"] is not None, "error bars"
        assert (out / "plots" / f"{task}.png").stat().st_size > 10_000
    said = [
        json.loads(line)
        for path in out.glob("step_*/run_*/ifeval/responses.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert len(said) == len(STEPS) * 2 * 4
    assert {line["model"] for line in said} == {
        f"{tmp_path}/ckpts/global_step_{step}/actor_hf@{step}" for step in STEPS
    }
