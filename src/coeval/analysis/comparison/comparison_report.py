"""What a comparison came to, as it is handed on: for Python, for tables, for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from coeval.analysis.comparison.comparison_sentence import (
    Comparison,
    shown_difference,
    shown_points,
    where_of,
)
from coeval.analysis.run_results import SIMULATED
from coeval.core.columns import Columns, columns
from coeval.core.errors import UsageError
from coeval.core.html_table import html_lines, html_table
from coeval.core.text import numbered

__all__ = ["LEGEND", "ComparisonReport", "ShownComparison", "by_pair", "shown_comparison"]

LEGEND = (
    "In points: hundredths of a score from 0 to 1, percent, or those of the metric. b − a: with its 95 % "
    "interval over n paired items. p: adjusted for the number of comparisons (Holm). least: the true "
    "difference that would be detected four times in five."
)
_NONE = "–"


class ShownComparison(NamedTuple):
    """A comparison's figures as they stand in a table, in points."""

    a: str
    b: str
    difference: str
    p: str
    n: str
    least: str


class ComparisonReport(msgspec.Struct, frozen=True):
    """Every two of several sides on the same items, as `coeval.compare` returns it.

    ``comparisons``: overall first, then by task, then by factor and further metric. ``sides``: by label, the
    folder and the model; ``bases``: those that others are held against when it is asked who is worse;
    ``doubts``: what speaks against taking differences as they are, and ``notes``: what else is to be known of
    the comparison, one sentence each. ``simulated``: simulated models took part.
    """

    comparisons: tuple[Comparison, ...]
    sides: dict[str, dict[str, str]]
    bases: tuple[str, ...]
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    simulated: bool = False

    @property
    def sentences(self) -> tuple[str, ...]:
        """Who is better and by how much, overall and by task; of factors and further metrics where there is
        nothing else."""
        main = [one.sentence for one in self.comparisons if one.family != "part"]
        return tuple(main or (one.sentence for one in self.comparisons))

    @property
    def missing(self) -> tuple[str, ...]:
        """Of each task in which items lack a score: where the difference over all of them lies."""
        return tuple(_of_missing(one) for one in self.comparisons if one.missing and one.family == "task")

    def worse_than(self, delta: float, *, sure: bool = True) -> tuple[Comparison, ...]:
        """In what somebody is worse than the first of its group, overall or in a task, by more than
        ``delta``, a share of the metric's scale (0.02: two points of a hundred); empty: in nothing.

        ``sure``: and significantly so.
        """
        if not 0 <= delta < 1:
            raise UsageError(
                f"a threshold of {delta} can never be passed: give a share of the scale from 0 to 1"
            )
        return tuple(
            one
            for one in self._held_to_a_threshold
            if -one.difference / one.scale > delta and (one.significant or not sure)
        )

    @property
    def _held_to_a_threshold(self) -> tuple[Comparison, ...]:
        return tuple(one for one in self.comparisons if one.a in self.bases and one.family != "part")

    def gate(self, delta: float, *, sure: bool = True) -> tuple[str, ...]:
        """What `worse_than` comes to, in sentences: whether anybody is worse, and which true loss would be
        caught four times in five where least would be."""
        how = ", and significantly so" if sure else ", significantly or not"
        said = [
            f"gate failed: {one.b} is worse than {one.a} {where_of(one)} by {shown_difference(one, sign=-1)} "
            f"points, {'' if one.significant else 'not '}significantly"
            for one in self.worse_than(delta, sure=sure)
        ] or [f"gate passed: nobody is worse by more than {100 * delta:.4g}% of the scale{how}"]
        caught = [(_caught(one, delta, sure=sure), one) for one in self._held_to_a_threshold]
        if known := [(loss, one) for loss, one in caught if loss is not None]:
            loss, one = max(known, key=lambda each: each[0] / each[1].scale)
            said.append(
                f"a true loss of {shown_points(one, loss)} points {where_of(one)} would fail this gate four "
                f"times in five, with {numbered(one.n, one.counted)}; a smaller one may pass"
            )
        return tuple(said)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON: what ``coeval compare --json`` prints."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    def table(self) -> Columns:
        """The comparisons as columns, for ``pandas.DataFrame`` or ``polars.DataFrame``: a row for each, a
        column for each field of `Comparison`; its intervals are ``low`` and ``high``, ``bounds_low`` and
        ``bounds_high``."""
        table = columns(Comparison, self.comparisons)
        ends = {
            "ci95": ("low", "high", [one.ci95 for one in self.comparisons]),
            "bounds": ("bounds_low", "bounds_high", [one.bounds for one in self.comparisons]),
        }
        spread: Columns = {}
        for name, values in table.items():
            if name in ends:
                low, high, pairs = ends[name]
                spread[low], spread[high] = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            else:
                spread[name] = values
        return spread

    def __repr__(self) -> str:
        first, *more = self.sentences
        return f"ComparisonReport({first!r}{f', and {len(more)} more' if more else ''})"

    def _repr_html_(self) -> str:
        """Sentences, doubts, a table for each pair, notes; names and notes are escaped."""
        parts = [html_lines((*[SIMULATED] * self.simulated, *self.sentences, *self.doubts))]
        for (a, b), found in by_pair(self.comparisons):
            rows = [(one.place, *shown_comparison(one)) for one in found]
            parts.append(html_table("", ("task", a, b, f"{b} − {a}", "p", "n", "least"), rows))
        return "".join(parts) + html_lines((*self.missing, *self.notes, LEGEND))


def by_pair(comparisons: Sequence[Comparison]) -> Iterator[tuple[tuple[str, str], list[Comparison]]]:
    """Of each pair: what is overall, then each task with its parts."""
    order = {pair: n for n, pair in enumerate(dict.fromkeys((one.a, one.b) for one in comparisons))}
    families = {"overall": 0, "task": 1, "part": 2}
    found = sorted(
        comparisons, key=lambda one: (order[one.a, one.b], one.task or "", families[one.family], one.metric)
    )
    for pair, of_pair in groupby(found, key=lambda one: (one.a, one.b)):
        yield pair, list(of_pair)


def shown_comparison(one: Comparison) -> ShownComparison:
    least = one.minimum_detectable
    return ShownComparison(
        shown_points(one, one.mean_a),
        shown_points(one, one.mean_b),
        shown_difference(one),
        _p(one.p_adjusted),
        f"{one.n:,}",
        _NONE if least is None else shown_points(one, least),
    )


_HALF, _FOUR_IN_FIVE = 1.96, 0.84
"""Normal quantiles of 0.975 and 0.8."""


def _caught(one: Comparison, delta: float, *, sure: bool) -> float | None:
    """The true loss that is seen as one of more than ``delta`` of the scale four times in five, and if
    ``sure``, is significant; None where a single item is all there is."""
    if one.minimum_detectable is None:
        return None
    error = (one.ci95[1] - one.ci95[0]) / 2 / _HALF
    seen = delta * one.scale + _FOUR_IN_FIVE * error
    return max(seen, one.minimum_detectable) if sure else seen


def _p(p: float | None) -> str:
    if p is None:
        return _NONE
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _of_missing(one: Comparison) -> str:
    low, high = (shown_points(one, bound) for bound in one.bounds)
    every = one.n + one.missing
    return (
        f"{one.task}: {one.missing:,} of {every:,} {one.counted}s lack a score of {one.a} or {one.b}: "
        f"whatever these would score, {one.b} − {one.a} over all lies between {low} and {high} points"
    )
