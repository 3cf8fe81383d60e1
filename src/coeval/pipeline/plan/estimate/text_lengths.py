"""The lengths of all that models are yet to write in a run, in every scenario: what is written upstream
stands in the prompts below it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from coeval.pipeline.plan.estimate.guessed_lengths import (
    PROPOSAL,
    item_characters,
    label_characters,
    text_characters,
    verdict_characters,
)
from coeval.pipeline.plan.estimate.planned_calls import Mix, TaskCalls
from coeval.pricing.estimate.evidence import ScenarioDraws
from coeval.pricing.estimate.span import Scenarios
from coeval.pricing.estimate.unknowns import SCENARIOS, Cell, ErrorSpread, Guess

__all__ = ["TextLengths", "mixed", "text_lengths"]

_WRITTEN = ErrorSpread(shared=0.25, task=0.28, model=0.16, cell=0.15, item=0.35)
_ANSWERED = ErrorSpread(shared=0.25, task=0.28, model=0.22, cell=0.15, item=0.45)
_JUDGED = ErrorSpread(shared=0.05, task=0.03, model=0.06, cell=0.03, item=0.1)
_PROPOSED = ErrorSpread(shared=0.2, task=0.1, model=0.2, cell=0.1, item=0.3)


class TextLengths(NamedTuple):
    """Characters by (task, model): of items and references by their teacher, of answers by their student, of
    verdicts by their judge."""

    item: Mapping[Cell, Scenarios]
    reference: Mapping[Cell, Scenarios]
    answer: Mapping[Cell, Scenarios]
    verdict: Mapping[Cell, Scenarios]
    proposal: Mapping[Cell, Scenarios]


def text_lengths(
    tasks: Iterable[TaskCalls], verbosity: Mapping[str, float], draws: ScenarioDraws
) -> TextLengths:
    """``verbosity`` is by how much models are known to write more than others, by name."""
    guesses: dict[str, dict[Cell, Guess]] = {name: {} for name in TextLengths._fields}
    for task in tasks:
        for kind, cell, guess in _guesses(task):
            guesses[kind][cell] = guess._replace(mean=guess.mean * verbosity.get(cell.model, 1.0))
    return TextLengths(
        draws.means("item characters", guesses["item"], _WRITTEN),
        draws.means("reference characters", guesses["reference"], _WRITTEN),
        draws.means("answer characters", guesses["answer"], _ANSWERED),
        draws.means("verdict characters", guesses["verdict"], _JUDGED),
        draws.means("proposal characters", guesses["proposal"], _PROPOSED),
    )


def _guesses(task: TaskCalls) -> Iterator[tuple[str, Cell, Guess]]:
    """What kind of text is expected how long, of whom."""
    setup, name = task.setup, task.name
    planned = {(asked.phase, asked.role_model.name): asked.calls.high for asked in task.asked}
    labels = setup.labels if setup.task.label_attributes else {}
    answer = label_characters(labels) if labels else text_characters(setup.task.output_description)
    for author in {**task.authors, **dict.fromkeys(teacher.name for teacher in setup.teachers)}:
        items = planned.get(("data_generation", author), 1)
        yield "item", Cell(name, author), Guess(item_characters(setup.task), items)
        yield "reference", Cell(name, author), Guess(answer, items)
    for student in setup.students:
        items = planned.get(("response_collection", student.name), 1)
        yield "answer", Cell(name, student.name), Guess(answer, items)
    alone = setup.task.evaluation_mode == "per_factor"
    factors = ("score",) if alone else task.factors.known
    for judge in setup.judges:
        items = planned.get(("evaluation", judge.name), 1)
        yield "verdict", Cell(name, judge.name), Guess(verdict_characters(factors), items)
    for kind, teacher in task.proposals:
        yield "proposal", Cell(f"{name} {kind}", teacher.name), Guess(PROPOSAL[kind], 1)


def mixed(of: Mapping[Cell, Scenarios], task: str, mix: Mix) -> Scenarios:
    """The mean length of texts by several models, each counting as much as it does in ``mix``."""
    return sum((of[Cell(task, name)] * share for name, share in mix.items()), np.zeros(SCENARIOS + 1))
