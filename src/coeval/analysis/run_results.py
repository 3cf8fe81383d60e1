"""Costs, metrics and warnings of a folder, as Python, tables and notebooks show them."""

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
    empty_answers_sentence,
    too_many_cut_off_warning,
)
from coeval.core.figures import dollars, format_points
from coeval.core.html_table import MeasureRow
from coeval.core.text import join_names
from coeval.models.metering.account_file import read_accounts

# --- Cost of a folder's models, from ``usage.json``


@dataclass(frozen=True, slots=True)
class ModelCost:
    """A model over the life of a folder. ``cost_usd`` covers the answers with a known price, None if there
    are none; ``unpriced`` counts the others. ``priced_by`` is the source of the price. ``perhaps_usd`` is
    what requests may have cost in addition, where nobody can know whether they were billed."""

    model: str
    requests: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    unpriced: int
    priced_by: str | None
    perhaps_usd: float = 0.0


class Bill(msgspec.Struct, frozen=True):
    """The known cost of a folder's models. ``unknown``: models without a price; ``untold``: priced ones with
    answers of unknown cost (no reported tokens, or a later price); ``sources``: where prices come from."""

    cost_usd: float
    unknown: tuple[str, ...]
    sources: tuple[str, ...]
    untold: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Check whether there is anything to say: not where all models are local."""
        return self.cost_usd > 0 or self.is_partial

    @property
    def is_partial(self) -> bool:
        """Check whether some answers have an unknown cost."""
        return bool(self.unknown or self.untold)

    def __str__(self) -> str:
        """Return ``$1.20``, or ``$1.20, without model-b, whose price is unknown``."""
        if not self.is_partial:
            return dollars(self.cost_usd)
        whose = [f"{', '.join(self.unknown)}, whose price is unknown"] if self.unknown else []
        if self.untold:
            whose.append(f"answers of {', '.join(self.untold)} without reported tokens")
        left_out = ", and ".join(whose)
        return f"{dollars(self.cost_usd)}, without {left_out}" if self.cost_usd else f"unknown for {left_out}"


def perhaps_billed_cost_sentences(costs: Iterable[ModelCost]) -> Iterator[str]:
    """Say what requests that may have been billed may cost; nothing without such requests."""
    if usd := sum(cost.perhaps_usd for cost in costs):
        yield (
            f"Requests that may have been billed cost up to {dollars(usd)} more; "
            "coeval status RUN --settle MODEL=USD takes the provider's bill for it."
        )


def read_model_costs(usage: Path, *, at_work: bool = True) -> tuple[ModelCost, ...]:
    """Read the costs of the models in a ``usage.json``, if any, dearest first, ties by name. Unless a process
    is ``at_work``, money reserved for requests may have been billed. Raises StoreError: it cannot be read."""
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
    sources = (cost.priced_by.partition(":")[0] for cost in costs if cost.cost_usd and cost.priced_by)
    partial = [cost for cost in costs if cost.unpriced]
    return Bill(
        cost_usd=sum(cost.cost_usd or 0.0 for cost in costs),
        unknown=tuple(dict.fromkeys(cost.model for cost in partial if cost.priced_by is None)),
        sources=tuple(dict.fromkeys(sources)),
        untold=tuple(dict.fromkeys(cost.model for cost in partial if cost.priced_by is not None)),
    )


SIMULATED = "simulated models: these numbers describe no real model"

BOUNDS = "bounds"
"""The column of scores with all that is missing at 0, and at 1."""
LABELS = "labels"
"""What marks the column of a label's accuracies beside scores."""
NO_LABEL = "no label"
"""The column of answers that are none of the labels."""


@dataclass(frozen=True, slots=True)
class MetricScore:
    """A metric of a task over the ``samples`` that count, in its ``unit`` (``share``, ``percent`` or
    ``points``), with its 95% interval and standard error over n prompts. ``expected`` prompts, judgments
    or scores (``counted`` says which) make up the task's score; ``failed`` of them gave no result.
    ``not_measured`` counts the failures that left no value, by reason."""

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


def missing_cut_off_or_empty_warnings(scores: Sequence[MeasureRow]) -> Iterator[str]:
    """Warn of scores that cannot be trusted: missing ones, answers cut off or empty."""
    yield from missing_scores_may_reorder_sentences(scores)
    overall = [score for score in scores if score.task is None]
    empty = [EmptyAnswers(s.student, s.empty, s.empty_truncated, s.answers) for s in overall]
    yield from filter(
        None, (too_many_cut_off_warning(_count_cut_off(scores)), empty_answers_sentence(empty, "of"))
    )


def lacking_task_and_cut_off_sentences(scores: Sequence[MeasureRow]) -> Iterator[str]:
    sentences = (lacking_task_sentence(scores), cut_off_sentence(_count_cut_off(scores), "of"))
    yield from filter(None, sentences)


def _count_cut_off(scores: Sequence[MeasureRow]) -> list[CutOffAnswers]:
    return [
        CutOffAnswers(score.student, score.truncated, score.answers, score.truncated_by_window)
        for score in scores
        if score.task is None
    ]


class BoundedScore(NamedTuple):
    """A student's mean with all failed or missing scores at 0, and at 1."""

    name: str
    least: float
    most: float

    def may_fall_behind(self, other: BoundedScore) -> bool:
        """Check whether missing scores could reverse the order of two students, by a visible amount."""
        widest = max(score.most - score.least for score in (self, other))
        return other.most > self.least and widest >= _SMALLEST_CHANGE

    @property
    def in_words(self) -> str:
        """Return ``ann between 80.0 and 100.0``, or ``ann at 95.0``."""
        least, most = format_points(self.least), format_points(self.most)
        return f"{self.name} at {least}" if least == most else f"{self.name} between {least} and {most}"


def missing_scores_may_reorder_sentences(scores: Sequence[MeasureRow]) -> Iterator[str]:
    """Say whose order depends on failed or missing scores; ``scores``: best first."""
    order = [
        BoundedScore(score.student, score.least, score.most)
        for score in scores
        if score.task is None and not score.removed and not score.partial
        if score.least is not None and score.most is not None
    ]
    return missing_may_reorder_sentences(order, "who leads", "scores", "0 or 100")


def missing_labels_may_reorder_sentences(place: str, students: Iterable[BoundedScore]) -> Iterator[str]:
    """Say whose order depends on missing answers to a label, ``quiz (colour)``; students: best first."""
    return missing_may_reorder_sentences(list(students), f"who leads in {place}", "answers", "wrong or right")


def missing_may_reorder_sentences(
    best_first: Sequence[BoundedScore], leader_phrase: str, missing_noun: str, ends_phrase: str
) -> Iterator[str]:
    """Say who might lead, and whose ranks might change, if missing scores were known; intervals do not."""
    if not best_first:
        return
    leader, *others = best_first
    template = f"Failed or missing {missing_noun} could change {{}}: counted as {ends_phrase}, they put {{}}."
    if leading := [student for student in others if leader.may_fall_behind(student)]:
        yield template.format(leader_phrase, _format_bounds((leader, *leading)))
    pairs = [(student, other) for student, other in combinations(others, 2) if student.may_fall_behind(other)]
    movable = [student for student in others if any(student in pair for pair in pairs)]
    if set(movable) - set(leading):  # else all whose places are open are named already
        names = f"the order of {join_names((student.name for student in movable), _MOST_NAMED)}"
        yield (
            f"They could also change {names}." if leading else template.format(names, _format_bounds(movable))
        )


# Of a score: what moves it by less than a point is lost in every interval.
_SMALLEST_CHANGE = 0.01
# In a sentence; tables show the others.
_MOST_NAMED, _MOST_PLACED = 4, 2


def _format_bounds(students: Sequence[BoundedScore]) -> str:
    texts = [student.in_words for student in students[:_MOST_PLACED]]
    return " and ".join(texts) + ("; others could move too" if len(students) > len(texts) else "")


def lacking_task_sentence(scores: Sequence[MeasureRow]) -> str | None:
    """Name the students (not removed) without a score in a task where another has one; None if none."""
    scores = [score for score in scores if not score.removed]
    scored = {(score.student, score.task) for score in scores if score.task and score.score is not None}
    tasks = {task for _, task in scored}
    students = [score.student for score in scores if score.task is None and score.score is not None]
    names = [student for student in students if any((student, task) not in scored for task in tasks)]
    if not names:
        return None
    return f"Without a score in some task, so overall is over the other tasks only: {join_names(names)}."
