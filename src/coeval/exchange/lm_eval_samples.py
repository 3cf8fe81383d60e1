"""Samples of lm-evaluation-harness, ``samples_TASK_DATE.jsonl``, and the results file beside them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from coeval.core.errors import Undecodable, UsageError
from coeval.core.foreign import decode_python
from coeval.core.regular_files import read_file_bytes
from coeval.core.text import canonical_json, join_names
from coeval.exchange.imported import ForeignAnswer, ForeignResult, to_float

TOOL = "lm-eval"

FILE_NAME = re.compile(r"samples_(.+)_(\d{4}-\d\d-\d\dT[\d.-]+)\.jsonl")
_NO_FILTER = "none"


class _LmEvalSample(msgspec.Struct):
    doc_id: int | str
    metrics: list[str]
    arguments: Any = None
    resps: Any = None
    filter: str = _NO_FILTER


class _LmEvalResults(msgspec.Struct):
    results: dict[str, dict[str, Any]] = {}
    configs: dict[str, dict[str, Any]] = {}
    higher_is_better: dict[str, dict[str, bool | None]] = {}
    model_name: str | None = None


def read_lm_eval(path: Path, model: str | None = None) -> ForeignResult:
    """Read a file of samples; ``model`` replaces the name in the results file beside it. With several filters
    a document has a line for each, so metrics are named ``metric,filter`` as in the results. Raises
    UsageError: the file has another name or shape, or no model is named."""
    match = FILE_NAME.fullmatch(path.name)
    if match is None:
        raise UsageError(f"{path.name} is not named as lm-eval names its files: samples_TASK_DATE.jsonl")
    task, date = match[1], match[2]
    results_path = path.with_name(f"results_{date}.json")
    results = _LmEvalResults()
    if results_path.is_file():
        results = _decode_or_raise(read_file_bytes(results_path), results_path, _LmEvalResults)
    model = model or results.model_name
    if not model:
        raise UsageError(
            f"{results_path.name} is not next to {path.name}; name the model of these answers with --model"
        )
    lower = {name for name, higher in results.higher_is_better.get(task, {}).items() if higher is False}
    documents: dict[str, ForeignAnswer] = {}
    unscored: set[str] = set()
    for number, line in enumerate(read_file_bytes(path).splitlines(), 1):
        if not line.strip():
            continue
        sample = _decode_or_raise(line, f"{path}:{number}", _LmEvalSample)
        values = _decode_or_raise(line, f"{path}:{number}", dict[str, Any])
        scores: dict[str, float | None] = {}
        for name in sample.metrics:
            value = values.get(name)
            if isinstance(value, int | float) and name not in lower:
                scores[f"{name},{sample.filter}"] = to_float(value)
            else:
                unscored.add(name)
        document = str(sample.doc_id)
        if (earlier := documents.get(document)) is not None:
            documents[document] = earlier._replace(scores=earlier.scores | scores)
        else:
            prompt, answer = _read_prompt(sample.arguments), _read_generated_text(sample)
            documents[document] = ForeignAnswer(document, 0, scores, prompt, answer)
    if not any(answer.scores for answer in documents.values()):
        raise UsageError(f"{path}: no metric of it has a number for each document where higher is better")
    what = f"without a number per document, or lower is better: {join_names(sorted(unscored))}"
    return ForeignResult(
        tool=TOOL,
        task=task,
        model=model,
        answers=list(documents.values()),
        settings=canonical_json(results.configs.get(task, {})),
        reported={
            name: to_float(value)
            for name, value in results.results.get(task, {}).items()
            if isinstance(value, int | float) and "_stderr," not in name and "," in name
        },
        remarks=(f"left out, {what}",) if unscored else (),
    )


def _read_prompt(arguments: Any) -> str:
    """Return the first request's context; ``arguments`` are lists, or ``gen_args_0: {arg_0: …}``."""
    first = next(iter(arguments.values()), None) if isinstance(arguments, dict) else arguments
    while isinstance(first, list | dict) and first:
        first = next(iter(first.values())) if isinstance(first, dict) else first[0]
    return first if isinstance(first, str) else ""


def _read_generated_text(sample: _LmEvalSample) -> str | None:
    """Return the generated text; None if the task compares likelihoods, whose answer is not text."""
    first = sample.resps
    while isinstance(first, list) and first:
        first = first[0]
    alone = isinstance(sample.resps, list) and len(sample.resps) == 1
    return first if alone and isinstance(first, str) and not _is_likelihood(sample.resps) else None


def _is_likelihood(resps: Any) -> bool:
    """Check whether a reply is a pair of log-likelihood and greedy flag, as text."""
    while isinstance(resps, list) and len(resps) == 1:
        resps = resps[0]
    return isinstance(resps, list) and len(resps) == 2 and resps[1] in ("True", "False", True, False)


def _decode_or_raise(data: bytes, where: Path | str, kind: Any) -> Any:
    try:
        return decode_python(data, kind)
    except Undecodable as error:
        raise UsageError(f"{where} is not lm-eval output: {error}") from error
