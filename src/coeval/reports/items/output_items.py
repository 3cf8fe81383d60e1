"""The items of what ``eval-framework`` left, read whole: metrics, verdicts, both orders of a pair."""

from __future__ import annotations

from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coeval.analysis.readers.output_reader import OutputReader
from coeval.core.errors import Undecodable
from coeval.core.foreign import decoder
from coeval.core.records import Kept, is_good
from coeval.reports.items.run_items import (
    FollowedInstruction,
    ItemDetail,
    ItemLines,
    ShownAnswer,
    ShownJudgment,
    failure,
)
from coeval.store.jsonl import whole_lines
from coeval.store.output_folder import JUDGMENTS, RESPONSES

__all__ = ["OutputItems", "followed_instructions"]


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


class _TaskSample(NamedTuple):
    """A task's folder, and by which recipe what is shown of it was judged (None: whichever there is)."""

    folder: Path
    sample: int
    judged_by: str | None
    answers: ItemLines
    judgments: ItemLines
    followed: dict[str, list[FollowedInstruction]]


_METRICS = "SELECT metric, value FROM scores WHERE task = ? AND item = ? AND sample = ? ORDER BY metric"


class OutputItems:
    """Reads items from the files as they stood when they were first asked for."""

    def __init__(self, reader: OutputReader) -> None:
        self._reader = reader

    def prepare(self) -> None:
        """Find where all lines lie; raises as `detail`."""
        _ = self._tasks

    def detail(self, item: str, task: str) -> ItemDetail | None:
        """As `RunItems.detail`."""
        headline = self._reader.rows("SELECT metric FROM headline WHERE task = ?", [task])
        answers: list[ShownAnswer] = []
        prompt: str | None = None
        for place in self._tasks.get(task, ()):
            found = place.answers.records(item, _GivenAnswer, lambda each: each.id == item)
            if not found:
                continue
            answer = found[0]
            prompt = prompt or answer.prompt or None
            answers.append(self._answer(answer, task, place, headline[0][0] if headline else ""))
        return ItemDetail(item=item, task=task, prompt=prompt, answers=answers) if answers else None

    @cached_property
    def _tasks(self) -> dict[str, list[_TaskSample]]:
        found: dict[str, list[_TaskSample]] = {}
        for name, task, sample, judged_by in self._reader.rows(
            "SELECT DISTINCT folder, task, sample, judged_by FROM place ORDER BY task, sample"
        ):
            folder = Path(name)
            found.setdefault(task, []).append(
                _TaskSample(
                    folder,
                    sample,
                    judged_by,
                    ItemLines([path for path in [folder / RESPONSES] if path.is_file()]),
                    ItemLines(sorted(folder.glob(JUDGMENTS))),
                    followed_instructions(folder),
                )
            )
        return found

    def _answer(self, answer: _GivenAnswer, task: str, place: _TaskSample, headline: str) -> ShownAnswer:
        metrics: dict[str, float | None] = dict(self._reader.rows(_METRICS, [task, answer.id, place.sample]))
        judgments = place.judgments.records(
            answer.id,
            _GivenJudgment,
            lambda each: each.item == answer.id and place.judged_by in (None, each.recipe),
        )
        usage = answer.usage
        return ShownAnswer(
            answer=answer.id,
            student=answer.model,
            sample=place.sample,
            text=answer.response,
            reasoning=answer.reasoning,
            truncated=answer.truncated,
            failed=not is_good(answer),
            error=failure(answer),
            score=metrics.get(headline),
            input_tokens=usage.input_tokens if usage is not None else None,
            output_tokens=usage.output_tokens if usage is not None else None,
            cost_usd=usage.cost_usd if usage is not None else None,
            latency_s=answer.latency_s,
            judgments=[_judgment(each) for each in sorted(judgments, key=lambda each: each.id)],
            metrics=metrics,
            instructions=place.followed.get(answer.id, []),
        )


def _judgment(judgment: _GivenJudgment) -> ShownJudgment:
    return ShownJudgment(
        judge=judgment.judge,
        words=judgment.raw,
        failed=not is_good(judgment),
        error=failure(judgment),
        what=judgment.id.removeprefix(f"{judgment.item}__"),
        verdict={name: value for name, value in (judgment.value or {}).items() if name != "top_logprobs"},
    )


def followed_instructions(folder: Path) -> dict[str, list[FollowedInstruction]]:
    """By item, what came of each of its instructions; empty where a benchmark has none."""
    strict, loose = (_verdicts(folder / f"eval_results_{reading}.jsonl") for reading in ("strict", "loose"))
    found = {}
    for item, verdicts in strict.items():
        loosely = loose[item].follow_instruction_list if item in loose else ()
        read = zip_longest(verdicts.instruction_id_list, verdicts.follow_instruction_list, loosely)
        found[item] = [FollowedInstruction(*each) for each in read if each[0] is not None]
    return found


def _verdicts(file: Path) -> dict[str, _Verdicts]:
    read = decoder(_Verdicts)
    found = {}
    for line in whole_lines(file):
        try:
            verdicts = read(line.text)
        except Undecodable:
            continue
        found[str(verdicts.key)] = verdicts
    return found
