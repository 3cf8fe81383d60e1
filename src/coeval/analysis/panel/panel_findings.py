"""What a panel's measures come to, in sentences: who leans on what, what to buy next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from coeval.analysis.comparison.comparison_report import difference_text
from coeval.analysis.intervals import ALPHA
from coeval.analysis.measures.measured import Branch
from coeval.analysis.measures.ranking import Ranking, difference_between
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.panel.panel_reading import family_of_one
from coeval.core.text import dollars, listed

_LEANINGS = {
    "family": "answers of its own family",
    "self": "its own answers",
    "length": "answers of twice the length",
}
# Of a score from 0 to 1: less of severity moves nothing that matters.
_NOTEWORTHY = 0.05
# So many judges may lean apart, and nobody can tell which of them does.
TOO_FEW_TO_TELL = 2


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


# --- Judges of a leading student's family


def family_judges(
    grid: ScoreGrid, judges: Mapping[str, Branch], ranks: Ranking, families: Mapping[str, str]
) -> Iterator[str]:
    """Sentences on judges of the family of exactly one of the two best students, or the same model: of those
    named for leaning on it, what the difference is without all who are of the family of one of the two, as
    `coeval compare` has it; of those of whom it cannot be told, that.

    ``judges`` hold `biases_of`; ``families`` are those of students and judges.
    """
    if len(ranks.order) < 2:
        return
    first, second = ranks.order[:2]
    leaning, named = [], []
    family_of = {judge: family_of_one(judge, first, second, families) for judge in judges}
    for judge, found in judges.items():
        if (student := family_of[judge]) is None:
            continue
        bias = found["bias"]["self" if judge == student else "family"]
        own = judge == student
        if len(judges) > TOO_FEW_TO_TELL and is_named(bias):
            whom = "its own answers" if own else "it"
            does = f"favours {whom}" if bias["value"] > 0 else f"marks {whom} down"
            leaning.append(judge)
            is_family = "" if own else f"is of {student}'s family and "
            named.append(f"{judge} {is_family}{does} by {abs(bias['value']):.2f}")
        elif len(judges) <= TOO_FEW_TO_TELL or bias["value"] is None:
            related, whom = ("judges its own answers", "them") if own else (f"is of {student}'s family", "it")
            yield (
                f"{_place(judge, len(judges))} {related}: whether it favours {whom} cannot be tested here; "
                "add a judge of another family."
            )
    of_one_family = [judge for judge in grid.judges if family_of.get(judge) is not None]
    others = [judge for judge in grid.judges if judge not in of_one_family]
    if not named or not others:
        return
    apart = difference_between(grid.judged_by(others), second, first)
    if apart is not None:
        shown = difference_text(apart.difference, apart.low, apart.high, 3)
        whose = "its scores" if len(named) == 1 else "their scores"
        if len(of_one_family) > len(leaning):
            whose = f"the scores of {' and '.join(of_one_family)},"
        yield f"{'; '.join(named)}; without {whose} the difference is {shown}."


def _place(judge: str, judges: int) -> str:
    if judges == 1:
        return f"Its only judge, {judge},"
    return f"One of its two judges, {judge}," if judges == 2 else judge
