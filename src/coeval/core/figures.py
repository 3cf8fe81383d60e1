"""Figures as people read them: scores in points of 100, shares in percent, κ with its word, amounts.

Records and files keep scores from 0 to 1; what formats one for a person calls this module. Scripts of pages
and number formats of workbooks follow from the same table, `FORMATS`.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Literal, NamedTuple, TypeAlias

FigureKind: TypeAlias = Literal[
    "text", "count", "points", "gap", "share", "coefficient", "number", "probability", "usd", "seconds"
]
"""How a figure is written. ``points`` is a score from 0 to 1, shown as 0 to 100; ``gap`` is a difference of
scores, with its interval as sentences have it; ``share`` is a part of a whole, shown in percent;
``coefficient`` is κ, a correlation or a reliability."""


class FigureFormat(NamedTuple):
    """How numbers of a kind are written: times ``factor``, with so many ``decimals``, or as many as so many
    ``significant`` digits take. ``least``: what is smaller is written ``<least``; zero only where ``zero`` is
    false, as for probabilities. ``trimmed``: without zeros at the end."""

    factor: float = 1.0
    decimals: int = 2
    significant: int = 0
    before: str = ""
    after: str = ""
    least: float = 0.0
    zero: bool = True
    trimmed: bool = False


FORMATS: dict[FigureKind, FigureFormat] = {
    "text": FigureFormat(),
    "count": FigureFormat(decimals=0),
    "points": FigureFormat(100, 1),
    "gap": FigureFormat(100, 1),
    "share": FigureFormat(100, 1, after="%"),
    "coefficient": FigureFormat(),
    "number": FigureFormat(decimals=0, significant=3, trimmed=True),
    "probability": FigureFormat(decimals=3, least=0.001, zero=False),
    "usd": FigureFormat(significant=2, before="$", least=0.0001),
    "seconds": FigureFormat(decimals=1, after=" s"),
}

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
    style = FORMATS[kind]
    if number < style.least and (number > 0 or not style.zero):
        return f"<{style.before}{style.least:g}"
    value = round(style.factor * number, _SUMMED)
    decimals = style.decimals
    if value and style.significant:
        exponent = int(f"{value:.{style.significant - 1}e}".partition("e")[2])
        decimals = max(decimals, style.significant - 1 - exponent)
    text = format_decimals(value, decimals)
    if style.trimmed and "." in text:
        text = text.rstrip("0").rstrip(".")
    return f"{style.before}{text}{style.after}"


def figure_with_interval(
    kind: FigureKind, value: float, low: float | None = None, high: float | None = None
) -> str:
    """Format a number with its interval: ``81.0 [80.2, 82.1]``, ``12.5% [9.1, 16.0%]``, ``3.1 ± 1.9``."""
    if low is None or high is None:
        return format_figure(value, kind)
    if kind == "gap":
        return plus_minus_or_bracketed(100 * value, 100 * low, 100 * high)
    return (
        f"{format_figure(value, kind)} [{format_figure(low, kind).removesuffix('%')}, "
        f"{format_figure(high, kind)}]"
    )


# Points: an interval whose two sides differ by less is shown as one number.
NEARLY_SYMMETRIC = 0.06


def plus_minus_or_bracketed(difference: float, low: float, high: float) -> str:
    """Format a difference with its interval: ``7.9 ± 4.3``, or ``29.2 [−4.9, 49.7]`` if lopsided."""
    if abs((high - difference) - (difference - low)) < NEARLY_SYMMETRIC:
        return f"{format_decimals(difference, 1)} ± {format_decimals((high - low) / 2, 1)}"
    return f"{format_decimals(difference, 1)} [{format_decimals(low, 1)}, {format_decimals(high, 1)}]"


def metric_difference_text(difference: float, low: float, high: float, unit: str) -> str:
    """Format a difference of a benchmark's metric with its interval, in points: ``3.1 ± 1.9``."""
    by = points_per_unit(unit)
    return plus_minus_or_bracketed(difference * by, low * by, high * by)


def _minus(text: str) -> str:
    return text.replace("-", "−", 1) if text.strip("-0.,") else text.removeprefix("-")


# Landis and Koch 1977, up to each bound.
_KAPPA = ((0.2, "slight"), (0.4, "fair"), (0.6, "moderate"), (0.8, "substantial"), (1.0, "almost perfect"))


def kappa_word(kappa: float) -> str:
    """Name the strength of agreement, as Landis and Koch 1977 do: ``fair``; below zero ``poor``."""
    return "poor" if kappa < 0 else next(word for bound, word in _KAPPA if kappa <= bound or bound == 1.0)


# --- Amounts of money, and p-values


def dollars(usd: float) -> str:
    """Format dollars with two decimals, or as many as two digits take: ``$0.19``, ``$0.054``."""
    return format_figure(usd, "usd")


def limit_in_dollars(usd: float) -> str:
    """Format a limit with all the digits its user gave: ``$20.00``, ``$0.00005``."""
    return f"${usd:,.2f}" if round(usd, 2) == usd else f"${Decimal(repr(usd)):,f}"


def dollars_beyond_limit(limit: float, *amounts: float) -> list[str]:
    """Format amounts with enough digits to show that their sum exceeds a limit."""
    for digits in range(4, 9):
        amounts_rounded = [round(usd, digits) for usd in amounts]
        if all(amounts_rounded) and sum(amounts_rounded) > limit:
            return [f"${usd:,.{digits}f}" for usd in amounts_rounded]
    return [dollars(usd) for usd in amounts]


def dollar_rate(usd: float) -> str:
    """Format a price, ``0.60`` or ``0.075``: two decimals, or as many as needed."""
    return f"{usd:.2f}" if round(usd, 2) == usd else f"{usd:g}"


def p_value_text(p: float) -> str:
    """Format a p-value: ``p = 0.034``, or ``p < 0.001``, never zero."""
    text = format_figure(p, "probability")
    return f"p < {text[1:]}" if text.startswith("<") else f"p = {text}"
