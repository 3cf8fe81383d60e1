"""Instruction following: strict and loose verdicts, and the official accuracies.

Strict reads the response unchanged. Loose accepts any of eight readings: with or without the first line, with
or without the last, and each with or without its asterisks, since models wrap answers in a greeting and in
Markdown (Zhou et al. 2023, section 4.1; IFBench likewise).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from coeval.benchmarks.language.text_analysis import Language
from coeval.benchmarks.tasks.ifbench_instructions import INSTRUCTIONS as IFBENCH_INSTRUCTIONS
from coeval.benchmarks.tasks.ifeval_instructions import INSTRUCTIONS as IFEVAL_INSTRUCTIONS
from coeval.benchmarks.tasks.instruction import Instruction
from coeval.core.errors import Misshapen, UsageError
from coeval.core.foreign import convert

INSTRUCTIONS: dict[str, type[Instruction]] = {
    kind.id: kind for kind in (*IFEVAL_INSTRUCTIONS, *IFBENCH_INSTRUCTIONS)
}


class FollowingItem(msgspec.Struct, frozen=True):
    """A prompt with its instructions, as in the data files of both benchmarks."""

    key: int | str
    prompt: str
    instruction_id_list: list[str]
    kwargs: list[dict[str, Any]]


class Followed(msgspec.Struct, frozen=True):
    """Verdicts in the order of the item's instructions.

    ``raised`` names the instructions whose verifier failed (their verdict is False); ``simplified``
    says that the response was so long that its sentences were found by rule.
    """

    strict: list[bool]
    loose: list[bool]
    raised: dict[str, str] = {}
    simplified: bool = False


def instruction(instruction_id: str, kwargs: Mapping[str, Any]) -> Instruction:
    """Make the instruction from its arguments; those that are None are left out.

    Raises
    ------
    UsageError
        the type is unknown, or an argument is missing, unknown or of the wrong kind.
    """
    kind = INSTRUCTIONS.get(instruction_id)
    if kind is None:
        raise UsageError(f"there is no instruction type {instruction_id!r}; known: {', '.join(INSTRUCTIONS)}")
    arguments = {name: _whole(value) for name, value in kwargs.items() if value is not None}
    try:
        return convert(arguments, kind)
    except Misshapen as error:
        raise UsageError(f"{instruction_id}: {error}; its arguments: {kind.__struct_fields__}") from error


def _whole(value: object) -> object:
    """IFBench's data file writes its whole numbers as 5.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check(instruction_id: str, kwargs: Mapping[str, Any], response: str, language: Language) -> bool:
    """Check one instruction strictly; a blank response follows none."""
    return _follows(instruction(instruction_id, kwargs), response, language)


def _follows(wanted: Instruction, response: str, language: Language) -> bool:
    return bool(response.strip()) and wanted.follows(response, language)


def readings(response: str) -> list[str]:
    """Return the distinct ones of the eight loose readings, the response itself first."""
    lines = response.split("\n")
    plain = [response, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    return list(dict.fromkeys([*plain, *(text.replace("*", "") for text in plain)]))


def score_prompt(item: FollowingItem, response: str, language: Language) -> Followed:
    """Check every instruction of ``item`` strictly and loosely; raises UsageError as `instruction` does."""
    if len(item.instruction_id_list) != len(item.kwargs):
        raise UsageError(f"item {item.key}: as many kwargs as instructions are needed")
    simplified = language.simplified
    others = readings(response)[1:]
    strict: list[bool] = []
    loose: list[bool] = []
    raised: dict[str, str] = {}
    for instruction_id, kwargs in zip(item.instruction_id_list, item.kwargs, strict=True):
        wanted = instruction(instruction_id, kwargs)
        verdicts = [False, False]
        try:
            verdicts[0] = verdicts[1] = _follows(wanted, response, language)
            verdicts[1] = verdicts[0] or any(_follows(wanted, text, language) for text in others)
        except Exception as error:  # noqa: BLE001 - one instruction's bug must cost neither the item nor the run
            raised[instruction_id] = f"{type(error).__name__}: {error}"
        strict.append(verdicts[0])
        loose.append(verdicts[1])
    return Followed(strict, loose, raised, simplified=language.simplified > simplified)


class Accuracy(NamedTuple):
    """A share with its counts; None where there is nothing to count."""

    followed: int
    n: int

    @property
    def value(self) -> float | None:
        return self.followed / self.n if self.n else None


class FollowingSummary(msgspec.Struct, frozen=True):
    """The official metrics.

    ``metrics`` holds ``{prompt,instruction}_level_{strict,loose}_accuracy``; ``by_type`` the strict
    and the loose accuracy of each instruction type; ``raised`` how often a type's verifier failed.
    """

    metrics: dict[str, Accuracy]
    by_type: dict[str, dict[str, Accuracy]]
    raised: dict[str, int]
    simplified: int


def summarise(scored: Iterable[tuple[FollowingItem, Followed]]) -> FollowingSummary:
    """Compute accuracies over prompts (all instructions followed) and over instructions."""
    metrics: dict[str, list[bool]] = {}
    by_type: dict[str, dict[str, list[bool]]] = {}
    raised: Counter[str] = Counter()
    simplified = 0
    for item, followed in scored:
        raised.update(followed.raised.keys())
        simplified += followed.simplified
        for reading, verdicts in (("strict", followed.strict), ("loose", followed.loose)):
            metrics.setdefault(f"prompt_level_{reading}_accuracy", []).append(all(verdicts))
            metrics.setdefault(f"instruction_level_{reading}_accuracy", []).extend(verdicts)
            for kind, verdict in zip(item.instruction_id_list, verdicts, strict=True):
                by_type.setdefault(kind, {}).setdefault(reading, []).append(verdict)
    return FollowingSummary(
        {name: _accuracy(verdicts) for name, verdicts in metrics.items()},
        {kind: {reading: _accuracy(v) for reading, v in of.items()} for kind, of in sorted(by_type.items())},
        dict(raised),
        simplified,
    )


def _accuracy(verdicts: list[bool]) -> Accuracy:
    return Accuracy(sum(verdicts), len(verdicts))
