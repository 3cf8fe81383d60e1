"""Simulated student: answers as well as its skill allows, and states the quality."""

from __future__ import annotations

from coeval.simulation.form_demands import AnswerDraft, heed
from coeval.simulation.prose import (
    AnswerMark,
    ItemMark,
    Reply,
    SimulatedAsk,
    read_item,
    write_answer,
)

# Quality lost per unit of difficulty above 0.5, and gained below.
DIFFICULTY_WEIGHT = 0.5
# Standard deviation of quality between answers of one student at one difficulty.
DAILY_FORM = 0.08


def answer(ask: SimulatedAsk) -> Reply:
    """Write a few sentences that state the answer's quality."""
    item = read_item(ask.text)
    quality = hidden_quality(ask, item.difficulty if item else 0.5)
    mark = write_answer(AnswerMark(ask.model, ask.traits.family, quality))
    count = round(ask.traits.verbosity * (2 + 4 * ask.draws.uniform("length")))
    draft = AnswerDraft(ask.draws, mark, count)
    if item is None:  # one of ours states all that is wanted; what else reads like a demand is its subject
        heed(draft, ask.text, quality)
    return draft.write()


def labelled_answer(ask: SimulatedAsk) -> Reply:
    """Answer the requested labels as a JSON object that states the quality too.

    The student knows a label of the item with a probability equal to the quality, and otherwise guesses among
    the declared values. A single label is under ``label``, several under their names.
    """
    item = read_item(ask.text) or ItemMark(0.5)
    quality = hidden_quality(ask, item.difficulty)
    reported = {
        name: item.attributes[name]
        if name in item.attributes and ask.draws.uniform(f"knows {name}") < quality
        else ask.draws.pick(f"guess {name}", values)
        for name, values in ask.labels.items()
    }
    labels = reported if len(reported) > 1 else {"label": next(iter(reported.values()))}
    return {**labels, "note": write_answer(AnswerMark(ask.model, ask.traits.family, quality))}


def hidden_quality(ask: SimulatedAsk, difficulty: float) -> float:
    """Return skill, less the cost of difficulty, plus daily form; within 0 and 1."""
    quality = (
        ask.traits.skill - DIFFICULTY_WEIGHT * (difficulty - 0.5) + DAILY_FORM * ask.draws.normal("form")
    )
    return min(1.0, max(0.0, quality))
