"""Figures as people read them: scores in points of 100, shares in percent, κ with its word.

Records and files keep scores from 0 to 1; what formats one for a person calls this module. ``cells.js`` does
the same on a page.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from coeval.core.text import dollars, format_probability

FigureKind: TypeAlias = Literal[
    "text", "count", "points", "gap", "share", "coefficient", "number", "probability", "usd", "seconds"
]
"""How a figure is written. ``points`` is a score from 0 to 1, shown as 0 to 100; ``gap`` is a difference of
scores, with its interval as sentences have it; ``share`` is a part of a whole, shown in percent;
``coefficient`` is κ, a correlation or a reliability."""

IN_POINTS: frozenset[FigureKind] = frozenset({"points", "gap"})

MISSING = "–"
NOT_KNOWN = "not known"

# Decimals of a sum that do not depend on the order of its terms.
_SUMMED = 9


def format_decimals(number: float, digits: int) -> str:
    """Format with ``digits`` decimals: rounded alike however it was summed, with a real minus sign, and
    without a sign where it rounds to zero."""
    return _minus(f"{round(number, _SUMMED):,.{digits}f}")


def format_points(score: float) -> str:
    """Format a score, or a difference of scores, from 0 to 1 in points: ``90.2``."""
    return format_decimals(100 * score, 1)


def score_text(score: float | None, low: float | None = None, high: float | None = None) -> str | None:
    """Format a score from 0 to 1 with its interval, in points: ``63.2 [58.1, 68.0]``."""
    return None if score is None else figure_with_interval("points", score, low, high)


def missing_bounds_text(least: float | None, most: float | None) -> str | None:
    """Format a score's range with all missing values at 0, and at 1: ``74.0–94.1``; None if it is a point."""
    if least is None or most is None or least == most:
        return None
    return f"{format_points(least)}–{format_points(most)}"


def share_of_scale(value: float, unit: str) -> float:
    """Return where a benchmark's metric lies on its scale, from 0 to 1; ``points`` run from 1 to 10."""
    if unit == "points":
        return (value - 1) / 9
    return value if unit == "share" else value / 100


def points_per_unit(unit: str) -> float:
    """Return how many points, of 0 to 100, one of a benchmark's unit is."""
    return {"share": 100.0, "points": 100 / 9}.get(unit, 1.0)


def gap_text(difference: float, unit: str) -> str:
    """Format a difference of a benchmark's metric, or its standard error, in points: ``3.1``."""
    return format_decimals(difference * points_per_unit(unit), 1)


def metric_text(value: float, unit: str) -> str:
    """Format a benchmark's metric in points, 0 to 100 of its scale."""
    return format_points(share_of_scale(value, unit))


def format_figure(number: float, kind: FigureKind) -> str:
    """Format a number: ``90.2``, ``12.5%``, ``0.43``, ``1,985``, ``$5.12``, ``<0.001``."""
    match kind:
        case "points" | "gap":
            return format_points(number)
        case "share":
            return f"{format_points(number)}%"
        case "count":
            return f"{number:,.0f}"
        case "usd":
            return dollars(number)
        case "probability":
            return format_probability(number)
        case "seconds":
            return f"{number:,.1f} s"
        case "number":
            return f"{number:,}" if isinstance(number, int) else _minus(f"{number:,.3g}")
        case "coefficient" | "text":
            return format_decimals(number, 2)


def figure_with_interval(
    kind: FigureKind, value: float, low: float | None = None, high: float | None = None
) -> str:
    """Format a number with its interval: ``81.0 [80.2, 82.1]``, ``12.5% [9.1, 16.0%]``, ``3.1 ± 1.9``."""
    if low is None or high is None:
        return format_figure(value, kind)
    if kind == "gap":
        return points_difference_text(100 * value, 100 * low, 100 * high)
    return (
        f"{format_figure(value, kind)} [{format_figure(low, kind).removesuffix('%')}, "
        f"{format_figure(high, kind)}]"
    )


# Of what is shown: an interval whose two sides differ by less is shown as one number.
_NEARLY = 0.06


def points_difference_text(difference: float, low: float, high: float) -> str:
    """Format a difference with its interval: ``7.9 ± 4.3``, or ``29.2 [−4.9, 49.7]`` if lopsided."""
    if abs((high - difference) - (difference - low)) < _NEARLY:
        return f"{format_decimals(difference, 1)} ± {format_decimals((high - low) / 2, 1)}"
    return f"{format_decimals(difference, 1)} [{format_decimals(low, 1)}, {format_decimals(high, 1)}]"


def metric_difference_text(difference: float, low: float, high: float, unit: str) -> str:
    """Format a difference of a benchmark's metric with its interval, in points: ``3.1 ± 1.9``."""
    by = points_per_unit(unit)
    return points_difference_text(difference * by, low * by, high * by)


def _minus(text: str) -> str:
    return text.replace("-", "−", 1) if text.strip("-0.,") else text.removeprefix("-")


# Landis and Koch 1977, up to each bound.
_KAPPA = ((0.2, "slight"), (0.4, "fair"), (0.6, "moderate"), (0.8, "substantial"), (1.0, "almost perfect"))


def kappa_word(kappa: float) -> str:
    """Name the strength of agreement, as Landis and Koch 1977 do: ``fair``; below zero ``poor``."""
    return "poor" if kappa < 0 else next(word for bound, word in _KAPPA if kappa <= bound or bound == 1.0)
