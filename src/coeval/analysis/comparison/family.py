"""One family of comparisons and one verdict for each: adjusted p-values, adjusted intervals, words, ranks.

Whoever compares asks here: students of a run, sides of a comparison, checkpoints, labels. There are two
questions, each with an error rate of 5%. *Who is ahead overall*: all pairs, by Holm, so that a leader may be
picked from the data. *Where*: tasks are tested where the overall difference of their pair is significant,
factors and further metrics where their task is. Labels, which are in no score, are a branch of their own.
``docs/decisions/0020-one-family.md`` says why; ``python -m evidence.judge_sample`` measures it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Sequence
from typing import Annotated, Literal, NamedTuple, Self, TypeAlias

import msgspec

from coeval.analysis.comparison.paired_difference import (
    POWER,
    AdjustedP,
    Difference,
    OverJudges,
    PairedScores,
    difference_over_judges_if_judged,
    holm_adjust,
    paired_difference,
    widen_bounds_to_adjusted_p,
)
from coeval.analysis.intervals import ALPHA, Bounds, Looks, detectable_gap_at_any_look, p_value_at_any_look
from coeval.analysis.measures.measure_tree import FILES, Entity, ShownAs
from coeval.analysis.panel.mean_squares import JudgeScatter, JudgeValues

# --- The verdict

LeadVerdict: TypeAlias = Literal["leads", "leads by these judges", "leads by this judge", "tied"]
"""What is said of a pair: who is ahead leads, or both are tied."""


# Two judges give a rough idea of others: of equal students, one would lead in 7.4% of runs where judges lean
# by 7 points (evidence/judge_sample.py).
FEWEST_JUDGES = 3


def lead_verdict(p: float | None, p_over_judges: float | None, judges: int | None) -> LeadVerdict:
    """Return the verdict of two adjusted p-values; ``judges`` scored both sides, None if nobody judged."""
    if p is None or p >= ALPHA:
        return "tied"
    if judges is None:
        return "leads"
    if judges >= FEWEST_JUDGES and p_over_judges is not None and p_over_judges < ALPHA:
        return "leads"
    return "leads by this judge" if judges == 1 else "leads by these judges"


# --- Ranks


def rank_range(name: str, ranked: Collection[str], leads: Collection[tuple[str, str]]) -> tuple[int, int]:
    """Return the ranks that ``name`` may have in ``ranked``: after all significantly better, before all worse
    ones.

    All pairs are tested as one family, so in 95 of 100 runs no range is too narrow (Holm 1979; Goldstein
    and Spiegelhalter 1996 for ranges in place of ranks). ``leads``: pairs, the better one first.
    """
    better = sum(loser == name for _, loser in leads)
    worse = sum(winner == name for winner, _ in leads)
    return 1 + better, len(ranked) - worse


# --- Adjusted p-values
#
# A family is a tree: the overall difference of each pair, below it its tasks, below each task its factors and
# metrics. Each pair has its share of the 5% of the second question, which its tasks share: where the overall
# difference is none, the first question lets through a false claim that seldom (Dmitrienko, Offen and
# Westfall 2003; as a graph: Bretz, Maurer, Brannath and Posch 2009).


def gatekeep_p_values(
    p_values: Sequence[float | None], parents: Sequence[int | None], branches: Sequence[Hashable] = ()
) -> list[AdjustedP | None]:
    """Adjust the p-values (m,) of a tree of tests, in the given order; a missing p-value stays None.

    Roots are adjusted by Holm within their branch (``branches``, (m,); empty: all in one). Siblings below
    share the level of their pair: evenly if any of them has children, by Holm if none has. No adjusted
    p-value is below that of its parent. ``parents`` (m,): the test to be significant first; None: a root.
    """
    roots, children = defaultdict[Hashable, list[int]](list), defaultdict[int, list[int]](list)
    for test, parent in enumerate(parents):
        if p_values[test] is None:
            continue
        if parent is None:
            roots[branches[test] if branches else None].append(test)
        else:
            children[parent].append(test)
    results: list[AdjustedP | None] = [None] * len(p_values)
    waiting: list[tuple[list[int], int, float]] = []
    for siblings in roots.values():
        for test, p in zip(siblings, holm_adjust([p_values[at] or 0.0 for at in siblings]), strict=True):
            results[test] = AdjustedP(p, len(siblings))
            waiting.append((children.get(test, []), len(siblings), p))
    while waiting:
        siblings, shared, least = waiting.pop()
        tests = shared * len(siblings)
        have_children = any(children.get(test) for test in siblings)
        own = [p_values[test] or 0.0 for test in siblings]
        multiplied_p = [len(own) * p for p in own] if have_children else holm_adjust(own)
        for test, multiplied in zip(siblings, multiplied_p, strict=True):
            adjusted = min(max(least, shared * multiplied), 1.0)
            results[test] = AdjustedP(adjusted, tests)
            waiting.append((children.get(test, []), tests, adjusted))
    return results


# --- The record of a pair

Ends: TypeAlias = tuple[float, float]
_DETECTABLE = "True difference detected four times in five, given the number of pairs"


class PairDifference(Entity, frozen=True, kw_only=True):
    """How b differs from a, paired by item: of this pair alone, and as its family has it."""

    difference: Annotated[
        float, ShownAs("b − a, paired by item, tasks counting alike", "Difference", "difference", "gap")
    ]
    ci95: Annotated[Ends, ShownAs("For this pair alone", elsewhere=FILES)]
    ci95_adjusted: Annotated[Ends, ShownAs("Excludes 0 if p is below 0.05", elsewhere="differences")]
    p: Annotated[float | None, ShownAs("For this pair alone", kind="probability", elsewhere=FILES)]
    p_adjusted: Annotated[
        float | None, ShownAs("Adjusted for the number of pairs", "p (Holm)", "p", "probability")
    ]
    n: Annotated[int, ShownAs("Items shared by both", elsewhere="differences", kind="count")]
    minimum_detectable: Annotated[float | None, ShownAs(_DETECTABLE, "Detectable", terminal="least")]
    verdict: Annotated[
        LeadVerdict, ShownAs("Verdict: leads, leads by these judges, or tied", elsewhere="leads")
    ] = "tied"
    ci95_over_judges: Annotated[
        Ends | None, ShownAs("With judges as a sample too, for this pair alone", elsewhere=FILES)
    ] = None
    ci95_over_judges_adjusted: Annotated[
        Ends | None,
        ShownAs(
            "With judges as a sample too; empty: unknown", "Over items and judges", "other judges", "gap"
        ),
    ] = None
    p_over_judges: Annotated[
        float | None, ShownAs("For this pair alone", kind="probability", elsewhere=FILES)
    ] = None
    p_over_judges_adjusted: Annotated[
        float | None, ShownAs("Over items and judges, adjusted", "p (Holm), judges too", "p", "probability")
    ] = None
    judges: Annotated[int | None, ShownAs("Judges who scored both", elsewhere="leads")] = None
    agreeing: Annotated[
        int | None,
        ShownAs("Judges who, alone, put the same one ahead", "Judges agreeing", kind="count"),
    ] = None
    comes_from: Annotated[
        str | None, ShownAs("The single factor that a lead comes from, if any", elsewhere="leads")
    ] = None

    @property
    def significant(self) -> bool:
        """Check whether b differs from a over items, by these judges."""
        return self.p_adjusted is not None and self.p_adjusted < ALPHA

    @property
    def swapped(self) -> Self:
        """Return the same with both sides exchanged: how a differs from b."""
        names = ("ci95", "ci95_adjusted", "ci95_over_judges", "ci95_over_judges_adjusted")
        ends = {
            name: None if (bounds := getattr(self, name)) is None else (-bounds[1], -bounds[0])
            for name in names
        }
        return msgspec.structs.replace(self, difference=-self.difference, **ends)

    @property
    def with_leader_as_b(self) -> Self:
        """Return the same with the side that is ahead as b."""
        return self if self.difference >= 0 else self.swapped


# --- What a lead comes from

# So much of a lead is one factor's: of less, others would have to be named too.
_MOST_OF_IT = 0.8


class FactorPart(NamedTuple):
    """A pair's difference in one factor of a task; ``share``: its weight in the overall difference."""

    factor: str
    is_check: bool
    share: float
    difference: Difference


def find_factor_behind_lead(lead: PairDifference, parts: Sequence[FactorPart]) -> str | None:
    """Name the one factor that a lead comes from: it makes up most of it, and the same side is significantly
    ahead by no other factor. None: there is no lead, or no such factor."""
    sign = 1 if lead.difference > 0 else -1
    adds: defaultdict[str, float] = defaultdict(float)
    for part in parts:
        adds[part.factor] += sign * part.share * part.difference.difference
    if not lead.significant or len(adds) < 2:
        return None
    most = max(adds, key=adds.__getitem__)
    if adds[most] < _MOST_OF_IT * sum(adds.values()) or any(
        part.factor != most and sign * part.difference.difference > 0 and (part.difference.p or 0.0) < ALPHA
        for part in parts
    ):
        return None
    return f"{most}, a check" if all(part.is_check for part in parts if part.factor == most) else most


# --- A family


class FamilyMember(NamedTuple):
    """A comparison to test. ``over_judges`` is None if nobody judged; p-values hold at the ``looks``;
    ``parent`` and ``branch`` are those of `gatekeep_p_values`; ``width`` is the length of the scale, in
    the reported unit."""

    difference: Difference
    over_judges: OverJudges | None = None
    parent: int | None = None
    branch: Hashable = None
    looks: Looks | None = None
    width: float = 1.0


def prepare_family_member(
    strata: Sequence[PairedScores],
    judged: Sequence[JudgeValues],
    scatter: JudgeScatter | None,
    looks: Looks | None,
    tests: int,
) -> FamilyMember:
    """Compute one of ``tests`` comparisons, valid at any look if there are many ``looks`` at a run.
    ``judged`` and ``scatter``: as in `difference_over_judges_if_judged`."""
    difference = paired_difference(strata, tests)
    over = difference_over_judges_if_judged(difference, judged, scatter)
    if looks is None or not looks.is_repeated:
        return FamilyMember(difference, over, looks=looks)
    if (least := difference.minimum_detectable) is not None:
        least = detectable_gap_at_any_look(least, looks, power=POWER, family=tests)
    p = None if difference.p is None else p_value_at_any_look(difference.p, looks)
    difference = msgspec.structs.replace(difference, p=p, minimum_detectable=least)
    if over is not None and over.p is not None:
        over = msgspec.structs.replace(over, p=p_value_at_any_look(over.p, looks))
    return FamilyMember(difference, over, looks=looks)


def adjust_family(members: Sequence[FamilyMember]) -> list[PairDifference]:
    """Adjust all members together, over items and over items and judges; return one record per member."""
    parents, branches = [member.parent for member in members], [member.branch for member in members]
    over_items = gatekeep_p_values([member.difference.p for member in members], parents, branches)
    p_values = [None if member.over_judges is None else member.over_judges.p for member in members]
    # a test is a root of its own if its parent has no p-value over judges, as a check has none
    tested = [None if parent is None or p_values[parent] is None else parent for parent in parents]
    roots = list(zip(branches, (parent is None for parent in parents), strict=True))
    both = gatekeep_p_values(p_values, tested, roots)
    return [_build_pair_difference(*results) for results in zip(members, over_items, both, strict=True)]


def _build_pair_difference(
    member: FamilyMember, adjusted_items: AdjustedP | None, adjusted_both: AdjustedP | None
) -> PairDifference:
    """Join a comparison with its p-values, over items and over judges too, in the reported unit."""
    single, over, width = member.difference, member.over_judges, member.width
    alone, least = Bounds(single.low, single.high), single.minimum_detectable
    bounds = widen_bounds_to_adjusted_p(single.difference, single, adjusted_items, member.looks) or alone
    wide, wide_adjusted, judges, agreeing = None, None, None, None
    if over is not None:
        judges, agreeing = over.judges, over.agreeing
        wide = None if over.low is None or over.high is None else Bounds(over.low, over.high)
        wide_adjusted = widen_bounds_to_adjusted_p(single.difference, over, adjusted_both, member.looks)
    p, p_over = (None if adjusted is None else adjusted.p for adjusted in (adjusted_items, adjusted_both))
    return PairDifference(
        difference=single.difference * width,
        ci95=(alone.low * width, alone.high * width),
        ci95_adjusted=(bounds.low * width, bounds.high * width),
        p=single.p,
        p_adjusted=p,
        n=single.n,
        minimum_detectable=None if least is None else least * width,
        verdict=lead_verdict(p, p_over, judges),
        ci95_over_judges=_multiply_bounds(wide, width),
        ci95_over_judges_adjusted=_multiply_bounds(wide_adjusted, width),
        p_over_judges=None if over is None else over.p,
        p_over_judges_adjusted=p_over,
        judges=judges,
        agreeing=agreeing,
    )


def _multiply_bounds(bounds: Bounds | None, width: float) -> Ends | None:
    return None if bounds is None else (bounds.low * width, bounds.high * width)
