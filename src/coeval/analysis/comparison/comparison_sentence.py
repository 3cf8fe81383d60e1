"""How one side differs from another in a metric, in figures and in words."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from coeval.analysis.comparison.paired_difference import Test
from coeval.core.text import numbered

Family: TypeAlias = Literal["overall", "task", "part"]
FAMILIES: tuple[Family, ...] = ("overall", "task", "part")

ALPHA = 0.05


class Comparison(msgspec.Struct, frozen=True):
    """How b differs from a in one metric of a task (``task`` None: over the tasks, each counting alike).

    Means, ``difference`` = b − a and ``ci95`` are in the metric's ``unit`` (``share`` of 1, ``percent`` or
    ``points``), over ``n`` items that both have. ``missing`` items have no such pair; ``bounds`` is where the
    difference over all items lies, whatever these would score. ``p_adjusted`` is Holm's within the
    ``family``, ``q`` Benjamini and Hochberg's. ``minimum_detectable`` is the true difference that would be
    found four times in five at 5 %, two-sided. ``scale`` is how long the metric's scale is.
    ``sentence`` says it all in words.
    """

    a: str
    b: str
    task: str | None
    metric: str
    family: Family
    unit: str
    mean_a: float
    mean_b: float
    difference: float
    ci95: tuple[float, float]
    p: float | None
    p_adjusted: float | None
    q: float | None
    n: int
    minimum_detectable: float | None
    missing: int
    bounds: tuple[float, float]
    test: Test
    scale: float
    counted: Literal["item", "prompt"] = "item"
    sentence: str = ""

    @property
    def significant(self) -> bool:
        return self.p_adjusted is not None and self.p_adjusted < ALPHA

    @property
    def place(self) -> str:
        """``overall``, the task, or the task and a part of it."""
        place = "overall" if self.task is None else self.task
        return f"{place}: {self.metric}" if self.family == "part" else place


_NEARLY = 0.06
"""Of what is shown: an interval whose two sides differ by less is told as one number."""


def sentence(one: Comparison) -> str:
    """Who is better and by how much, and what would have been detected; the p-value decides which.

    ``B is better than A on ifeval by 3.1 ± 1.9 points, 541 paired prompts. With 541 prompts, a true gap of
    2.6 points would be detected four times in five``
    """
    where = where_of(one)
    n = f"{one.n:,} paired {one.counted}{'' if one.n == 1 else 's'}{_odds(one)}"
    if one.significant and one.minimum_detectable is not None:
        better, worse = (one.b, one.a) if one.difference > 0 else (one.a, one.b)
        by = shown_difference(one, sign=1 if one.difference > 0 else -1)
        return (
            f"{better} is better than {worse} {where} by {by} points, {n}. "
            f"{detected(one, one.minimum_detectable)}"
        )
    said = (
        f"{one.a} and {one.b} cannot be told apart {where}: {one.b} − {one.a} is {shown_difference(one)} "
        f"points, {n}"
    )
    if one.minimum_detectable is None:
        return said
    return f"{said}. {detected(one, one.minimum_detectable)}"


def detected(one: Comparison, least: float) -> str:
    """``With 541 prompts, a true gap of 2.6 points would be detected four times in five``"""
    gap = f"a true gap of {shown_points(one, least)} points"
    return f"With {numbered(one.n, one.counted)}, {gap} would be detected four times in five"


def where_of(one: Comparison) -> str:
    """``overall``, ``on haiku`` or ``on haiku (plot)``"""
    where = "overall" if one.task is None else f"on {one.task}"
    return f"{where} ({one.metric})" if one.family == "part" else where


def _odds(one: Comparison) -> str:
    """Where the interval alone would let one expect the opposite, what has decided: it is made otherwise
    where few items differ, and knows nothing of other comparisons."""
    low, high = one.ci95
    apart = low > 0 or high < 0
    if one.p_adjusted is None or apart == one.significant:
        return ""
    p = "p < 0.001" if one.p_adjusted < 0.001 else f"p = {one.p_adjusted:.3f}"
    if apart:
        return f"; the interval leaves zero out, but chance may well do that ({p})"
    return f"; the interval holds zero, but chance seldom does that ({p})"


def shown_difference(one: Comparison, sign: int = 1) -> str:
    """``3.1 ± 1.9``, or ``3.1 [0.4, 4.2]`` where the interval is lopsided; points of a hundred, or of ten."""
    unit = _unit(one)
    low, high = sorted(sign * bound / unit for bound in one.ci95)
    return difference_text(sign * one.difference / unit, low, high, _digits(one))


def difference_text(middle: float, low: float, high: float, digits: int) -> str:
    """``0.079 ± 0.043``, or ``0.292 [−0.049, 0.497]`` where the interval is lopsided."""
    if abs((high - middle) - (middle - low)) < _NEARLY * 10 ** (1 - digits):
        return f"{_shown(middle, digits)} ± {_shown((high - low) / 2, digits)}"
    return f"{_shown(middle, digits)} [{_shown(low, digits)}, {_shown(high, digits)}]"


def shown_points(one: Comparison, difference: float) -> str:
    return _shown(difference / _unit(one), _digits(one))


def _shown(number: float, digits: int) -> str:
    text = f"{number:.{digits}f}"
    return text.replace("-", "−") if float(text) else text.removeprefix("-")


def _unit(one: Comparison) -> float:
    return 0.01 if one.unit == "share" else 1.0


def _digits(one: Comparison) -> int:
    return 2 if one.unit == "points" else 1
