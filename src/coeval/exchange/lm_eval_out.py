"""Samples and results as lm-evaluation-harness writes them with ``log_samples``."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from coeval.benchmarks.run.task_folder import file_name
from coeval.exchange.exported import AnswerOut, FigureOut
from coeval.store.jsonl import write_json_atomic, write_lines
from coeval.store.rundir import now


def write_lm_eval(
    task: str, model: str, answers: Sequence[AnswerOut], figures: Sequence[FigureOut], out: Path
) -> list[Path]:
    """Write ``samples_TASK_DATE.jsonl`` and ``results_DATE.json``.

    A document is an item; of several samples, each is one. Failed answers are left out, as the harness has
    none; ``n-samples`` counts them among the original ones.
    """
    date = now().replace(":", "-")[:19] + ".000000"
    name = file_name(task)
    good = [answer for answer in answers if answer.text is not None]
    names = list(dict.fromkeys(score.name for answer in good for score in answer.scores))
    samples = out / name / f"samples_{name}_{date}.jsonl"
    write_lines(samples, (_line(number, answer) for number, answer in enumerate(good)))
    results = out / name / f"results_{date}.json"
    content: dict[str, Any] = {
        "results": {name: {"alias": task} | _figures(figures) | _means(names, good)},
        "configs": {name: {"task": task, "output_type": "generate_until"}},
        "versions": {name: 1.0},
        "n-shot": {name: 0},
        "higher_is_better": {name: dict.fromkeys(names, True)},
        "n-samples": {name: {"original": len(answers), "effective": len(good)}},
        "model_name": model,
    }
    write_json_atomic(results, content)
    return [samples, results]


def _means(names: Sequence[str], answers: Sequence[AnswerOut]) -> dict[str, float]:
    found = {}
    for name in names:
        values = [
            score.value
            for answer in answers
            for score in answer.scores
            if score.name == name and score.value is not None
        ]
        if values:
            found[f"{name},none"] = sum(values) / len(values)
    return found


def _figures(figures: Sequence[FigureOut]) -> dict[str, Any]:
    """Our own means with their intervals, under names that no metric of a sample has."""
    found: dict[str, Any] = {}
    for figure in figures:
        name = f"coeval {figure.metric}" + (f" of sample {figure.sample}" if figure.sample else "")
        found |= {
            f"{name}": figure.value,
            f"{name} ci95": [figure.low, figure.high],
            f"{name} n": figure.n,
            f"{name} failed": figure.failed,
        }
    return found


def _line(number: int, answer: AnswerOut) -> dict[str, Any]:
    scores = {score.name: score.value for score in answer.scores if score.value is not None}
    doc = {"id": answer.item, "sample": answer.sample, "prompt": answer.prompt}
    return {
        "doc_id": number,
        "doc": doc | ({"source": answer.source} if answer.source else {}),
        "target": answer.reference,
        "arguments": {"gen_args_0": {"arg_0": answer.prompt, "arg_1": {}}},
        "resps": [[answer.text]],
        "filtered_resps": [answer.text],
        "filter": "none",
        "metrics": list(scores),
        "doc_hash": _hash(answer.item),
        "prompt_hash": _hash(answer.prompt),
        "target_hash": _hash(answer.reference),
    } | scores


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
