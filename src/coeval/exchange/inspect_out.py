"""Logs for Inspect's viewer and its ``read_eval_log``: version 2 of its JSON format."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from coeval import __version__
from coeval.benchmarks.run.task_folder import file_name
from coeval.core.text import digest
from coeval.exchange.exported import AnswerOut, FigureOut
from coeval.store.jsonl import write_lines
from coeval.store.rundir import now

_RULES = "coeval"
"""The scorer's name where no judge gave the scores."""


def write_inspect(
    task: str, model: str, answers: Sequence[AnswerOut], figures: Sequence[FigureOut], out: Path
) -> list[Path]:
    """Write ``TASK.json``: a sample for each answer, a scorer for each judge with the factors as its keys.

    The figures with their intervals, which the format has no place for, are in the log's metadata.
    """
    path = out / f"{file_name(task)}.json"
    judges = sorted({score.judge or _RULES for answer in answers for score in answer.scores})
    at = now()
    log = {
        "version": 2,
        "status": "success" if all(answer.text is not None for answer in answers) else "error",
        "eval": {
            "eval_id": digest(task, model, at)[:22],
            "run_id": digest(model, at)[:22],
            "task_id": digest(task)[:22],
            "created": at,
            "task": task,
            "task_version": 0,
            "dataset": {"name": task, "samples": len({answer.item for answer in answers})},
            "model": model,
            "config": {"epochs": 1 + max(answer.sample for answer in answers)},
            "packages": {"coeval": __version__},
            "scorers": [
                {"name": judge, "options": {} if judge == _RULES else {"model": judge}} for judge in judges
            ],
            "metadata": {"figures": [figure._asdict() for figure in figures]},
        },
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": {
            "total_samples": len(answers),
            "completed_samples": sum(answer.text is not None for answer in answers),
            "scores": [score for judge in judges for score in _means(judge, answers)],
        },
        "stats": {"started_at": at, "completed_at": at, "model_usage": {}},
        "samples": [_sample(answer, model) for answer in answers],
    }
    write_lines(path, [log])
    return [path]


def _means(judge: str, answers: Iterable[AnswerOut]) -> list[dict[str, Any]]:
    """A mean over items of the means of their samples, as Inspect reduces epochs, for each factor."""
    by_item: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for answer in answers:
        for score in answer.scores:
            if (score.judge or _RULES) == judge and score.value is not None:
                by_item[score.metric][answer.item].append(score.value)
    found = []
    for metric, items in by_item.items():
        mean = math.fsum(math.fsum(values) / len(values) for values in items.values()) / len(items)
        measured = {"mean": {"name": "mean", "value": mean, "params": {}}}
        found.append({"name": metric, "scorer": judge, "scored_samples": len(items), "metrics": measured})
    return found


def _sample(answer: AnswerOut, model: str) -> dict[str, Any]:
    values: defaultdict[str, dict[str, float | None]] = defaultdict(dict)
    for score in answer.scores:
        values[score.judge or _RULES][score.metric] = score.value
    sample: dict[str, Any] = {
        "id": answer.item,
        "epoch": answer.sample + 1,
        "input": answer.prompt,
        "target": answer.reference,
        "messages": [],
        "output": {"model": model, "choices": []},
        "scores": {judge: {"value": given, "answer": answer.text} for judge, given in values.items()},
        "metadata": {"cost_usd": answer.cost_usd} | ({"source": answer.source} if answer.source else {}),
    }
    if answer.text is None:
        message = answer.error or "no answer"
        sample["error"] = {"message": message, "traceback": "", "traceback_ansi": ""}
        return sample
    said = {"role": "assistant", "content": answer.text, "source": "generate", "model": model}
    sample["messages"] = [{"role": "user", "content": answer.prompt}, said]
    sample["output"] |= {"choices": [{"message": said, "stop_reason": "stop"}], "completion": answer.text}
    if answer.input_tokens is not None and answer.output_tokens is not None:
        total = answer.input_tokens + answer.output_tokens
        counts = {"input_tokens": answer.input_tokens, "output_tokens": answer.output_tokens}
        sample["output"]["usage"] = counts | {"total_tokens": total}
    if answer.latency_s is not None:
        sample["output"]["time"] = answer.latency_s
    return sample
