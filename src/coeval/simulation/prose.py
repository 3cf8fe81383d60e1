"""Plain sentences that say little, so that texts have a length and differ."""

from __future__ import annotations

from typing import NamedTuple

from coeval.simulation.draws import Draws

_SUBJECTS = (
    "The first report", "A careful reader", "The local team", "An early draft", "The second witness",
    "The annual review", "A recent survey", "The night shift", "One of the authors", "The longer version",
    "A colleague", "The usual method",
)  # fmt: skip
_VERBS = (
    "describes", "leaves open", "confirms", "questions", "depends on", "explains",
    "overlooks", "compares", "returns to", "rests on", "simplifies",
)  # fmt: skip
_OBJECTS = (
    "the main result", "an unusual delay", "the cost of each step", "two earlier attempts",
    "a missing detail", "the order of events", "what the customer asked for", "a small but steady change",
    "the limits of the plan", "several open points", "the reason for the choice", "the figures in the table",
    "a point that both sides accept",
)  # fmt: skip
_TAILS = (
    "", ", as expected", ", though not at once", " in some detail", ", which matters here", " once more",
    " for the sake of clarity",
)  # fmt: skip


class TypicalLengths(NamedTuple):
    """Characters of what a simulated model writes, in the mean."""

    item: float
    reference: float
    answer: float
    labelled_answer: float


_SENTENCE = 62.0
"""Characters of a sentence with the blank behind it, in the mean."""


def typical_lengths(verbosity: float) -> TypicalLengths:
    """As many sentences as teachers and students write at this verbosity, with what else stands beside
    them."""

    def characters(count: float, rest: float) -> float:
        return rest + _SENTENCE * max(1.0, count * verbosity)

    return TypicalLengths(characters(4, 82), characters(3, 42), characters(4, 45), 66.0)


def sentences(draws: Draws, name: str, count: int) -> str:
    """``count`` sentences (at least one) on one line."""
    return " ".join(sentence_list(draws, name, count))


def sentence_list(draws: Draws, name: str, count: int) -> list[str]:
    """``count`` sentences (at least one)."""
    return [_sentence(draws.bits(f"{name} {number}")) for number in range(max(1, count))]


def _sentence(number: int) -> str:
    number, subject = divmod(number, len(_SUBJECTS))
    number, verb = divmod(number, len(_VERBS))
    number, thing = divmod(number, len(_OBJECTS))
    return f"{_SUBJECTS[subject]} {_VERBS[verb]} {_OBJECTS[thing]}{_TAILS[number % len(_TAILS)]}."
