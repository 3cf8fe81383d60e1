"""Results of promptfoo, ``promptfoo eval -o results.json`` or ``.jsonl``, versions 1 to 3 of its summary."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coeval.core.errors import Undecodable, UsageError
from coeval.core.foreign import decode, make_lines_decoder
from coeval.core.regular_files import open_file, read_file_bytes
from coeval.core.shown_names import fit_names
from coeval.core.text import canonical_json, digest
from coeval.exchange.imported import ForeignAnswer, ForeignResult, as_usage

TOOL = "promptfoo"

_NEWEST = 3
# What ``failureReason`` says of a provider that gave no answer.
_ERROR = 2
# Characters of a prompt in a model's name; its label is the whole prompt where the user gave none.
_LONGEST_PROMPT = 40
_UNNUMBERED = (
    "repeated answers count as samples: this version does not distinguish unlabelled entries of a provider"
)


class _FooProvider(msgspec.Struct):
    id: str | None = None
    label: str | None = None


class _FooPrompt(msgspec.Struct):
    raw: Any = ""
    label: str | None = None
    display: str | None = None
    """The label before version 3."""
    id: str | None = None


class _FooRow(msgspec.Struct, rename="camel"):
    success: bool
    provider: _FooProvider | str | None = None
    prompt: _FooPrompt | str | None = None
    test_idx: int | None = None
    prompt_idx: int | None = None
    score: float | bool | None = None
    named_scores: dict[str, float | bool | None] | None = None
    response: dict[str, Any] | str | None = None
    vars: dict[str, Any] | None = None
    test_case: dict[str, Any] | None = None
    failure_reason: int | None = None
    error: Any = None
    latency_ms: float | None = None
    cost: float | None = None

    @property
    def column(self) -> _Column:
        of, prompt = self.provider, self.prompt
        named = of if isinstance(of, _FooProvider) else _FooProvider(of)
        label = (prompt.label or prompt.display or prompt.id) if isinstance(prompt, _FooPrompt) else None
        return _Column(named.label or named.id or "model", named.id or "", label or "", self.prompt_idx)

    @property
    def given(self) -> dict[str, Any]:
        """The variables of its test."""
        return self.vars or (self.test_case or {}).get("vars") or {}

    @property
    def prompt_text(self) -> str:
        raw = self.prompt.raw if isinstance(self.prompt, _FooPrompt) else self.prompt
        return raw if isinstance(raw, str) else canonical_json(raw) if raw else ""


class _FooSummary(msgspec.Struct):
    version: int
    results: list[_FooRow]


class _FooFile(msgspec.Struct):
    results: _FooSummary
    config: dict[str, Any] | None = None


class _FooVersion(msgspec.Struct):
    version: int


class _FooOutline(msgspec.Struct):
    """Of a file, what no other tool's has."""

    results: _FooVersion | list[_FooBegin]


class _FooBegin(msgspec.Struct, rename="camel"):
    """Of a row, what no other tool's has."""

    success: bool
    provider: Any
    prompt: Any


class _Column(NamedTuple):
    """A provider with a prompt, which promptfoo shows as a column; ``number`` is its place, None where the
    file does not say it."""

    provider: str
    provider_id: str
    prompt: str
    number: int | None


def is_promptfoo(path: Path) -> bool:
    """Whether a file of JSON, or of JSON lines, has the outline of promptfoo's results of any version."""
    try:
        if path.suffix.lower() == ".json":
            decode(read_file_bytes(path), _FooOutline)
        else:
            with open_file(path) as file:
                decode(file.readline(), _FooBegin)
    except Undecodable:
        return False
    return True


def read_promptfoo(path: Path) -> list[ForeignResult]:
    """Read a file of results: one for each provider and prompt. It is named by the provider, and as
    ``provider@prompt`` where that has several prompts; columns that this leaves alike are numbered. The
    metrics are ``pass``, ``score`` and the named scores.

    Raises UsageError: the file has another shape or version, or holds no results.
    """
    try:
        rows, task, remarks = _of_json(path) if path.suffix.lower() == ".json" else _of_lines(path)
    except Undecodable as error:
        raise UsageError(f"{path} is no results file of promptfoo: {error}") from error
    if not rows:
        raise UsageError(f"{path} holds no results")
    by_column: defaultdict[_Column, list[_FooRow]] = defaultdict(list)
    for row in rows:
        by_column[row.column].append(row)
    results = []
    several = len({row.prompt_text for row in rows}) > len({canonical_json(row.given) for row in rows})
    for column, model in _model_names(by_column).items():
        answers = _answers(by_column[column], by_test=several)
        about = remarks
        if column.number is None and any(answer.sample for answer in answers):
            about = (*remarks, _UNNUMBERED)
        results.append(ForeignResult(TOOL, task, model, answers, canonical_json(column[:3]), remarks=about))
    return results


def _of_json(path: Path) -> tuple[list[_FooRow], str, tuple[str, ...]]:
    data = read_file_bytes(path)
    try:
        file = decode(data, _FooFile)
    except Undecodable:  # as ``promptfoo.evaluate`` returns it
        file = _FooFile(decode(data, _FooSummary))
    if file.results.version > _NEWEST:
        raise UsageError(
            f"{path} has version {file.results.version} of promptfoo's results; up to {_NEWEST} can be read"
        )
    return file.results.results, str((file.config or {}).get("description") or path.stem), ()


def _of_lines(path: Path) -> tuple[list[_FooRow], str, tuple[str, ...]]:
    """Rows of ``.jsonl``, to which promptfoo appends: of two in one place the later counts."""
    *lines, tail = read_file_bytes(path).split(b"\n")
    found: dict[object, _FooRow] = {}
    remarks: tuple[str, ...] = ()
    for number, row in enumerate(make_lines_decoder(_FooRow)([*lines, tail]), 1):
        if not isinstance(row, Undecodable):
            known = row.test_idx is not None and row.prompt_idx is not None
            found[(row.column, row.test_idx) if known else number] = row
        elif number > len(lines) and tail.strip():
            remarks = ("its last line is cut off",)
        elif number <= len(lines) and lines[number - 1].strip():
            raise UsageError(f"{path}:{number} is not a promptfoo result: {row}")
    return list(found.values()), path.stem, remarks


def _model_names(columns: Iterable[_Column]) -> dict[_Column, str]:
    by_provider: defaultdict[str, list[_Column]] = defaultdict(list)
    for column in sorted(columns, key=lambda column: -1 if column.number is None else column.number):
        by_provider[column.provider].append(column)
    names: dict[_Column, str] = {}
    taken = set(by_provider)
    for provider, its in by_provider.items():
        texts = {column.prompt: " ".join(column.prompt.split()) for column in its}
        shown = fit_names(texts.values(), _LONGEST_PROMPT)
        for number, column in enumerate(its):
            prompt = shown[texts[column.prompt]] if len(texts) > 1 else ""
            name = base = f"{provider}@{prompt}" if prompt else provider
            alike = 1
            while name in taken and (number, name) != (0, provider):
                alike += 1
                name = f"{base} ({alike})"
            taken.add(name)
            names[column] = name
    return names


def _answers(rows: Iterable[_FooRow], *, by_test: bool) -> list[ForeignAnswer]:
    """Repetitions of a test (``--repeat``), which promptfoo numbers as further tests, are its samples.
    ``by_test``: there are several prompts, which are compared on their tests, not on equal texts."""
    samples: Counter[str] = Counter()
    first: dict[tuple[str, str], int | None] = {}
    answers = []
    for row in sorted(rows, key=lambda row: row.test_idx or 0):
        given = canonical_json(row.given)
        item, number = digest(given)[:8], row.test_idx
        if given != "{}" and row.test_case:
            number = first.setdefault((given, canonical_json(row.test_case)), number)
        elif given == "{}" and number is None:
            item = digest(row.prompt_text)[:8]
        item = item if number is None else f"{number}-{item}"
        answer = _answer(row, item, samples[item])
        answers.append(answer._replace(matched_by=given) if by_test and given != "{}" else answer)
        samples[item] += 1
    return answers


def _answer(row: _FooRow, item: str, sample: int) -> ForeignAnswer:
    response = row.response if isinstance(row.response, dict) else {"output": row.response}
    output = response.get("output")
    failed = row.failure_reason == _ERROR or output is None
    usage = response.get("tokenUsage")
    usage = usage if isinstance(usage, dict) else {}
    scores = {} if failed else {"pass": row.success, "score": row.score, **(row.named_scores or {})}
    return ForeignAnswer(
        item=item,
        sample=sample,
        scores={name: value if value is None else float(value) for name, value in scores.items()},
        prompt=row.prompt_text,
        answer=None if failed else output if isinstance(output, str) else canonical_json(output),
        error=str(row.error or "no output") if failed else "",
        usage=as_usage(usage.get("prompt"), usage.get("completion"), row.cost),
        latency_s=row.latency_ms / 1000 if row.latency_ms is not None else None,
    )
