"""A whole sweep over checkpoints of random weights, served by `transformers serve` on the CPU, to curves."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli.eval_process import write_prompts
from fakes.tiny_model import tiny_model

from coeval.benchmarks.assets import Library, Presence
from coeval.benchmarks.task_registry import kind_of

pytestmark = pytest.mark.slow
COEVAL = (sys.executable, "-m", "coeval")
STEPS = (10, 20, 30)


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
        pytest.skip("there is no command `transformers`: pip install 'coeval[local]'")
    library = Library()
    absent = [name for name in kind_of("alpaca-eval").assets if library.presence(name)[0] is Presence.ABSENT]
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
