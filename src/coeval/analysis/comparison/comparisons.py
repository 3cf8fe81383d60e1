"""Every two of several sides held against each other: overall, by task, by factor; with p-values that allow
for their number.

Comparisons that answer the same question are a family, and Holm's adjustment is made within it: the overall
scores of all pairs; their tasks; the factors and further metrics of the tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Literal, NamedTuple

import msgspec

from coeval.analysis.comparison.comparison_doubts import KinLead, answer_doubts, kin_doubts, kin_of_leader
from coeval.analysis.comparison.comparison_report import ComparisonReport
from coeval.analysis.comparison.comparison_sentence import FAMILIES, Comparison, Family, sentence
from coeval.analysis.comparison.judged_apart import JudgedApart, judged_apart
from coeval.analysis.comparison.multiplicity import benjamini_hochberg, holm
from coeval.analysis.comparison.paired_difference import paired_difference
from coeval.analysis.comparison.pairing import Pairing, ScoredPairs, pair
from coeval.analysis.comparison.side import Side
from coeval.analysis.intervals import Scale
from coeval.core.errors import UsageError

SCORE = "score"
"""The metric of a run: the mean over judges and factors."""


class _Row(NamedTuple):
    task: str | None
    metric: str
    family: Family
    unit: str
    parts: Sequence[ScoredPairs]
    counted: Literal["item", "prompt"] = "item"


def compare_sides(groups: Sequence[Sequence[Side]], notes: Sequence[str] = ()) -> ComparisonReport:
    """Every two of each group: the overall scores of all pairs first, then tasks, then parts.

    Raises
    ------
    UsageError
        nothing is scored on both sides; the message says what each has.
    """
    paired: list[tuple[Side, Side, _Row]] = []
    kin: list[KinLead] = []
    apart: list[JudgedApart] = []
    said: list[str] = [*notes]
    sides = [side for group in groups for side in group]
    for a, b in (two for group in groups for two in combinations(group, 2)):
        pairing = pair(a, b)
        said += pairing.notes
        apart += pairing.apart
        rows = list(_rows(pairing))
        paired += [(a, b, row) for row in rows]
        kin += _kin_leads(a, b, rows, pairing)
    said += judged_apart(apart, sides)
    if not paired:
        raise UsageError("; ".join(["nothing to compare: no item has a score on both sides", *said]))
    said += [f"{name} is no mean of items: it is not compared" for side in sides for name in side.fitted]
    tested = Counter(row.family for _, _, row in paired if sum(len(part.pairs.a) for part in row.parts) > 1)
    found = [_comparison(a.label, b.label, row, max(tested[row.family], 1)) for a, b, row in paired]
    adjusted = {family: _adjusted([one for one in found if one.family == family]) for family in FAMILIES}
    return ComparisonReport(
        tuple(one for family in FAMILIES for one in adjusted[family]),
        {side.label: {"folder": str(side.folder), "model": side.model} for side in sides},
        tuple(group[0].label for group in groups),
        tuple(dict.fromkeys(said)),
        (*kin_doubts(kin), *answer_doubts(groups)),
        any(side.simulated for side in sides),
    )


def _kin_leads(a: Side, b: Side, rows: Sequence[_Row], pairing: Pairing) -> Iterator[KinLead]:
    """Of what is overall, or else of each task."""
    leading = [row for row in rows if row.family == "overall"] or [r for r in rows if r.family == "task"]
    by_others: dict[tuple[str, ...], list[_Row]] = {}
    for row in leading:
        tasks = pairing.judged if row.task is None else [row.task]
        judges = sorted({judge for task in tasks for judge in pairing.judged.get(task, ())})
        lead = kin_of_leader(a, b, _comparison(a.label, b.label, row), judges)
        if lead is None:
            continue
        if lead.apart not in by_others:
            others = pair(*(side.without(lead.apart) for side in (a, b)))
            by_others[lead.apart] = list(_rows(others))
        for other in by_others[lead.apart]:
            if other[:3] == row[:3] and len(other.parts) == len(row.parts):
                lead = lead._replace(without=_comparison(a.label, b.label, other))
        yield lead


def _rows(pairing: Pairing) -> Iterator[_Row]:
    """The rows of a pair that hold anything."""
    by_task: dict[str, list[int]] = {}
    for place, metric in enumerate(pairing.metrics):
        by_task.setdefault(metric.task, []).append(place)
    scored: dict[str, ScoredPairs] = {}
    rows: list[_Row] = []
    for task, places in by_task.items():
        factors = [place for place in places if pairing.metrics[place].measure == "factor"]
        if factors and (whole := pairing.scored(factors)) is not None:
            scored[task] = whole
            rows.append(_Row(task, SCORE, "task", "share", [whole]))
        for place in places:
            name = pairing.metrics[place]
            found = pairing.scored([place])
            if found is None or (factors == [place]):  # the only factor is the score
                continue
            family: Family = "task" if name.headline or (name.measure == "label" and not factors) else "part"
            counted: Literal["item", "prompt"] = "prompt" if name.measure == "metric" else "item"
            rows.append(_Row(task, name.metric, family, name.unit, [found], counted))
    if len(scored) > 1:
        yield _Row(None, SCORE, "overall", "share", list(scored.values()))
    yield from rows


def _comparison(a: str, b: str, row: _Row, family: int = 1) -> Comparison:
    """``family``: how many comparisons answer the same question, this one among them."""
    found = paired_difference([part.pairs for part in row.parts], family)
    scale = row.parts[0].scale
    width = scale.most - scale.least
    low = sum(part.low for part in row.parts) / len(row.parts)
    high = sum(part.high for part in row.parts) / len(row.parts)
    return Comparison(
        a=a,
        b=b,
        task=row.task,
        metric=row.metric,
        family=row.family,
        unit=row.unit,
        mean_a=_back(found.mean_a, scale),
        mean_b=_back(found.mean_b, scale),
        difference=found.difference * width,
        ci95=(found.low * width, found.high * width),
        p=found.p,
        p_adjusted=None,
        q=None,
        n=found.n,
        minimum_detectable=None if found.minimum_detectable is None else found.minimum_detectable * width,
        missing=sum(part.missing for part in row.parts),
        bounds=(low * width, high * width),
        test=found.test,
        scale=width,
        counted=row.counted,
    )


def _back(share: float, scale: Scale) -> float:
    return scale.least + share * (scale.most - scale.least)


def _adjusted(family: Sequence[Comparison]) -> list[Comparison]:
    known = [one.p for one in family if one.p is not None]
    of_holm, of_rate = iter(holm(known)), iter(benjamini_hochberg(known))
    found = []
    for one in family:
        if one.p is not None:
            one = msgspec.structs.replace(one, p_adjusted=next(of_holm), q=next(of_rate))
        found.append(msgspec.structs.replace(one, sentence=sentence(one)))
    return found
