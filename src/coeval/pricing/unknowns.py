"""Quantities that are known once models have answered: guessed, corrected by what was seen, and drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import log
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from coeval.core.text import numbered

# --- A figure that is not known exactly: what is expected, and the range that holds it in 95 of 100 cases

Scenarios: TypeAlias = NDArray[np.float64]
"""One figure in every scenario: the first is the central one, in which all is as expected; the others draw
what is not known, so that what depends on the same unknowns rises and falls together."""

CENTRAL = 0
_LOW, _HIGH = 0.02, 0.98


class Span(msgspec.Struct, frozen=True):
    """``low`` and ``high`` are the ends of the range."""

    central: float
    low: float
    high: float

    def __add__(self, other: Span) -> Span:
        return Span(self.central + other.central, self.low + other.low, self.high + other.high)


def exact(figure: float) -> Span:
    return Span(figure, figure, figure)


def span_of(figures: Scenarios) -> Span:
    central = float(figures[CENTRAL])
    low, high = (float(end) for end in np.quantile(figures[1:], (_LOW, _HIGH)))
    return Span(central, min(low, central), max(high, central))


# --- Lengths and the like that are known once models have answered: guessed, corrected by what was seen
#
# A quantity has a value in each cell (a model at a task). Its logarithm lies about that of the guess by
# errors that all cells share, those of a task, those of a model and those of the cell, each drawn from a
# normal distribution; and guesses may lie further apart than what is guessed, or closer together. A cell of
# which some items were seen lies about their mean. Gaussian conditioning (Rasmussen and Williams 2006, §2.2)
# makes of both what is expected of every cell, and joint draws of them all (by Matheron's rule): what was
# seen of one model at one task corrects the guesses of other cells as far as they share errors.

SCENARIOS = 400
_LEAST = 1e-3
_ANY, _ANY_SLOPE = 1.0, 0.6
"""What the errors of all cells and the slope may be, where something was seen that tells."""
# As many items as what is expected of the spread of items counts for, beside those that were seen.
_WEIGHT = 4.0
_JITTER = 1e-9
# Cells that guesses are corrected by, those with the most items first: each costs its square in memory.
_MOST_SEEN = 1000


class Cell(NamedTuple):
    task: str
    model: str


class Guess(NamedTuple):
    """The mean that is expected of a cell, and how many items will be drawn from it."""

    mean: float
    items: int = 1


class Seen(NamedTuple):
    """The mean of so many items of a cell, and the sum of the squares of how far they are from it."""

    mean: float
    items: int
    squares: float = 0.0

    def with_item(self, value: float) -> Seen:
        """With one more (Welford 1962)."""
        items, off = self.items + 1, value - self.mean
        mean = self.mean + off / items
        return Seen(mean, items, self.squares + off * (value - mean))


class ErrorSpread(NamedTuple):
    """Standard deviations of the logarithm: of the errors of a guess that all cells share, that those of a
    task and of a model share, of each cell's own; and of single items. ``slope`` is that of how
    much further apart cells are than their guesses, as a share of it: at -1 all are alike."""

    shared: float
    task: float
    model: float
    cell: float
    item: float
    slope: float = 0.0


def draw(
    guesses: Mapping[Cell, Guess],
    spread: ErrorSpread,
    seen: Mapping[Cell, Seen],
    random: np.random.Generator,
    shared: Scenarios | None = None,
) -> dict[Cell, Scenarios]:
    """The mean of each cell of ``guesses`` in all scenarios. What was seen counts where there is a guess of
    the same cell; guesses are above 0. ``shared`` are draws of the errors that all cells share, in standard
    deviations, for quantities that err together as long as nothing was seen."""
    if not guesses:
        return {}
    cells = list(guesses)
    known = sorted(guesses.keys() & seen.keys(), key=lambda cell: (-seen[cell].items, cell))[:_MOST_SEEN]
    if known:  # what guesses are wrong by altogether is for what was seen to say
        spread = spread._replace(
            shared=_ANY,
            slope=_ANY_SLOPE * bool(spread.slope),
            model=max(spread.model, spread.shared),
            item=_item_spread(spread.item, seen.values()),
        )
    apart = _apart(guesses)
    errors = _prior(apart, spread, random, None if known else shared)
    if known:
        measured = {cell: _measured(guesses[cell], seen[cell]) for cell in known}
        errors += _correction(errors, apart, spread, measured, random)
    items = np.array([max(1, guesses[cell].items) for cell in cells])
    errors[1:] += random.standard_normal((SCENARIOS, len(cells))) * spread.item / np.sqrt(items)
    means = np.array([guesses[cell].mean for cell in cells]) * np.exp(errors)
    return {cell: means[:, at] for at, cell in enumerate(cells)}


def _item_spread(expected: float, seen: Iterable[Seen]) -> float:
    """How far items lie apart, as a share of their mean: what is expected, corrected by what was seen."""
    squares, freedom = _WEIGHT * expected**2, _WEIGHT
    for each in seen:
        if each.items > 1 and each.mean > 0:
            squares += each.squares / each.mean**2
            freedom += each.items - 1
    return float(np.sqrt(squares / freedom))


class _Measured(NamedTuple):
    """By how much (the logarithm of) a guess was off, as told by so many items."""

    error: float
    items: float


def _measured(guess: Guess, seen: Seen) -> _Measured:
    return _Measured(log(max(seen.mean, _LEAST) / guess.mean), max(seen.items, 1))


def _apart(guesses: Mapping[Cell, Guess]) -> dict[Cell, float]:
    """How far each guess (the logarithm) is from the mean of all."""
    logs = {cell: log(guess.mean) for cell, guess in guesses.items()}
    middle = sum(logs.values()) / len(logs)
    return {cell: each - middle for cell, each in logs.items()}


def _prior(
    apart: Mapping[Cell, float],
    spread: ErrorSpread,
    random: np.random.Generator,
    shared: Scenarios | None,
) -> Scenarios:
    """Errors before anything was seen, a column for each cell: none in the central scenario."""
    cells = list(apart)
    errors = np.zeros((SCENARIOS + 1, len(cells)))
    groups = (
        (_numbered([cell.task for cell in cells]), spread.task),
        (_numbered([cell.model for cell in cells]), spread.model),
        (list(range(len(cells))), spread.cell),
    )
    for numbers, deviation in groups:
        drawn = random.standard_normal((SCENARIOS, max(numbers) + 1)) * deviation
        errors[1:] += drawn[:, numbers]
    of_all = random.standard_normal(SCENARIOS) if shared is None else shared[1:]
    errors[1:] += of_all[:, None] * spread.shared
    errors[1:] += np.outer(random.standard_normal(SCENARIOS), list(apart.values())) * spread.slope
    return errors


def _numbered(names: Sequence[str]) -> list[int]:
    """A number for each name, the same for the same."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(name, len(numbers)) for name in names]


def _correction(
    errors: Scenarios,
    apart: Mapping[Cell, float],
    spread: ErrorSpread,
    measured: Mapping[Cell, _Measured],
    random: np.random.Generator,
) -> Scenarios:
    """What turns draws of the prior into draws given what was measured."""
    known, place = list(measured), {cell: at for at, cell in enumerate(apart)}
    noise = spread.item / np.sqrt([each.items for each in measured.values()])
    drawn = errors[:, [place[cell] for cell in known]].copy()
    drawn[1:] += random.standard_normal((SCENARIOS, len(known))) * noise
    off = np.array([each.error for each in measured.values()]) - drawn
    of_known = {cell: apart[cell] for cell in known}
    covariance = _shared(of_known, of_known, spread) + np.diag(noise**2 + _JITTER)
    return np.linalg.solve(covariance, off.T).T @ _shared(of_known, apart, spread)


def _shared(ones: Mapping[Cell, float], others: Mapping[Cell, float], spread: ErrorSpread) -> Scenarios:
    """The covariance of the errors of each of ``ones`` with each of ``others``, by how far these are
    apart."""

    def same(key: str) -> Scenarios:
        names = _numbered([getattr(cell, key) for cell in (*ones, *others)])
        left, right = np.array(names[: len(ones)]), np.array(names[len(ones) :])
        return np.asarray(left[:, None] == right[None, :], dtype=np.float64)

    task, model = same("task"), same("model")
    slope = spread.slope**2 * np.outer(list(ones.values()), list(others.values()))
    own = spread.task**2 * task + spread.model**2 * model + spread.cell**2 * task * model
    return np.asarray(spread.shared**2 + slope + own, dtype=np.float64)


Quantity: TypeAlias = Literal[
    "item characters",
    "reference characters",
    "answer characters",
    "verdict ratio",
    "judgment characters",
    "proposal characters",
    "new factors",
    "tokens per character",
    "teacher's tokens per character",
    "student's tokens per character",
    "judge's tokens per character",
    "slowness",
    "concurrency",
    "hours of a batch",
]


# How much further below its guess a text may be than above it: rules of thumb are of large models.
_TERSE = 2.3
_RULES = "rules of thumb"
TOKENIZER = "tokenizer"


class Evidence:
    """Means of what was seen, by quantity and cell."""

    def __init__(self) -> None:
        self._seen: dict[Quantity, dict[Cell, Seen]] = {}
        self.counts: dict[str, Counter[str]] = {}
        """Model → of what kind, and how many calls were seen."""

    def add(self, quantity: Quantity, cell: Cell, value: float) -> None:
        """One more item of a cell was seen."""
        cells = self._seen.setdefault(quantity, {})
        cells[cell] = cells.get(cell, Seen(0.0, 0)).with_item(value)

    def count(self, model: str, noun: str) -> None:
        """A call of the model was seen, in what is called so."""
        self.counts.setdefault(model, Counter())[noun] += 1

    def basis(self, model: str) -> str:
        """In words, what is known of a model's lengths."""
        counts = dict(self.counts.get(model, {}))
        own = ["its tokenizer"] if counts.pop(TOKENIZER, 0) else []
        told = [numbered(number, noun) for noun, number in counts.items()] or [_RULES]
        return " and ".join((*told, *own))

    def of(self, quantity: Quantity) -> Mapping[Cell, Seen]:
        return self._seen.get(quantity, {})


class ScenarioDraws:
    """Quantities in all scenarios, given the evidence; the same whenever they are drawn in the same order."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self._random = np.random.default_rng(0)
        wordy = self._random.standard_normal(SCENARIOS + 1)
        self._wordy = np.where(wordy < 0, wordy * _TERSE, wordy)

    def means(
        self, quantity: Quantity, guesses: Mapping[Cell, Guess], spread: ErrorSpread
    ) -> dict[Cell, Scenarios]:
        """The mean of a quantity in each cell."""
        return draw(guesses, spread, self.evidence.of(quantity), self._random)

    def lengths(
        self, quantity: Quantity, guesses: Mapping[Cell, Guess], spread: ErrorSpread
    ) -> dict[Cell, Scenarios]:
        """The mean length of texts in each cell, guessed by rules of thumb. These err together: models that
        are terse, or wordy, are so in all that they write."""
        return draw(guesses, spread, self.evidence.of(quantity), self._random, self._wordy)

    def between(self, least: float, expected: float, most: float) -> Scenarios:
        """A figure of which no more is known than its ends, and what is expected."""
        drawn = self._random.triangular(least, expected, most, SCENARIOS + 1)
        drawn[CENTRAL] = expected
        return np.asarray(drawn, dtype=np.float64)
