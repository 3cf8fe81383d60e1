"""Who leads among several sides, in sentences and against each of the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from coeval.analysis.comparison.comparison_report import Comparison, sentence, shown_points
from coeval.core.plain import plain
from coeval.core.text import listed

# Sentences about who leads, before tables and pictures.
_MOST_LEADING = 2
# Characters of a sentence.
_LONGEST_SENTENCE = 200


def best_first(comparisons: Sequence[Comparison], labels: Sequence[str]) -> list[str]:
    """Sort sides by how far they are ahead of the others, as a share of each scale, in what stands first."""
    ahead = dict.fromkeys(labels, 0.0)
    for one in comparisons:
        if one.family == comparisons[0].family:
            ahead[one.b] += one.difference / one.scale
            ahead[one.a] -= one.difference / one.scale
    return sorted(ahead, key=lambda label: -ahead[label])


class LeadingSentence(NamedTuple):
    """``place``: of the comparison that it states (`Comparison.place`); empty where it sums up several."""

    text: str
    place: str = ""


def leading_sentences(comparisons: Sequence[Comparison], groups: int) -> Iterator[LeadingSentence]:
    """The leader and the next in what stands first, of few tasks in each.
    ``groups``: within each of which every two are compared."""
    first = [one for one in comparisons if one.family == comparisons[0].family]
    places = list(dict.fromkeys((one.task, one.metric) for one in first))
    if groups > 1:
        leading = first[:_MOST_LEADING]
    elif len(places) > _MOST_LEADING:
        yield LeadingSentence(_by_places(first, places))
        return
    else:
        of = ([one for one in first if (one.task, one.metric) == place] for place in places)
        leading = [_leader_and_next(found) for found in of]
    for one in leading:
        yield LeadingSentence(_short_sentence(one), one.place)


def count_sentence(comparisons: Sequence[Comparison]) -> str:
    """How many pairs differ in what stands first."""
    first = [one for one in comparisons if one.family == comparisons[0].family]
    tasks = {one.task for one in first}
    sure = sum(one.significant for one in first)
    where = f" over {len(tasks)} tasks" if len(tasks) > 1 else ""
    return f"{sure:,} of {len(first):,} pairwise differences{where} are significant."


def _leader_and_next(found: Sequence[Comparison]) -> Comparison:
    """The next is the best of those who share items with the leader."""
    sides = dict.fromkeys(side for one in found for side in (one.a, one.b))
    leader, *others = best_first(found, list(sides))
    held = [one for one in found if leader in (one.a, one.b)]
    return min(held, key=lambda one: others.index(one.a if one.b == leader else one.b))


def _by_places(first: Sequence[Comparison], places: Sequence[tuple[str | None, str]]) -> str:
    """Who leads in how many of the tasks, and in how many of those significantly."""
    leads: dict[str, list[bool]] = {}
    for place in places:
        one = _leader_and_next([each for each in first if (each.task, each.metric) == place])
        leads.setdefault(one.b if one.difference > 0 else one.a, []).append(one.significant)
    parts = [
        f"{side} in {len(sure)} (significantly ahead of the next in {sum(sure)})"
        for side, sure in sorted(leads.items(), key=lambda each: -len(each[1]))
    ]
    texts = (
        f"Of {len(places)} tasks, the highest score is that of {listed(parts, most)}." for most in (3, 2, 1)
    )
    return next(
        (text for text in texts if len(text) <= _LONGEST_SENTENCE), f"See the {len(places)} tasks below."
    )


def _short_sentence(one: Comparison) -> str:
    """What would have been detected belongs to a tie."""
    said = sentence(one)
    short = said.rpartition(". With ")[0] or said
    least = "" if one.minimum_detectable is None else shown_points(one, one.minimum_detectable)
    return plain(f"{short} (detectable: {least})." if least and not one.significant else f"{short}.")


def against(one: Comparison, base: str) -> Comparison:
    """The same with ``base`` as a."""
    if base == one.a:
        return one
    low, high = one.ci95
    over, least, most = one.ci95_over_judges, *one.bounds
    return msgspec.structs.replace(
        one,
        a=one.b,
        b=one.a,
        mean_a=one.mean_b,
        mean_b=one.mean_a,
        difference=-one.difference,
        ci95=(-high, -low),
        ci95_over_judges=None if over is None else (-over[1], -over[0]),
        bounds=(-most, -least),
    )
