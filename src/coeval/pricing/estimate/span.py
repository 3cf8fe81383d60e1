"""A figure that is not known exactly: what is expected, and the range that holds it in 95 of 100 cases."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = ["CENTRAL", "Scenarios", "Span", "exact", "span_of"]

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
