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
from coeval.exchange.imported import ForeignAnswer, ForeignResult, make_usage_if_plausible

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
        prompt, provider = self.prompt, self.provider
        provider = provider if isinstance(provider, _FooProvider) else _FooProvider(provider)
        label = (prompt.label or prompt.display or prompt.id) if isinstance(prompt, _FooPrompt) else None
        return _Column(
            provider.label or provider.id or "model", provider.id or "", label or "", self.prompt_idx
        )

    @property
    def variables(self) -> dict[str, Any]:
        """Return the variables of the row's test."""
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
    """What distinguishes a results file of promptfoo from other tools' files."""

    results: _FooVersion | list[_FooBegin]


class _FooBegin(msgspec.Struct, rename="camel"):
    """What distinguishes a row of promptfoo from other tools' rows."""

    success: bool
    provider: Any
    prompt: Any


class _FooContent(NamedTuple):
    """The rows of a file, the name of its task, and remarks on what is missing."""

    rows: list[_FooRow]
    task: str
    remarks: tuple[str, ...] = ()


class _Column(NamedTuple):
    """A provider with a prompt: a column of promptfoo's table, at place ``number`` if it is in the file."""

    provider: str
    provider_id: str
    prompt: str
    number: int | None


def is_promptfoo(path: Path) -> bool:
    """Check whether JSON or JSON lines have the outline of promptfoo's results, of any version."""
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
    """Read a results file: one result per provider and prompt, with the metrics ``pass``, ``score`` and the
    named scores. It is named by the provider, or ``provider@prompt`` if that has several prompts; equal
    names are numbered. Raises UsageError: the file has another shape or version, or holds no results."""
    try:
        rows, task, remarks = _read_json(path) if path.suffix.lower() == ".json" else _read_json_lines(path)
    except Undecodable as error:
        raise UsageError(f"{path} is not a results file of promptfoo: {error}") from error
    if not rows:
        raise UsageError(f"{path} holds no results")
    by_column: defaultdict[_Column, list[_FooRow]] = defaultdict(list)
    for row in rows:
        by_column[row.column].append(row)
    results = []
    prompts, tests = {row.prompt_text for row in rows}, {canonical_json(row.variables) for row in rows}
    for column, model in _model_names_by_column(by_column).items():
        answers = _convert_rows(by_column[column], by_test=len(prompts) > len(tests))
        unnumbered = column.number is None and any(answer.sample for answer in answers)
        notes = (*remarks, _UNNUMBERED) if unnumbered else remarks
        results.append(ForeignResult(TOOL, task, model, answers, canonical_json(column[:3]), remarks=notes))
    return results


def _read_json(path: Path) -> _FooContent:
    data = read_file_bytes(path)
    try:
        file = decode(data, _FooFile)
    except Undecodable:  # as ``promptfoo.evaluate`` returns it
        file = _FooFile(decode(data, _FooSummary))
    if file.results.version > _NEWEST:
        raise UsageError(
            f"{path} has version {file.results.version} of promptfoo's results; up to {_NEWEST} can be read"
        )
    return _FooContent(file.results.results, str((file.config or {}).get("description") or path.stem))


def _read_json_lines(path: Path) -> _FooContent:
    """Read rows of ``.jsonl``, to which promptfoo appends: of two rows of a test the later counts."""
    *lines, tail = read_file_bytes(path).split(b"\n")
    rows: dict[object, _FooRow] = {}
    remarks: tuple[str, ...] = ()
    for number, row in enumerate(make_lines_decoder(_FooRow)([*lines, tail]), 1):
        if not isinstance(row, Undecodable):
            has_place = row.test_idx is not None and row.prompt_idx is not None
            rows[(row.column, row.test_idx) if has_place else number] = row
        elif number > len(lines) and tail.strip():
            remarks = ("its last line is cut off",)
        elif number <= len(lines) and lines[number - 1].strip():
            raise UsageError(f"{path}:{number} is not a promptfoo result: {row}")
    return _FooContent(list(rows.values()), path.stem, remarks)


def _model_names_by_column(columns: Iterable[_Column]) -> dict[_Column, str]:
    """Return a distinct model name for each column, in the order of the table."""
    by_provider: defaultdict[str, list[_Column]] = defaultdict(list)
    for column in sorted(columns, key=lambda column: -1 if column.number is None else column.number):
        by_provider[column.provider].append(column)
    names: dict[_Column, str] = {}
    used_names = set(by_provider)
    for provider, its_columns in by_provider.items():
        texts = {column.prompt: " ".join(column.prompt.split()) for column in its_columns}
        short_prompts = fit_names(texts.values(), _LONGEST_PROMPT)
        for number, column in enumerate(its_columns):
            prompt = short_prompts[texts[column.prompt]] if len(texts) > 1 else ""
            name = base = f"{provider}@{prompt}" if prompt else provider
            number_of_name = 1
            while name in used_names and (number, name) != (0, provider):
                number_of_name += 1
                name = f"{base} ({number_of_name})"
            used_names.add(name)
            names[column] = name
    return names


def _convert_rows(rows: Iterable[_FooRow], *, by_test: bool) -> list[ForeignAnswer]:
    """Convert a column's rows; repetitions (``--repeat``), which promptfoo numbers as further tests, become
    samples. ``by_test``: the file has several prompts, so answers are paired by test, not by equal
    prompts."""
    samples: Counter[str] = Counter()
    first: dict[tuple[str, str], int | None] = {}
    answers = []
    for row in sorted(rows, key=lambda row: row.test_idx or 0):
        variables = canonical_json(row.variables)
        item, number = digest(variables)[:8], row.test_idx
        if variables != "{}" and row.test_case:
            number = first.setdefault((variables, canonical_json(row.test_case)), number)
        elif variables == "{}" and number is None:
            item = digest(row.prompt_text)[:8]
        item = item if number is None else f"{number}-{item}"
        answer = _convert_row(row, item, samples[item])
        answers.append(answer._replace(matched_by=variables) if by_test and variables != "{}" else answer)
        samples[item] += 1
    return answers


def _convert_row(row: _FooRow, item: str, sample: int) -> ForeignAnswer:
    """Convert a row; a provider's error or a row without output is an answer that failed."""
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
        usage=make_usage_if_plausible(usage.get("prompt"), usage.get("completion"), row.cost),
        latency_s=row.latency_ms / 1000 if row.latency_ms is not None else None,
    )
