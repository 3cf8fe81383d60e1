"""What a panel's measures come to, in sentences: who leans on what, what to buy next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from coeval.analysis.measures.measured import Branch
from coeval.core.text import dollars, listed

__all__ = ["TOO_FEW_TO_TELL", "is_named", "next_purchases", "panel_findings", "sized"]

_LEANINGS = {
    "family": "answers of its own family",
    "self": "its own answers",
    "length": "answers of twice the length",
}
_NOTEWORTHY = 0.05
"""Of a score from 0 to 1: less of severity moves nothing that matters."""
ALPHA = 0.05
TOO_FEW_TO_TELL = 2
"""So many judges may lean apart, and nobody can tell which of them does."""


def panel_findings(judges: Mapping[str, Branch]) -> Iterator[str]:
    """Of the measures of a folder's judges; nothing where there is nothing to say."""
    yield from _leanings(judges)
    yield from _places(judges)
    yield from _severities(judges)


def _places(judges: Mapping[str, Branch]) -> Iterator[str]:
    for judge, found in judges.items():
        bias = found["bias"]["position"]
        if is_named(bias):
            more = "more" if bias["value"] > 0 else "less"
            yield f"{judge} gives an answer {sized(bias)} {more} of a win where it is shown first."


def sized(bias: Mapping[str, Any]) -> str:
    """``0.12 [0.08, 0.16]``, without a sign."""
    low, high = sorted(abs(bound) for bound in bias["ci95"])
    return f"{abs(bias['value']):.2f} [{low:.2f}, {high:.2f}]"


def _leanings(judges: Mapping[str, Branch]) -> Iterator[str]:
    if len(judges) == TOO_FEW_TO_TELL:
        yield from _leanings_of_two(judges)
        return
    for judge, found in judges.items():
        for bias, whose in _LEANINGS.items():
            if is_named(found["bias"][bias]):
                more = "higher" if found["bias"][bias]["value"] > 0 else "lower"
                shown = sized(found["bias"][bias])
                yield f"{judge} scores {whose} {shown} {more} than the other judges lead one to expect."


def _leanings_of_two(judges: Mapping[str, Branch]) -> Iterator[str]:
    """What one gives more than the other, once."""
    for bias, whose in _LEANINGS.items():
        found = {judge: judges[judge]["bias"][bias] for judge in judges}
        named = sorted(
            (judge for judge in found if is_named(found[judge])), key=lambda one: -found[one]["value"]
        )
        if not named:
            continue
        [other] = [judge for judge in judges if judge != named[0]]
        own, more = found[named[0]], "higher" if found[named[0]]["value"] > 0 else "lower"
        yield (
            f"Next to each other, {named[0]} scores {whose} {more} than {other} by {sized(own)}: with two "
            "judges it cannot be told whose leaning it is."
        )


def is_named(bias: Mapping[str, Any]) -> bool:
    """By Holm's p-value too, where several judges might be named: no honest one is in 95 of 100 runs."""
    if bias["p_adjusted"] is None or bias["ci95"] is None:
        return False
    low, high = bias["ci95"]
    return bool(bias["p_adjusted"] < ALPHA and (low > 0 or high < 0))


def _severities(judges: Mapping[str, Branch]) -> Iterator[str]:
    """Whoever is surely stricter or milder than the others, by an amount that matters."""
    said = []
    for judge, found in judges.items():
        value = found["bias"]["severity"]["value"]
        if is_named(found["bias"]["severity"]) and abs(value) >= _NOTEWORTHY:
            said.append(f"{judge} is {abs(value):.2f} {'stricter' if value > 0 else 'more lenient'}")
    if said:
        yield f"Beside the other judges, {listed(said)}."


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
