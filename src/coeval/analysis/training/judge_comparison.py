"""Compare judges on the checkpoints of a training run, or on one output folder each.

Every judge has a folder of its own, in which it judged what the others judged in theirs. In each task and
step the difference of their scores is paired by item; over the steps, the orders of the checkpoints are
compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np

from coeval.analysis.comparison.comparison_report import format_difference
from coeval.analysis.comparison.family import FamilyMember, PairDifference, adjust_family
from coeval.analysis.comparison.paired_difference import Difference, PairedScores, paired_difference
from coeval.analysis.intervals import LEVEL, Floats, Scale
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.training.aggregate import PATTERN, find_evaluated_steps
from coeval.analysis.training.checkpoint_scores import (
    ChosenRuns,
    ItemColumn,
    choose_task_runs,
    select_common_items,
)
from coeval.core.errors import UsageError
from coeval.core.figures import figure_with_interval
from coeval.core.text import join_names
from coeval.store.output_folder import list_output_tasks

# --- Contents of a judge's folder, and what two judges share

_AnswerKey: TypeAlias = tuple[str, int, int]
"""An item, a hash of what was asked, and the sample."""


class _ScoredAnswer(NamedTuple):
    """An answer's score; ``words``: a hash of its text, 0 if that is not on record."""

    value: float
    weight: float
    words: int


class _JudgedStep(NamedTuple):
    metric: str
    unit: str
    judge: str | None
    judged: str
    answers: dict[_AnswerKey, _ScoredAnswer]


_JudgedSteps: TypeAlias = dict[str, dict[int | None, _JudgedStep]]
"""By task and step; the step None: the folder is an output folder, not one of checkpoints."""


class StepDifference(PairDifference, frozen=True):
    """How much higher b scores than a at one step (None: the folders are output folders), over ``n`` items in
    the metric's unit, adjusted for all steps and tasks of the two. ``same_answers``: the share of the
    answers that both judged which have the very same words."""

    step: int | None
    mean_a: float
    mean_b: float
    same_answers: float | None


class _SharedStep(NamedTuple):
    """The items of the answers that both judges scored, and how the two differ."""

    columns: tuple[ItemColumn, ItemColumn]
    step: int | None
    difference: Difference
    scale: Scale
    same_answers: float | None


def _read_judged_steps(
    folder: Path, tasks: Sequence[str] | None, steps: Sequence[int] | None, pattern: str
) -> _JudgedSteps:
    """Read all judged tasks of an output folder, or of those of the checkpoints below the folder; raises as
    `compare_judges` does."""
    folders: Sequence[tuple[int | None, Path]] = (
        [(None, folder)] if list_output_tasks(folder) else find_evaluated_steps(folder, pattern, steps)
    )
    read: _JudgedSteps = {}
    for step, path in folders:
        chosen = [runs for runs in choose_task_runs(path, tasks) if runs.runs and runs.judge is not None]
        if not chosen:
            continue
        with OutputReader(path) as reader:
            for runs in chosen:
                if (judged_step := _read_judged_step(reader, runs)) is not None:
                    read.setdefault(runs.task, {})[step] = judged_step
    return read


_ANSWERS = """
SELECT item, coalesce(content, 0), sample, value, weight, coalesce(words, 0)
FROM (SELECT item, sample, value, weight FROM scores
      WHERE task = ? AND metric = ? AND list_contains(?::INTEGER[], sample)
          AND value IS NOT NULL AND weight > 0)
LEFT JOIN (SELECT item, content FROM contents WHERE task = ?) USING (item)
LEFT JOIN (SELECT item, sample, words FROM wordings WHERE task = ?) USING (item, sample)
"""


def _read_judged_step(reader: OutputReader, runs: ChosenRuns) -> _JudgedStep | None:
    """Read the judged answers of a task in its headline metric; None if no answer has a score."""
    task = runs.recorded_task
    first = reader.headline_metrics().get(task)
    figures = (figure for figure in reader.metrics if (figure.task, figure.metric) == (task, first))
    if (headline := next(figures, None)) is None:
        return None
    rows = reader.rows(_ANSWERS, [task, headline.metric, list(runs.runs), task, task])
    return _JudgedStep(
        headline.metric,
        headline.unit,
        None if runs.judge is None else runs.judge.model,
        runs.recipe_hashes[1],
        {(item, content, sample): _ScoredAnswer(*answer) for item, content, sample, *answer in rows},
    )


def _compare_shared_steps(
    a: Mapping[int | None, _JudgedStep], b: Mapping[int | None, _JudgedStep]
) -> tuple[list[_SharedStep], list[str]]:
    """Compare the steps that both judged, in order, and note what does not fit."""
    shared, notes = [], []
    if alone := [str(step) for step in {**a, **b} if step not in a or step not in b]:
        notes.append(f"only one of them judged step {join_names(alone)}")
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
            shared.append(_compare_step(step, of_a, of_b, both))
    return shared, notes + alike[:1]


def _compare_step(
    step: int | None, a: _JudgedStep, b: _JudgedStep, both: Sequence[_AnswerKey]
) -> _SharedStep:
    worded = [key for key in both if a.answers[key].words and b.answers[key].words]
    same = sum(a.answers[key].words == b.answers[key].words for key in worded)
    columns = (_average_items_over_answers(a, both), _average_items_over_answers(b, both))
    common = select_common_items(dict(enumerate(columns)))
    of_a, of_b = common.scores.T
    difference = paired_difference([PairedScores(of_a, of_b, np.ones(len(of_a)))])
    return _SharedStep(columns, step, difference, common.scale, same / len(worded) if worded else None)


def _average_items_over_answers(judged: _JudgedStep, answers: Sequence[_AnswerKey]) -> ItemColumn:
    answers_by_item: dict[tuple[str, int], list[_ScoredAnswer]] = {}
    for key in answers:
        answers_by_item.setdefault(key[:2], []).append(judged.answers[key])
    totals = np.array([sum(answer.weight for answer in own) for own in answers_by_item.values()])
    sums = np.array([sum(answer.value * answer.weight for answer in own) for own in answers_by_item.values()])
    counts = np.array([float(len(own)) for own in answers_by_item.values()])
    values = [judged.answers[key].value for key in answers]
    return ItemColumn(
        judged.metric, judged.unit, tuple(answers_by_item), sums, totals, counts, min(values), max(values)
    )


# --- Means, differences, order of the checkpoints


class RankCorrelation(msgspec.Struct, frozen=True):
    """Kendall's τ-b of the means of K ``checkpoints`` by two judges, −1 to 1, with the 95% interval of a
    bootstrap over items."""

    checkpoints: int
    kendall: float
    ci95: tuple[float, float]


class TaskJudges(msgspec.Struct, frozen=True):
    """Two judges, by their labels, on one task. ``judges``: the models behind the labels; ``ranks``: None
    with fewer than three checkpoints, or if a judge gives all the same mean."""

    task: str
    metric: str
    unit: str
    a: str
    b: str
    judges: tuple[str | None, str | None]
    steps: tuple[StepDifference, ...]
    ranks: RankCorrelation | None
    sentences: tuple[str, ...]


class JudgeComparison(msgspec.Struct, frozen=True):
    """A comparison of judges; ``judges``: the folder of each label; ``tasks``: all pairs."""

    judges: dict[str, str]
    tasks: tuple[TaskJudges, ...]
    notes: tuple[str, ...]


def compare_judges(
    judges: Mapping[str, Path],
    tasks: Sequence[str] | None = None,
    steps: Sequence[int] | None = None,
    pattern: str = PATTERN,
) -> JudgeComparison:
    """Compare each pair of judges on every task that both judged. ``judges``: by label, an output folder, or
    the folder that holds those of the checkpoints, whose names fit ``pattern``.

    Raises UsageError: there are no two of them, or nothing was judged by two of them; StoreError: a file
    cannot be read at all.
    """
    if len(judges) < 2:
        raise UsageError("give two judges or more, each as NAME=DIR")
    notes: list[str] = []
    read = {label: _read_judged_steps(folder, tasks, steps, pattern) for label, folder in judges.items()}
    pairs: list[TaskJudges] = []
    for a, b in combinations(judges, 2):
        of_two: dict[str, Sequence[_SharedStep]] = {}
        for task in tasks or sorted({*read[a], *read[b]}):
            if lacking := [label for label in (a, b) if task not in read[label]]:
                notes.append(f"{task}: nothing was judged in the folder of {join_names(lacking)}")
                continue
            shared, of_task = _compare_shared_steps(read[a][task], read[b][task])
            notes += [f"{task}, {a} and {b}: {note}" for note in of_task]
            if shared:
                of_two[task] = shared
        pairs += _test_judges_as_one_family({a: read[a], b: read[b]}, of_two)
    if not pairs:
        raise UsageError("; ".join(["no two judges scored the same answers", *dict.fromkeys(notes)]))
    folders = {label: str(folder) for label, folder in judges.items()}
    return JudgeComparison(folders, tuple(pairs), tuple(dict.fromkeys(notes)))


# Checkpoints: of two, an order is right or wrong by a coin.
_FEWEST = 3
# Ranks move in steps, so their quantiles need more draws than those of means.
_RESAMPLES = 1000


def _correlate_ranks(steps: Sequence[_SharedStep]) -> RankCorrelation | None:
    """Correlate the two judges' orders of the checkpoints, over the items that both scored at all steps; None
    for an output folder, which is one step."""
    count = len(steps)
    both = select_common_items(dict(enumerate(step.columns[which] for which in (0, 1) for step in steps)))
    shared_steps = [at for at in range(count) if at in both.steps and count + at in both.steps]
    items = len(both.scores)
    if len(shared_steps) < _FEWEST or items < 2:
        return None
    a, b = (both.scores[:, [both.steps.index(at + shift) for at in shared_steps]] for shift in (0, count))
    if (tau := kendall_tau_b(a.mean(axis=0), b.mean(axis=0))) is None:
        return None
    drawn = np.random.default_rng(0).multinomial(items, np.full(items, 1 / items), size=_RESAMPLES) / items
    # a draw in which a judge gives all the same mean orders none of them
    taus = [kendall_tau_b(weights @ a, weights @ b) or 0.0 for weights in drawn]
    low, high = np.quantile(taus, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return RankCorrelation(len(shared_steps), tau, (float(low), float(high)))


def kendall_tau_b(a: Floats, b: Floats) -> float | None:
    """Return ``Σ sign(a_i − a_j) sign(b_i − b_j)`` over pairs, over the root of the numbers of pairs without
    a tie in a and in b (Kendall 1945); None if one has ties only."""
    # rounded, so that equal means are ties, whatever order their scores were summed in
    signs_a, signs_b = (np.sign(np.subtract.outer(x, x)) for x in (np.round(a, 12), np.round(b, 12)))
    untied = np.sqrt((signs_a**2).sum() * (signs_b**2).sum())
    return float((signs_a * signs_b).sum() / untied) if untied else None


def _test_judges_as_one_family(
    steps_by_judge: Mapping[str, _JudgedSteps], shared_steps_by_task: Mapping[str, Sequence[_SharedStep]]
) -> Iterator[TaskJudges]:
    """Test all steps and tasks of two judges as one family, and state the conclusions."""
    (a, of_a), (b, of_b) = steps_by_judge.items()
    every = [step for steps in shared_steps_by_task.values() for step in steps]
    family = [FamilyMember(step.difference, width=step.scale.width) for step in every]
    differences = iter(adjust_family(family))
    for task, shared in shared_steps_by_task.items():
        steps = tuple(
            StepDifference(
                **msgspec.structs.asdict(next(differences)),
                step=step.step,
                mean_a=step.scale.to_scores(step.difference.mean_a),
                mean_b=step.scale.to_scores(step.difference.mean_b),
                same_answers=step.same_answers,
            )
            for step in shared
        )
        first, other = (own[task][shared[0].step] for own in (of_a, of_b))
        judges = (first.judge, other.judge)
        pair = TaskJudges(task, first.metric, first.unit, a, b, judges, steps, _correlate_ranks(shared), ())
        yield msgspec.structs.replace(pair, sentences=tuple(_milder_judge_and_order_sentences(pair)))


def _milder_judge_and_order_sentences(pair: TaskJudges) -> Iterator[str]:
    """State who is milder, and whether they would choose the same checkpoints."""
    significant_steps = [step for step in pair.steps if step.significant]
    milder = {pair.b if step.difference > 0 else pair.a for step in significant_steps}
    largest = max(pair.steps, key=lambda step: abs(step.difference))
    gap = f"{pair.b} − {pair.a} is {format_difference(largest, pair.unit)} points"
    if len(pair.steps) > 1:
        gap += f" at step {largest.step}, where it is largest"
    if not significant_steps:
        yield f"{gap}: no significant difference"
    elif len(milder) == 1:
        [which] = milder
        where = f" at {len(significant_steps)} of {len(pair.steps)} steps" if len(pair.steps) > 1 else ""
        yield f"{which} is the milder judge{where}: {gap}"
    else:
        yield f"each is the milder judge at some steps: {gap}"
    if pair.ranks is not None:
        yield (
            f"they order the {pair.ranks.checkpoints} checkpoints with Kendall τ-b "
            f"{figure_with_interval('coefficient', pair.ranks.kendall, *pair.ranks.ci95)}"
        )
