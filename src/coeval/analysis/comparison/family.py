"""One family of comparisons and one verdict for each: adjusted p-values, adjusted intervals, words, ranks.

Whoever compares asks here: students of a run, sides of a comparison, checkpoints, labels. There are two
questions, each with an error rate of 5%. *Who is ahead overall*: all pairs, by Holm, so that a leader may be
picked from the data. *Where*: tasks are tested where the overall difference of their pair is significant,
factors and further metrics where their task is. Labels, which are in no score, are a branch of their own.
``docs/decisions/0020-one-family.md`` says why; ``python -m evidence.judge_sample`` measures it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from coeval.analysis.comparison.paired_difference import (
    AdjustedP,
    Difference,
    OverJudges,
    adjusted_bounds,
    holm,
)
from coeval.analysis.intervals import ALPHA, Bounds, Looks

# --- The verdict

LeadVerdict: TypeAlias = Literal["leads", "leads by these judges", "leads by this judge", "tied"]
"""What is said of a pair: who is ahead leads, or both are tied."""


def lead_verdict(p: float | None, p_over_judges: float | None, judges: int | None) -> LeadVerdict:
    """Name what two adjusted p-values come to; ``judges``: how many scored both, None where nobody judged."""
    if p is None or p >= ALPHA:
        return "tied"
    if judges is None or (p_over_judges is not None and p_over_judges < ALPHA):
        return "leads"
    return "leads by this judge" if judges == 1 else "leads by these judges"


# --- Ranks


def rank_range(name: str, order: Collection[str], ahead: Collection[tuple[str, str]]) -> tuple[int, int]:
    """Return the ranks that one of ``order`` may have: after all significantly better, before all worse ones.

    All pairs are tested as one family, so in 95 of 100 runs no range is too narrow (Holm 1979; Goldstein and
    Spiegelhalter 1996 for ranges in place of ranks). ``ahead``: the pairs that differ significantly, the
    better one first.
    """
    better = sum(loser == name for _, loser in ahead)
    worse = sum(winner == name for winner, _ in ahead)
    return 1 + better, len(order) - worse


# --- Adjusted p-values
#
# A family is a tree: the overall difference of each pair, below it its tasks, below each task its factors and
# metrics. Each pair has its share of the 5% of the second question, which its tasks share: where the overall
# difference is none, the first question lets through a false claim that seldom (Dmitrienko, Offen and
# Westfall 2003; as a graph: Bretz, Maurer, Brannath and Posch 2009).


def gatekept(
    p_values: Sequence[float | None], above: Sequence[int | None], branches: Sequence[Hashable] = ()
) -> list[AdjustedP | None]:
    """Adjusted p-values of a tree, in the order given; None where there is none.

    What has nothing above is adjusted by Holm within its branch. Below, tests beside each other share the
    level of their pair: evenly where they have tests below, by Holm where none has. None is below the
    p-value of what is above it.

    Parameters
    ----------
    p_values : (m,)
    above : (m,) of each, the place of the test that must be significant first; None: none must
    branches : (m,) of each with nothing above, its branch; empty: one
    """
    roots, below = defaultdict[Hashable, list[int]](list), defaultdict[int, list[int]](list)
    for place, parent in enumerate(above):
        if p_values[place] is None:
            continue
        if parent is None:
            roots[branches[place] if branches else None].append(place)
        else:
            below[parent].append(place)
    found: list[AdjustedP | None] = [None] * len(p_values)
    waiting: list[tuple[list[int], int, float]] = []
    for beside in roots.values():
        for place, p in zip(beside, holm([p_values[at] or 0.0 for at in beside]), strict=True):
            found[place] = AdjustedP(p, len(beside))
            waiting.append((below.get(place, []), len(beside), p))
    while waiting:
        beside, shared, least = waiting.pop()
        tests = shared * len(beside)
        for place, raised in _raised(p_values, beside, below).items():
            adjusted = min(max(least, shared * raised), 1.0)
            found[place] = AdjustedP(adjusted, tests)
            waiting.append((below.get(place, []), tests, adjusted))
    return found


def _raised(
    p_values: Sequence[float | None], beside: Sequence[int], below: Mapping[int, Sequence[int]]
) -> dict[int, float]:
    own = [p_values[place] or 0.0 for place in beside]
    if any(below.get(place) for place in beside):
        return {place: len(beside) * p for place, p in zip(beside, own, strict=True)}
    return dict(zip(beside, holm(own), strict=True))


# --- A family


class FamilyMember(NamedTuple):
    """A comparison to test: the difference ``over`` items and judges is None where nobody judged; p-values of
    both hold at the ``looks``. ``above`` and ``branch``: as in `gatekept`."""

    found: Difference
    over: OverJudges | None = None
    above: int | None = None
    branch: Hashable = None
    looks: Looks | None = None


class FamilyVerdict(NamedTuple):
    """What the family says of a member: p-values and intervals adjusted together, and the verdict."""

    p: float | None
    bounds: Bounds
    p_over_judges: float | None
    bounds_over_judges: Bounds | None
    verdict: LeadVerdict


def adjust_family(members: Sequence[FamilyMember]) -> list[FamilyVerdict]:
    """Adjust all members together: over items, and over items and judges."""
    branches = [member.branch for member in members]
    of_items = gatekept(
        [member.found.p for member in members], [member.above for member in members], branches
    )
    unknown = [member.over is None or member.over.p is None for member in members]
    # where nothing is known of judges above, as of checks, what is below has nothing above it
    known = [None if at is None or unknown[at] else at for at in (member.above for member in members)]
    apart = [
        "below" if member.above is not None and at is None else branch
        for member, at, branch in zip(members, known, branches, strict=True)
    ]
    of_both = gatekept([None if one.over is None else one.over.p for one in members], known, apart)
    return [
        _verdict_on(member, of_item, both)
        for member, of_item, both in zip(members, of_items, of_both, strict=True)
    ]


def _verdict_on(member: FamilyMember, items: AdjustedP | None, both: AdjustedP | None) -> FamilyVerdict:
    found, over = member.found, member.over
    bounds = adjusted_bounds(found.difference, found, items, member.looks)
    wide = None if over is None else adjusted_bounds(found.difference, over, both, member.looks)
    p, p_over = (None if one is None else one.p for one in (items, both))
    judges = None if over is None else over.judges
    return FamilyVerdict(
        p, bounds or Bounds(found.low, found.high), p_over, wide, lead_verdict(p, p_over, judges)
    )
