"""The opening of a page, in three sentences: who leads, what would change that, what the judges' disagreement
means. ``leader.js`` says the same of filtered scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from coeval.analysis.measures.label_measures import LabelMeasures
from coeval.analysis.measures.leaders import (
    gap_text,
    leader_sentence,
    leading_gap,
    leading_pair,
    panel_sentence,
    settling_sentence,
    shown,
    tied_text,
)
from coeval.analysis.measures.pair_measures import PairMeasures, pair_sentences
from coeval.analysis.measures.ranking import Ranking
from coeval.analysis.measures.run_measures import RunMeasures
from coeval.analysis.measures.student_measures import StudentMeasures
from coeval.analysis.run_results import Bounded
from coeval.core.figures import points
from coeval.core.text import numbered, p_text

_OWN = "the scores that students gave themselves"


class Context(NamedTuple):
    """What the second sentence draws on: the order without self-judgments (empty: nobody judged itself, or
    nothing is left), what an item costs (None: unknown), and whether p-values hold at any look."""

    without_own: Sequence[str] = ()
    usd_per_item: float | None = None
    at_any_look: bool = False


def opening(measures: RunMeasures, usd_per_item: float | None, *, at_any_look: bool = False) -> list[str]:
    """Return at most three sentences, the first of them about who leads."""
    ranks = measures.ranking
    if ranks.order or not (measures.labels or measures.pairs):
        context = Context(measures.without_own.ranking.order, usd_per_item, at_any_look)
        return score_opening(measures.students, ranks, context)
    if measures.pairs is not None:
        return list(_of_pairs(measures.pairs))
    return list(_of_labels(measures, usd_per_item))


def score_opening(students: Mapping[str, StudentMeasures], ranks: Ranking, context: Context) -> list[str]:
    """Return the sentences where answers have scores."""
    said = leader_sentence(students, ranks, at_any_look=context.at_any_look)
    if (gap := leading_gap(ranks)) is None:
        return [said]
    bounds = {
        name: Bounded(name, *ends)
        for name in ranks.order
        if name not in ranks.partial and (ends := students[name].bounds.headline) is not None
    }
    change = (
        _missing([bounds[name] for name in ranks.order if name in bounds])
        or _elsewhere(ranks.order[0], context.without_own)
        or settling_sentence(gap, context.usd_per_item)
        or _neighbours(ranks)
        or _steady(ranks, context.without_own)
    )
    return [text for text in (said, change, panel_sentence(ranks, gap)) if text]


def _missing(order: Sequence[Bounded]) -> str:
    """Whether missing scores might change the leader."""
    leading = [one for one in order[1:] if order[0].may_fall_behind(one)]
    if not leading:
        return ""
    placed = f"{order[0].placed} and {leading[0].placed}"
    return f"Missing scores could change the leader: counted as 0 or 100, they put {placed}."


def _elsewhere(first: str, without_own: Sequence[str]) -> str:
    """Whether self-judgments put somebody else first."""
    if not without_own or without_own[0] == first:
        return ""
    return f"Without {_OWN}, {without_own[0]} has the highest score."


def _neighbours(ranks: Ranking) -> str:
    """The first two behind the leader, one after the other, whose order is open."""
    for place in range(1, len(ranks.order) - 1):
        one, other = ranks.order[place : place + 2]
        gap = ranks.between(one, other)
        if other in ranks.partial:  # as all after it
            break
        if gap is None:
            return f"The order behind the leader is open: {one} and {other} share no scored items."
        if not gap.sure:
            apart = f"{gap_text(gap)} points apart"
            return f"The order behind the leader could change: {one} and {other} are {apart}."
    return ""


def _steady(ranks: Ranking, without_own: Sequence[str]) -> str:
    """What was tried and changes nothing."""
    if not without_own:
        return "Every gap to the next student is significant: more items are unlikely to change the order."
    same = list(without_own) == list(ranks.order)
    return f"{'The order stays the same' if same else f'{ranks.order[0]} stays first'} without {_OWN}."


# --- Runs without judged scores


def _of_labels(measures: RunMeasures, usd_per_item: float | None) -> Iterator[str]:
    """By how often students state the right label, of the first label that is compared."""
    places = [(task, name, found) for task, names in measures.labels.items() for name, found in names.items()]
    known = [place for place in places if place[2].ranking.order]
    if not known:
        yield "No answer has been compared with its label yet."
        return
    task, name, found = known[0]
    order, more = found.ranking.order, len(known) - 1
    where = f"{task} ({name})" if len(places) > 1 else name
    yield label_sentence(found, where)
    if len(order) > 1 and (gap := leading_gap(found.ranking)) is not None:
        sure = "The gap is significant: more items are unlikely to change who leads."
        yield settling_sentence(gap, usd_per_item) or sure
    if more:
        yield f"{numbered(more, 'other label')}: see the table of labels."
    else:
        yield "Labels are compared by rule, so no judge's opinion enters."


def label_sentence(found: LabelMeasures, where: str) -> str:
    """Who states a label most often; some student has been compared with it."""
    order, ranks = found.ranking.order, found.ranking
    right = {name: shown(found.students[name].accuracy) for name in order}
    first = order[0]
    if len(order) == 1:
        return f"{first} states the right {where} in {right[first]}% of its answers, the only student."
    second = leading_pair(ranks)[1]
    gap = ranks.between(first, second)
    lead = f"{first} is right most often ({where}: {right[first]})"
    if any(
        (one.accuracy.value or 0.0) > (found.students[first].accuracy.value or 0.0)
        for one in found.students.values()
    ):
        lead = f"On the items that students share, {first} is right most often ({where})"
    if gap is None:
        return f"{lead}; no items are shared with {second}."
    if gap.sure:
        ahead = f"{gap_text(gap)} points ahead of {second} ({right[second]})"
        return f"{lead}: {ahead} on {numbered(gap.n, 'shared item')} ({p_text(gap.p_adjusted or 0.0)})."
    tied = tied_text(first, second, gap, len(ranks.differences), f" in {where}")
    return f"{first} ({right[first]}) and {second} ({right[second]}) are {tied}."


def _of_pairs(found: PairMeasures) -> Iterator[str]:
    """By comparisons of answers."""
    yield next(pair_sentences(found))
    first = next(iter(found.students))
    if len(found.groups) > 1:
        yield "To rank them together, compare students across groups."
    elif found.students[first].ranks != (1, 1):
        yield "Their ranks overlap: more compared items would separate the strongest."
    else:
        yield "The lead is significant over all pairs: more items are unlikely to change it."
    same = [one.consistency for one in found.judges.values() if one.consistency.value is not None]
    if same:
        least = min(one.value or 0.0 for one in same)
        yield (
            f"Asked in both orders, a judge names the same winner in {points(least)}% of pairs"
            f"{' or more' if len(same) > 1 else ''}."
        )
