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
from typing import Annotated, Literal, NamedTuple, Self, TypeAlias

import msgspec

from coeval.analysis.comparison.paired_difference import (
    POWER,
    AdjustedP,
    Difference,
    OverJudges,
    PairedScores,
    adjusted_bounds,
    holm,
    over_judges,
    paired_difference,
)
from coeval.analysis.intervals import ALPHA, Bounds, Looks, detectable_at_any_look, p_at_any_look
from coeval.analysis.measures.measure_tree import FILES, Entity, ShownAs
from coeval.analysis.panel.mean_squares import ByJudge, JudgeScatter

# --- The verdict

LeadVerdict: TypeAlias = Literal["leads", "leads by these judges", "leads by this judge", "tied"]
"""What is said of a pair: who is ahead leads, or both are tied."""


# Two judges give a rough idea of others: of equal students, one would lead in 7.4% of runs where judges lean
# by 7 points (evidence/judge_sample.py).
FEWEST_JUDGES = 3


def lead_verdict(p: float | None, p_over_judges: float | None, judges: int | None) -> LeadVerdict:
    """Name what two adjusted p-values come to; ``judges``: how many scored both, None where nobody judged."""
    if p is None or p >= ALPHA:
        return "tied"
    if judges is None:
        return "leads"
    if judges >= FEWEST_JUDGES and p_over_judges is not None and p_over_judges < ALPHA:
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


# --- The record of a pair

Ends: TypeAlias = tuple[float, float]
_DETECTABLE = "The true difference that would be detected four times in five, among so many pairs"


class PairDifference(Entity, frozen=True, kw_only=True):
    """How b differs from a, paired by item: of this pair alone, and as its family has it."""

    difference: Annotated[
        float, ShownAs("b − a, paired by item, tasks counting alike", "Difference", "difference", "gap")
    ]
    ci95: Annotated[Ends, ShownAs("Of this pair alone", elsewhere=FILES)]
    ci95_adjusted: Annotated[Ends, ShownAs("It leaves 0 out where p is below 0.05", elsewhere="differences")]
    p: Annotated[float | None, ShownAs("Of this pair alone", kind="probability", elsewhere=FILES)]
    p_adjusted: Annotated[
        float | None, ShownAs("Adjusted for the number of pairs", "p (Holm)", "p", "probability")
    ]
    n: Annotated[int, ShownAs("Items that both have", elsewhere="differences", kind="count")]
    minimum_detectable: Annotated[float | None, ShownAs(_DETECTABLE, "Could be seen", terminal="least")]
    verdict: Annotated[
        LeadVerdict, ShownAs("Of who is ahead: leads, by these judges alone, or tied", elsewhere="leads")
    ] = "tied"
    ci95_over_judges: Annotated[
        Ends | None, ShownAs("With judges as a sample too, of this pair alone", elsewhere=FILES)
    ] = None
    ci95_over_judges_adjusted: Annotated[
        Ends | None,
        ShownAs("With judges as a sample too; empty: not known", "Over items and judges", kind="gap"),
    ] = None
    p_over_judges: Annotated[
        float | None, ShownAs("Of this pair alone", kind="probability", elsewhere=FILES)
    ] = None
    p_over_judges_adjusted: Annotated[
        float | None, ShownAs("Over items and judges, adjusted", "p (Holm), judges too", kind="probability")
    ] = None
    judges: Annotated[int | None, ShownAs("Judges who scored both", elsewhere="leads")] = None
    agreeing: Annotated[
        int | None,
        ShownAs("Judges who by themselves put the same one ahead", "Judges see it so", kind="count"),
    ] = None
    comes_from: Annotated[
        str | None, ShownAs("The factor that a lead comes from, where it is one", elsewhere="leads")
    ] = None

    @property
    def significant(self) -> bool:
        """Over items, by these judges."""
        return self.p_adjusted is not None and self.p_adjusted < ALPHA

    @property
    def turned(self) -> Self:
        """How a differs from b."""
        names = ("ci95", "ci95_adjusted", "ci95_over_judges", "ci95_over_judges_adjusted")
        ends = {name: None if (of := getattr(self, name)) is None else (-of[1], -of[0]) for name in names}
        return msgspec.structs.replace(self, difference=-self.difference, **ends)

    @property
    def leading(self) -> Self:
        """With the one that is ahead as b."""
        return self if self.difference >= 0 else self.turned


# --- What a lead comes from

# So much of a lead is one factor's: of less, others would have to be named too.
_MOST_OF_IT = 0.8


class FactorPart(NamedTuple):
    """A factor of a task: ``share``, how much of the overall difference it counts, and its own difference."""

    factor: str
    is_check: bool
    share: float
    found: Difference


def lead_factor(lead: PairDifference, parts: Sequence[FactorPart]) -> str | None:
    """Name the one factor that a lead comes from: it makes up most of it, and by no other factor is the same
    side significantly ahead. None: there is no lead, or no such factor."""
    sign = 1 if lead.difference > 0 else -1
    adds: defaultdict[str, float] = defaultdict(float)
    for part in parts:
        adds[part.factor] += sign * part.share * part.found.difference
    if not lead.significant or len(adds) < 2:
        return None
    most = max(adds, key=adds.__getitem__)
    if adds[most] < _MOST_OF_IT * sum(adds.values()) or any(
        part.factor != most and sign * part.found.difference > 0 and (part.found.p or 0.0) < ALPHA
        for part in parts
    ):
        return None
    return f"{most}, a check" if all(part.is_check for part in parts if part.factor == most) else most


# --- A family


class FamilyMember(NamedTuple):
    """A comparison to test: the difference ``over`` items and judges is None where nobody judged; p-values of
    both hold at the ``looks``. ``above`` and ``branch``: as in `gatekept`. ``width``: of the scale, in the
    unit that is reported."""

    found: Difference
    over: OverJudges | None = None
    above: int | None = None
    branch: Hashable = None
    looks: Looks | None = None
    width: float = 1.0


def family_member(
    strata: Sequence[PairedScores],
    judged: Sequence[ByJudge],
    scatter: JudgeScatter | None,
    looks: Looks | None,
    tests: int,
) -> FamilyMember:
    """What is to be tested among ``tests`` comparisons: at any look, if there are many ``looks`` at a run.
    ``judged`` and ``scatter``: as in `over_judges`."""
    found = paired_difference(strata, tests)
    over = over_judges(found, judged, scatter)
    if looks is None or not looks.many:
        return FamilyMember(found, over, looks=looks)
    if (least := found.minimum_detectable) is not None:
        least = detectable_at_any_look(least, looks, power=POWER, family=tests)
    p = None if found.p is None else p_at_any_look(found.p, looks)
    found = msgspec.structs.replace(found, p=p, minimum_detectable=least)
    if over is not None and over.p is not None:
        over = msgspec.structs.replace(over, p=p_at_any_look(over.p, looks))
    return FamilyMember(found, over, looks=looks)


def adjust_family(members: Sequence[FamilyMember]) -> list[PairDifference]:
    """Adjust all members together: over items, and over items and judges."""
    above, branches = [one.above for one in members], [one.branch for one in members]
    of_items = gatekept([one.found.p for one in members], above, branches)
    p_values = [None if one.over is None else one.over.p for one in members]
    # where nothing is known of judges above, as of checks, what is below has nothing above it
    known = [None if at is None or p_values[at] is None else at for at in above]
    of_both = gatekept(p_values, known, list(zip(branches, (at is None for at in above), strict=True)))
    return [_pair_difference(*each) for each in zip(members, of_items, of_both, strict=True)]


def _pair_difference(member: FamilyMember, items: AdjustedP | None, both: AdjustedP | None) -> PairDifference:
    found, over, width = member.found, member.over, member.width
    alone, least = Bounds(found.low, found.high), found.minimum_detectable
    bounds = adjusted_bounds(found.difference, found, items, member.looks) or alone
    wide, wide_adjusted, judges, agreeing = None, None, None, None
    if over is not None:
        judges, agreeing = over.judges, over.agreeing
        wide = None if over.low is None or over.high is None else Bounds(over.low, over.high)
        wide_adjusted = adjusted_bounds(found.difference, over, both, member.looks)
    p, p_over = (None if one is None else one.p for one in (items, both))
    return PairDifference(
        difference=found.difference * width,
        ci95=(alone.low * width, alone.high * width),
        ci95_adjusted=(bounds.low * width, bounds.high * width),
        p=found.p,
        p_adjusted=p,
        n=found.n,
        minimum_detectable=None if least is None else least * width,
        verdict=lead_verdict(p, p_over, judges),
        ci95_over_judges=_scaled(wide, width),
        ci95_over_judges_adjusted=_scaled(wide_adjusted, width),
        p_over_judges=None if over is None else over.p,
        p_over_judges_adjusted=p_over,
        judges=judges,
        agreeing=agreeing,
    )


def _scaled(bounds: Bounds | None, width: float) -> Ends | None:
    return None if bounds is None else (bounds.low * width, bounds.high * width)
