"""Results of promptfoo, ``promptfoo eval -o results.json``, version 3 of its summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from coeval.core.errors import Undecodable, UsageError
from coeval.core.foreign import decode
from coeval.core.plain import file_bytes
from coeval.core.records import Usage
from coeval.core.text import canonical, digest
from coeval.exchange.imported import ForeignAnswer, ForeignResult

TOOL = "promptfoo"

_VERSION = 3
# What ``failureReason`` says of a provider that gave no answer.
_ERROR = 2


class _FooProvider(msgspec.Struct):
    id: str = ""
    label: str | None = None


class _FooPrompt(msgspec.Struct):
    raw: str = ""
    label: str = ""


class _FooRow(msgspec.Struct, rename="camel"):
    test_idx: int
    prompt_idx: int
    success: bool
    score: float | None = None
    provider: _FooProvider = msgspec.field(default_factory=_FooProvider)
    prompt: _FooPrompt = msgspec.field(default_factory=_FooPrompt)
    named_scores: dict[str, float | None] = {}
    response: dict[str, Any] | None = None
    vars: dict[str, Any] = {}
    failure_reason: int = 0
    error: str | None = None
    latency_ms: float | None = None
    cost: float | None = None


class _FooVersion(msgspec.Struct):
    version: int


class _FooSummary(msgspec.Struct):
    version: int
    results: list[_FooRow]


class _FooOutline(msgspec.Struct):
    """Of a file, what no other tool's has."""

    results: _FooVersion


class _FooFile(msgspec.Struct):
    results: _FooSummary
    config: dict[str, Any] = {}


def is_promptfoo(path: Path) -> bool:
    """Whether a JSON file has the outline of promptfoo's results, whatever their version."""
    try:
        decode(file_bytes(path), _FooOutline)
    except Undecodable:
        return False
    return True


def read_promptfoo(path: Path) -> list[ForeignResult]:
    """Read a file of results: one for each provider, or for each provider and prompt where there are
    several prompts (``provider@prompt``). The metrics are ``pass``, ``score`` and the named scores.

    Raises UsageError: the file has another shape or version.
    """
    try:
        file = decode(file_bytes(path), _FooFile)
    except Undecodable as error:
        raise UsageError(f"{path} is no results file of promptfoo: {error}") from error
    if file.results.version != _VERSION:
        raise UsageError(f"{path} has version {file.results.version} of promptfoo's results, not {_VERSION}")
    rows = file.results.results
    prompts = {row.prompt.raw: row.prompt.label or row.prompt.raw for row in rows}
    several = (
        len({row.prompt_idx for row in rows}) > len({row.provider.id for row in rows}) and len(prompts) > 1
    )
    task = str(file.config.get("description") or path.stem)
    found: dict[str, ForeignResult] = {}
    for row in rows:
        model = row.provider.label or row.provider.id or "model"
        if several and row.prompt.label:
            model = f"{model}@{row.prompt.label[:40]}"
        result = found.setdefault(model, ForeignResult(TOOL, task, model, [], canonical(row.provider.id)))
        item = f"{row.test_idx}-{digest(canonical(row.vars))[:8]}"
        sample = sum(1 for one in result.answers if one.item == item)
        result.answers.append(_answer(row, item, sample))
    if not found:
        raise UsageError(f"{path} holds no results")
    return list(found.values())


def _answer(row: _FooRow, item: str, sample: int) -> ForeignAnswer:
    response = row.response or {}
    output = response.get("output")
    failed = row.failure_reason == _ERROR or output is None
    usage = response.get("tokenUsage") or {}
    took, gave = usage.get("prompt"), usage.get("completion")
    scores = {} if failed else {"pass": float(row.success), "score": row.score, **row.named_scores}
    return ForeignAnswer(
        item=item,
        sample=sample,
        scores=scores,
        prompt=row.prompt.raw,
        answer=None if failed else output if isinstance(output, str) else canonical(output),
        error=(row.error or "no output") if failed else "",
        usage=Usage(took, gave, row.cost) if isinstance(took, int) and isinstance(gave, int) else None,
        latency_s=row.latency_ms / 1000 if row.latency_ms is not None else None,
    )
