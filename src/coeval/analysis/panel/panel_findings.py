"""Sentences on a panel's measures: which judges are biased, and how reliable the panel is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from coeval.analysis.intervals import ALPHA
from coeval.analysis.measures.judge_measures import JudgeMeasures
from coeval.analysis.measures.leaders import leading_pair
from coeval.analysis.measures.ranking import Ranking, difference_between
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.panel.bias_ledger import Favour, JudgeBiases
from coeval.analysis.panel.g_study import GStudy
from coeval.analysis.panel.panel_reading import family_of_one
from coeval.core.figures import difference_text, fixed, points
from coeval.core.records import model_of
from coeval.core.text import listed, p_text

# What a judge may lean on, in words.
_LEANINGS: dict[str, Callable[[JudgeBiases], Favour]] = {
    "answers of its own family": lambda bias: bias.family,
    "its own answers": lambda bias: bias.own,
}
# Of a score from 0 to 1: less of severity moves nothing that matters.
_NOTEWORTHY = 0.05
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
    return "" if bias.usual is None else f"; judges differ about a family by {points(bias.usual)} (sd)"


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
            said.append(f"{judge} is {points(abs(bias.size))} points {how}")
    if said:
        yield f"Relative to the other judges, {listed(said)}."


def reliability(study: GStudy | None) -> Iterator[str]:
    """How much of what students differ by would show again, and by whom it is spoilt."""
    if study is None or (found := study.reliability).value is None:
        return
    figure = f"Eρ² = {fixed(found.value, 2)}"
    if found.value < 0:
        figure = "Eρ² is estimated below 0"
    elif found.low is None or found.high is None:
        figure += ", without an interval"
    else:
        figure += f" [{fixed(found.low, 2)}, {fixed(found.high, 2)} over items]"
        figure += ", not distinguishable from no agreement" if found.low <= 0 else ""
    apart = study.components["students"].variance
    if apart.low is None or apart.low <= 0 or found.low is None or found.low <= 0:
        if study.p is not None and study.p >= ALPHA:
            test = f"an F test over items finds no difference between the students ({p_text(study.p)})"
            yield f"With these judges, {test}: {figure}."
            return
        yield f"Whether other items and judges would separate the students is open: {figure}."
        return
    yield f"Reliability of the students' scores for other items and judges, from 0 to 1: {figure}."
    for judge, one in study.worth.items():
        if one.worth.value is not None and one.worth.high is not None and one.worth.high < 0:
            yield f"{judge} lowers it by {fixed(-one.worth.value, 2)}."


# --- Judges and teachers of a leading student's family


def family_judges(
    grid: ScoreGrid, judges: Mapping[str, JudgeMeasures], ranks: Ranking, families: Mapping[str, str]
) -> Iterator[str]:
    """Sentences on judges of the family of exactly one of the two best students, or the same model: of those
    named for leaning on it, what the difference is without all who are of the family of one of the two, as
    `coeval compare` has it; of those of whom it cannot be told, that.

    ``families`` are those of students and judges.
    """
    if len(ranks.order) < 2:
        return
    first, second = leading_pair(ranks)
    leaning, named = [], []
    family_of = {judge: family_of_one(judge, first, second, families) for judge in judges}
    for judge, found in judges.items():
        if (student := family_of[judge]) is None:
            continue
        own = judge == model_of(student)
        bias = found.bias.own if own else found.bias.family
        if len(judges) > TOO_FEW_TO_TELL and bias.is_named:
            whom = "its own answers" if own else "it"
            does = f"favours {whom}" if bias.size > 0 else f"marks {whom} down"
            leaning.append(judge)
            is_family = "" if own else f"is of {student}'s family and "
            named.append(f"{judge} {is_family}{does} by {points(abs(bias.size))} points")
        elif len(judges) <= TOO_FEW_TO_TELL or bias.p_adjusted is None:
            related, whom = ("judges its own answers", "them") if own else (f"is of {student}'s family", "it")
            yield (
                f"{_place(judge, len(judges))} {related}: whether it favours {whom} cannot be tested here; "
                f"{_needed(judges, bias)}."
            )
    of_one_family = [judge for judge in grid.judges if family_of.get(judge) is not None]
    others = [judge for judge in grid.judges if judge not in of_one_family]
    if not named or not others:
        return
    apart = difference_between(grid.judged_by(others), second, first)
    if apart is not None:
        shown = difference_text(100 * apart.difference, 100 * apart.low, 100 * apart.high)
        whose = "its scores" if len(named) == 1 else "their scores"
        if len(of_one_family) > len(leaning):
            whose = f"the scores of {' and '.join(of_one_family)},"
        yield f"{'; '.join(named)}; without {whose} the difference is {shown} points."


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
        named = listed([f"{student} ({listed(teachers)})" for student, teachers in wrote.items()])
        others = len(grid.teachers) > sum(map(len, wrote.values()))
        way = "compare the scores by teacher" if others else "add a teacher of another family"
        yield f"Items may favour a student of their teacher's family: {named}; {way}."


def _needed(judges: Mapping[str, JudgeMeasures], bias: Favour) -> str:
    if len(judges) <= TOO_FEW_TO_TELL:
        return "add a judge of another family"
    figure = (
        ""
        if bias.value is None
        else f" (so far it gives {'+' * (bias.value > 0)}{points(bias.value)} points)"
    )
    return f"it takes more families, of students or judges{figure}"


def _place(judge: str, judges: int) -> str:
    if judges == 1:
        return f"Its only judge, {judge},"
    return f"One of its two judges, {judge}," if judges == 2 else judge
