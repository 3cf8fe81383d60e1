"""What speaks against taking differences as they are: answers that were cut off or hold nothing, tasks that
one has no score in, judges who are kin to whoever leads. Each is told once for all whom it concerns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from coeval.analysis.comparison.comparison_sentence import Comparison, shown_difference, where_of
from coeval.analysis.comparison.side import Side
from coeval.analysis.cut_off import CutOffAnswers
from coeval.analysis.panel.model_families import kin_of_one
from coeval.core.text import listed

__all__ = ["KinLead", "answer_doubts", "kin_doubts", "kin_of_leader"]

_ALL_TOLD = 4
"""Sides up to which each is named, whatever there is to say of it."""


def answer_doubts(groups: Sequence[Sequence[Side]]) -> Iterator[str]:
    """``groups`` are those within which every two are compared."""
    sides = [side for group in groups for side in group]
    theirs = f"part of the difference{'s' if len(sides) > 2 else ''} may come from that"
    if told := _on_each(sides, [side.answers.cut for side in sides]):
        many = any(CutOffAnswers(s.label, s.answers.cut, s.answers.good).too_many for s in sides)
        yield f"Cut off at max_tokens: {told}; {theirs}." + (
            " Raise max_tokens before trusting it." if many else ""
        )
    cut = sum(side.answers.empty_cut for side in sides)
    if told := _on_each(sides, [side.answers.empty for side in sides]):
        of_these = f" (of all these, cut off: {cut:,})" if cut else ""
        yield f"Empty, and counted like all others: {told}{of_these}; {theirs}."
    lacking = [f"{side.label} ({listed(tasks)})" for group in groups for side, tasks in _lacking(group)]
    if lacking:
        yield (
            f"Without a score in some task that others have: {listed(lacking)}; such a task is in no "
            "difference of theirs, and overall is over the others."
        )


def _on_each(sides: Sequence[Side], counts: Sequence[int]) -> str:
    """How many of each side's answers, most first; empty: none of anybody's."""
    if not any(counts):
        return ""
    order = sorted(zip(counts, sides, strict=True), key=lambda each: -each[0])
    named = [each for each in order if each[0] or len(sides) <= _ALL_TOLD]
    parts = [f"{count:,} of {side.answers.good:,} answers of {side.label}" for count, side in named]
    return listed(parts) + (", none of the others" if len(named) < len(sides) else "")


def _lacking(group: Sequence[Side]) -> Iterator[tuple[Side, list[str]]]:
    """Who has no score in tasks that another one has, among those whose items it has too."""
    scored = [side.scored_tasks for side in group]
    everywhere = set[str]().union(*scored)
    for side, found in zip(group, scored, strict=True):
        if found and (tasks := sorted((everywhere & {item.task for item in side.items.values()}) - found)):
            yield side, tasks


class KinLead(NamedTuple):
    """A lead that judges of the leader's own family are part of; ``among`` so many. ``found`` is the
    difference, ``without`` the same by the judges who are kin to neither of the two, all but ``apart``; None
    where these have not scored all of it."""

    leader: str
    judges: tuple[str, ...]
    itself: bool
    among: int
    found: Comparison
    apart: tuple[str, ...]
    without: Comparison | None = None


def kin_of_leader(a: Side, b: Side, found: Comparison, judges: Sequence[str]) -> KinLead | None:
    """``judges`` are those whose scores the difference is made of. None where none is kin to the leader, or
    to both alike."""
    if not found.difference:
        return None
    leader, other = (b, a) if found.difference > 0 else (a, b)
    itself = leader.model in judges and leader.model != other.model
    kin = tuple(
        judge
        for judge in judges
        if (itself and judge == leader.model)
        or (leader.family and leader.families[judge] == leader.family != other.family)
    )
    families = {**a.families, **b.families}
    apart = tuple(judge for judge in judges if kin_of_one(judge, a.model, b.model, families) or judge in kin)
    return KinLead(leader.label, kin, kin == (leader.model,), len(judges), found, apart) if kin else None


def kin_doubts(leads: Sequence[KinLead]) -> Iterator[str]:
    """One sentence for each leader, its judges, and the tasks that they judge."""
    alike: dict[tuple[object, ...], list[KinLead]] = {}
    for lead in leads:
        known = lead.without is not None
        alike.setdefault((lead.leader, lead.judges, lead.among, known, lead.apart), []).append(lead)
    for found in alike.values():
        first = found[0]
        several = len(first.judges) > 1
        kin, whom = f"{'are' if several else 'is'} of {first.leader}'s family", "it"
        if first.itself:
            kin, whom = "judges its own answers", "them"
        said = f"{_place(first)} {kin}"
        if first.without is None:
            yield (
                f"{said}: whether {'they favour' if several else 'it favours'} {whom} cannot be told here; "
                "add a judge of another family."
            )
            continue
        apart = listed(_without(lead.leader, lead.without) for lead in found if lead.without is not None)
        whose = "their scores" if several else "its scores"
        if len(first.apart) > len(first.judges):
            whose = f"the scores of {' and '.join(first.apart)},"
        yield f"{said}: without {whose} {apart}."


def _place(lead: KinLead) -> str:
    named = listed(lead.judges)
    if len(lead.judges) == lead.among:
        return f"The only judge, {named}," if lead.among == 1 else f"All judges, {named},"
    return f"{named}, {len(lead.judges)} of the {lead.among} judges,"


def _without(leader: str, one: Comparison) -> str:
    """``red-s − blue-s is 2.1 ± 1.9 points overall``"""
    sign, other = (1, one.a) if leader == one.b else (-1, one.b)
    return f"{leader} − {other} is {shown_difference(one, sign)} points {where_of(one)}"
