"""Benchmark interface: items for a model, judgments for a judge, and scores.

A task is one `Benchmark`; `benchmarks.run.runner` asks, records and resumes for all of them. The records
between the two are frozen and stored in a task's folder: `Answer` in ``responses.jsonl``, `Judgment` in
``judgments.*.jsonl``, `Scored` in ``summary.json``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import msgspec

from coeval.core.model import Model
from coeval.core.records import Completion, Kept, Message, Request, SamplingParameters, is_good
from coeval.store.jsonl import write_lines

Unit: TypeAlias = Literal["share", "percent", "points", ""]
OptionValues: TypeAlias = Mapping[str, Any]
"""Values of tasks' options, by the option's name."""
JudgmentValue: TypeAlias = dict[str, Any]
"""What a judge's reply says, under the benchmark's own keys."""


class Item(msgspec.Struct, frozen=True):
    """A prompt of a benchmark; ``fields`` is the benchmark's own record, ``labels``: see `Request`."""

    id: str
    messages: tuple[Message, ...]
    fields: dict[str, Any] = {}
    labels: dict[str, list[str]] = {}


class Answer(Kept, frozen=True, kw_only=True, omit_defaults=True):
    """The tested model's answer to an item (``id`` is the item's); a line of ``responses.jsonl``.

    An empty ``response`` is an answer; a failed record has none. ``sampling`` is what was sent, so that
    stored answers can be judged and reported later on their own. ``source`` is the file of a supplied answer,
    and its ``model`` unless the user names one.
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
    """A judge's reply to an `Ask` (``id`` is the ask's); ``value`` is None where it failed."""

    id: str
    item: str = ""
    judge: str = ""
    value: JudgmentValue | None = None
    raw: str | None = None


class Ask(NamedTuple):
    """A judgment to make.

    ``id`` is ``{item}__{what}``, unique in the task. ``request()`` builds the messages and the judge's other
    needs (``top_logprobs``, ``schema``; ``shared`` with the item's other judgments); the runner sets purpose,
    priority, seed and the judge's sampling. ``parse`` returns the judgment's JSON-able value, or raises a
    `ReplyError` for a retry: never a default.
    """

    id: str
    request: Callable[[], Request]
    parse: Callable[[Completion], JudgmentValue]


class Metric(msgspec.Struct, frozen=True):
    """A figure and its ingredients; ``value`` is None where nothing could be scored."""

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

    def without_figures(self) -> Scored:
        """Copy it without figures: its metrics by name alone."""
        metrics = {name: Metric(None, n=metric.n, unit=metric.unit) for name, metric in self.metrics.items()}
        return Scored(metrics=metrics, n_expected=self.n_expected, n_scored=0, n_failed=self.n_failed)


class TaskRecords(NamedTuple):
    """What a task is scored from: items, answers by item and judgments by ask, failed records included."""

    items: Sequence[Item]
    answers: Mapping[str, Answer]
    judgments: Mapping[str, Judgment]


class JudgeSettings(msgspec.Struct, frozen=True):
    """The judge. ``sampling`` are the user's settings, which override the official ones."""

    model: str
    sampling: SamplingParameters = SamplingParameters()
    is_tested_model: bool = False


class TaskSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a task. ``assets`` maps each available asset to its file or folder: all of
    ``Benchmark.assets``, and the available ones of ``Benchmark.optional_assets``. ``options`` are the task's
    own options by name (``writingbench-write-excel``, …). ``judge`` is None where nothing is judged."""

    model: str
    assets: Mapping[str, Path] = {}
    options: OptionValues = {}
    seed: int = 0
    judge: JudgeSettings | None = None


class Benchmark(ABC):
    """A benchmark with its settings; construction reads its assets and asks nothing.

    ``official_judge`` is the judge model of the published numbers; another one makes figures incomparable.
    ``optional_assets`` are used where available. ``compared_with`` names the published figures.
    ``answer_characters`` and ``judgment_characters`` are typical lengths, for estimates.
    """

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

    def text(self, asset: str) -> str:
        """Read an asset that is one text, such as a judge's prompt."""
        return self.settings.assets[asset].read_text(encoding="utf-8")

    @property
    def judge(self) -> str:
        """Return the judge's model; empty if nothing is judged."""
        return self.settings.judge.model if self.settings.judge is not None else ""

    @classmethod
    def find_checkout_or_dataset_files(cls, values: OptionValues) -> dict[str, Path]:  # noqa: ARG003 - most have none
        """Find files that are neither cached nor named by an option of their own: those of a checkout, or of
        another dataset. ``values``: the options by name. Raises UsageError: one names what does not exist."""
        return {}

    @property
    def label(self) -> str:
        """Return the name of its folder and its row in tables."""
        return self.name

    @property
    def is_judged(self) -> bool:
        """Check whether a judge scores any of it."""
        return self.needs_judge

    @property
    def counted(self) -> str:
        """Return the unit of ``n_expected``, ``n_scored`` and ``n_failed`` in its `Scored`."""
        return "judgments" if self.is_judged else "prompts"

    @abstractmethod
    def items(self) -> Sequence[Item]:
        """Return all prompts, in the benchmark's order."""

    def judge_sampling(self) -> SamplingParameters:
        """Return the judge's official sampling."""
        return SamplingParameters()

    def effective_judge_sampling(self) -> SamplingParameters:
        """Return the judge's sampling: the user's settings over the official ones."""
        judge = self.settings.judge
        return self.judge_sampling() | judge.sampling if judge is not None else self.judge_sampling()

    def list_unset_judge_parameters(self) -> tuple[str, ...]:
        """Name the sampling parameters that the user did not set: a judge may refuse them."""
        judge = self.settings.judge
        own = judge.sampling.to_dict() if judge is not None else {}
        return tuple(name for name in self.judge_sampling().to_dict() if name not in own)

    def judge_template(self) -> str:
        """Return the parts of the judge's prompt that all items share, for its recipe."""
        return ""

    async def detect_judge_abilities(self, judge: Model) -> None:  # noqa: B027 - most need not know
        """Probe the judge's capabilities once, before the first judgment."""

    def judge_calls(self, judgments: int) -> tuple[int, int]:
        """Return the least and most judge calls for so many judgments, before `detect_judge_abilities`."""
        return judgments, judgments

    def asks(self, item: Item, answer: Answer) -> Sequence[Ask]:  # noqa: ARG002 - for those that are judged
        """Return the judgments an answer needs; none where rules score it."""
        return ()

    @abstractmethod
    def score(self, records: TaskRecords) -> Scored:
        """Compute the figures."""

    def write_extra(self, folder: Path, records: TaskRecords, scored: Scored) -> None:  # noqa: B027 - most have none
        """Write the benchmark's own files beside the common ones."""

    def write_official(self, folder: Path, answers: Sequence[object], judgments: Sequence[object]) -> None:
        """Write lines to ``model_answer/`` and ``model_judgment/``, as official repositories lay them out."""
        name = f"{file_name(self.settings.model)}.jsonl"
        write_lines(folder / "model_answer" / name, answers)
        if self.judge and judgments:
            write_lines(folder / "model_judgment" / file_name(self.judge) / name, judgments)


_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
# File systems take 255 bytes; suffixes and a temporary file's mark come on top.
_LONGEST_NAME = 100


def file_name(name: str) -> str:
    """Make a safe file name: no path, not hidden, the end of a very long name."""
    return _UNSAFE.sub("_", name)[-_LONGEST_NAME:].strip("._") or "model"


def good_response(answer: Answer | None) -> str | None:
    """Return the text of a good answer, even if empty; None otherwise."""
    return answer.response if answer is not None and is_good(answer) else None


def why_value_missing(record: Kept | None) -> str | None:
    """Return why a value is missing: ``missing``, or the failure's kind; None if it is present."""
    if record is None:
        return "missing"
    if is_good(record):
        return None
    if record.status == "ok":
        return "missing"
    return record.error.kind if record.error is not None else "internal"


def count_failures(records: Iterable[Kept | None]) -> dict[str, int]:
    """Count records without a value, by reason."""
    return dict(Counter(reason for record in records if (reason := why_value_missing(record)) is not None))
