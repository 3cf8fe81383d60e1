"""What a folder comes to, as its scores are handed on: for Python, for tables, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import msgspec

from coeval.analysis.doubtful_answers import (
    CutOffAnswers,
    EmptyAnswers,
    cut_off_sentence,
    cut_off_warning,
    empty_answers_sentence,
)
from coeval.core.figures import format_points
from coeval.core.html_table import (
    MeasureRow,
)
from coeval.core.text import dollars, join_names
from coeval.models.metering.account_file import read_accounts

# --- Cost of a folder's models, from ``usage.json``


@dataclass(frozen=True, slots=True)
class ModelCost:
    """A model over the life of a folder: requests sent, tokens, and US dollars.

    ``cost_usd`` is that of the answers whose price was known, None while there is none; ``unpriced`` counts
    the others. ``priced_by`` says whose the price is. ``perhaps_usd`` is what requests may have cost besides,
    of which nobody can know whether they were billed.
    """

    model: str
    requests: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    unpriced: int
    priced_by: str | None
    perhaps_usd: float = 0.0


class Bill(msgspec.Struct, frozen=True):
    """What all models of a folder cost together, as far as that is known. ``unknown`` are the models whose
    price is not; ``untold`` those that have one, and answers all the same whose cost nobody can tell: the
    host told no tokens of them, or they came before the price was known. ``sources`` are those whose word the
    prices are."""

    cost_usd: float
    unknown: tuple[str, ...]
    sources: tuple[str, ...]
    untold: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is something to say: not where all models are local."""
        return self.cost_usd > 0 or self.is_partial

    @property
    def is_partial(self) -> bool:
        """Whether there are answers whose cost is not known."""
        return bool(self.unknown or self.untold)

    def __str__(self) -> str:
        """``$1.20``, or ``$1.20, without model-b, whose price is unknown``."""
        if not self.is_partial:
            return dollars(self.cost_usd)
        whose = [f"{', '.join(self.unknown)}, whose price is unknown"] if self.unknown else []
        if self.untold:
            whose.append(f"answers of {', '.join(self.untold)} without reported tokens")
        left_out = ", and ".join(whose)
        return f"{dollars(self.cost_usd)}, without {left_out}" if self.cost_usd else f"unknown for {left_out}"


def uncertain_cost_sentences(costs: Iterable[ModelCost]) -> Iterator[str]:
    """What requests may have cost of which nobody knows whether they were billed; nothing without these."""
    if usd := sum(cost.perhaps_usd for cost in costs):
        yield (
            f"Requests that may have been billed cost up to {dollars(usd)} more; "
            "coeval status RUN --settle MODEL=USD takes the provider's bill for it."
        )


def read_model_costs(usage: Path, *, at_work: bool = True) -> tuple[ModelCost, ...]:
    """The models of a ``usage.json`` that were asked, dearest first, ties by name; none where there is no
    file. Where nobody is ``at_work``, what was set aside for requests may have been billed.

    Raises StoreError: it cannot be read.
    """
    costs = [
        ModelCost(
            model=name,
            requests=account.requests,
            input_tokens=account.input_tokens,
            output_tokens=account.output_tokens,
            cost_usd=account.known_usd,
            unpriced=account.unpriced,
            priced_by=account.priced_by,
            perhaps_usd=account.uncertain_usd + (0.0 if at_work else account.reserved_usd),
        )
        for name, account in read_accounts(usage).items()
        if account.requests or account.known_usd
    ]
    return tuple(sorted(costs, key=lambda cost: (-(cost.cost_usd or 0.0), cost.model)))


def sum_costs(costs: Sequence[ModelCost]) -> Bill:
    """The sum of costs."""
    known = [cost for cost in costs if cost.cost_usd]
    sources = (cost.priced_by.partition(":")[0] for cost in known if cost.priced_by is not None)
    return Bill(
        cost_usd=sum(cost.cost_usd or 0.0 for cost in known),
        unknown=tuple(dict.fromkeys(one.model for one in costs if one.unpriced and one.priced_by is None)),
        sources=tuple(dict.fromkeys(sources)),
        untold=tuple(dict.fromkeys(one.model for one in costs if one.unpriced and one.priced_by is not None)),
    )


SIMULATED = "simulated models: numbers show the tool, not any real model"

BOUNDS = "bounds"
"""The column of scores with all that is missing at 0, and at 1."""
LABELS = "labels"
"""What marks the column of a label's accuracies beside scores."""
NO_LABEL = "no label"
"""The column of answers that are none of the labels."""


@dataclass(frozen=True, slots=True)
class MetricScore:
    """A metric of a task over the ``samples`` that count, in its ``unit`` (``share``, ``percent`` or
    ``points``), with its 95% interval and standard error over n prompts.

    The task is scored by so many ``expected`` prompts, judgments or scores (which of these, says
    ``counted``), of which ``failed`` came to nothing. ``not_measured`` counts the failures that left no
    value, by reason.
    """

    model: str
    task: str
    samples: int
    metric: str
    value: float | None
    low: float | None
    high: float | None
    standard_error: float | None
    n: int
    unit: str
    counted: str
    expected: int
    failed: int
    not_measured: str = ""


def answer_warning_sentences(scores: Sequence[MeasureRow]) -> Iterator[str]:
    """What speaks against trusting the scores: missing ones, answers cut off or empty."""
    yield from missing_sentences(scores)
    overall = [score for score in scores if score.task is None]
    empty = [EmptyAnswers(s.student, s.empty, s.empty_truncated, s.answers) for s in overall]
    for said in (cut_off_warning(_count_cut_off(scores)), empty_answers_sentence(empty, "of")):
        if said:
            yield said


def answer_note_sentences(scores: Sequence[MeasureRow]) -> Iterator[str]:
    """What to know of the answers: of some tasks only, cut off."""
    for said in (unequally_covered_sentence(scores), cut_off_sentence(_count_cut_off(scores), "of")):
        if said:
            yield said


def _count_cut_off(scores: Sequence[MeasureRow]) -> list[CutOffAnswers]:
    return [
        CutOffAnswers(score.student, score.truncated, score.answers, score.truncated_by_window)
        for score in scores
        if score.task is None
    ]


class BoundedScore(NamedTuple):
    """A student's mean with all that failed or is missing at 0, and at 1."""

    name: str
    least: float
    most: float

    def may_fall_behind(self, other: BoundedScore) -> bool:
        """Whether what is missing might turn their order, and moves more than what is shown hides."""
        widest = max(one.most - one.least for one in (self, other))
        return other.most > self.least and widest >= _SMALLEST_CHANGE

    @property
    def placed(self) -> str:
        """``ann between 80.0 and 100.0``, or ``ann at 95.0``."""
        least, most = format_points(self.least), format_points(self.most)
        return f"{self.name} at {least}" if least == most else f"{self.name} between {least} and {most}"


def missing_sentences(scores: Sequence[MeasureRow]) -> Iterator[str]:
    """Whose order depends on scores that failed or are missing; ``scores``: best first."""
    order = [
        BoundedScore(score.student, score.least, score.most)
        for score in scores
        if score.task is None and not score.removed and not score.partial
        if score.least is not None and score.most is not None
    ]
    return order_change_sentences(order, "who leads", "scores", "0 or 100")


def missing_label_sentences(place: str, students: Iterable[BoundedScore]) -> Iterator[str]:
    """Likewise of answers to a label of a task, as ``quiz (colour)``; ``students``: best first."""
    return order_change_sentences(list(students), f"who leads in {place}", "answers", "wrong or right")


def order_change_sentences(order: Sequence[BoundedScore], lead: str, what: str, ends: str) -> Iterator[str]:
    """What no interval knows of: the leader and those who might lead, then all others whose places depend on
    what is missing."""
    if not order:
        return
    leader, *others = order
    reported = f"Failed or missing {what} could change {{}}: counted as {ends}, they put {{}}."
    if leading := [one for one in others if leader.may_fall_behind(one)]:
        yield reported.format(lead, _format_bounds((leader, *leading)))
    pairs = [(one, other) for one, other in combinations(others, 2) if one.may_fall_behind(other)]
    rest = [one for one in others if any(one in pair for pair in pairs)]
    if set(rest) - set(leading):  # else all whose places are open are named already
        names = f"the order of {join_names((one.name for one in rest), _MOST_NAMED)}"
        yield f"They could also change {names}." if leading else reported.format(names, _format_bounds(rest))


# Of a score: what moves it by less than a point is lost in every interval.
_SMALLEST_CHANGE = 0.01
# In a sentence; tables show the others.
_MOST_NAMED, _MOST_PLACED = 4, 2


def _format_bounds(students: Sequence[BoundedScore]) -> str:
    texts = [one.placed for one in students[:_MOST_PLACED]]
    return " and ".join(texts) + ("; others could move too" if len(students) > len(texts) else "")


def unequally_covered_sentence(scores: Sequence[MeasureRow]) -> str | None:
    """Which students lack a score in a task in which another student has one; what is removed aside. None
    where nobody does."""
    scores = [score for score in scores if not score.removed]
    scored = {(score.student, score.task) for score in scores if score.task and score.score is not None}
    tasks = {task for _, task in scored}
    students = [score.student for score in scores if score.task is None and score.score is not None]
    names = [student for student in students if any((student, task) not in scored for task in tasks)]
    if not names:
        return None
    return f"Without a score in some task, so overall is over the other tasks only: {join_names(names)}."
