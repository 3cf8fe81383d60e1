"""Sentences on a panel's measures: which judges are biased, and how reliable the panel is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from coeval.analysis.comparison.family import PairDifference
from coeval.analysis.intervals import ALPHA
from coeval.analysis.measures.judge_measures import JudgeMeasures
from coeval.analysis.measures.ranking import Ranking, compare_two_students, leading_pair
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.panel.bias_ledger import Favour, JudgeBiases
from coeval.analysis.panel.g_study import GStudy
from coeval.analysis.panel.panel_reading import family_of_one
from coeval.core.figures import format_decimals, format_points
from coeval.core.records import model_of
from coeval.core.text import join_names, p_value_text

# What a judge may lean on, in words.
_LEANINGS: dict[str, Callable[[JudgeBiases], Favour]] = {
    "answers of its own family": lambda bias: bias.family,
    "its own answers": lambda bias: bias.own,
}
# Of a score from 0 to 1: less of severity moves nothing that matters.
_NOTEWORTHY = 0.05
# Judges that a sentence names.
_MOST_NAMED = 2
# So many judges may lean apart, and nobody can tell which of them does.
TOO_FEW_TO_TELL = 2


def panel_findings(judges: Mapping[str, JudgeMeasures]) -> Iterator[str]:
    """Of a folder's judges; nothing where there is nothing to say."""
    yield from _leanings(judges)
    yield from _places(judges)
    yield from _severities(judges)


def _places(judges: Mapping[str, JudgeMeasures]) -> Iterator[str]:
    for judge, found in judges.items():
        bias = found.bias.position
        if bias.is_named:
            place = "first" if bias.size > 0 else "second"
            yield f"{judge} favours the answer shown {place} by {bias.size_text}."


def _leanings(judges: Mapping[str, JudgeMeasures]) -> Iterator[str]:
    if len(judges) == TOO_FEW_TO_TELL:
        yield from _leanings_of_two(judges)
        return
    for judge, found in judges.items():
        for whose, of in _LEANINGS.items():
            if (bias := of(found.bias)).is_named:
                by = f"{bias.size_text} {'higher' if bias.size > 0 else 'lower'}"
                yield f"{judge} scores {whose} {by} than expected from the other judges{_beside(bias)}."


def _beside(bias: Favour) -> str:
    return "" if bias.usual is None else f"; judges differ about a family by {format_points(bias.usual)} (sd)"


def _leanings_of_two(judges: Mapping[str, JudgeMeasures]) -> Iterator[str]:
    """What one gives more than the other, once."""
    for whose, of in _LEANINGS.items():
        found = {judge: of(judges[judge].bias) for judge in judges}
        named = sorted((judge for judge in found if found[judge].is_named), key=lambda one: -found[one].size)
        if not named:
            continue
        [other] = [judge for judge in judges if judge != named[0]]
        own, more = found[named[0]], "higher" if found[named[0]].size > 0 else "lower"
        yield (
            f"Of the two judges, {named[0]} scores {whose} {more} than {other} by {own.size_text}: "
            "either may be the biased one."
        )


def _severities(judges: Mapping[str, JudgeMeasures]) -> Iterator[str]:
    """Name judges that are significantly stricter or more lenient, by an amount that matters."""
    said = []
    for judge, found in judges.items():
        bias = found.bias.severity
        if bias.is_named and abs(bias.size) >= _NOTEWORTHY:
            how = "stricter" if bias.size > 0 else "more lenient"
            said.append(f"{judge} is {format_points(abs(bias.size))} points {how}")
    if said:
        yield f"Relative to the other judges, {join_names(said)}."


def reliability(study: GStudy | None) -> Iterator[str]:
    """How much of what students differ by would show again, and by whom it is spoilt."""
    if study is None or (found := study.reliability).value is None:
        return
    figure = f"Eρ² = {format_decimals(found.value, 2)}"
    if found.value < 0:
        figure = "Eρ² is estimated below 0"
    elif found.low is None or found.high is None:
        figure += ", without an interval"
    else:
        figure += f" [{format_decimals(found.low, 2)}, {format_decimals(found.high, 2)} over items]"
        figure += ", not distinguishable from no agreement" if found.low <= 0 else ""
    apart = study.components["students"].variance
    if apart.low is None or apart.low <= 0 or found.low is None or found.low <= 0:
        if study.p is not None and study.p >= ALPHA:
            test = f"an F test over items finds no difference between the students ({p_value_text(study.p)})"
            yield f"With these judges, {test}: {figure}."
            return
        yield f"Whether other items and judges would separate the students is open: {figure}."
        return
    yield f"Reliability of the students' scores for other items and judges, from 0 to 1: {figure}."
    for judge, one in study.worth.items():
        if one.worth.value is not None and one.worth.high is not None and one.worth.high < 0:
            yield f"{judge} lowers it by {format_decimals(-one.worth.value, 2)}."


# --- Judges and teachers of a leading student's family


class RelatedJudges(NamedTuple):
    """``judges``: those ``among`` so many who are of a leader's family, and not of the other's, or the
    leader ``itself``; ``apart``: all who are of the family of one of the two."""

    judges: tuple[str, ...]
    among: int
    apart: tuple[str, ...]
    itself: bool


def related_judges(
    leader: str, other: str, judges: Collection[str], families: Mapping[str, str]
) -> RelatedJudges | None:
    """None: none is. ``families`` are those of students and judges."""
    family_of = {judge: family_of_one(judge, leader, other, families) for judge in judges}
    related = tuple(judge for judge, whose in family_of.items() if whose == leader)
    apart = tuple(judge for judge, whose in family_of.items() if whose is not None)
    return RelatedJudges(related, len(family_of), apart, related == (leader,)) if related else None


def related_sentence(leader: str, found: RelatedJudges, without: str) -> str:
    """``without``: what the judges say who are of neither family; empty: nobody can say."""
    several, named = len(found.judges) > 1, join_names(found.judges, _MOST_NAMED)
    who = f"{named}, {len(found.judges)} of the {found.among} judges,"
    if len(found.judges) == found.among:
        who = f"The only judge, {named}," if found.among == 1 else f"All judges, {named},"
    related, whom = f"{'are' if several else 'is'} of {leader}'s family", "it"
    if found.itself:
        related, whom = "judges its own answers", "them"
    if not without:
        favours = "they favour" if several else "it favours"
        unknown = f"whether {favours} {whom} cannot be tested here; add a judge of another family"
        return f"{who} {related}: {unknown}."
    whose = "their scores" if several else "its scores"
    if len(found.apart) > len(found.judges):
        whose = f"the scores of {' and '.join(found.apart)}"
    return f"{who} {related}: without {whose}, {without}."


def outcome(a: str, b: str, found: PairDifference) -> str:
    """The verdict on two, in words: ``b leads by these judges``; ``found`` is how b differs."""
    if found.verdict == "tied":
        return f"{a} and {b} are tied"
    return f"{b if found.difference > 0 else a} {found.verdict}"


def family_judges(grid: ScoreGrid, ranks: Ranking, families: Mapping[str, str]) -> Iterator[str]:
    """A sentence on judges of the leader's family, as `coeval compare` has it."""
    if len(ranks.order) < 2:
        return
    first, second = leading_pair(ranks)
    found = related_judges(model_of(first), model_of(second), grid.judges, families)
    if found is None or ranks.difference(first, second) is None:
        return
    others = [judge for judge in grid.judges if judge not in found.apart]
    without = compare_two_students(grid.select_judges(others), first, second) if others else None
    yield related_sentence(first, found, outcome(first, second, without) if without else "")


def family_teachers(grid: ScoreGrid, ranks: Ranking, families: Mapping[str, str]) -> Iterator[str]:
    """A sentence on teachers of the family of exactly one of the two best students, or the same model: what
    they ask may be what it knows. None where there is no such teacher; ``families`` as in `family_judges`."""
    if len(ranks.order) < 2:
        return
    first, second = leading_pair(ranks)
    wrote: dict[str, list[str]] = {}
    for teacher in grid.teachers:
        if (student := family_of_one(teacher, first, second, families)) is not None:
            wrote.setdefault(student, []).append(teacher)
    if wrote:
        named = join_names([f"{student} ({join_names(teachers)})" for student, teachers in wrote.items()])
        others = len(grid.teachers) > sum(map(len, wrote.values()))
        way = "compare the scores by teacher" if others else "add a teacher of another family"
        yield f"Items may favour a student of their teacher's family: {named}; {way}."
