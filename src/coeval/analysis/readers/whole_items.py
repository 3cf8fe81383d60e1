"""Items with all that was made of them, read whole from a folder's files."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np

from coeval.analysis.planned_names import LeftOut, Planned, level_name
from coeval.core.errors import Undecodable
from coeval.core.foreign import make_decoder
from coeval.core.records import (
    SAMPLE,
    Datapoint,
    Evaluation,
    Kept,
    Preference,
    Response,
    answer_name,
    choose_counting,
    is_good,
    keep_valid_values,
    response_id,
)
from coeval.store.jsonl import read_whole_lines
from coeval.store.legacy import is_legacy, read_legacy
from coeval.store.output_folder import JUDGMENTS, RESPONSES
from coeval.store.record_index import RecordFiles, RecordPart
from coeval.store.rundir import PAIRS, RunDir

# --- One item with all its answers and judgments


class ItemFailure(msgspec.Struct, frozen=True):
    """Why there is no value."""

    kind: str
    message: str


class ShownJudgment(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a judge or a check said to an answer. ``scores``: by factor, the level of its scale, or what a
    check gave (0 to 1); None where it was asked for and did not come. ``values``: what each level is worth,
    but for High, Medium and Low. ``reasons`` by factor.

    Of ``eval-framework`` and of comparisons, ``what`` is judged (a criterion, or the order in which a pair
    was shown), and ``verdict`` holds what was read of the reply, by name.
    """

    judge: str
    scores: dict[str, str | None] = {}
    values: dict[str, float] = {}
    reasons: dict[str, str] = {}
    words: str | None = None
    failed: bool = False
    error: ItemFailure | None = None
    what: str = ""
    verdict: dict[str, Any] = {}


class ShownLabel(msgspec.Struct, frozen=True):
    """A label held against the answer; ``predicted`` None: none of the labels."""

    expected: str
    predicted: str | None
    match: bool


class FollowedInstruction(msgspec.Struct, frozen=True):
    """Whether an answer followed an instruction, read strictly and loosely."""

    instruction: str
    strict: bool | None
    loose: bool | None


class ShownAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A student's answer. ``score`` is the mean of its judges' scores (0 to 1), or the benchmark's headline
    metric of it; ``metrics`` are all of them. Tokens are the provider's, money is in dollars."""

    answer: str
    student: str
    sample: int
    text: str | None = None
    reasoning: str | None = None
    truncated: bool = False
    failed: bool = False
    error: ItemFailure | None = None
    score: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    latency_s: float | None = None
    judgments: list[ShownJudgment] = []
    labels: dict[str, ShownLabel] = {}
    metrics: dict[str, float | None] = {}
    instructions: list[FollowedInstruction] = []


class ItemDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """``nuance`` is what else was sampled, ``source`` the passage of a document that the item was made from,
    ``evidence`` the quotes from it."""

    item: str
    task: str
    answers: list[ShownAnswer]
    teacher: str | None = None
    attributes: dict[str, str] = {}
    nuance: dict[str, str] = {}
    prompt: str | None = None
    reference: str | None = None
    source: str = ""
    evidence: tuple[str, ...] = ()
    failed: bool = False
    error: ItemFailure | None = None


# --- Line positions of each item's records

KeptT = TypeVar("KeptT", bound=Kept)


class _OfItem(RecordPart, frozen=True):
    """A line of a run or of ``eval-framework``; an item's own has its id alone."""

    datapoint_id: str = ""
    item: str = ""


class ItemLines:
    """The lines of some files, by the item that they are of.

    Raises StoreError: a file cannot be read.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = RecordFiles()
        keys, positions = array("q"), array("Q")
        for position, part in self._files.lines(files, _OfItem):
            keys.append(hash(part.datapoint_id or part.item or part.id))
            positions.append(position)
        of_lines = np.frombuffer(keys, np.int64)
        order = np.argsort(of_lines, kind="stable")
        self._keys, self._positions = of_lines[order], np.frombuffer(positions, np.uint64)[order]

    def records(self, item: str, kind: type[KeptT], needed: Callable[[KeptT], bool]) -> list[KeptT]:
        """Of the records of a kind that are ``needed`` those that count, in the order of the files.

        Lines that are none are left out; files that were replaced meanwhile may hold another item's."""
        return list(choose_counting(filter(needed, self._records(item, kind))).values())

    def _records(self, item: str, kind: type[KeptT]) -> Iterator[KeptT]:
        read = make_decoder(kind)
        begin, end = (np.searchsorted(self._keys, hash(item), side) for side in ("left", "right"))
        for position in self._positions[begin:end].tolist():
            try:
                yield read(self._files.line(position))
            except Undecodable:
                continue


_SCORES_OF_SAMPLES = f"""
SELECT model || CASE WHEN sample > 0 THEN '{SAMPLE}' || (sample + 1) ELSE '' END,
       CASE WHEN s.item IS NULL THEN matched ELSE s.score END
FROM answers LEFT JOIN answer_score s USING (item, model, sample) LEFT JOIN (
    SELECT answer, avg(match::INTEGER) AS matched FROM labels GROUP BY answer
) USING (answer)
WHERE item = ?
"""  # noqa: S608


_NONE_KNOWN: Mapping[str, float | None] = {}
Rows: TypeAlias = Callable[[str, Sequence[object]], list[tuple[Any, ...]]]
"""A query over a reader's views, with its parameters."""


class RunItems:
    """Items of a run, but for the judges and factors that are ``left_out``; ``planned`` knows scales. Files
    are read as they stand when an item is first asked for."""

    def __init__(
        self, rows: Rows, run: RunDir, left_out: Sequence[LeftOut], planned: Planned | None = None
    ) -> None:
        self._rows, self._planned = rows, planned
        self._run = run
        self._judges = {(each.task, each.name) for each in left_out if each.kind == "judge"}
        self._factors = {(each.task, each.name) for each in left_out if each.kind == "factor"}

    def prepare(self) -> None:
        """Find where all lines lie; raises as `detail`."""
        if self._older is None:
            _ = self._lines

    def detail(
        self, item: str, task: str, scores: Mapping[str, float | None] = _NONE_KNOWN
    ) -> ItemDetail | None:
        """An item with all that was made of it; None where it is not there. ``scores`` are those of students,
        unless one gave several answers: then each answer has its own.

        Raises StoreError: a file cannot be read.
        """
        records = self._records(item)
        found = next((each for each in records if isinstance(each, Datapoint)), None)
        if found is None:
            return None
        judged: defaultdict[str, list[Evaluation]] = defaultdict(list)
        for each in records:
            if isinstance(each, Evaluation) and (task, each.judge_model_id) not in self._judges:
                judged[each.response_id].append(each)
        compared: defaultdict[str, list[Preference]] = defaultdict(list)
        for pair in self._comparisons(item):
            if (task, pair.judge_model_id) not in self._judges:
                compared[response_id(item, pair.first_model_id)].append(pair)
        answers = [each for each in records if isinstance(each, Response)]
        if any(each.sample for each in answers):
            scores = dict(self._rows(_SCORES_OF_SAMPLES, [item]))
        return ItemDetail(
            item=item,
            task=task,
            teacher=found.teacher_model_id,
            attributes=found.sampled_target_attributes,
            nuance=found.sampled_nuanced_attributes or {},
            prompt=found.prompt,
            reference=found.reference_response,
            source=found.source,
            evidence=found.evidence,
            failed=not is_good(found),
            error=_failure(found),
            answers=[
                self._answer(
                    each,
                    judged[each.id],
                    compared[each.id],
                    scores.get(answer_name(each.student_model_id, each.sample)),
                )
                for each in sorted(answers, key=lambda each: (each.student_model_id, each.sample))
            ],
        )

    def prompt(self, item: str, task: str) -> str | None:
        """An item's prompt alone; None where there is none.

        Raises StoreError: a file cannot be read.
        """
        if self._older is not None:
            found = [each for each in self._older.get(item, []) if isinstance(each, Datapoint)]
        else:
            found = self._lines[0].records(item, Datapoint, lambda each: each.id == item)
        return next((each.prompt for each in found if each.task_id == task), None)

    def _records(self, item: str) -> list[Datapoint | Response | Evaluation]:
        if self._older is not None:
            return self._older.get(item, [])
        items, answers, judgments, _ = self._lines
        return [
            *items.records(item, Datapoint, lambda each: each.id == item),
            *answers.records(item, Response, lambda each: each.datapoint_id == item),
            *judgments.records(item, Evaluation, lambda each: each.datapoint_id == item),
        ]

    def _comparisons(self, item: str) -> list[Preference]:
        if self._older is not None:
            return []
        return self._lines[3].records(item, Preference, lambda each: each.datapoint_id == item)

    @cached_property
    def _lines(self) -> tuple[ItemLines, ItemLines, ItemLines, ItemLines]:
        return (
            ItemLines(self._run.files("data_generation")),
            ItemLines(self._run.files("response_collection")),
            ItemLines(self._run.files("evaluation")),
            ItemLines(self._run.files(PAIRS)),
        )

    @cached_property
    def _older(self) -> dict[str, list[Datapoint | Response | Evaluation]] | None:
        """All records of a run of an older layout, by item."""
        if not is_legacy(self._run.path):
            return None
        found: defaultdict[str, list[Datapoint | Response | Evaluation]] = defaultdict(list)
        for phase in ("data_generation", "response_collection", "evaluation"):
            for record in read_legacy(self._run.path, phase, []):
                found[record.id if isinstance(record, Datapoint) else record.datapoint_id].append(record)
        return dict(found)

    def _answer(
        self,
        answer: Response,
        judged: list[Evaluation],
        compared: list[Preference],
        score: float | None,
    ) -> ShownAnswer:
        """``compared``: with other answers, which were shown after this one."""
        labels = {
            name: ShownLabel(label.expected, label.predicted, label.match)
            for each in judged
            for name, label in (each.label_scores or {}).items()
        }
        return msgspec.structs.replace(
            _shown(answer, answer.student_model_id, answer.sample),
            score=score,
            judgments=[
                self._judgment(each)
                for each in sorted(judged, key=lambda each: each.judge_model_id)
                if each.label_scores is None
            ]
            + [
                _comparison(each)
                for each in sorted(compared, key=lambda each: (each.second_model_id, each.judge_model_id))
            ],
            labels=labels,
        )

    def _judgment(self, judgment: Evaluation) -> ShownJudgment:
        values = keep_valid_values(judgment.values)
        named = {
            factor: level_name(self._planned, judgment.task_id, factor, value)
            for factor, value in values.items()
        }
        scores: dict[str, str | None] = {**judgment.scores, **named, **dict.fromkeys(judgment.missing)}
        counts = {factor for factor in scores if (judgment.task_id, factor) not in self._factors}
        return ShownJudgment(
            judge=judgment.judge_model_id,
            scores={factor: level for factor, level in scores.items() if factor in counts},
            values={factor: value for factor, value in values.items() if factor in counts},
            reasons=judgment.reasons or {},
            words=judgment.raw,
            failed=not is_good(judgment),
            error=_failure(judgment),
        )


def _comparison(compared: Preference) -> ShownJudgment:
    won = {"first": compared.first_model_id, "second": compared.second_model_id, "tie": "tie"}
    good = is_good(compared) and compared.winner is not None
    return ShownJudgment(
        judge=compared.judge_model_id,
        reasons={"reason": compared.reason} if compared.reason else {},
        words=None if good else compared.raw,
        failed=not good,
        error=_failure(compared),
        what=f"{compared.first_model_id} before {compared.second_model_id}",
        verdict={"winner": won[compared.winner]} if compared.winner is not None else {},
    )


def _failure(record: Kept) -> ItemFailure | None:
    """Why a record holds no value, if it says so."""
    return ItemFailure(record.error.kind, record.error.message) if record.error is not None else None


# --- Items of eval-framework


class _GivenAnswer(Kept, frozen=True, kw_only=True, omit_defaults=True):
    """What is shown of a line of ``responses.jsonl``."""

    prompt: str = ""
    response: str | None = None
    model: str = ""

    @property
    def value(self) -> str | None:
        return self.response


class _GivenJudgment(Kept, frozen=True, kw_only=True, omit_defaults=True):
    """What is shown of a line of ``judgments.*.jsonl``."""

    item: str = ""
    judge: str = ""
    value: dict[str, Any] | None = None
    raw: str | None = None


class _Verdicts(msgspec.Struct, frozen=True):
    """A line of ``eval_results_*.jsonl``."""

    key: int | str
    instruction_id_list: list[str]
    follow_instruction_list: list[bool]


class TaskPlace(NamedTuple):
    """A task's folder, and by which recipe what is shown of it was judged (None: whichever there is)."""

    folder: Path
    task: str
    sample: int
    model: str | None
    judged_by: str | None

    @property
    def answers(self) -> list[Path]:
        """Its file of answers, if it exists."""
        return [path for path in [self.folder / RESPONSES] if path.is_file()]

    @property
    def judgments(self) -> list[Path]:
        return sorted(self.folder.glob(JUDGMENTS))

    def followed(self) -> dict[str, list[FollowedInstruction]]:
        """By item, what came of each of its instructions; empty where a benchmark has none."""
        strict, loose = (_verdicts(self.folder / f"eval_results_{how}.jsonl") for how in ("strict", "loose"))
        found = {}
        for item, verdicts in strict.items():
            loosely = loose[item].follow_instruction_list if item in loose else ()
            read = zip_longest(verdicts.instruction_id_list, verdicts.follow_instruction_list, loosely)
            found[item] = [FollowedInstruction(*each) for each in read if each[0] is not None]
        return found


class _TaskLines(NamedTuple):
    """What is read of a task's folder."""

    place: TaskPlace
    answers: ItemLines
    judgments: ItemLines
    followed: dict[str, list[FollowedInstruction]]


_METRICS = "SELECT metric, value FROM scores WHERE task = ? AND item = ? AND sample = ? ORDER BY metric"


class OutputItems:
    """Those of an output folder of ``eval-framework``, read as `RunItems` reads a run's."""

    def __init__(self, rows: Rows, places: Sequence[TaskPlace]) -> None:
        self._rows = rows
        self._places = places

    def prepare(self) -> None:
        _ = self._tasks

    def detail(self, item: str, task: str, _: Mapping[str, float | None] = _NONE_KNOWN) -> ItemDetail | None:
        headline = self._rows("SELECT metric FROM headline WHERE task = ?", [task])
        answers: list[ShownAnswer] = []
        prompt: str | None = None
        for lines in self._tasks.get(task, ()):
            found = lines.answers.records(item, _GivenAnswer, lambda each: each.id == item)
            if not found:
                continue
            answer = found[0]
            prompt = prompt or answer.prompt or None
            answers.append(self._answer(answer, lines, headline[0][0] if headline else ""))
        return ItemDetail(item=item, task=task, prompt=prompt, answers=answers) if answers else None

    def prompt(self, item: str, task: str) -> str | None:
        found = (
            lines.answers.records(item, _GivenAnswer, lambda each: each.id == item)
            for lines in self._tasks.get(task, ())
        )
        return next((answer.prompt for answers in found for answer in answers if answer.prompt), None)

    @cached_property
    def _tasks(self) -> dict[str, list[_TaskLines]]:
        found: dict[str, list[_TaskLines]] = {}
        for place in self._places:
            lines = _TaskLines(place, ItemLines(place.answers), ItemLines(place.judgments), place.followed())
            found.setdefault(place.task, []).append(lines)
        return found

    def _answer(self, answer: _GivenAnswer, lines: _TaskLines, headline: str) -> ShownAnswer:
        place = lines.place
        whose = [place.task, answer.id, place.sample]
        metrics: dict[str, float | None] = dict(self._rows(_METRICS, whose))
        judgments = lines.judgments.records(
            answer.id,
            _GivenJudgment,
            lambda each: each.item == answer.id and place.judged_by in (None, each.recipe),
        )
        return msgspec.structs.replace(
            _shown(answer, answer.model, place.sample),
            score=metrics.get(headline),
            judgments=[_verdict(each) for each in sorted(judgments, key=lambda each: each.id)],
            metrics=metrics,
            instructions=lines.followed.get(answer.id, []),
        )


WholeItems: TypeAlias = RunItems | OutputItems


def _shown(answer: Response | _GivenAnswer, student: str, sample: int) -> ShownAnswer:
    """An answer before anybody judged it."""
    usage = answer.usage
    return ShownAnswer(
        answer=answer.id,
        student=student,
        sample=sample,
        text=answer.response,
        reasoning=answer.reasoning,
        truncated=answer.truncated,
        failed=not is_good(answer),
        error=_failure(answer),
        input_tokens=usage.input_tokens if usage is not None else None,
        output_tokens=usage.output_tokens if usage is not None else None,
        cost_usd=usage.cost_usd if usage is not None else None,
        latency_s=answer.latency_s,
    )


def _verdict(judgment: _GivenJudgment) -> ShownJudgment:
    return ShownJudgment(
        judge=judgment.judge,
        words=judgment.raw,
        failed=not is_good(judgment),
        error=_failure(judgment),
        what=judgment.id.removeprefix(f"{judgment.item}__"),
        verdict={name: value for name, value in (judgment.value or {}).items() if name != "top_logprobs"},
    )


def _verdicts(file: Path) -> dict[str, _Verdicts]:
    read = make_decoder(_Verdicts)
    found = {}
    for line in read_whole_lines(file):
        try:
            verdicts = read(line.text)
        except Undecodable:
            continue
        found[str(verdicts.key)] = verdicts
    return found
