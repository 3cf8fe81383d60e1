"""Figures for a model's card and for the shared collection of evaluations."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from coeval import __version__
from coeval.benchmarks.run.task_folder import file_name
from coeval.exchange.exported import Export, FigureOut
from coeval.store.jsonl import write_lines

_SCHEMA = "0.2.1"
_ENDS = {"share": (0.0, 1.0), "percent": (0.0, 100.0), "points": (1.0, 10.0)}


def write_model_index(found: Export, out: Path) -> list[Path]:
    """Write ``MODEL/model-index.json``: the ``model-index`` of a card on the Hugging Face hub.

    Interval, n, failures and judges of a figure, with their recipes, are arguments of its metric.
    """
    paths = []
    for model, figures in _by_model(found.figures()).items():
        path = out / file_name(model) / "model-index.json"
        rows = [
            {
                "task": {"type": "text-generation"},
                "dataset": {"name": figure.task, "type": figure.task},
                "metrics": [_metric(figure)],
            }
            for figure in figures
            if figure.value is not None
        ]
        write_lines(path, [{"model-index": [{"name": model, "results": rows}]}])
        paths.append(path)
    return paths


def _metric(figure: FigureOut) -> dict[str, Any]:
    arguments = {
        "ci95": [figure.low, figure.high],
        "n": figure.n,
        "failed": figure.failed,
        "unit": figure.unit,
        "judges": list(figure.judges),
        "judge_recipes": list(figure.recipes),
        "sample": figure.sample,
        "measured_by": f"CoEval {__version__}",
    }
    return {"type": figure.metric, "name": figure.metric, "value": figure.value, "args": arguments}


def write_every_eval_ever(found: Export, out: Path) -> list[Path]:
    """Write ``TASK/MODEL.json``, a record of Every Eval Ever (schema 0.2.1) for each task and model."""
    paths = []
    at = str(int(time.time()))
    by_task: defaultdict[tuple[str, str], list[FigureOut]] = defaultdict(list)
    for figure in found.figures():
        by_task[figure.task, figure.model].append(figure)
    for (task, model), figures in by_task.items():
        developer = model.partition("/")[0] if "/" in model else "unknown"
        record = {
            "schema_version": _SCHEMA,
            "evaluation_id": f"{task}/{model.replace('/', '_')}/{at}",
            "retrieved_timestamp": at,
            "source_metadata": {
                "source_name": "CoEval",
                "source_type": "evaluation_run",
                "source_organization_name": "unknown",
                "evaluator_relationship": "other",
            },
            "eval_library": {"name": "coeval", "version": __version__},
            "model_info": {"name": model, "id": model, "developer": developer},
            "evaluation_results": [_result(figure) for figure in figures if figure.value is not None],
        }
        path = out / file_name(task) / f"{file_name(model)}.json"
        write_lines(path, [record])
        paths.append(path)
    return paths


def _result(figure: FigureOut) -> dict[str, Any]:
    low, high = _ENDS.get(figure.unit, _ENDS["share"])
    config: dict[str, Any] = {
        "lower_is_better": False,
        "score_type": "continuous",
        "min_score": low,
        "max_score": high,
    }
    if figure.judges:
        config["llm_scoring"] = {
            "judges": [
                {"model_info": {"name": judge, "id": judge, "additional_details": {"recipe": recipe}}}
                for judge, recipe in zip(figure.judges, figure.recipes, strict=True)
            ],
            "input_prompt": "unknown",
        } | ({"aggregation_method": "average"} if len(figure.judges) > 1 else {})
    uncertainty: dict[str, Any] = {"num_samples": figure.n}
    if figure.low is not None and figure.high is not None:
        uncertainty["confidence_interval"] = {
            "lower": figure.low,
            "upper": figure.high,
            "confidence_level": 0.95,
        }
    if figure.standard_error is not None:
        uncertainty["standard_error"] = {"value": figure.standard_error, "method": "analytic"}
    return {
        "evaluation_name": f"{figure.task} {figure.metric}",
        "source_data": {"dataset_name": figure.task, "source_type": "other"},
        "metric_config": config,
        "score_details": {
            "score": figure.value,
            "details": {"failed": str(figure.failed), "sample": str(figure.sample)},
            "uncertainty": uncertainty,
        },
    }


def _by_model(figures: Iterable[FigureOut]) -> dict[str, list[FigureOut]]:
    found: defaultdict[str, list[FigureOut]] = defaultdict(list)
    for figure in figures:
        found[figure.model].append(figure)
    return found
