"""Output folders of ``eval-framework``, written file by file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def output(
    folder: Path,
    who: str,
    scores: Mapping[str, Mapping[str, float]],
    *,
    task: str = "ifeval",
    prompts: Mapping[str, str] | None = None,
    **summary: Any,
) -> Path:
    """What eval-framework leaves of a task: scores of items by metric; an item's prompt is its id."""
    where = folder / task
    where.mkdir(parents=True, exist_ok=True)
    requested = {key: (prompts or {}).get(key, key) for key in scores}
    answers = [
        {"id": key, "model": who, "response": "text", "input_hash": f"hash of {requested[key]}"}
        for key in scores
    ]
    lines = [{"id": key, "scores": found} for key, found in scores.items()]
    for name, records in (("responses", answers), ("scores", lines)):
        (where / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    names = dict.fromkeys(name for found in scores.values() for name in found)
    metrics = {name: {"value": 0.5, "n": len(scores), "unit": "share"} for name in names}
    head = {"task": task, "model": who, "metrics": metrics, "n_expected": len(scores)}
    (where / "summary.json").write_text(json.dumps(head | summary))
    return folder


def verdicts(
    right: Iterable[int], metric: str = "prompt_level_strict_accuracy"
) -> dict[str, dict[str, float]]:
    return {str(n): {metric: float(one)} for n, one in enumerate(right)}
