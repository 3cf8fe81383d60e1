"""The lengths of all that models are yet to write in a run, in every scenario: what is written upstream
stands in the prompts below it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from coeval.engine.model_facts import output_limit
from coeval.pipeline.plan.estimate.guessed_lengths import (
    PROPOSAL,
    item_characters,
    label_characters,
    text_characters,
)
from coeval.pipeline.plan.estimate.planned_calls import Mix, TaskCalls
from coeval.pricing.estimate.evidence import Quantity, ScenarioDraws
from coeval.pricing.estimate.span import Scenarios
from coeval.pricing.estimate.tokens import LATIN_PER_TOKEN
from coeval.pricing.estimate.unknowns import SCENARIOS, Cell, ErrorSpread, Guess
from coeval.simulation.prose import TypicalLengths

__all__ = ["TextLengths", "mixed", "text_lengths"]

_WRITTEN = ErrorSpread(shared=0.3, task=0.25, model=0.16, cell=0.1, item=0.25, slope=0.2)
_ANSWERED = ErrorSpread(shared=0.3, task=0.25, model=0.22, cell=0.1, item=0.4, slope=0.2)
_LABELLED = ErrorSpread(shared=0.5, task=0.2, model=0.3, cell=0.1, item=0.2)
_TYPICAL = ErrorSpread(shared=0.15, task=0.05, model=0.08, cell=0.05, item=0.3)
"""Of models whose usual lengths are known."""
_JUDGED = ErrorSpread(shared=0.05, task=0.03, model=0.06, cell=0.03, item=0.1)
_PROPOSED = ErrorSpread(shared=0.3, task=0.1, model=0.2, cell=0.1, item=0.3)


class TextLengths(NamedTuple):
    """Characters by (task, model): of items and references by their teacher, of answers by their student;
    ``verdict`` is how much longer a judge's verdicts are than they have to be."""

    item: Mapping[Cell, Scenarios]
    reference: Mapping[Cell, Scenarios]
    answer: Mapping[Cell, Scenarios]
    verdict: Mapping[Cell, Scenarios]
    proposal: Mapping[Cell, Scenarios]


def text_lengths(
    tasks: Sequence[TaskCalls], typical: Mapping[str, TypicalLengths], draws: ScenarioDraws
) -> TextLengths:
    """``typical`` are the lengths of models that are known to write so, by name."""
    guesses: dict[str, dict[Cell, Guess]] = {name: {} for name in TextLengths._fields}
    labelled = {task.name for task in tasks if task.setup.labels and task.setup.task.label_attributes}
    for task in tasks:
        for kind, cell, guess in _guesses(task, typical):
            guesses[kind][cell] = guess

    def drawn(quantity: Quantity, of: Mapping[Cell, Guess], spread: ErrorSpread) -> dict[Cell, Scenarios]:
        """What is known of a model errs otherwise than rules of thumb."""
        known, guessed = _parted(of, lambda cell: cell.model in typical)
        return draws.means(quantity, known, _TYPICAL) | draws.lengths(quantity, guessed, spread)

    labels, prose = _parted(guesses["answer"], lambda cell: cell.task in labelled)
    answers = drawn("answer characters", prose, _ANSWERED) | drawn("answer characters", labels, _LABELLED)
    longest = {cell: most for task in tasks for cell, most in _longest_answers(task)}
    return TextLengths(
        drawn("item characters", guesses["item"], _WRITTEN),
        drawn("reference characters", guesses["reference"], _WRITTEN),
        {cell: np.minimum(each, longest.get(cell, np.inf)) for cell, each in answers.items()},
        draws.means("verdict ratio", guesses["verdict"], _JUDGED),
        draws.lengths("proposal characters", guesses["proposal"], _PROPOSED),
    )


def _parted(
    guesses: Mapping[Cell, Guess], first: Callable[[Cell], bool]
) -> tuple[dict[Cell, Guess], dict[Cell, Guess]]:
    """Those of the cells that ``first`` holds of, and the others."""
    ones = {cell: guess for cell, guess in guesses.items() if first(cell)}
    return ones, {cell: guess for cell, guess in guesses.items() if cell not in ones}


def _longest_answers(task: TaskCalls) -> Iterator[tuple[Cell, float]]:
    """How long the answers of students are at the most, whose tokens are limited."""
    for student in task.setup.students:
        if (limit := output_limit(student.sampling)) is not None:
            yield Cell(task.name, student.name), limit * LATIN_PER_TOKEN


def _guesses(task: TaskCalls, typical: Mapping[str, TypicalLengths]) -> Iterator[tuple[str, Cell, Guess]]:
    """What kind of text is expected how long, of whom."""
    setup, name = task.setup, task.name
    planned = {(asked.phase, asked.role_model.name): asked.calls.high for asked in task.asked}
    labels = setup.labels if setup.task.label_attributes else {}
    answer = label_characters(labels) if labels else text_characters(setup.task.output_description)
    for author in {**task.authors, **dict.fromkeys(teacher.name for teacher in setup.teachers)}:
        items = planned.get(("data_generation", author), 1)
        known = typical.get(author)
        item = known.item if known is not None else item_characters(setup.task)
        yield "item", Cell(name, author), Guess(item, items)
        yield "reference", Cell(name, author), Guess(known.reference if known is not None else answer, items)
    for student in setup.students:
        items = planned.get(("response_collection", student.name), 1)
        known = typical.get(student.name)
        expected = answer if known is None else (known.labelled_answer if labels else known.answer)
        yield "answer", Cell(name, student.name), Guess(expected, items)
    for judge in setup.judges:
        items = planned.get(("evaluation", judge.name), 1)
        yield "verdict", Cell(name, judge.name), Guess(1.0, items)
    for kind, teacher in task.proposals:
        yield "proposal", Cell(f"{name} {kind}", teacher.name), Guess(PROPOSAL[kind], 1)


def mixed(of: Mapping[Cell, Scenarios], task: str, mix: Mix) -> Scenarios:
    """The mean length of texts by several models, each counting as much as it does in ``mix``."""
    return sum((of[Cell(task, name)] * share for name, share in mix.items()), np.zeros(SCENARIOS + 1))
