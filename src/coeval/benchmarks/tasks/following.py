"""IFEval and IFBench: prompts with verifiable instructions, scored by rules without a judge.

Strict reads the response unchanged. Loose accepts any of eight readings: with or without the first line, with
or without the last, and each with or without its asterisks, since models wrap answers in a greeting and in
Markdown (Zhou et al. 2023, section 4.1; IFBench likewise).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from coeval.analysis.intervals import wilson_interval
from coeval.benchmarks.assets.library import find_uncached_in_checkout, read_records
from coeval.benchmarks.benchmark import (
    Benchmark,
    Item,
    Metric,
    OptionValues,
    Scored,
    TaskRecords,
    TaskSettings,
    count_failures,
    good_response,
)
from coeval.benchmarks.run.judgment_outcomes import clustered_mean_metric, metric_from_interval
from coeval.benchmarks.task_registry import IFBENCH_FOLDER
from coeval.benchmarks.tasks import ifbench_formats, ifbench_words, ifeval_checks
from coeval.benchmarks.tasks.ifeval_checks import Instruction, InstructionType
from coeval.benchmarks.text_analysis import RESOURCES, Language
from coeval.core.errors import Misshapen, UsageError
from coeval.core.foreign import convert
from coeval.core.records import Message
from coeval.store.jsonl import write_lines


def _list_instruction_types(*modules: ModuleType) -> tuple[InstructionType, ...]:
    return tuple(
        kind for module in modules for kind in vars(module).values() if isinstance(kind, InstructionType)
    )


IFEVAL_INSTRUCTIONS = _list_instruction_types(ifeval_checks)
IFBENCH_INSTRUCTIONS = _list_instruction_types(ifbench_words, ifbench_formats)
INSTRUCTIONS = {kind.id: kind for kind in (*IFEVAL_INSTRUCTIONS, *IFBENCH_INSTRUCTIONS)}


class FollowingItem(msgspec.Struct, frozen=True):
    """A prompt with its instructions, as in the data files of both benchmarks."""

    key: int | str
    prompt: str
    instruction_id_list: list[str]
    kwargs: list[dict[str, Any]]


Reading: TypeAlias = Literal["strict", "loose"]
READINGS: tuple[Reading, ...] = ("strict", "loose")


class Followed(msgspec.Struct, frozen=True):
    """Verdicts in the order of the item's instructions; ``raised`` names those whose verifier failed."""

    strict: list[bool]
    loose: list[bool]
    raised: dict[str, str] = {}

    def verdicts(self, reading: Reading) -> list[bool]:
        return self.strict if reading == "strict" else self.loose


def make_instruction(instruction_id: str, kwargs: Mapping[str, Any]) -> Instruction:
    """Make an instruction from its arguments; those that are None are left out. Raises UsageError: the type
    is unknown, or an argument is missing, unknown or of the wrong kind."""
    kind = INSTRUCTIONS.get(instruction_id)
    if kind is None:
        raise UsageError(f"there is no instruction type {instruction_id!r}; known: {', '.join(INSTRUCTIONS)}")
    arguments = {name: _as_whole_number(value) for name, value in kwargs.items() if value is not None}
    try:
        return Instruction(kind, convert(arguments, kind.arguments))
    except Misshapen as error:
        raise UsageError(
            f"{instruction_id}: {error}; its arguments: {kind.arguments.__struct_fields__}"
        ) from error


def _as_whole_number(value: object) -> object:
    """Convert 5.0 to 5: IFBench's data file writes its whole numbers so."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def loose_readings(response: str) -> list[str]:
    """Return the distinct ones of the eight loose readings, the response itself first."""
    lines = response.split("\n")
    plain = [response, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    return list(dict.fromkeys([*plain, *(text.replace("*", "") for text in plain)]))


def score_prompt(item: FollowingItem, response: str, language: Language) -> Followed:
    """Check an item's instructions strictly and loosely; raises UsageError as `make_instruction`."""
    if len(item.instruction_id_list) != len(item.kwargs):
        raise UsageError(f"item {item.key}: as many kwargs as instructions are needed")
    others = loose_readings(response)[1:]
    followed = Followed([], [])
    for instruction_id, kwargs in zip(item.instruction_id_list, item.kwargs, strict=True):
        instruction = make_instruction(instruction_id, kwargs)
        strict = loose = False
        try:
            strict = loose = instruction.is_followed(response, language)
            loose = strict or any(instruction.is_followed(text, language) for text in others)
        except Exception as error:  # noqa: BLE001 - one instruction's bug must cost neither the item nor the run
            followed.raised[instruction_id] = f"{type(error).__name__}: {error}"
        followed.strict.append(strict)
        followed.loose.append(loose)
    return followed


class FollowingTask(Benchmark):
    """A task whose prompts are in ``assets[0]``, and whose language data, if present, in ``optional_assets``.

    Metrics: ``{prompt,instruction}_level_{strict,loose}_accuracy``, shares. Those over prompts have Wilson
    intervals, those over instructions intervals clustered by prompt, since the instructions of one prompt
    are met or missed together.
    """

    needs_judge: ClassVar[bool] = False

    def __init__(self, settings: TaskSettings) -> None:
        super().__init__(settings)
        folders = (path for name, path in settings.assets.items() if name in self.optional_assets)
        self._language = Language(tuple(dict.fromkeys(folders)))
        self._source = settings.assets[self.assets[0]]
        self._verdicts: dict[str, Followed] = {}

    def items(self) -> Sequence[Item]:
        records = [_read_prompt(record, self._source) for record in read_records(self._source)]
        return [
            Item(str(record.key), (Message("user", record.prompt),), {"record": record}) for record in records
        ]

    def score(self, records: TaskRecords) -> Scored:
        """Compute the four accuracies, and the table by instruction type."""
        items, answers, _ = records
        # A prompt without an answer has followed nothing, and stays in the denominator.
        self._verdicts = {
            item.id: score_prompt(
                _following_item(item), good_response(answers.get(item.id)) or "", self._language
            )
            for item in items
        }
        raised = Counter(kind for followed in self._verdicts.values() for kind in followed.raised)
        failed = count_failures(answers.get(item.id) for item in items)
        return Scored(
            metrics=dict(self._accuracy_metrics()),
            n_expected=len(items),
            n_scored=len(items) - sum(failed.values()),
            n_failed=failed,
            reasons=tuple(self._incomparable_reasons(raised)),
            tables=self._tables(items, raised),
            items={item.id: _item_scores(self._verdicts[item.id]) for item in items},
            weights={item.id: _item_weights(self._verdicts[item.id]) for item in items},
        )

    def _accuracy_metrics(self) -> Iterator[tuple[str, Metric]]:
        for reading in READINGS:
            prompts = [followed.verdicts(reading) for followed in self._verdicts.values()]
            n, followed = len(prompts), sum(map(all, prompts))
            error = sqrt(followed / n * (1 - followed / n) / n) if n else None
            yield (
                f"prompt_level_{reading}_accuracy",
                metric_from_interval(wilson_interval(followed, n), "share", error),
            )
            clustered = clustered_mean_metric(prompts, "share")
            count = sum(map(len, prompts))
            yield f"instruction_level_{reading}_accuracy", msgspec.structs.replace(clustered, n=count)

    def _incomparable_reasons(self, raised: Mapping[str, int]) -> Iterator[str]:
        if missing := [
            name for name in self._language.missing_resources if _is_resource_of(name, self.optional_assets)
        ]:
            yield f"NLTK data is not there ({', '.join(missing)}): our own rules are used instead"
        if raised:
            kinds = ", ".join(f"{kind} ({count})" for kind, count in sorted(raised.items()))
            yield f"verifiers failed, and count as not followed: {kinds}"

    def _tables(self, items: Sequence[Item], raised: Mapping[str, int]) -> dict[str, Any]:
        """Tabulate accuracy by instruction type, and what the verifiers rested on."""
        by_type: dict[str, dict[str, list[bool]]] = {}
        for item in items:
            for reading in READINGS:
                verdicts = self._verdicts[item.id].verdicts(reading)
                for kind, verdict in zip(_following_item(item).instruction_id_list, verdicts, strict=True):
                    by_type.setdefault(kind, {}).setdefault(reading, []).append(verdict)
        missing = set(self._language.missing_resources)
        data = {
            name: "rule-based" if name in missing else "nltk"
            for name in RESOURCES
            if _is_resource_of(name, self.optional_assets)
        }
        return {
            "by_instruction_type": {
                kind: {
                    reading: {"accuracy": _share_true(verdicts_of_type), "n": len(verdicts_of_type)}
                    for reading, verdicts_of_type in by_reading.items()
                }
                for kind, by_reading in sorted(by_type.items())
            },
            "language_data": data,
            "verifiers_failed": dict(raised),
        }

    def write_extra(self, folder: Path, records: TaskRecords, scored: Scored) -> None:  # noqa: ARG002 - the verdicts behind it are what is written
        """Write ``eval_results_{strict,loose}.jsonl`` in the official scripts' form."""
        for reading in READINGS:
            lines = []
            for item in records.items:
                record, verdicts = _following_item(item), self._verdicts[item.id].verdicts(reading)
                line = {
                    "key": record.key,
                    "prompt": record.prompt,
                    "response": good_response(records.answers.get(item.id)),
                    "instruction_id_list": record.instruction_id_list,
                    "follow_instruction_list": verdicts,
                    "follow_all_instructions": all(verdicts),
                }
                lines.append(line)
            write_lines(folder / f"eval_results_{reading}.jsonl", lines)


def _read_prompt(record: dict[str, Any], source: Path) -> FollowingItem:
    try:
        item = convert(record, FollowingItem)
        for kind, kwargs in zip(item.instruction_id_list, item.kwargs, strict=True):
            make_instruction(kind, kwargs)
    except (Misshapen, ValueError, UsageError) as error:
        raise UsageError(f"{source}: the prompt with key {record.get('key')!r} is wrong: {error}") from error
    return item


def _following_item(item: Item) -> FollowingItem:
    record: FollowingItem = item.fields["record"]
    return record


def _is_resource_of(resource: str, assets: Sequence[str]) -> bool:
    """Check whether ``tokenizers/punkt_tab/english`` belongs to one of the assets (``nltk/punkt_tab``)."""
    return any(asset.rpartition("/")[2] in resource for asset in assets)


def _item_scores(followed: Followed) -> dict[str, float | None]:
    scores: dict[str, float | None] = {}
    for reading in READINGS:
        verdicts = followed.verdicts(reading)
        scores[f"prompt_level_{reading}_accuracy"] = float(all(verdicts))
        scores[f"instruction_level_{reading}_accuracy"] = _share_true(verdicts)
    return scores


def _item_weights(followed: Followed) -> dict[str, float]:
    return {f"instruction_level_{reading}_accuracy": len(followed.verdicts(reading)) for reading in READINGS}


def _share_true(verdicts: list[bool]) -> float | None:
    return sum(verdicts) / len(verdicts) if verdicts else None


class IFEval(FollowingTask):
    """541 prompts with 25 types of verifiable instructions (Zhou et al. 2023, arXiv:2311.07911)."""

    name: ClassVar[str] = "ifeval"
    assets: ClassVar[tuple[str, ...]] = ("ifeval/prompts",)
    optional_assets: ClassVar[tuple[str, ...]] = ("nltk/punkt_tab",)


# Asset → where it lies in a checkout.
_IFBENCH_FILES = {"ifbench/prompts": "data/IFBench_test.jsonl"}
_IFBENCH_CHECKOUT = Path(".external/IFBench")


class IFBench(FollowingTask):
    """300 prompts with 58 types of verifiable instructions (Pyatkin et al. 2025, arXiv:2507.02833)."""

    name: ClassVar[str] = "ifbench"
    assets: ClassVar[tuple[str, ...]] = ("ifbench/prompts",)
    optional_assets: ClassVar[tuple[str, ...]] = (
        "nltk/punkt_tab",
        "nltk/stopwords",
        "nltk/averaged_perceptron_tagger_eng",
    )

    @classmethod
    def find_checkout_or_dataset_files(cls, values: OptionValues) -> dict[str, Path]:
        """Find the files of a checkout; without one, those of ``.external/`` that are not cached."""
        if (folder := values[IFBENCH_FOLDER.name]) is None:
            return find_uncached_in_checkout(_IFBENCH_CHECKOUT, _IFBENCH_FILES)
        return {asset: IFBENCH_FOLDER.require_file(folder / path) for asset, path in _IFBENCH_FILES.items()}
