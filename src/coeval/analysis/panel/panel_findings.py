"""Sentences on a panel's measures: which judges are biased, and how reliable the panel is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from coeval.analysis.comparison.family import PairDifference
from coeval.analysis.intervals import ALPHA
from coeval.analysis.measures.judge_measures import JudgeMeasures
from coeval.analysis.measures.ranking import Ranking, compare_two_students, leader_and_rival
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.panel.bias_ledger import FamilyBias, JudgeBiases
from coeval.analysis.panel.g_study import GStudy
from coeval.analysis.panel.panel_reading import related_model
from coeval.core.figures import format_decimals, format_points, p_value_text
from coeval.core.records import model_of
from coeval.core.text import join_names

# Biases that depend on the family of the student, in words.
_FAMILY_BIASES: dict[str, Callable[[JudgeBiases], FamilyBias]] = {
    "answers of its own family": lambda bias: bias.family,
    "its own answers": lambda bias: bias.own,
}
# Of a score from 0 to 1: less of severity moves nothing that matters.
_NOTEWORTHY = 0.05
# Judges that a sentence names.
_MOST_NAMED = 2
# Of so many judges that differ, nobody can tell which one is biased.
TOO_FEW_TO_TELL = 2


def judge_bias_sentences(judges: Mapping[str, JudgeMeasures]) -> Iterator[str]:
    yield from _family_bias_sentences(judges)
    yield from _position_sentences(judges)
    yield from _severity_sentence(judges)


def _position_sentences(judges: Mapping[str, JudgeMeasures]) -> Iterator[str]:
    for judge, measures in judges.items():
        bias = measures.bias.position
        if bias.is_significant:
            place = "first" if bias.size > 0 else "second"
            yield f"{judge} favours the answer shown {place} by {bias.unsigned_size_text}."


def _family_bias_sentences(judges: Mapping[str, JudgeMeasures]) -> Iterator[str]:
    if len(judges) == TOO_FEW_TO_TELL:
        yield from _two_judge_bias_sentences(judges)
        return
    for judge, measures in judges.items():
        for whose, bias_of in _FAMILY_BIASES.items():
            if (bias := bias_of(measures.bias)).is_significant:
                by = f"{bias.unsigned_size_text} {'higher' if bias.size > 0 else 'lower'}"
                text = f"{judge} scores {whose} {by} than expected from the other judges"
                if bias.usual is not None:
                    text += f"; judges differ about a family by {format_points(bias.usual)} (sd)"
                yield f"{text}."


def _two_judge_bias_sentences(judges: Mapping[str, JudgeMeasures]) -> Iterator[str]:
    """State what one of two judges gives more than the other, once."""
    for whose, bias_of in _FAMILY_BIASES.items():
        biases = {judge: bias_of(judges[judge].bias) for judge in judges}
        named = sorted(
            (judge for judge in biases if biases[judge].is_significant), key=lambda judge: -biases[judge].size
        )
        if not named:
            continue
        [other] = [judge for judge in judges if judge != named[0]]
        own, more = biases[named[0]], "higher" if biases[named[0]].size > 0 else "lower"
        yield (
            f"Of the two judges, {named[0]} scores {whose} {more} than {other} by {own.unsigned_size_text}: "
            "either may be the biased one."
        )


def _severity_sentence(judges: Mapping[str, JudgeMeasures]) -> Iterator[str]:
    """Name judges that are significantly stricter or more lenient, by an amount that matters."""
    clauses = []
    for judge, measures in judges.items():
        bias = measures.bias.severity
        if bias.is_significant and abs(bias.size) >= _NOTEWORTHY:
            how = "stricter" if bias.size > 0 else "more lenient"
            clauses.append(f"{judge} is {format_points(abs(bias.size))} points {how}")
    if clauses:
        yield f"Relative to the other judges, {join_names(clauses)}."


def reliability_sentences(study: GStudy | None) -> Iterator[str]:
    """State how much of the students' differences would show again, and which judges lower that."""
    if study is None or (estimate := study.reliability).value is None:
        return
    figure = f"Eρ² = {format_decimals(estimate.value, 2)}"
    if estimate.value < 0:
        figure = "Eρ² is estimated below 0"
    elif estimate.low is None or estimate.high is None:
        figure += ", without an interval"
    else:
        figure += f" [{format_decimals(estimate.low, 2)}, {format_decimals(estimate.high, 2)} over items]"
        figure += ", not distinguishable from no agreement" if estimate.low <= 0 else ""
    apart = study.components["students"].variance
    if apart.low is None or apart.low <= 0 or estimate.low is None or estimate.low <= 0:
        if study.p is not None and study.p >= ALPHA:
            test = f"an F test over items finds no difference between the students ({p_value_text(study.p)})"
            yield f"With these judges, {test}: {figure}."
            return
        yield f"Whether other items and judges would separate the students is open: {figure}."
        return
    yield f"Reliability of the students' scores for other items and judges, from 0 to 1: {figure}."
    for judge, added in study.worth.items():
        if added.worth.value is not None and added.worth.high is not None and added.worth.high < 0:
            yield f"{judge} lowers it by {format_decimals(-added.worth.value, 2)}."


# --- Judges and teachers of a leading student's family


class RelatedJudges(NamedTuple):
    """The ``judges``, ``among`` so many, who are of a leader's family and not of the other's, or the leader
    ``itself``; ``apart``: all who are of the family of one of the two."""

    judges: tuple[str, ...]
    among: int
    apart: tuple[str, ...]
    itself: bool


def find_related_judges(
    leader: str, other: str, judges: Collection[str], families: Mapping[str, str]
) -> RelatedJudges | None:
    """Find the judges related to the leader; None if there are none. ``families``: of students and judges."""
    family_of = {judge: related_model(judge, leader, other, families) for judge in judges}
    related = tuple(judge for judge, whose in family_of.items() if whose == leader)
    apart = tuple(judge for judge, whose in family_of.items() if whose is not None)
    return RelatedJudges(related, len(family_of), apart, related == (leader,)) if related else None


def related_judges_sentence(leader: str, related: RelatedJudges, verdict_without: str) -> str:
    """State who judges its own family; ``verdict_without``: the verdict of judges of neither family, empty if
    there is none."""
    several, named = len(related.judges) > 1, join_names(related.judges, _MOST_NAMED)
    who = f"{named}, {len(related.judges)} of the {related.among} judges,"
    if len(related.judges) == related.among:
        who = f"The only judge, {named}," if related.among == 1 else f"All judges, {named},"
    relation, whom = f"{'are' if several else 'is'} of {leader}'s family", "it"
    if related.itself:
        relation, whom = "judges its own answers", "them"
    if not verdict_without:
        favours = "they favour" if several else "it favours"
        unknown = f"whether {favours} {whom} cannot be tested here; add a judge of another family"
        return f"{who} {relation}: {unknown}."
    whose = "their scores" if several else "its scores"
    if len(related.apart) > len(related.judges):
        whose = f"the scores of {' and '.join(related.apart)}"
    return f"{who} {relation}: without {whose}, {verdict_without}."


def verdict_phrase(a: str, b: str, pair: PairDifference) -> str:
    """State the verdict on b − a, such as ``b leads by these judges``."""
    if pair.verdict == "tied":
        return f"{a} and {b} are tied"
    return f"{b if pair.difference > 0 else a} {pair.verdict}"


def leader_family_sentence(grid: ScoreGrid, ranks: Ranking, families: Mapping[str, str]) -> Iterator[str]:
    """State which judges are of the leader's family, as `coeval compare` does."""
    if len(ranks.order) < 2:
        return
    first, second = leader_and_rival(ranks)
    related = find_related_judges(model_of(first), model_of(second), grid.judges, families)
    if related is None or ranks.difference(first, second) is None:
        return
    others = [judge for judge in grid.judges if judge not in related.apart]
    without = compare_two_students(grid.select_judges(others), first, second) if others else None
    yield related_judges_sentence(first, related, verdict_phrase(first, second, without) if without else "")


def teacher_family_sentence(grid: ScoreGrid, ranks: Ranking, families: Mapping[str, str]) -> Iterator[str]:
    """State which teachers are of the family of exactly one of the two best students, or the same model: what
    they ask may be what it knows."""
    if len(ranks.order) < 2:
        return
    first, second = leader_and_rival(ranks)
    wrote: dict[str, list[str]] = {}
    for teacher in grid.teachers:
        if (student := related_model(teacher, first, second, families)) is not None:
            wrote.setdefault(student, []).append(teacher)
    if wrote:
        named = join_names([f"{student} ({join_names(teachers)})" for student, teachers in wrote.items()])
        others = len(grid.teachers) > sum(map(len, wrote.values()))
        way = "compare the scores by teacher" if others else "add a teacher of another family"
        yield f"Items may favour a student of their teacher's family: {named}; {way}."
