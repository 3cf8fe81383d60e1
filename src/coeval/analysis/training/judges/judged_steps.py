"""What a judge's folder holds, by task and step, and what two judges have in common there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.training.checkpoint_folders import PATTERN, EvaluatedStep, evaluated_steps
from coeval.analysis.training.checkpoint_scores import ItemColumn, first_of_items
from coeval.analysis.training.judges.item_agreement import Grade, GradeKey
from coeval.analysis.training.run_choice import ChosenRuns, choose_runs
from coeval.core.text import listed
from coeval.store.output_folder import output_tasks

__all__ = ["JudgedSteps", "SharedStep", "SharedSteps", "judged_steps", "shared_steps"]

AnswerKey: TypeAlias = tuple[str, int, int]
"""An item, a hash of what was asked, and the sample."""


class _ScoredAnswer(NamedTuple):
    """``words``: a hash of what it says, 0 where that is not on record."""

    value: float
    weight: float
    words: int


class _JudgedStep(NamedTuple):
    metric: str
    unit: str
    judge: str | None
    judged: str
    answers: dict[AnswerKey, _ScoredAnswer]
    grades: dict[GradeKey, Grade]


JudgedSteps: TypeAlias = dict[str, dict[int | None, _JudgedStep]]
"""By task and step; the step None: the folder is an output folder, not one of checkpoints."""


class SharedStep(NamedTuple):
    """What two judges gave to the answers that both scored: their items side by side, the answers one by one
    as (item, a, b), the share of these that have the same words, and all their grades."""

    step: int | None
    judges: tuple[str | None, str | None]
    columns: tuple[ItemColumn, ItemColumn]
    answers: list[tuple[str, float, float]]
    same_answers: float | None
    grades: tuple[Mapping[GradeKey, Grade], Mapping[GradeKey, Grade]]


class SharedSteps(NamedTuple):
    steps: list[SharedStep]
    notes: list[str]


def judged_steps(
    folder: Path,
    tasks: Sequence[str] | None = None,
    steps: Sequence[int] | None = None,
    pattern: str = PATTERN,
) -> JudgedSteps:
    """All that was judged in an output folder, or in those of the checkpoints below the folder.

    Raises
    ------
    UsageError
        the folder is neither, or holds none of these steps.
    StoreError
        a file cannot be read at all.
    """
    if output_tasks(folder):
        places: list[tuple[int | None, Path]] = [(None, folder)]
    else:
        found: Sequence[EvaluatedStep] = evaluated_steps(folder, pattern, steps)
        places = [(one.step, one.folder) for one in found]
    read: JudgedSteps = {}
    for step, place in places:
        chosen = [runs for runs in choose_runs(place, tasks) if runs.runs and runs.judge is not None]
        if not chosen:
            continue
        with OutputReader(place) as reader:
            for runs in chosen:
                if (one := _read(reader, runs)) is not None:
                    read.setdefault(runs.task, {})[step] = one
    return read


def shared_steps(a: Mapping[int | None, _JudgedStep], b: Mapping[int | None, _JudgedStep]) -> SharedSteps:
    """The steps that both judged, in order, with what does not fit."""
    found, notes = [], []
    if alone := [str(step) for step in {**a, **b} if step not in a or step not in b]:
        notes.append(f"only one of them judged step {listed(alone)}")
    alike = []
    for step in (step for step in a if step in b):
        of_a, of_b = a[step], b[step]
        where = "" if step is None else f"step {step}: "
        both = sorted(of_a.answers.keys() & of_b.answers.keys())
        if (of_a.metric, of_a.unit) != (of_b.metric, of_b.unit):
            notes.append(f"{where}their figures differ, {of_a.metric} and {of_b.metric}")
        elif len(both) < 2:
            notes.append(f"{where}they scored no answers in common")
        else:
            if of_a.judged == of_b.judged:
                alike.append(f"{where}both were judged by {of_a.judge} in the same way")
            found.append(_shared(step, of_a, of_b, both))
    return SharedSteps(found, notes + alike[:1])


def _shared(step: int | None, a: _JudgedStep, b: _JudgedStep, both: Sequence[AnswerKey]) -> SharedStep:
    known = [key for key in both if a.answers[key].words and b.answers[key].words]
    same = sum(a.answers[key].words == b.answers[key].words for key in known)
    return SharedStep(
        step,
        (a.judge, b.judge),
        (_column(a, both), _column(b, both)),
        [(key[0], a.answers[key].value, b.answers[key].value) for key in both],
        same / len(known) if known else None,
        (a.grades, b.grades),
    )


def _column(judged: _JudgedStep, answers: Sequence[AnswerKey]) -> ItemColumn:
    """The means of the items over these answers."""
    of_item: dict[tuple[str, int], list[_ScoredAnswer]] = {}
    for key in answers:
        of_item.setdefault(key[:2], []).append(judged.answers[key])
    weights = [sum(answer.weight for answer in of) for of in of_item.values()]
    sums = [sum(answer.value * answer.weight for answer in of) for of in of_item.values()]
    counts = [len(of) for of in of_item.values()]
    return ItemColumn(
        judged.metric,
        judged.unit,
        tuple(of_item),
        np.array(sums) / np.array(weights),
        np.array(weights) / np.array(counts),
        np.full(len(of_item), np.nan),
    )


_ANSWERS = """
SELECT item, coalesce(content, 0), sample, value, weight, coalesce(words, 0)
FROM (SELECT item, sample, value, weight FROM scores
      WHERE task = ? AND metric = ? AND list_contains(?::INTEGER[], sample)
          AND value IS NOT NULL AND weight > 0)
LEFT JOIN (SELECT item, content FROM contents WHERE task = ?) USING (item)
LEFT JOIN (SELECT item, sample, words FROM lengths WHERE task = ?) USING (item, sample)
"""
_GRADES = """
SELECT content, factor, item, level FROM graded
WHERE task = ? AND judge = ? AND list_contains(?::INTEGER[], sample) AND stands
    AND content IS NOT NULL AND level IS NOT NULL
ORDER BY ALL
"""


def _read(reader: OutputReader, runs: ChosenRuns) -> _JudgedStep | None:
    """None where no answer has a score."""
    if (headline := first_of_items(reader, runs.task)) is None:
        return None
    samples, judge = list(runs.runs), None if runs.judge is None else runs.judge.model
    rows = reader.rows(_ANSWERS, [runs.task, headline.metric, samples, runs.task, runs.task])
    return _JudgedStep(
        headline.metric,
        headline.unit,
        judge,
        runs.how[1],
        {(item, content, sample): _ScoredAnswer(*answer) for item, content, sample, *answer in rows},
        {
            (content, factor): Grade(item, level)
            for content, factor, item, level in reader.rows(_GRADES, [runs.task, judge, samples])
        },
    )
