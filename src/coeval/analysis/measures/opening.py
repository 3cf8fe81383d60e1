"""The opening of a page, in three sentences: who leads, what would change that, what the judges' disagreement
means. ``leader.js`` says the same of filtered scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from coeval.analysis.comparison.comparison_report import half_text
from coeval.analysis.measures.label_measures import LabelStudent
from coeval.analysis.measures.leaders import gap_text, is_behind
from coeval.analysis.measures.measured import Measured
from coeval.analysis.measures.pair_measures import PairMeasures, pair_sentences
from coeval.analysis.measures.ranking import Ranking, StudentGap
from coeval.analysis.measures.run_measures import RunMeasures
from coeval.analysis.measures.student_measures import StudentMeasures
from coeval.analysis.run_results import Bounded
from coeval.core.figures import points
from coeval.core.text import dollars, numbered, p_text

# Items of the robust set: over fewer, an order is chance.
FEWEST_ROBUST = 5
# A gap below 0.1 points is shown as none, and a hundred times the items is out of reach: no advice then.
_LEAST_GAP, _MOST_TIMES = 0.001, 100


class OtherOrder(NamedTuple):
    """Students by some of the scores: ``words`` say which, after a comma or a verb."""

    words: str
    order: Sequence[str]


class Context(NamedTuple):
    """What the second sentence draws on: orders by other scores, what an item costs (None: unknown), and
    whether p-values hold at any look."""

    others: Sequence[OtherOrder] = ()
    usd_per_item: float | None = None
    at_any_look: bool = False


def opening(measures: RunMeasures, usd_per_item: float | None, *, at_any_look: bool = False) -> list[str]:
    """Return at most three sentences, the first of them about who leads."""
    ranks = measures.ranking
    if ranks.order or not (measures.labels or measures.pairs):
        context = Context(tuple(_others(measures)), usd_per_item, at_any_look)
        return score_opening(measures.students, ranks, context)
    if measures.pairs is not None:
        return list(_of_pairs(measures.pairs))
    return list(_of_labels(measures, usd_per_item))


def without_own_words() -> str:
    """Name the scores that remain without self-judgments."""
    return "without the scores that students gave themselves"


def robust_words(items: int) -> str:
    """Name the robust set."""
    return f"on the {numbered(items, 'item')} on which the judges agree best"


def _others(measures: RunMeasures) -> Iterator[OtherOrder]:
    own, robust = measures.without_own, measures.robust
    if own.applicable and own.judges and own.ranking.order:
        yield OtherOrder(without_own_words(), own.ranking.order)
    if robust.applicable and (robust.datapoints or 0) >= FEWEST_ROBUST and robust.ranking.order:
        yield OtherOrder(robust_words(robust.datapoints or 0), robust.ranking.order)


def score_opening(students: Mapping[str, StudentMeasures], ranks: Ranking, context: Context) -> list[str]:
    """Return the sentences where answers have scores."""
    if len(ranks.order) < 2 or (said := _without_leader(ranks)):
        return [_alone(students, ranks) if len(ranks.order) < 2 else said]
    first, second = ranks.order[:2]
    gap = ranks.between(first, second)
    scores = {name: ranks.scores[name].headline for name in (first, second)}
    if gap is None:
        shown = f"{first} has the highest score ({_shown(scores[first])})"
        return [f"{shown}; {second}, the next, shares no scored items with it."]
    bounds = {
        name: Bounded(name, *ends)
        for name in ranks.order
        if name not in ranks.partial and (ends := students[name].bounds.headline) is not None
    }
    change = (
        _missing([bounds[name] for name in ranks.order if name in bounds])
        or _elsewhere(first, context.others)
        or ("" if gap.sure else _more_items(gap, context.usd_per_item))
        or _neighbours(ranks)
        or _steady(ranks, context.others)
    )
    return [text for text in (_who(ranks, scores, gap, context), change, _panel(first, second, gap)) if text]


def _shown(found: Measured) -> str:
    return points(found.value or 0.0)


def _alone(students: Mapping[str, StudentMeasures], ranks: Ranking) -> str:
    """What can be said of one student, or of none."""
    if not ranks.order:
        return "No student has a score yet."
    [first] = ranks.order
    score = f"{first} scores {_shown(ranks.scores[first].headline)}"
    if len(students) > 1:
        return f"{score}, the only student with a score so far."
    return f"{score}, the only student: add another to compare."


def _without_leader(ranks: Ranking) -> str:
    """Why no student leads; empty if one may."""
    first = ranks.order[0]
    if first in ranks.partial:
        return "No student leads over all tasks: none does all of them. Compare students by task."
    if ranks.range_of(first)[0] > 1:
        return "No student leads: pairs of students, on the scores that both have, contradict each other."
    return ""


def _who(ranks: Ranking, scores: Mapping[str, Measured], gap: StudentGap, context: Context) -> str:
    (first, one), (second, other) = scores.items()
    by, shared = f"{gap_text(gap)} points", numbered(gap.n, "shared item")
    pair = f"{first} ({_shown(one)}) and {second} ({_shown(other)})"
    if gap.sure:
        p = p_text(gap.p_adjusted or 0.0) + (" at any look" if context.at_any_look else "")
        ahead = f"{by} ahead of {second} ({_shown(other)}) on {shared} ({p})"
        return f"{first} leads with {_shown(one)}: {ahead}."
    if is_behind(first, second, gap):
        return f"{pair} are statistically tied: on {shared}, {second} is ahead by {by}."
    chance, pairs = "", len(ranks.differences)
    if gap.p_adjusted is not None and not gap.bounds[0] <= 0 <= gap.bounds[1]:
        chance = f" ({p_text(gap.p_adjusted)}{f' adjusted for {pairs:,} pairs' if pairs > 1 else ''})"
    return f"{pair} are statistically tied: the gap is {by} on {shared}{chance}."


def _missing(order: Sequence[Bounded]) -> str:
    """Whether missing scores might change the leader."""
    leading = [one for one in order[1:] if order[0].may_fall_behind(one)]
    if not leading:
        return ""
    placed = " and ".join(map(_placed, (order[0], leading[0])))
    return f"Missing scores could change the leader: counted as 0 or 100, they put {placed}."


def _placed(one: Bounded) -> str:
    if one.least < one.most:
        return f"{one.name} between {points(one.least)} and {points(one.most)}"
    return f"{one.name} at {points(one.least)}"


def _elsewhere(first: str, others: Sequence[OtherOrder]) -> str:
    """Which scores put somebody else first."""
    for other in others:
        if other.order[0] != first:
            return f"{other.words[0].upper()}{other.words[1:]}, {other.order[0]} has the highest score."
    return ""


def _more_items(gap: StudentGap, usd_per_item: float | None) -> str:
    """How many items would show a gap of this size, by the gap that those there are can detect."""
    least, by = gap.minimum_detectable, abs(gap.by)
    if least is None:
        return "One shared item cannot show a gap: more are needed."
    if by < _LEAST_GAP or (least / by) ** 2 > _MOST_TIMES:
        return "The gap is too small for more items to settle it."
    needed = int(float(f"{max(gap.n * (least / by) ** 2, gap.n + 1):.2g}"))
    needed = max(needed, gap.n + 1)
    price = "" if not usd_per_item else f", about {dollars((needed - gap.n) * usd_per_item)} more"
    return f"If the gap is real, about {needed:,} items would show it (now {gap.n:,}{price})."


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


def _steady(ranks: Ranking, others: Sequence[OtherOrder]) -> str:
    """What was tried and changes nothing."""
    first = ranks.order[0]
    if not others:
        return "Every gap to the next student is significant: more items are unlikely to change the order."
    same = all(list(other.order) == list(ranks.order) for other in others)
    words = " and ".join(other.words for other in others)
    return f"{'The order stays the same' if same else f'{first} stays first'} {words}."


def _panel(first: str, second: str, gap: StudentGap) -> str:
    """What follows from judges who differ; empty where no judge scored."""
    if gap.over_judges is None or gap.judges is None:
        return ""
    one = (gap if gap.by >= 0 else gap.turned).over_judges or gap.over_judges
    if one.value is None or one.low is None or one.high is None:
        if gap.judges == 1:
            return "Only one judge was used, so agreement cannot be measured."
        return "Too few items have scores of both by two judges, so the panel's agreement is unknown."
    ahead = second if is_behind(first, second, gap) else first
    judges, agreeing = gap.judges, gap.agreeing or 0
    who = f"{agreeing:,} of {judges:,} judges"
    if agreeing == judges:
        who = "Both judges" if judges == 2 else f"All {judges:,} judges"
    sure = gap.sure and gap.sure_over_judges
    end = f" ({p_text(gap.p_over_judges_adjusted or 0.0)})" if sure else ", not significant"
    guess = "; two judges give a rough idea only" if judges == 2 else ""
    by = f"{points(one.value)} {half_text(one.value, one.low, one.high)} points"
    what = "lead" if gap.sure else "gap"
    return f"{who} put {ahead} ahead; allowing for other judges, the {what} is {by}{end}{guess}."


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
    yield _best_label(order, found.students, found.ranking, where)
    if len(order) > 1 and (gap := found.ranking.between(*order[:2])) is not None:
        sure = "The gap is significant: more items are unlikely to change who leads."
        yield sure if gap.sure else _more_items(gap, usd_per_item)
    if more:
        yield f"{numbered(more, 'other label')}: see the table of labels."
    else:
        yield "Labels are compared by rule, so no judge's opinion enters."


def _best_label(
    order: Sequence[str], students: Mapping[str, LabelStudent], ranks: Ranking, where: str
) -> str:
    shown = {name: points(students[name].accuracy.value or 0.0) for name in order}
    first = order[0]
    if len(order) == 1:
        return f"{first} states the right {where} in {shown[first]}% of its answers, the only student."
    second, gap = order[1], ranks.between(*order[:2])
    if gap is None:
        return f"{first} is right most often ({where}: {shown[first]}); no items are shared with {second}."
    by, shared = f"{gap_text(gap)} points", numbered(gap.n, "shared item")
    if gap.sure:
        p = p_text(gap.p_adjusted or 0.0)
        lead = f"{first} is right most often ({where}: {shown[first]})"
        return f"{lead}: {by} ahead of {second} ({shown[second]}) on {shared} ({p})."
    pair = f"{first} ({shown[first]}) and {second} ({shown[second]})"
    return f"{pair} are statistically tied in {where}: the gap is {by} on {shared}."


def _of_pairs(found: PairMeasures) -> Iterator[str]:
    """By comparisons of answers."""
    yield next(pair_sentences(found))
    first = found.order[0]
    if found.students[first].ranks != (1, 1):
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
