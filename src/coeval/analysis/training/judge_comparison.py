"""Judges compared on the checkpoints of a training run, or on one output folder each.

Every judge has a folder of its own, in which it judged what the others judged in theirs. Of each task and
step the difference of their scores is paired by item; over the steps it is asked whether they put the
checkpoints in the same order, and of single answers how far they agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np

from coeval.analysis.comparison.paired_difference import PairedScores, holm, paired_difference
from coeval.analysis.intervals import ALPHA
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.training.aggregate import PATTERN, EvaluatedStep, evaluated_steps
from coeval.analysis.training.best_checkpoint import signed_points
from coeval.analysis.training.checkpoint_scores import (
    ChosenRuns,
    ItemColumn,
    choose_runs,
    common_items,
    first_of_items,
    side_by_side,
)
from coeval.analysis.training.judge_agreement import (
    Grade,
    GradeKey,
    ItemAgreement,
    RankAgreement,
    item_agreement,
    rank_agreement,
)
from coeval.core.errors import UsageError
from coeval.core.figures import figure_text
from coeval.core.text import listed
from coeval.store.output_folder import output_tasks

# --- Contents of a judge's folder, and what two judges share

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

    Raises UsageError: the folder is neither, or holds none of these steps; StoreError: a file cannot be read
    at all.
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


# Items that are named of each task.
DISPUTED = 10


class StepDifference(msgspec.Struct, frozen=True):
    """How much higher b scores than a at one step (None: the folders are output folders), over ``n_items`` in
    the metric's unit; ``p_adjusted`` is Holm's over all steps and tasks of the two. ``same_answers``: of the
    answers that both judged, the share that have the very same words."""

    step: int | None
    mean_a: float
    mean_b: float
    difference: float
    ci95: tuple[float, float]
    p: float | None
    p_adjusted: float | None
    n_items: int
    same_answers: float | None
    agreement: ItemAgreement


class DisputedItem(msgspec.Struct, frozen=True):
    """An item that the two score most differently, at the step where they do."""

    step: int | None
    item: str
    a: float
    b: float

    @property
    def apart(self) -> float:
        return abs(self.b - self.a)


class TaskJudges(msgspec.Struct, frozen=True):
    """Two judges, by their labels, on one task. ``judges`` are the models behind the labels."""

    task: str
    metric: str
    unit: str
    a: str
    b: str
    judges: tuple[str | None, str | None]
    steps: tuple[StepDifference, ...]
    ranks: RankAgreement | None
    disputed: tuple[DisputedItem, ...]
    sentences: tuple[str, ...]


class JudgeComparison(msgspec.Struct, frozen=True):
    """``judges`` has the folder of each label; ``tasks`` has all pairs."""

    judges: dict[str, str]
    tasks: tuple[TaskJudges, ...]
    notes: tuple[str, ...]


def compare_judges(
    judges: Mapping[str, Path],
    tasks: Sequence[str] | None = None,
    steps: Sequence[int] | None = None,
    pattern: str = PATTERN,
) -> JudgeComparison:
    """Every two judges on every task that both judged.

    Parameters
    ----------
    judges : by label, an output folder, or the folder that holds those of the checkpoints
    tasks, steps : of these only
    pattern : how the checkpoints' folders are called

    Raises
    ------
    UsageError
        there are no two of them, or nothing was judged by two of them.
    StoreError
        a file cannot be read at all.
    """
    if len(judges) < 2:
        raise UsageError("give two judges or more, each as NAME=DIR")
    notes: list[str] = []
    read = {label: judged_steps(folder, tasks, steps, pattern) for label, folder in judges.items()}
    found: list[TaskJudges] = []
    for a, b in combinations(judges, 2):
        of_two = []
        for task in tasks or sorted({*read[a], *read[b]}):
            shared = shared_steps(read[a].get(task, {}), read[b].get(task, {}))
            if task not in read[a] or task not in read[b]:
                lacking = [label for label in (a, b) if task not in read[label]]
                notes.append(f"{task}: nothing was judged in the folder of {listed(lacking)}")
                continue
            notes += [f"{task}, {a} and {b}: {note}" for note in shared.notes]
            if shared.steps:
                of_two.append(_task_judges(task, (a, b), shared.steps))
        found += _adjusted(of_two)
    if not found:
        raise UsageError("; ".join(["no two judges scored the same answers", *dict.fromkeys(notes)]))
    folders = {label: str(folder) for label, folder in judges.items()}
    return JudgeComparison(folders, tuple(found), tuple(dict.fromkeys(notes)))


def _task_judges(task: str, labels: tuple[str, str], steps: Sequence[SharedStep]) -> TaskJudges:
    first = steps[0]
    return TaskJudges(
        task=task,
        metric=first.columns[0].metric,
        unit=first.columns[0].unit,
        a=labels[0],
        b=labels[1],
        judges=first.judges,
        steps=tuple(map(_difference, steps)),
        ranks=_ranks(steps),
        disputed=tuple(_disputed(steps)),
        sentences=(),
    )


def _difference(step: SharedStep) -> StepDifference:
    both = common_items(side_by_side(dict(enumerate(step.columns))), (0, 1))
    a, b = both.scores.T
    one = paired_difference([PairedScores(a, b, np.ones(len(a)))])
    width = both.scale.most - both.scale.least
    return StepDifference(
        step=step.step,
        mean_a=both.scale.least + width * one.mean_a,
        mean_b=both.scale.least + width * one.mean_b,
        difference=one.difference * width,
        ci95=(one.low * width, one.high * width),
        p=one.p,
        p_adjusted=None,
        n_items=one.n,
        same_answers=step.same_answers,
        agreement=item_agreement(*step.grades, step.answers),
    )


def _ranks(steps: Sequence[SharedStep]) -> RankAgreement | None:
    """Over the items that both scored at all steps; None of an output folder, which is one step."""
    count = len(steps)
    columns = [step.columns[which] for which in (0, 1) for step in steps]
    both = common_items(side_by_side(dict(enumerate(columns))), range(2 * count))
    here = [at for at in range(count) if at in both.steps and count + at in both.steps]
    of_a, of_b = ([both.steps.index(at + shift) for at in here] for shift in (0, count))
    return rank_agreement(both.scores[:, of_a], both.scores[:, of_b])


def _disputed(steps: Sequence[SharedStep]) -> list[DisputedItem]:
    """Each item at the step where the two are farthest apart; equal scores are no dispute."""
    worst: dict[str, DisputedItem] = {}
    for step in steps:
        of_a, of_b = step.columns
        for (item, _), a, b in zip(of_a.keys, of_a.values.tolist(), of_b.values.tolist(), strict=True):
            one = DisputedItem(step.step, item, a, b)
            if a != b and (item not in worst or one.apart > worst[item].apart):
                worst[item] = one
    return sorted(worst.values(), key=lambda one: -one.apart)[:DISPUTED]


def _adjusted(tasks: Sequence[TaskJudges]) -> list[TaskJudges]:
    """With the p-values of all steps and tasks adjusted together, and the sentences that follow."""
    known = [step.p for one in tasks for step in one.steps if step.p is not None]
    adjusted = iter(holm(known))
    found = []
    for one in tasks:
        steps = tuple(
            step if step.p is None else msgspec.structs.replace(step, p_adjusted=next(adjusted))
            for step in one.steps
        )
        one = msgspec.structs.replace(one, steps=steps)
        found.append(msgspec.structs.replace(one, sentences=tuple(_sentences(one))))
    return found


def _sentences(one: TaskJudges) -> Iterator[str]:
    """Who is milder, and whether they would choose the same checkpoints."""
    apart = [step for step in one.steps if step.p_adjusted is not None and step.p_adjusted < ALPHA]
    milder = {one.b if step.difference > 0 else one.a for step in apart}
    largest = max(one.steps, key=lambda step: abs(step.difference))
    by = signed_points(largest.difference, *largest.ci95, one.unit) + " points"
    gap = f"{one.b} − {one.a} is {by}"
    if len(one.steps) > 1:
        gap += f" at step {largest.step}, where it is largest"
    if not apart:
        yield f"{gap}: no significant difference"
    elif len(milder) == 1:
        [which] = milder
        where = f" at {len(apart)} of {len(one.steps)} steps" if len(one.steps) > 1 else ""
        yield f"{which} is the milder judge{where}: {gap}"
    else:
        yield f"each is the milder judge at some steps: {gap}"
    if one.ranks is not None and one.ranks.kendall is not None:
        low, high = one.ranks.kendall_ci95 or (-1.0, 1.0)
        yield (
            f"they order the {one.ranks.checkpoints} checkpoints with Kendall τ-b "
            f"{figure_text('coefficient', one.ranks.kendall, low, high)}"
        )
