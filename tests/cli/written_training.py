"""Training runs written as ``eval-framework --num-runs N`` leaves them: a folder for each checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from cli.written_output import output
from numpy.typing import NDArray

STRICT = "prompt_level_strict_accuracy"
SAMPLING = {"temperature": 0.7, "max_tokens": 2048}
JUDGE = {"model": "judge", "sampling": {"temperature": 0.0}, "parts": {"template": "t1", "seed": "1"}}

Scores = NDArray[np.float64]


def write_run(
    folder: Path,
    scores: Scores,
    *,
    task: str = "ifeval",
    metric: str = STRICT,
    unit: str = "share",
    **summary: Any,
) -> Path:
    """One sample of a task, ``scores`` of (items,), NaN where none; ``summary``: what differs in it."""
    there = {str(n): {metric: float(one)} for n, one in enumerate(scores) if np.isfinite(one)}
    output(folder, summary.pop("model", "m"), there, task=task)
    where = folder / task
    path = where / "summary.json"
    made = json.loads(path.read_text())
    made["metrics"] = {metric: {"value": float(np.nanmean(scores)), "n": len(there), "unit": unit}}
    made["task"] = summary.pop("summary_task", task)
    made |= {"inference": {"model": "m", "sampling": SAMPLING, "parts": {}}, "complete": True, "missing": {}}
    path.write_text(json.dumps(made | summary))
    answers = where / "responses.jsonl"
    lines = [json.loads(line) | {"response": "xxx"} for line in answers.read_text().splitlines()]
    answers.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def write_training(
    root: Path, by_step: Mapping[int, Scores], *, pattern: str = "step_{step}", **more: Any
) -> Path:
    """Checkpoints with scores of (items, samples)."""
    for step, scores in by_step.items():
        for run, of_run in enumerate(scores.T):
            write_run(root / pattern.replace("{step}", str(step)) / f"run_{run}", of_run, **more)
    return root


def drawn(means: Mapping[int, float], items: int, samples: int, seed: int = 0) -> dict[int, Scores]:
    """Verdicts by step, (items, samples): an item that is hard is hard for every checkpoint."""
    generator = np.random.default_rng(seed)
    hard = generator.normal(0, 0.2, (items, 1))
    return {
        step: (generator.random((items, samples)) < np.clip(mean + hard, 0.02, 0.98)).astype(np.float64)
        for step, mean in means.items()
    }
