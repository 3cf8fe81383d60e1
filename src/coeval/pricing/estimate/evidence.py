"""What has been seen of the quantities that an estimate guesses: of records, and of samples that were asked
for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal, TypeAlias

import numpy as np

from coeval.core.text import numbered
from coeval.pricing.estimate.span import CENTRAL, Scenarios
from coeval.pricing.estimate.unknowns import SCENARIOS, Cell, ErrorSpread, Guess, Seen, draw

__all__ = ["TOKENIZER", "Evidence", "Quantity", "ScenarioDraws"]

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


_TERSE = 2.3
"""How much further below its guess a text may be than above it: rules of thumb are of large models."""
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
