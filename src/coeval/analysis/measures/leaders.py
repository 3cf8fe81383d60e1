"""Who leads, by these judges only or for other judges as well.

``coeval analyze``, ``coeval results`` and pages open with these sentences; ``leader.js`` says the same of
filtered scores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from coeval.analysis.anytime import Looks
from coeval.analysis.comparison.comparison_report import half_text
from coeval.analysis.comparison.over_judges import JudgesView, doubt_of_judges, panel_words
from coeval.analysis.measures.measured import Measured
from coeval.analysis.measures.ranking import SAME, Ranking, StudentGap
from coeval.core.figures import difference_text, points, points_text
from coeval.core.text import listed, numbered, p_text


def leader_sentences(students: Collection[str], ranks: Ranking, looks: Looks | None = None) -> Iterator[str]:
    """Who leads, and how far ahead of the next; ``leader.js`` says the same of filtered scores. ``looks``:
    those that the ranking's p-values allow for."""
    if not ranks.order:
        yield "Nobody has a score yet."
        return
    first, *others = ranks.order
    score = _points(ranks.scores[first].headline)
    partial = ranks.partial
    if first in partial and others:
        yield "No student leads over all tasks: none is to do all of them. Compare students in each task."
        return
    if not others:
        unscored = sorted({*students} - {first})
        if unscored:
            yield f"{first} is the only student with a score, {score}; none yet: {listed(unscored)}."
        else:
            yield f"{first} is the only student, with {score}."
        return
    if ranks.range_of(first)[0] > 1:
        yield "No student leads: pairs of students, on the scores that both have, contradict each other."
        return
    second = others[0]
    reported = ranks.between(first, second)
    if reported is None:
        yield f"{first} has the highest score, {score}; {second}, the next, shares no scored items with it."
        return
    gap = f"{gap_text(reported)} points"
    paired = numbered(reported.n, "shared item")
    if reported.sure:
        yield _lead(first, score, second, reported)
    else:
        chance = _though_apart(reported, len(ranks.differences), looks)
        but = f"is not significantly better than {second}: by"
        if is_behind(first, second, reported):
            but = f"on the scores that both have, {second} is ahead, though not significantly: by"
        yield f"{first} has the highest score, {score}, but {but} {gap} ({paired}{chance})."
        if (least := reported.minimum_detectable) is not None:
            gap = f"a true gap of {points(least)} points"
            yield f"With {numbered(reported.n, 'item')}, {gap} would be detected four times in five."


def _lead(first: str, score: str, second: str, reported: StudentGap) -> str:
    """Say whether the lead extends to other judges or rests on these."""
    gap, paired = f"{gap_text(reported)} points", numbered(reported.n, "shared item")
    view = _view(reported)
    if view is not None and not reported.sure_over_judges:
        found = f"{gap} ({paired}, {p_text(reported.p_adjusted or 0.0)}); {doubt_of_judges(view)}"
        return f"{first} leads {panel_words(view)} with {score}: ahead of {second}, the next, by {found}."
    over, p = "", reported.p_adjusted or 0.0
    if view is not None:
        guess = ", a guess from two judges" if view.judges == 2 else ""
        over = f" over items, {view.interval} over items and judges{guess}"
        p = reported.p_over_judges_adjusted or 0.0
    return f"{first} leads with {score}: ahead of {second}, the next, by {gap}{over} ({paired}, {p_text(p)})."


def _view(reported: StudentGap) -> JudgesView | None:
    """What can be said of the judges of a pair; None where no judge scored it."""
    if reported.over_judges is None or reported.judges is None:
        return None
    one = (reported if reported.by >= 0 else reported.turned).over_judges or reported.over_judges
    known = one.value is not None and one.low is not None and one.high is not None
    interval = half_text(one.value or 0.0, one.low or 0.0, one.high or 0.0) if known else ""
    return JudgesView(reported.judges, reported.agreeing or 0, interval)


def partial_sentences(ranks: Ranking) -> Iterator[str]:
    """Name those whose means are over some of the tasks only, and who therefore do not lead."""
    partial = ranks.partial
    if partial and len(partial) < len(ranks.order):
        verb = "is" if len(partial) == 1 else "are"
        yield (
            f"{listed(partial)} {verb} to do some of the tasks only, so nobody is compared with "
            f"{'it' if len(partial) == 1 else 'them'} over all tasks."
        )


def _though_apart(reported: StudentGap, pairs: int, looks: Looks | None) -> str:
    """Say why an interval without zero is not enough: it does not allow for other looks and pairs."""
    low, high = reported.bounds
    if reported.p_adjusted is None or low <= 0 <= high:
        return ""
    reasons = ["repeated looks"] if looks is not None and looks.many else []
    reasons += [numbered(pairs, "pair")] if pairs > 1 else []
    adjusted = f" after adjusting for {' and '.join(reasons)}" if reasons else ""
    return f"; the interval excludes zero, but {p_text(reported.p_adjusted)}{adjusted}"


def place_sentences(ranks: Ranking) -> Iterator[str]:
    """Count significant pairwise differences, and name who may lead as well; ``leader.js`` says the same."""
    order = ranks.order
    pairs = len(order) * (len(order) - 1) // 2  # those that share no score too: nothing is sure of them
    if len(order) < 3 or not ranks.differences:
        return
    sure = sum(reported.sure for reported in ranks.differences.values())
    over = _over_judges(ranks, sure, pairs)
    if sure in (0, pairs):
        which = "All" if sure else "None of the"
        yield f"{which} {pairs:,} pairwise differences between students are significant{over}."
        return
    verb = "is" if sure == 1 else "are"
    yield f"{sure:,} of {pairs:,} pairwise differences between students {verb} significant{over}."
    near = [
        place
        for place, name in enumerate(order, start=1)
        if place > 1 and name in ranks.ranges and not _is_ahead(ranks, order[0], name)
    ]
    if len(near) > 1:
        yield f"Not significantly behind {order[0]}: {_places(near)}."


def _over_judges(ranks: Ranking, sure: int, pairs: int) -> str:
    """How many of the significant differences are so over judges as well; empty where that is not known, or
    none is significant."""
    if not sure or all(one.p_over_judges is None for one in ranks.differences.values()):
        return ""
    both = sum(one.sure and one.sure_over_judges for one in ranks.differences.values())
    number = "none" if not both else "all" if both == sure == pairs else f"{both:,}"
    return f", {number} of them also when judges are treated as a sample"


def _is_ahead(ranks: Ranking, leader: str, other: str) -> bool:
    reported = ranks.between(leader, other)
    return reported is not None and reported.sure


def _places(places: Sequence[int]) -> str:
    """``places 2 to 4, 6``"""
    runs: list[list[int]] = []
    for place in places:
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return f"places {listed(f'{run[0]} to {run[-1]}' if len(run) > 1 else f'{run[0]}' for run in runs)}"


def gap_text(reported: StudentGap) -> str:
    """How much better the better one is, in points: the sign is left to the order of the names."""
    found = (reported if reported.by >= 0 else reported.turned).difference
    value, low, high = (100 * (number or 0.0) for number in found[:3])
    return difference_text(value, low, high, 1)


def is_behind(first: str, second: str, reported: StudentGap) -> bool:
    """Whether the pair's own difference contradicts an order that follows from all pairs; it is that of the
    name that comes later in the alphabet."""
    return (reported.by if first > second else -reported.by) < -SAME


def _points(found: Measured) -> str:
    """``90.2 [88.9, 91.6]``"""
    if found.value is None or found.low is None or found.high is None:
        return "no score"
    return points_text(*found[:3]) or "no score"
