"""Judges who are kin to the leader or to the next, and what the lead is without them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from coeval.analysis.comparison.comparison_sentence import difference_text
from coeval.analysis.measures.measured import Branch
from coeval.analysis.measures.ranking import Ranking, difference_between
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.panel.model_families import kin_of_one
from coeval.analysis.panel.panel_findings import TOO_FEW_TO_TELL, is_named

__all__ = ["kin_judges"]


def kin_judges(
    grid: ScoreGrid, judges: Mapping[str, Branch], ranks: Ranking, families: Mapping[str, str]
) -> Iterator[str]:
    """Sentences on judges of the family of exactly one of the two best students, or the same model: of those
    named for leaning on it, what the difference is without all who are kin to one of the two, as `coeval
    compare` has it; of those of whom it cannot be told, that.

    ``judges`` hold `biases_of`; ``families`` are those of students and judges.
    """
    if len(ranks.order) < 2:
        return
    first, second = ranks.order[:2]
    leaning, named = [], []
    kin_of = {judge: kin_of_one(judge, first, second, families) for judge in judges}
    for judge, found in judges.items():
        if (student := kin_of[judge]) is None:
            continue
        bias = found["bias"]["self" if judge == student else "family"]
        own = judge == student
        if len(judges) > TOO_FEW_TO_TELL and is_named(bias):
            whom = "its own answers" if own else "it"
            does = f"favours {whom}" if bias["value"] > 0 else f"marks {whom} down"
            leaning.append(judge)
            is_kin = "" if own else f"is of {student}'s family and "
            named.append(f"{judge} {is_kin}{does} by {abs(bias['value']):.2f}")
        elif len(judges) <= TOO_FEW_TO_TELL or bias["value"] is None:
            kin, whom = ("judges its own answers", "them") if own else (f"is of {student}'s family", "it")
            yield (
                f"{_place(judge, len(judges))} {kin}: whether it favours {whom} cannot be told here; add a "
                "judge of another family."
            )
    kin_to_one = [judge for judge in grid.judges if kin_of.get(judge) is not None]
    others = [judge for judge in grid.judges if judge not in kin_to_one]
    if not named or not others:
        return
    apart = difference_between(grid.judged_by(others), second, first)
    if apart is not None:
        shown = difference_text(apart.difference, apart.low, apart.high, 3)
        whose = "its scores" if len(named) == 1 else "their scores"
        if len(kin_to_one) > len(leaning):
            whose = f"the scores of {' and '.join(kin_to_one)},"
        yield f"{'; '.join(named)}; without {whose} the difference is {shown}."


def _place(judge: str, judges: int) -> str:
    if judges == 1:
        return f"Its only judge, {judge},"
    return f"One of its two judges, {judge}," if judges == 2 else judge
