"""A training run evaluated by pasted commands: evaluations, both scripts, curves, aggregates, judges.

`vllm serve` is a script that starts simulated models, whose skill is their step in thousandths.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fakes.tiny_model import tiny_model

from coeval.benchmarks.assets.library import Library, Presence
from coeval.benchmarks.task_registry import TASKS, benchmark_class

ROOT = Path(__file__).resolve().parents[2]
STEPS = (120, 240, 360, 480, 600)
N = {"ifeval": 8, "ifbench": 8, "healthbench": 8, "writingbench": 4, "arena-hard": 1, "alpaca-eval": 1}
VLLM = """#!/bin/bash
# vllm serve CHECKPOINT --served-model-name NAME [--port PORT] …
echo "$CUDA_VISIBLE_DEVICES $2" >> "$SERVED"
while [ $# -gt 0 ]; do
  case $1 in --served-model-name) name=$2;; --port) port=$2;; esac
  shift
done
step=$(printf %03d "${name#step_}")
exec "$PYTHON" -m coeval simulate --port "$port" --model "$name:skill=0.$step${LATENCY:+,latency_s=$LATENCY}"
"""


class Place(NamedTuple):
    """A folder to paste commands into, with checkpoints of two runs in it."""

    folder: Path
    environment: dict[str, str]

    def paste(self, commands: str, code: int = 0, **variables: str) -> str:
        """What was said in the end; ``variables`` are exported before."""
        ended = subprocess.run(
            ["bash", "-euc", commands], cwd=self.folder, env=self.environment | variables,
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert ended.returncode == code, (commands, ended.stdout, ended.stderr)
        return ended.stdout + ended.stderr

    def start(self, command: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", command], cwd=self.folder, env=self.environment | variables,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip

    def read(self, path: str) -> Any:
        return json.loads((self.folder / path).read_text())

    @property
    def served(self) -> list[str]:
        """GPUs and checkpoint of each server that was started."""
        return (self.folder / "served.txt").read_text().splitlines()


def whole_checkpoint(place: Path) -> None:
    place.mkdir(parents=True)
    (place / "config.json").write_text("{}")
    (place / "model.safetensors").write_text("weights")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One host serves the model of the first commands and two judges."""
    folder = tmp_path_factory.mktemp("pasted")
    for name in ("examples", "tools"):
        shutil.copytree(ROOT / name, folder / name)
    for step in STEPS:
        whole_checkpoint(folder / "ckpts" / "run_a" / f"global_step_{step}" / "actor_hf")
    bin_ = folder / "bin"
    bin_.mkdir()
    for name, words in {
        "coeval": "-m coeval",
        "eval-framework": "-m coeval.cli.eval_framework",
        "python": "",
    }.items():
        (bin_ / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
    (bin_ / "vllm").write_text(VLLM)
    for program in bin_.iterdir():
        program.chmod(0o755)
    models = ("Qwen3-4B:skill=0.6", "flash:noise=0.05", "plus:noise=0.05,severity=0.3")
    flags = [word for model in models for word in ("--model", model)]
    with subprocess.Popen(
        [sys.executable, "-m", "coeval", "simulate", "--port", "0", *flags], stdout=subprocess.PIPE, text=True
    ) as host:
        assert host.stdout is not None
        url = host.stdout.readline().split(" at ")[1].split(": ")[0]
        yield Place(
            folder,
            os.environ
            | {
                "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
                "PYTHON": sys.executable,
                "SERVED": str(folder / "served.txt"),
                "JUDGE_MODEL": "flash",
                "JUDGE_BASE_URL": url,
                "COLUMNS": "120",
            },
        )
        host.terminate()


def needs_all_data() -> None:
    library = Library()
    names = [name for task in TASKS for name in benchmark_class(task).assets]
    if absent := [name for name in names if library.presence(name)[0] is Presence.ABSENT]:
        pytest.skip(f"needs coeval datasets fetch {' '.join(absent)}")


@pytest.mark.system
def test_a_first_look_at_one_model(place: Place, tmp_path: Path) -> None:
    """By a server, and in the own process."""
    needs_all_data()
    place.paste(
        f"""
eval-framework \\
  --tasks ifeval \\
  --model Qwen3-4B \\
  --base-url {place.environment["JUDGE_BASE_URL"]} \\
  --max-examples 4 \\
  --output-dir outputs/smoke
"""
    )
    summary = place.read("outputs/smoke/ifeval/summary.json")
    assert (summary["n_expected"], summary["complete"]) == (4, True)
    tiny_model(tmp_path / "Qwen" / "Qwen3-4B")
    place._replace(folder=tmp_path).paste(
        """
eval-framework \\
  --tasks ifeval \\
  --model Qwen/Qwen3-4B \\
  --local \\
  --max-examples 4 \\
  --output-dir outputs/smoke --device cpu --max-tokens 16
"""
    )
    answers = (tmp_path / "outputs" / "smoke" / "ifeval" / "responses.jsonl").read_text().splitlines()
    assert len(answers) == 4


@pytest.fixture(scope="module")
def swept(place: Place) -> Place:
    """Two training runs, by the script: one as it is, one with fewer samples and another judge."""
    needs_all_data()
    script = (place.folder / "examples" / "batch_eval.sh").read_text()
    for default, mine in {
        "CKPT_DIR 'checkpoints/run_a'": "CKPT_DIR 'ckpts/run_a'",
        "MAX_EXAMPLES ''": "MAX_EXAMPLES 2",
    }.items():
        assert default in script
        script = script.replace(default, mine)
    (place.folder / "my_eval.sh").write_text(script)
    place.paste("bash my_eval.sh", GPUS="0,1,2")
    place.paste(
        """
export MIN_INTERVAL_S=0.01          # ~100 QPS global cap
export EVAL_THROTTLE_STATE_PATH=$PWD/eval_framework_global_throttle.state
N_SAMPLES_HEALTHBENCH=4 N_SAMPLES_WRITINGBENCH=1 bash examples/batch_eval.sh
""",
        CKPT_DIR="ckpts/run_a", OUT_DIR="outputs/run_b", MAX_EXAMPLES="2", JUDGE_MODEL="plus", GPUS="0,1",
        RUN_PLOT="0", TASKS="healthbench, writingbench", STEPS="120,240,360,480,600",
    )  # fmt: skip
    return place


@pytest.mark.system
def test_a_training_run_by_the_script(swept: Place) -> None:
    for step in STEPS:
        for task, count in N.items():
            aggregate = swept.read(f"outputs/run_a/step_{step}/{task}/summary_agg.json")
            assert (aggregate["n_runs"], len(aggregate["per_run"])) == (count, count)
        for task, count in {"healthbench": 4, "writingbench": 1}.items():
            assert (
                len(list(swept.folder.glob(f"outputs/run_b/step_{step}/run_*/{task}/summary.json"))) == count
            )
        assert (swept.folder / "outputs" / "run_a" / "logs" / f"step_{step}.server.log").exists()
    low, high = (
        swept.read(f"outputs/run_a/step_{step}/writingbench/summary_agg.json") for step in (120, 600)
    )
    assert high["mean"] > low["mean"]
    pictures = {f"{name}{suffix}" for name in (*N, "overall", "all_tasks") for suffix in (".png", ".svg")}
    found = {path.name for path in (swept.folder / "outputs" / "run_a" / "plots").iterdir()}
    assert found == pictures | {"curves.html"}
    started = swept.served
    assert len(started) == 2 * len(STEPS), "one server for all tasks and samples of a checkpoint"
    assert {line.split()[0] for line in started} == {"0", "1", "2"}
    said = swept.paste("bash my_eval.sh", GPUS="0,1,2", RUN_PLOT="0")
    assert "outputs/run_a: nothing was missing" in said
    assert swept.served == started, "what is done starts no server"


@pytest.mark.system
def test_curves_of_both_runs_are_drawn(swept: Place) -> None:
    swept.paste(
        """
python tools/plot_training_curves.py \\
  --runs "run_a=outputs/run_a" \\
  --runs "run_b=outputs/run_b" \\
  --name-pattern "run_a=step_{step}" \\
  --name-pattern "run_b=step_{step}" \\
  --steps "120,240,360,480,600" \\
  --tasks "ifeval,ifbench,healthbench,writingbench,arena-hard,alpaca-eval" \\
  --plot-dir outputs/plots \\
  --show-errorbar ci95          # ci95 (1.96·SEM) | sem | std | none
"""
    )
    plots = swept.folder / "outputs" / "plots"
    for name in (*N, "all_tasks"):
        assert (plots / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    for label in ("run_a", "run_b"):
        assert label in (plots / "healthbench.svg").read_text()
        assert label in (plots / "curves.html").read_text()


@pytest.mark.process
def test_samples_are_put_together_by_hand(swept: Place) -> None:
    written = swept.folder / "outputs" / "run_a" / "step_120" / "ifeval" / "summary_agg.json"
    before = swept.read(str(written))
    written.unlink()
    swept.paste(
        """
python tools/aggregate_runs.py \\
  --out-dir outputs/run_a \\
  --steps   120,240,360,480,600 \\
  --tasks   ifeval,ifbench,healthbench,writingbench,arena-hard,alpaca-eval \\
  --n-samples ifeval=8,ifbench=8,healthbench=8,writingbench=4,arena-hard=1,alpaca-eval=1
"""
    )
    again = swept.read(str(written))
    assert {"mean", "std", "sem", "n_runs", "per_run"} <= again.keys()
    assert (again["mean"], again["per_run"]) == (before["mean"], before["per_run"])


@pytest.mark.system
def test_judges_of_the_same_answers_are_compared(swept: Place) -> None:
    """The other judge's folder is a copy that was judged again: `RUN_INFERENCE=0` asks no checkpoint."""
    shutil.copytree(swept.folder / "outputs" / "run_b", swept.folder / "outputs" / "qwen3-4B-judge-qwen-plus")
    shutil.copytree(swept.folder / "outputs" / "run_b", swept.folder / "outputs" / "qwen3-4B")
    started = swept.served
    swept.paste(
        "RUN_INFERENCE=0 RUN_PLOT=0 bash examples/batch_eval.sh",
        CKPT_DIR="ckpts/run_a", OUT_DIR="outputs/qwen3-4B", MAX_EXAMPLES="2", JUDGE_MODEL="flash",
        TASKS="healthbench,writingbench", N_SAMPLES_HEALTHBENCH="4", N_SAMPLES_WRITINGBENCH="1",
    )  # fmt: skip
    assert swept.served == started
    said = swept.paste(
        """
python tools/judge_compare.py \\
  --judges flash=outputs/qwen3-4B \\
  --judges plus=outputs/qwen3-4B-judge-qwen-plus \\
  --out outputs/judge_compare.json
"""
    )
    assert "flash" in said
    assert "plus" in said
    assert swept.read("outputs/judge_compare.json")["tasks"]


@pytest.mark.system
def test_one_model_over_several_gpus_from_anywhere(place: Place) -> None:
    """The copy lies elsewhere, and paths have spaces in them; the shards are one task in the end."""
    needs_all_data()
    apart = place.folder / "some where"
    whole_checkpoint(apart / "my model")
    shutil.copy(place.folder / "examples" / "shard_parallel_eval.sh", apart)
    before = len(place.served) if (place.folder / "served.txt").exists() else 0
    place._replace(folder=apart).paste(
        "bash ./shard_parallel_eval.sh",
        MODEL="my model", OUT_DIR="its results", GPUS="0,1,2,3", TP_SIZE="2", MAX_EXAMPLES="5",
        TASKS="ifeval,ifbench", N_SAMPLES_IFEVAL="2",
    )  # fmt: skip
    assert sorted(line.split()[0] for line in place.served[before:]) == ["0,1", "2,3"]
    for task, run in (("ifeval", 0), ("ifeval", 1), ("ifbench", 0)):
        folder = apart / "its results" / "step_0" / f"run_{run}" / task
        summary = json.loads((folder / "summary.json").read_text())
        assert (summary["n_expected"], summary["complete"]) == (5, True)
        assert not (folder / "shards").exists()
    assert (apart / "its results" / "logs").is_dir()


def of_server(place: Path) -> list[int]:
    """Processes that serve a checkpoint below a folder, or evaluate into one."""
    found = []
    for line in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = line.read_bytes()
        except OSError:
            continue
        if f"SERVED={place / 'served.txt'}".encode() in environment:
            found.append(int(line.parent.name))
    return found


@pytest.mark.system
def test_ctrl_c_of_a_script_ends_all_of_it(place: Place) -> None:
    needs_all_data()
    process = place.start(
        "bash examples/batch_eval.sh",
        CKPT_DIR="ckpts/run_a", OUT_DIR="outputs/stopped", TASKS="ifeval", GPUS="0,1", LATENCY="0.5",
        SERVED=str(place.folder / "stopped" / "served.txt"), NUM_THREADS="2",
    )  # fmt: skip
    (place.folder / "stopped").mkdir()
    answers = place.folder / "outputs" / "stopped"
    try:
        while not any(answers.glob("step_*/run_*/*/responses.jsonl")) and process.poll() is None:
            time.sleep(0.05)
        assert len(of_server(place.folder / "stopped")) > 2
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert "the same command resumes" in said
    assert of_server(place.folder / "stopped") == []


@pytest.mark.system
@pytest.mark.parametrize("script", ["batch_eval.sh", "shard_parallel_eval.sh"])
def test_a_judge_that_lacks_is_named_as_the_script_names_it(place: Place, script: str) -> None:
    """With the three variables alone that a user is told to set; nothing is served."""
    alone = "CKPT_DIR=ckpts/run_a OUT_DIR=outputs/alone STEPS=120"
    for lacks in ("JUDGE_MODEL=", "JUDGE_BASE_URL="):
        said = place.paste(f"{alone} {lacks} bash examples/{script}", 1)
        assert said.startswith(
            "healthbench,writingbench,arena-hard,alpaca-eval: these tasks need a judge. Set"
        )
        assert "JUDGE_MODEL=gpt-4.1 JUDGE_BASE_URL=https://" in said
        assert "RUN_JUDGE=0" in said
        assert "--" not in said
    without = f"{alone} JUDGE_MODEL= JUDGE_BASE_URL= GPUS=0 MAX_EXAMPLES=2 MODEL=ckpts"
    for how in ("TASKS=ifeval", "RUN_JUDGE=0"):
        assert "need a judge" not in place.paste(f"{without} {how} bash examples/{script} --dry-run")
    judge = f"--judge-model flash --judge-base-url {place.environment['JUDGE_BASE_URL']}"
    assert "need a judge" not in place.paste(f"{without} bash examples/{script} --dry-run {judge}")
    assert not (place.folder / "outputs" / "alone").exists()


@pytest.mark.process
def test_a_setting_that_makes_no_sense_is_told(place: Place) -> None:
    assert "RUN_JUDGE=yes: give 1, or 0" in place.paste("RUN_JUDGE=yes bash examples/batch_eval.sh", 1)
    said = place.paste("bash examples/batch_eval.sh", 127, COEVAL="no-such-coeval")
    assert "no-such-coeval is not in the PATH" in said


EDITED = {
    "NAME_PATTERN": "global_step_{step}/actor_hf",
    "SERVER_COMMAND": "./serve.sh {checkpoint} {name} {port}",
    "OUT_DIR": "its $results/{a}",
    "KEYS": "",
}


@pytest.mark.process
@pytest.mark.parametrize("script", ["batch_eval.sh", "shard_parallel_eval.sh"])
@pytest.mark.parametrize("by_environment", [False, True])
def test_a_setting_is_passed_on_as_it_is_written(tmp_path: Path, script: str, by_environment: bool) -> None:
    """Braces and blanks in it, in the script's settings or in the environment."""
    lines = (ROOT / "examples" / script).read_text().splitlines()
    for name, value in () if by_environment else EDITED.items():
        lines = [
            f"setting {name} '{value}'" if line.startswith(f"setting {name} ") else line for line in lines
        ]
    (tmp_path / script).write_text("\n".join(lines))
    command = tmp_path / "coeval"
    command.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    command.chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "COEVAL": str(command), "RUN_JUDGE": "0"}
    environment |= EDITED if by_environment else {}
    said = subprocess.run(
        ["bash", str(tmp_path / script)], env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    passed = dict(pairwise(said))
    flags = {
        f"--{name.lower().replace('_', '-')}".replace("-dir", ""): value for name, value in EDITED.items()
    }
    if script == "shard_parallel_eval.sh":
        del flags["--name-pattern"]
    assert flags.pop("--keys") == ""
    assert "--keys" not in passed
    assert {flag: passed[flag] for flag in flags} == flags
    assert (passed["--log-dir"], passed["--tp-size"]) == (f"{EDITED['OUT_DIR']}/logs", "1")
