"""What a person is asked: one factor of one answer, without its student and its judges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.people.label_draw import DrawnAnswer
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.records import Response
from coeval.core.scale import HIGH_MEDIUM_LOW, RubricScale
from coeval.core.text import digest
from coeval.store.human_labels import HumanLabel, Labels


class LabelTexts(NamedTuple):
    """``reference`` is empty where the item has none."""

    prompt: str
    answer: str
    reference: str


class LabelQuestion(NamedTuple):
    """``id`` tells nothing of the student; ``label`` is what is kept once a level is given."""

    id: str
    prompt: str
    answer: str
    reference: str
    factor: str
    criterion: str
    scale: RubricScale
    label: HumanLabel

    def at(self, level: str | None) -> HumanLabel:
        """Make the label of a level, one of the scale's; None takes it back."""
        value = None if level is None else self.scale.value(level)
        return msgspec.structs.replace(self.label, level=level, value=value)


def question_id(answer: str, factor: str, judge: str) -> str:
    """Name a question to a person, so that nobody's sheet is taken for another's; it begins with a letter, so
    that no spreadsheet takes it for a number."""
    return f"q{digest('question', answer, factor, judge)}"


class ShownTexts:
    """Prompts, answers, references, criteria and scales of a run, as people are shown them.

    Raises StoreError: a file cannot be read.
    """

    def __init__(self, reader: RunReader, answers: Iterable[str], grid: ScoreGrid) -> None:
        found = {record.id: record for record in reader.records(Response, frozenset(answers))}
        items = reader.texts({record.datapoint_id for record in found.values()})
        self._shown = {
            key: LabelTexts(item.prompt or "", record.response or "", item.reference_response or "")
            for key, record in found.items()
            if (item := items.get(record.datapoint_id)) is not None
        }
        self._criteria = reader.rubrics()
        self._designs = dict(zip(grid.tasks, grid.designs, strict=True))

    def of(self, answer: str) -> LabelTexts | None:
        """Return what is shown with an answer; None where the answer or its item is gone."""
        return self._shown.get(answer)

    def criterion(self, task: str, factor: str) -> str:
        return self._criteria.get(task, {}).get(factor, "")

    def scale(self, task: str, factor: str) -> RubricScale:
        design = self._designs.get(task)
        return HIGH_MEDIUM_LOW if design is None else design.scales.get(factor, HIGH_MEDIUM_LOW)

    def fits(self, label: HumanLabel) -> bool:
        """Whether a label's level is one of its factor's scale."""
        return self.scale(label.task_id, label.factor).level(label.level) is not None

    def hashes(self, answer: str, task: str, factor: str) -> tuple[str, str]:
        """Hash what is shown: prompt, answer and the reference if there is one, and the criterion with its
        scale; empty where an answer or its prompt is gone."""
        shown = self.of(answer)
        texts = () if shown is None else shown if shown.reference else shown[:2]
        scale = self.scale(task, factor)
        values = map(repr, scale.values)
        criterion = digest(self.criterion(task, factor), *scale.levels, *values)
        return (digest(*texts) if texts else ""), criterion

    def shows(self, label: HumanLabel) -> bool:
        """Whether a label is about what is there now."""
        hashes = self.hashes(label.response_id, label.task_id, label.factor)
        return bool(hashes[0]) and hashes == (label.input_hash, label.criterion)


def to_label(
    texts: ShownTexts, drawn: Sequence[DrawnAnswer], factors: Mapping[str, Sequence[str]], judge: str
) -> Iterator[HumanLabel]:
    """Make the labels, still without a level, that a draw asks of a person."""
    for key, how in drawn:
        for factor in factors[key.task]:
            shown, criterion = texts.hashes(key.answer, key.task, factor)
            if shown:
                yield HumanLabel(
                    judge_model_id=judge,
                    task_id=key.task,
                    datapoint_id=key.item,
                    response_id=key.answer,
                    factor=factor,
                    drawn=how,
                    input_hash=shown,
                    criterion=criterion,
                )


def questions(grid: ScoreGrid, texts: ShownTexts, labels: Iterable[HumanLabel]) -> Iterator[LabelQuestion]:
    """Ask for these labels; those about texts, criteria or factors that have changed are left out."""
    designs = dict(zip(grid.tasks, grid.designs, strict=True))
    for label in labels:
        shown, design = texts.of(label.response_id), designs.get(label.task_id)
        if shown is None or design is None or label.factor not in design.judged or not texts.shows(label):
            continue
        yield LabelQuestion(
            question_id(label.response_id, label.factor, label.judge_model_id),
            *shown,
            label.factor,
            texts.criterion(label.task_id, label.factor),
            texts.scale(label.task_id, label.factor),
            label,
        )


def of_person(labels: Labels, judge: str) -> list[HumanLabel]:
    """Choose a person's labels and what is asked of that person, in the order of the draw."""
    return [label for label in labels.values() if label.response_id and label.judge_model_id == judge]
