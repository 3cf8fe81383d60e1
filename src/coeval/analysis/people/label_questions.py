"""Questions for people who label: one factor of one answer, without its student and its judges.

Answers are drawn by chance within strata, the same ones at every start. Every task has one random order of
its items, and all students' answers to an item are drawn together, since differences between students are
most precise on shared items. So the first labels of a draw are a draw themselves: who stops early has
still labelled at random, and a larger draw begins with the smaller one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import UsageError
from coeval.core.records import Response, response_id
from coeval.core.scale import HIGH_MEDIUM_LOW, RubricScale
from coeval.core.text import digest, join_names
from coeval.store.human_labels import ByChance, HumanLabel, Labels


class JudgedKey(NamedTuple):
    """An answer that a judge scored: its id, item, task, student and sample."""

    answer: str
    item: str
    task: str
    student: str
    sample: int


class DrawnAnswer(NamedTuple):
    """An answer to label; ``drawn`` is None if it was picked by hand."""

    key: JudgedKey
    drawn: ByChance | None


def judged_factors_by_task(grid: ScoreGrid, chosen_factors: Iterable[str] = ()) -> dict[str, tuple[str, ...]]:
    """Name the factors that judges score, by task; of these the ``chosen_factors``, where there are any.
    Raises UsageError: nobody scores a chosen one, or there are none at all."""
    factors_by_task = {
        task: tuple(sorted(design.judged_factors))
        for task, design in zip(grid.tasks, grid.designs, strict=True)
    }
    chosen_factors = tuple(chosen_factors)
    all_factors = sorted({factor for factors in factors_by_task.values() for factor in factors})
    if not all_factors:
        raise UsageError("no judge scores a factor of this run, so there is nothing to label")
    if unknown := [factor for factor in chosen_factors if factor not in all_factors]:
        raise UsageError(f"--factor {unknown[0]}: judges score {join_names(all_factors)}")
    return {
        task: tuple(factor for factor in factors if not chosen_factors or factor in chosen_factors)
        for task, factors in factors_by_task.items()
    }


def draw_answers(
    grid: ScoreGrid, factors_by_task: dict[str, tuple[str, ...]], n: int, seed: int
) -> list[DrawnAnswer]:
    """Draw ``n`` answers, or all if there are fewer, in the order in which they are shown. Strata are task ×
    student; an answer's probability is the share of its stratum that is drawn."""
    strata: defaultdict[tuple[str, str], dict[str, list[JudgedKey]]] = defaultdict(dict)
    for key in _list_judged_answers(grid, factors_by_task):
        strata[key.task, key.student].setdefault(key.item, []).append(key)
    items_by_task: defaultdict[str, set[str]] = defaultdict(set)
    for (task, _), by_item in strata.items():
        items_by_task[task] |= by_item.keys()
    position = {
        item: at
        for task_items in items_by_task.values()
        for at, item in enumerate(sorted(task_items, key=lambda item: _hash_name(seed, item)))
    }
    one_each = {
        min(keys, key=lambda key: _hash_name(seed, key.answer)): len(keys)
        for items in strata.values()
        for keys in items.values()
    }
    order = sorted(
        one_each,
        key=lambda key: (position[key.item], _hash_name(seed, key.item), _hash_name(seed, key.answer)),
    )
    drawn = order[:n]
    counts = Counter((key.task, key.student) for key in drawn)
    answers = []
    for key in drawn:
        stratum = key.task, key.student
        items = len(strata[stratum])
        share = counts[stratum] / items / one_each[key]
        answers.append(DrawnAnswer(key, ByChance(share, " × ".join(stratum), seed, items)))
    return answers


def pick_answers(
    grid: ScoreGrid, factors_by_task: dict[str, tuple[str, ...]], items: Collection[str]
) -> list[DrawnAnswer]:
    """Choose all answers to some items, by hand. Raises UsageError: no judge scored one of an item."""
    judged = _list_judged_answers(grid, factors_by_task)
    answers = [DrawnAnswer(key, None) for key in judged if key.item in {*items}]
    if unknown := {*items} - {key.item for key, _ in answers}:
        raise UsageError(f"--item {min(unknown)}: no judge scored an answer to this item")
    return sorted(answers, key=lambda drawn: (drawn.key.item, _hash_name(0, drawn.key.answer)))


def assign_answers(
    drawn: Sequence[DrawnAnswer], people: Sequence[str], person: str, overlap: float
) -> list[DrawnAnswer]:
    """Choose one person's part: the first ``overlap`` of the draw, which all have, and every k-th of the
    rest.

    Raises UsageError: the person is not among the people.
    """
    if not people:
        return list(drawn)
    names = sorted(set(people))
    if person not in names:
        raise UsageError(
            f"--by {person} is not among {join_names(names)}; name the same people at every start"
        )
    common = round(overlap * len(drawn))
    mine = range(common + names.index(person), len(drawn), len(names))
    return [*drawn[:common], *(drawn[at] for at in mine)]


def _list_judged_answers(grid: ScoreGrid, factors_by_task: dict[str, tuple[str, ...]]) -> Iterator[JudgedKey]:
    """Yield the answers with a judge's score in one of these factors."""
    chosen = np.array([[name in factors_by_task[task] for name in grid.factors] for task in grid.tasks], bool)
    rows = grid.valid.any(axis=1) & chosen[grid.task, grid.factor]
    sample = grid.sample if grid.sample is not None else np.zeros(len(grid.item), np.int64)
    for item, student, at in sorted(
        set(zip(grid.item[rows].tolist(), grid.student[rows].tolist(), sample[rows].tolist(), strict=True))
    ):
        name, who = grid.items.ids[item], grid.students[student]
        task = grid.tasks[int(grid.items.task[item])]
        yield JudgedKey(response_id(name, who, at), name, task, who, at)


def _hash_name(seed: int, name: str) -> str:
    return digest("label", str(seed), name)


class LabelTexts(NamedTuple):
    """The texts that a person sees; ``reference`` is empty where the item has none."""

    prompt: str
    answer: str
    reference: str


class LabelQuestion(NamedTuple):
    """A question to a person. ``id`` hides the student; ``label`` is stored once a level is given."""

    id: str
    prompt: str
    answer: str
    reference: str
    factor: str
    criterion: str
    scale: RubricScale
    label: HumanLabel

    def label_with_level(self, level: str | None) -> HumanLabel:
        """Make the label of a level, one of the scale's; None takes it back."""
        value = None if level is None else self.scale.value(level)
        return msgspec.structs.replace(self.label, level=level, value=value)


def question_id(answer: str, factor: str, judge: str) -> str:
    """Return an id of a question to a person, so that nobody's sheet is mistaken for another's; it begins
    with a letter, so that no spreadsheet reads it as a number."""
    return f"q{digest('question', answer, factor, judge)}"


class ShownTexts:
    """Prompts, answers, references, criteria and scales of a run, as people see them. Raises StoreError: a
    file cannot be read."""

    def __init__(self, reader: RunReader, answers: Iterable[str], grid: ScoreGrid) -> None:
        responses = {record.id: record for record in reader.read_records(Response, frozenset(answers))}
        items = reader.read_texts({record.datapoint_id for record in responses.values()})
        self._shown = {
            key: LabelTexts(item.prompt or "", record.response or "", item.reference_response or "")
            for key, record in responses.items()
            if (item := items.get(record.datapoint_id)) is not None
        }
        self._criteria = reader.rubrics()
        self._designs = dict(zip(grid.tasks, grid.designs, strict=True))

    def texts_of(self, answer: str) -> LabelTexts | None:
        """Return what is shown with an answer; None where the answer or its item is gone."""
        return self._shown.get(answer)

    def criterion(self, task: str, factor: str) -> str:
        return self._criteria.get(task, {}).get(factor, "")

    def scale(self, task: str, factor: str) -> RubricScale:
        design = self._designs.get(task)
        return HIGH_MEDIUM_LOW if design is None else design.scales.get(factor, HIGH_MEDIUM_LOW)

    def has_level_of_scale(self, label: HumanLabel) -> bool:
        return self.scale(label.task_id, label.factor).level(label.level) is not None

    def hash_texts_and_criterion(self, answer: str, task: str, factor: str) -> tuple[str, str]:
        """Hash what is shown: prompt, answer and the reference if there is one, and the criterion with its
        scale; empty where an answer or its prompt is gone."""
        texts_shown = self.texts_of(answer)
        texts = () if texts_shown is None else texts_shown if texts_shown.reference else texts_shown[:2]
        scale = self.scale(task, factor)
        values = map(repr, scale.values)
        criterion = digest(self.criterion(task, factor), *scale.levels, *values)
        return (digest(*texts) if texts else ""), criterion

    def is_current(self, label: HumanLabel) -> bool:
        """Check whether a label is about the texts as they are now."""
        hashes = self.hash_texts_and_criterion(label.response_id, label.task_id, label.factor)
        return bool(hashes[0]) and hashes == (label.input_hash, label.criterion)


def make_empty_labels(
    texts: ShownTexts, drawn: Sequence[DrawnAnswer], factors_by_task: Mapping[str, Sequence[str]], judge: str
) -> Iterator[HumanLabel]:
    """Make the labels, still without a level, that a draw asks of a person."""
    for key, chance in drawn:
        for factor in factors_by_task[key.task]:
            input_hash, criterion = texts.hash_texts_and_criterion(key.answer, key.task, factor)
            if input_hash:
                yield HumanLabel(
                    judge_model_id=judge,
                    task_id=key.task,
                    datapoint_id=key.item,
                    response_id=key.answer,
                    factor=factor,
                    drawn=chance,
                    input_hash=input_hash,
                    criterion=criterion,
                )


def make_questions_on_unchanged_texts(
    grid: ScoreGrid, texts: ShownTexts, requested_labels: Iterable[HumanLabel]
) -> Iterator[LabelQuestion]:
    """Make a question of each label, except about texts, criteria or factors that have changed."""
    designs = dict(zip(grid.tasks, grid.designs, strict=True))
    for label in requested_labels:
        texts_shown, design = texts.texts_of(label.response_id), designs.get(label.task_id)
        if (
            texts_shown is None
            or design is None
            or label.factor not in design.judged_factors
            or not texts.is_current(label)
        ):
            continue
        yield LabelQuestion(
            question_id(label.response_id, label.factor, label.judge_model_id),
            *texts_shown,
            label.factor,
            texts.criterion(label.task_id, label.factor),
            texts.scale(label.task_id, label.factor),
            label,
        )


def labels_of_person(labels: Labels, person: str) -> list[HumanLabel]:
    """Select a person's labels and open questions, in the order of the draw."""
    return [label for label in labels.values() if label.response_id and label.judge_model_id == person]
