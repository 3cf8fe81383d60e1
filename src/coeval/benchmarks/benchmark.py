"""What a benchmark is: items to ask a model, judgments to ask of a judge, and scores made of them.

A task is one `Benchmark`; `benchmarks.run.runner` asks, keeps and resumes for all of them. The records
that pass between the two are frozen and stand in the files of a task's folder: `Answer` in
``responses.jsonl``, `Judgment` in ``judgments.*.jsonl``, `Scored` in ``summary.json``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import msgspec

from coeval.core.model import Model
from coeval.core.records import Completion, Kept, Message, Request, SamplingParameters, is_good

__all__ = [
    "Answer",
    "Ask",
    "Benchmark",
    "Item",
    "JudgeSettings",
    "Judgment",
    "Metric",
    "Scored",
    "TaskSettings",
    "count_failures",
    "response_of",
    "why_missing",
]

Unit: TypeAlias = Literal["share", "percent", "points", ""]


class Item(msgspec.Struct, frozen=True):
    """One prompt of a benchmark; ``fields`` is the benchmark's own record, ``labels``: see `Request`."""

    id: str
    messages: tuple[Message, ...]
    fields: dict[str, Any] = {}
    labels: dict[str, list[str]] = {}


class Answer(Kept, frozen=True, kw_only=True, omit_defaults=True):
    """What the tested model said to an item (``id`` is the item's); one line of ``responses.jsonl``.

    An empty ``response`` is an answer; a failed record has none. ``sampling`` is what was sent for it,
    so that stored answers can be judged and reported later by themselves. ``source`` is the file of a
    given one, which is also its ``model`` where nobody names another.
    """

    id: str
    prompt: str = ""
    response: str | None = None
    model: str = ""
    source: str = ""
    sampling: dict[str, Any] | None = None

    @property
    def value(self) -> str | None:
        return self.response


class Judgment(Kept, frozen=True, kw_only=True, omit_defaults=True):
    """What a judge said to an `Ask` (``id`` is the ask's); ``value`` is None where it failed."""

    id: str
    item: str = ""
    judge: str = ""
    value: dict[str, Any] | None = None
    raw: str | None = None


class Ask(NamedTuple):
    """One judgment to be made.

    ``id`` is ``{item}__{what}``, unique in the task. ``request()`` builds the messages and what else the
    judge needs (``top_logprobs``, ``schema``; ``shared`` with the item's other judgments); the runner sets
    purpose, rank, seed and the judge's sampling. ``parse`` gives the judgment's JSON-able value, or raises a
    `ReplyError` for the judge to be asked again: never a default.
    """

    id: str
    request: Callable[[], Request]
    parse: Callable[[Completion], dict[str, Any]]


class Metric(msgspec.Struct, frozen=True):
    """A figure with what it is made of; ``value`` is None where nothing could be scored."""

    value: float | None
    standard_error: float | None = None
    ci95: tuple[float, float] | None = None
    n: int = 0
    unit: Unit = ""


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """A task's result.

    ``metrics`` have the benchmark's official names, the headline first. ``n_expected`` and
    ``n_scored`` count the benchmark's unit of scoring (prompts, or judgments where a judge scores),
    ``n_failed`` the others by reason. ``reasons`` say why the figures cannot be compared with
    published ones; empty: they can. ``remarks`` say what else to know of them. ``tables`` hold figures
    per type, theme, domain and the like; ``items`` the scores of each item by metric, which intervals
    over items and runs are made of, and ``weights`` how much each counts in its metric, where the metric is
    no plain mean of items.
    """

    metrics: dict[str, Metric]
    n_expected: int
    n_scored: int
    n_failed: dict[str, int] = {}
    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    tables: dict[str, Any] = {}
    items: dict[str, dict[str, float | None]] = {}
    weights: dict[str, dict[str, float]] = {}


class JudgeSettings(msgspec.Struct, frozen=True):
    """Who judges. ``sampling`` holds the user's own settings, which go over the official ones."""

    model: str
    sampling: SamplingParameters = SamplingParameters()
    is_tested_model: bool = False


class TaskSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a task is built from.

    ``assets`` names the file or folder of each asset that is there: all of ``Benchmark.assets``,
    and those of ``Benchmark.optional_assets`` that could be had. ``options`` are the values of
    the task's own options by name (``writingbench-write-excel``, …). ``judge`` is None where nothing is
    to be judged.
    """

    model: str
    assets: Mapping[str, Path] = {}
    options: Mapping[str, Any] = {}
    seed: int = 0
    judge: JudgeSettings | None = None


class Benchmark(ABC):
    """One benchmark with its settings; building it reads its assets and asks nothing.

    ``official_judge`` is the judge model of the published numbers (another one is a reason why figures
    cannot be compared); ``optional_assets`` are used where they can be had. ``compared_with`` are the
    figures that its own would be held against. ``answer_characters`` and ``judgment_characters`` are
    about how long an answer and what a judge says are, for estimates."""

    name: ClassVar[str]
    needs_judge: ClassVar[bool] = False
    assets: ClassVar[tuple[str, ...]] = ()
    optional_assets: ClassVar[tuple[str, ...]] = ()
    official_judge: ClassVar[str] = ""
    compared_with: ClassVar[str] = "published numbers"
    answer_characters: ClassVar[int] = 1600
    judgment_characters: ClassVar[int] = 400

    def __init__(self, settings: TaskSettings) -> None:
        self.settings = settings

    @classmethod
    def found_files(cls, values: Mapping[str, Any]) -> dict[str, Path]:  # noqa: ARG003 - most have none
        """Files by asset that are in no cache and that no option names one by one: those of a checkout, of
        another dataset. ``values`` are those of the task's options by name.

        Raises
        ------
        UsageError
            an option names what is not there.
        """
        return {}

    @property
    def label(self) -> str:
        """What its folder and its line in a table are called."""
        return self.name

    @property
    def is_judged(self) -> bool:
        """Whether a judge has anything to score in it."""
        return self.needs_judge

    @property
    def counted(self) -> str:
        """What ``n_expected``, ``n_scored`` and ``n_failed`` of its `Scored` count."""
        return "judgments" if self.is_judged else "prompts"

    @abstractmethod
    def items(self) -> Sequence[Item]:
        """All prompts, in the benchmark's order."""

    def judge_sampling(self) -> SamplingParameters:
        """The official sampling of the judge."""
        return SamplingParameters()

    def judged_with(self) -> SamplingParameters:
        """What the judge is asked with: the user's own settings over the official ones."""
        judge = self.settings.judge
        return self.judge_sampling() | judge.sampling if judge is not None else self.judge_sampling()

    def droppable_for_judge(self) -> tuple[str, ...]:
        """What of `judged_with` is the benchmark's and not the user's wish: a judge that does not take it is
        asked without, which its judgments say."""
        judge = self.settings.judge
        own = judge.sampling.named() if judge is not None else {}
        return tuple(name for name in self.judge_sampling().named() if name not in own)

    def judge_template(self) -> str:
        """Everything of the judge's prompt that is the same for all items: part of its recipe."""
        return ""

    async def meet_judge(self, judge: Model) -> None:  # noqa: B027 - most need not know
        """Find out what the judge can do, once, before it is asked for the first judgment."""

    def judge_calls(self, judgments: int) -> tuple[int, int]:
        """How many calls of the judge so many judgments take, at the least and at the most, as far as can be
        told before `meet_judge`."""
        return judgments, judgments

    def asks(self, item: Item, answer: Answer) -> Sequence[Ask]:  # noqa: ARG002 - for those that are judged
        """The judgments that an answer needs; none where rules score it."""
        return ()

    @abstractmethod
    def score(
        self,
        items: Sequence[Item],
        answers: Mapping[str, Answer],
        judgments: Mapping[str, Judgment],
    ) -> Scored:
        """The figures. ``answers`` by item and ``judgments`` by ask hold failed records too."""

    def write_extra(  # noqa: B027 - most have none
        self,
        folder: Path,
        items: Sequence[Item],
        answers: Mapping[str, Answer],
        judgments: Mapping[str, Judgment],
        scored: Scored,
    ) -> None:
        """Write the benchmark's own files beside those that every task has."""


def response_of(answer: Answer | None) -> str | None:
    """What a good answer says, be it nothing; None where there is none."""
    return answer.response if answer is not None and is_good(answer) else None


def why_missing(record: Kept | None) -> str | None:
    """Why there is no value: ``missing``, or the kind of the failure; None where there is one."""
    if record is None:
        return "missing"
    if is_good(record):
        return None
    if record.status == "ok":
        return "missing"
    return record.error.kind if record.error is not None else "internal"


def count_failures(records: Iterable[Kept | None]) -> dict[str, int]:
    """How many records hold no value, by reason."""
    counts: dict[str, int] = {}
    for record in records:
        if (reason := why_missing(record)) is not None:
            counts[reason] = counts.get(reason, 0) + 1
    return counts
