"""Items with all their answers and judgments, read whole from a folder's files."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np

from coeval.analysis.planned_names import LeftOut, Planned, nearest_level_or_number
from coeval.analysis.readers.run_records import RECORD_KINDS
from coeval.core.errors import Undecodable
from coeval.core.foreign import make_decoder
from coeval.core.records import (
    SAMPLE,
    Datapoint,
    Evaluation,
    Failure,
    Kept,
    LabelScore,
    Preference,
    Record,
    Response,
    answer_name,
    choose_counted,
    is_good,
    keep_valid_values,
    response_id,
)
from coeval.store.jsonl import read_decodable_lines
from coeval.store.legacy import is_legacy, read_legacy
from coeval.store.output_folder import JUDGMENTS, RESPONSES
from coeval.store.record_index import RecordFiles, RecordPart
from coeval.store.rundir import RunDir

# --- One item with all its answers and judgments


class ShownJudgment(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a judge or a check said about an answer.

    ``scores``: by factor, the level of its scale, or a check's score (0 to 1); None where it is missing.
    ``values``: what each level is worth, except High, Medium and Low. ``reasons`` are by factor. For
    ``eval-framework`` and comparisons, ``what`` is judged (a criterion, or the order in which a pair was
    shown), and ``verdict`` holds what was read from the reply, by name.
    """

    judge: str
    scores: dict[str, str | None] = {}
    values: dict[str, float] = {}
    reasons: dict[str, str] = {}
    words: str | None = None
    failed: bool = False
    error: Failure | None = None
    what: str = ""
    verdict: dict[str, Any] = {}


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
    error: Failure | None = None
    score: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    latency_s: float | None = None
    judgments: list[ShownJudgment] = []
    labels: dict[str, LabelScore] = {}
    metrics: dict[str, float | None] = {}
    instructions: list[FollowedInstruction] = []


class ItemDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """An item with all its answers. ``nuance``: the other sampled attributes; ``source``: the passage of a
    document that the item was made from; ``evidence``: the quotes from it."""

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
    error: Failure | None = None


# --- Line positions of each item's records

KeptT = TypeVar("KeptT", bound=Kept)
RecordT = TypeVar("RecordT", bound=Record | Preference)


class _ItemLine(RecordPart, frozen=True):
    """A line of a run or of ``eval-framework``; an item's own has its id alone."""

    datapoint_id: str = ""
    item: str = ""


class ItemLines:
    """The lines of some files, indexed by their item. Raises StoreError: a file cannot be read."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = RecordFiles()
        keys, positions = array("q"), array("Q")
        for position, part in self._files.read_parts(files, _ItemLine):
            keys.append(hash(part.datapoint_id or part.item or part.id))
            positions.append(position)
        item_hashes = np.frombuffer(keys, np.int64)
        order = np.argsort(item_hashes, kind="stable")
        self._keys, self._positions = item_hashes[order], np.frombuffer(positions, np.uint64)[order]

    def read_records(self, item: str, kind: type[KeptT], is_needed: Callable[[KeptT], bool]) -> list[KeptT]:
        """Read an item's records of a kind that count and are needed, in file order; skip lines that are
        none. Files that were replaced meanwhile may hold another item's."""
        read, records = make_decoder(kind), list[KeptT]()
        begin, end = (np.searchsorted(self._keys, hash(item), side) for side in ("left", "right"))
        for position in self._positions[begin:end].tolist():
            with suppress(Undecodable):
                records.append(read(self._files.read_line(position)))
        return list(choose_counted(filter(is_needed, records)).values())


_SCORES_OF_SAMPLES = f"""
SELECT model || CASE WHEN sample > 0 THEN '{SAMPLE}' || (sample + 1) ELSE '' END,
       CASE WHEN s.item IS NULL THEN matched ELSE s.score END
FROM answers LEFT JOIN answer_score s USING (item, model, sample) LEFT JOIN (
    SELECT answer, avg(match::INTEGER) AS matched FROM labels GROUP BY answer
) USING (answer)
WHERE item = ?
"""  # noqa: S608


_NO_SCORES: Mapping[str, float | None] = {}
RowQuery: TypeAlias = Callable[[str, Sequence[object]], list[tuple[Any, ...]]]
"""A query over a reader's views, with its parameters."""


class RunItems:
    """Items of a run, without the judges and factors that are ``left_out``; ``planned`` knows scales. Files
    are read as they are when an item is first requested."""

    def __init__(
        self, rows: RowQuery, run: RunDir, left_out: Sequence[LeftOut], planned: Planned | None = None
    ) -> None:
        self._rows, self._planned = rows, planned
        self._run = run
        self._judges = {(left.task, left.name) for left in left_out if left.kind == "judge"}
        self._factors = {(left.task, left.name) for left in left_out if left.kind == "factor"}

    def index_lines(self) -> None:
        """Find the positions of all lines; raises as `read_item`."""
        if self._legacy_records is None:
            _ = self._lines

    def read_item(
        self, item: str, task: str, scores: Mapping[str, float | None] = _NO_SCORES
    ) -> ItemDetail | None:
        """Read an item with everything made from it, None if there is none. ``scores``: of students; where
        one gave several answers, each has its own instead. Raises StoreError: a file cannot be read."""
        datapoints = self._read_records(item, Datapoint)
        if not datapoints:
            return None
        datapoint, answers = datapoints[0], self._read_records(item, Response)
        judged: defaultdict[str, list[Evaluation]] = defaultdict(list)
        for record in self._read_records(item, Evaluation):
            if (task, record.judge_model_id) not in self._judges:
                judged[record.response_id].append(record)
        compared: defaultdict[str, list[Preference]] = defaultdict(list)
        for pair in self._read_records(item, Preference):
            if (task, pair.judge_model_id) not in self._judges:
                compared[response_id(item, pair.first_model_id)].append(pair)
        if any(record.sample for record in answers):
            scores = dict(self._rows(_SCORES_OF_SAMPLES, [item]))
        return ItemDetail(
            item=item,
            task=task,
            teacher=datapoint.teacher_model_id,
            attributes=datapoint.sampled_target_attributes,
            nuance=datapoint.sampled_nuanced_attributes or {},
            prompt=datapoint.prompt,
            reference=datapoint.reference_response,
            source=datapoint.source,
            evidence=datapoint.evidence,
            failed=not is_good(datapoint),
            error=datapoint.error,
            answers=[
                self._build_shown_answer(
                    record,
                    judged[record.id],
                    compared[record.id],
                    scores.get(answer_name(record.student_model_id, record.sample)),
                )
                for record in sorted(answers, key=lambda record: (record.student_model_id, record.sample))
            ],
        )

    def read_prompt(self, item: str, task: str) -> str | None:
        """Read an item's prompt alone; None where there is none. Raises StoreError: a file cannot be read."""
        datapoints = self._read_records(item, Datapoint)
        return next((record.prompt for record in datapoints if record.task_id == task), None)

    def _read_records(self, item: str, kind: type[RecordT]) -> list[RecordT]:
        """Read an item's records of a kind, in either layout."""
        if self._legacy_records is not None:
            return [record for record in self._legacy_records.get(item, ()) if isinstance(record, kind)]
        return self._lines[kind].read_records(item, kind, lambda record: _item_of(record) == item)

    @cached_property
    def _lines(self) -> dict[type[Kept], ItemLines]:
        return {kind: ItemLines(self._run.files(phase)) for phase, kind in RECORD_KINDS.items()}

    @cached_property
    def _legacy_records(self) -> dict[str, list[Record]] | None:
        """Return all records of a run in an older layout, by item; None in the current layout."""
        if not is_legacy(self._run.path):
            return None
        records: defaultdict[str, list[Record]] = defaultdict(list)
        for phase in ("data_generation", "response_collection", "evaluation"):
            for record in read_legacy(self._run.path, phase, []):
                records[_item_of(record)].append(record)
        return records

    def _build_shown_answer(
        self, answer: Response, judged: list[Evaluation], compared: list[Preference], score: float | None
    ) -> ShownAnswer:
        """Build an answer as shown. ``compared``: its comparisons with answers that were shown after it."""
        return msgspec.structs.replace(
            _build_unjudged_answer(answer, answer.student_model_id, answer.sample),
            score=score,
            judgments=[
                self._build_run_judgment(record)
                for record in sorted(judged, key=lambda record: record.judge_model_id)
                if record.label_scores is None
            ]
            + [
                _build_shown_comparison(record)
                for record in sorted(
                    compared, key=lambda record: (record.second_model_id, record.judge_model_id)
                )
            ],
            labels={name: label for record in judged for name, label in (record.label_scores or {}).items()},
        )

    def _build_run_judgment(self, judgment: Evaluation) -> ShownJudgment:
        values = keep_valid_values(judgment.values)
        named = {
            factor: nearest_level_or_number(self._planned, judgment.task_id, factor, value)
            for factor, value in values.items()
        }
        scores: dict[str, str | None] = {**judgment.scores, **named, **dict.fromkeys(judgment.missing)}
        included = {factor for factor in scores if (judgment.task_id, factor) not in self._factors}
        return ShownJudgment(
            judge=judgment.judge_model_id,
            scores={factor: level for factor, level in scores.items() if factor in included},
            values={factor: value for factor, value in values.items() if factor in included},
            reasons=judgment.reasons or {},
            words=judgment.raw,
            failed=not is_good(judgment),
            error=judgment.error,
        )


def _build_shown_comparison(compared: Preference) -> ShownJudgment:
    won = {"first": compared.first_model_id, "second": compared.second_model_id, "tie": "tie"}
    good = is_good(compared) and compared.winner is not None
    return ShownJudgment(
        judge=compared.judge_model_id,
        reasons={"reason": compared.reason} if compared.reason else {},
        words=None if good else compared.raw,
        failed=not good,
        error=compared.error,
        what=f"{compared.first_model_id} before {compared.second_model_id}",
        verdict={"winner": won[compared.winner]} if compared.winner is not None else {},
    )


def _item_of(record: Record | Preference) -> str:
    return record.id if isinstance(record, Datapoint) else record.datapoint_id


# --- Items of eval-framework


class _AnswerLine(Kept, frozen=True, kw_only=True, omit_defaults=True):
    """The fields that are shown of a line of ``responses.jsonl``."""

    prompt: str = ""
    response: str | None = None
    model: str = ""

    @property
    def value(self) -> str | None:
        return self.response


class _JudgmentLine(Kept, frozen=True, kw_only=True, omit_defaults=True):
    """The fields that are shown of a line of ``judgments.*.jsonl``."""

    item: str = ""
    judge: str = ""
    value: dict[str, Any] | None = None
    raw: str | None = None


class _InstructionLine(msgspec.Struct, frozen=True):
    """A line of ``eval_results_*.jsonl``."""

    key: int | str
    instruction_id_list: list[str]
    follow_instruction_list: list[bool]


class OutputTaskFolder(NamedTuple):
    """A task's folder, and the recipe whose judgments are shown (None: any)."""

    folder: Path
    task: str
    sample: int
    model: str | None
    judged_by: str | None

    @property
    def answers(self) -> list[Path]:
        """Return its file of answers, if it exists."""
        return [path for path in [self.folder / RESPONSES] if path.is_file()]

    @property
    def judgments(self) -> list[Path]:
        return sorted(self.folder.glob(JUDGMENTS))

    def read_followed_instructions(self) -> dict[str, list[FollowedInstruction]]:
        """Read which instructions each answer followed, by item; empty where a benchmark has none."""
        files = (self.folder / f"eval_results_{reading}.jsonl" for reading in ("strict", "loose"))
        strict, loose = (
            {str(line.key): line for line in read_decodable_lines(file, _InstructionLine)} for file in files
        )
        instructions = {}
        for item, verdicts in strict.items():
            loosely = loose[item].follow_instruction_list if item in loose else ()
            triples = zip_longest(verdicts.instruction_id_list, verdicts.follow_instruction_list, loosely)
            instructions[item] = [FollowedInstruction(*values) for values in triples if values[0] is not None]
        return instructions


class _TaskLines(NamedTuple):
    """The lines of a task's folder, indexed by item, and the instructions that its answers followed."""

    folder: OutputTaskFolder
    answers: ItemLines
    judgments: ItemLines
    instructions: dict[str, list[FollowedInstruction]]


_METRICS = "SELECT metric, value FROM scores WHERE task = ? AND item = ? AND sample = ? ORDER BY metric"


class OutputItems:
    """Items of an output folder of ``eval-framework``, read as `RunItems` reads a run's."""

    def __init__(self, rows: RowQuery, folders: Sequence[OutputTaskFolder]) -> None:
        self._rows = rows
        self._folders = folders

    def index_lines(self) -> None:
        _ = self._tasks

    def read_item(
        self, item: str, task: str, _: Mapping[str, float | None] = _NO_SCORES
    ) -> ItemDetail | None:
        headline = self._rows("SELECT metric FROM headline WHERE task = ?", [task])
        answers: list[ShownAnswer] = []
        prompt: str | None = None
        for lines in self._tasks.get(task, ()):
            answer_lines = lines.answers.read_records(item, _AnswerLine, lambda line: line.id == item)
            if not answer_lines:
                continue
            answer = answer_lines[0]
            prompt = prompt or answer.prompt or None
            answers.append(self._build_shown_answer(answer, lines, headline[0][0] if headline else ""))
        return ItemDetail(item=item, task=task, prompt=prompt, answers=answers) if answers else None

    def read_prompt(self, item: str, task: str) -> str | None:
        answers_by_folder = (
            lines.answers.read_records(item, _AnswerLine, lambda line: line.id == item)
            for lines in self._tasks.get(task, ())
        )
        return next(
            (answer.prompt for answers in answers_by_folder for answer in answers if answer.prompt), None
        )

    @cached_property
    def _tasks(self) -> dict[str, list[_TaskLines]]:
        tasks: dict[str, list[_TaskLines]] = {}
        for folder in self._folders:
            followed = folder.read_followed_instructions()
            lines = _TaskLines(folder, ItemLines(folder.answers), ItemLines(folder.judgments), followed)
            tasks.setdefault(folder.task, []).append(lines)
        return tasks

    def _build_shown_answer(self, answer: _AnswerLine, lines: _TaskLines, headline: str) -> ShownAnswer:
        folder = lines.folder
        whose = [folder.task, answer.id, folder.sample]
        metrics: dict[str, float | None] = dict(self._rows(_METRICS, whose))
        judgments = lines.judgments.read_records(
            answer.id,
            _JudgmentLine,
            lambda line: line.item == answer.id and folder.judged_by in (None, line.recipe),
        )
        return msgspec.structs.replace(
            _build_unjudged_answer(answer, answer.model, folder.sample),
            score=metrics.get(headline),
            judgments=[_build_shown_judgment(line) for line in sorted(judgments, key=lambda line: line.id)],
            metrics=metrics,
            instructions=lines.instructions.get(answer.id, []),
        )


WholeItems: TypeAlias = RunItems | OutputItems


def _build_unjudged_answer(answer: Response | _AnswerLine, student: str, sample: int) -> ShownAnswer:
    """Build an answer as shown, before its judgments."""
    usage = answer.usage
    return ShownAnswer(
        answer=answer.id,
        student=student,
        sample=sample,
        text=answer.response,
        reasoning=answer.reasoning,
        truncated=answer.truncated,
        failed=not is_good(answer),
        error=answer.error,
        input_tokens=usage.input_tokens if usage is not None else None,
        output_tokens=usage.output_tokens if usage is not None else None,
        cost_usd=usage.cost_usd if usage is not None else None,
        latency_s=answer.latency_s,
    )


def _build_shown_judgment(judgment: _JudgmentLine) -> ShownJudgment:
    return ShownJudgment(
        judge=judgment.judge,
        words=judgment.raw,
        failed=not is_good(judgment),
        error=judgment.error,
        what=judgment.id.removeprefix(f"{judgment.item}__"),
        verdict={name: value for name, value in (judgment.value or {}).items() if name != "top_logprobs"},
    )
