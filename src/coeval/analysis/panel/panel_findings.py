"""What a panel's measures come to, in sentences: who leans on what, who is not needed, what to buy next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from coeval.analysis.measures.measured import Branch
from coeval.core.text import dollars, listed

__all__ = ["next_purchases", "panel_findings"]

_LEANINGS = {
    "family": "answers of its own family",
    "self": "its own answers",
    "length": "answers of twice the length",
}
_NOTEWORTHY = 0.05
"""Of a score from 0 to 1: less of severity moves nothing that matters."""
_AS_SURE = 1.02
"""By what factor a standard error may grow that counts as the same."""


def panel_findings(judges: Mapping[str, Branch]) -> Iterator[str]:
    """Of the measures of a run's judges; nothing where there is nothing to say."""
    yield from _leanings(judges)
    yield from _severities(judges)
    yield from _not_needed(judges)


def _leanings(judges: Mapping[str, Branch]) -> Iterator[str]:
    for judge, found in judges.items():
        for bias, whose in _LEANINGS.items():
            value, ci95 = found["bias"][bias]["value"], found["bias"][bias]["ci95"]
            if value is not None and (ci95[0] > 0 or ci95[1] < 0):
                more = "higher" if value > 0 else "lower"
                bounds = sorted(abs(bound) for bound in ci95)
                shown = f"{abs(value):.2f} [{bounds[0]:.2f}, {bounds[1]:.2f}]"
                yield f"{judge} scores {whose} {shown} {more} than the other judges lead one to expect."


def _severities(judges: Mapping[str, Branch]) -> Iterator[str]:
    """Whoever is surely stricter or milder than the others, by an amount that matters."""
    said = []
    for judge, found in judges.items():
        value, ci95 = found["bias"]["severity"]["value"], found["bias"]["severity"]["ci95"]
        if value is not None and abs(value) >= _NOTEWORTHY and (ci95[0] > 0 or ci95[1] < 0):
            said.append(f"{judge} is {abs(value):.2f} {'stricter' if value > 0 else 'more lenient'}")
    if said:
        yield f"Beside the other judges, {listed(said)}."


def _not_needed(judges: Mapping[str, Branch]) -> Iterator[str]:
    spare = [
        judge
        for judge, found in judges.items()
        if (without := found["without"]) is not None
        and without["same_order"]
        and without["standard_error_factor"] <= _AS_SURE
    ]
    if len(spare) == 1:
        yield f"Without {spare[0]} the order would be the same, and as sure."
    elif spare:
        yield f"Without any one of {listed(spare)} the order would be the same, and as sure."


def next_purchases(purchases: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Twice as many items, and one judge more."""
    if not purchases:
        return
    now = purchases[0]
    doubled = next(
        (each for each in purchases if each["items"] and each["items"] >= 2 * purchases[1]["items"]), None
    )
    judged = next((each for each in purchases if each["judges"] == 1), None)
    if doubled is None or judged is None:
        return
    yield (
        f"The standard error of a difference between two students, {now['difference']:.3f}, would be "
        f"{doubled['difference']:.3f} with {doubled['items']:,} more items in each task{_for(doubled)}, and "
        f"{judged['difference']:.3f} with one more judge{_for(judged)}."
    )


def _for(purchase: Mapping[str, Any]) -> str:
    cost = purchase["cost_usd"]
    return f" (about {dollars(cost)})" if cost else ""
