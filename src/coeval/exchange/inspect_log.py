"""Logs of Inspect (``.eval``, ``.json``), version 2 of its format: https://inspect.aisi.org.uk/eval-logs.html"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from coeval.core.errors import Undecodable, UsageError
from coeval.core.text import canonical
from coeval.exchange.imported import ForeignAnswer, ForeignResult, as_number, as_usage
from coeval.exchange.inspect_file import LogEval, LogSample, read_log

TOOL = "inspect"

# How Inspect itself makes numbers of these.
_WORDS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_ATTACHED = "attachment://"


def read_inspect(path: Path) -> ForeignResult:
    """Read a log. Raises UsageError: it is none, is damaged, or holds no samples."""
    try:
        log, samples = read_log(path)
    except Undecodable as error:
        raise UsageError(f"{path} is no log of Inspect: {error}") from error
    if not samples:
        raise UsageError(f"{path} holds no samples: Inspect was run without logging them")
    remarks = () if log.status == "success" else (f"the log's status is {log.status or 'unknown'}",)
    reported = {
        one.name if one.name == one.scorer else f"{one.scorer}/{one.name}": as_number(metric.value)
        for one in (log.results.scores if log.results is not None else [])
        for name, metric in one.metrics.items()
        if name.rpartition("/")[2] in ("accuracy", "mean") and isinstance(metric.value, int | float)
    }
    return ForeignResult(
        tool=TOOL,
        task=log.eval.task_display_name or log.eval.task,
        model=log.eval.model,
        answers=[_answer(sample) for sample in samples],
        settings=canonical(log.eval.model_generate_config),
        judges=dict(_judges(log.eval)),
        reported=reported,
        remarks=remarks,
    )


def _judges(log: LogEval) -> Iterator[tuple[str, str]]:
    """Scorers that asked a model, and which."""
    for scorer in log.scorers or []:
        options = scorer.get("options")
        model = options.get("model") if isinstance(options, Mapping) else None
        name = model.get("model") if isinstance(model, Mapping) else model
        if isinstance(name, str) and isinstance(scorer.get("name"), str):
            yield scorer["name"], name


def _answer(sample: LogSample) -> ForeignAnswer:
    scores: dict[str, float | None] = {}
    for name, score in (sample.scores or {}).items():
        if isinstance(score.value, Mapping):
            scores |= {f"{name}/{part}": _number(value) for part, value in score.value.items()}
        else:
            scores[name] = _number(score.value)
    text = sample.output.completion
    if text is None and sample.output.choices:
        text = _text(sample.output.choices[0].get("message", {}).get("content"))
    failed = sample.error is not None
    usage = sample.output.usage or {}
    return ForeignAnswer(
        item=str(sample.id),
        sample=sample.epoch - 1,
        scores={} if failed and not scores else scores,
        prompt=_attached(_last_text(sample.input), sample.attachments),
        answer=None if failed else _attached(text or "", sample.attachments),
        error=str((sample.error or {}).get("message", "")) if failed else "",
        usage=as_usage(usage.get("input_tokens"), usage.get("output_tokens")),
        latency_s=sample.output.time,
    )


def _number(value: Any) -> float | None:
    """The number that Inspect takes a score for, NaN where it was not scored; None where there is none."""
    if isinstance(value, str):
        if value in _WORDS or value.lower() in _WORDS:
            return _WORDS.get(value, _WORDS.get(value.lower()))
        try:
            return float(value)
        except ValueError:
            return None
    return as_number(value) if isinstance(value, int | float) else None


def _last_text(given: Any) -> str:
    """The prompt: a text, or the last message of a conversation."""
    if isinstance(given, list):
        return _text(given[-1].get("content")) if given and isinstance(given[-1], Mapping) else ""
    return given if isinstance(given, str) else ""


def _text(content: Any) -> str:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _attached(text: str, attachments: Mapping[str, str]) -> str:
    return attachments.get(text.removeprefix(_ATTACHED), text) if text.startswith(_ATTACHED) else text
