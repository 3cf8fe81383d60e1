"""What a folder comes to, as its scores are handed on: for Python, for tables, for notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from coeval.analysis.doubtful_answers import (
    CutOffAnswers,
    EmptyAnswers,
    ServedModel,
    cut_off_sentence,
    empty_answers_sentence,
    warning_of_cut_off,
)
from coeval.analysis.planned_names import BeyondTotal, LeftOut
from coeval.core.errors import UsageError
from coeval.core.figures import MISSING, metric_text, points, points_text
from coeval.core.html_table import (
    Columns,
    ForestRow,
    MeasureRow,
    columns,
    forest_plot,
    html_lines,
    html_table,
    row_columns,
)
from coeval.core.text import dollars, listed
from coeval.models.metering.account_file import read_accounts

if TYPE_CHECKING:
    from pandas import DataFrame

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


def perhaps_billed(costs: Iterable[ModelCost]) -> Iterator[str]:
    """What requests may have cost of which nobody knows whether they were billed; nothing without these."""
    if usd := sum(cost.perhaps_usd for cost in costs):
        yield (
            f"Requests that may have been billed cost up to {dollars(usd)} more; "
            "coeval status RUN --settle MODEL=USD takes the provider's bill for it."
        )


def model_costs(usage: Path, *, at_work: bool = True) -> tuple[ModelCost, ...]:
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


def bill(costs: Sequence[ModelCost]) -> Bill:
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


def both_scales(row: MeasureRow) -> tuple[str, str]:
    """Write a student's score by judges and on the human scale; empty where there is none."""
    by_people = points_text(row.people, row.people_low, row.people_high)
    return points_text(row.judged, row.low, row.high) or "", by_people or ""


def cut_of(score: MeasureRow) -> CutOffAnswers:
    """Count a student's answers that were cut off."""
    return CutOffAnswers(score.student, score.truncated, score.answers, score.truncated_by_window)


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


class Results(msgspec.Struct, frozen=True):
    """What is in a folder, as `coeval.Run.results()` returns it: a run's scores, or the ``metrics`` of an
    output folder of ``eval-framework``, by task.

    A row of ``students``, ``labels``, ``pairs``, ``people`` and ``sampled`` has all figures that are
    declared of the thing in `RunMeasures`: of the first measure ``low``, ``high`` (95% interval), ``n`` and
    ``missing``, of another one ``NAME_low`` and ``NAME_high``, and under ``least`` and ``most`` what it would
    be if all that failed or is missing were 0, or 1.

    ``students``: first the overall scores, then those of each task by name; each best first, ties
    by name. ``labels``: by task and attribute, best first. What is removed stands after what is
    planned. ``left_out``: teachers, judges and factors of planned tasks that the configuration no
    longer holds, and that therefore count nowhere; nor do the items ``beyond_total``. ``notes``: how many
    items have labels alone, and what of the records could not be counted. ``missing``: what of the plan is
    not there, one sentence each.
    ``metrics`` are those of an output folder of ``eval-framework``, which has no students or labels.
    ``pairs``: students by comparisons of their answers, the strongest first; ``people``: by human labels.
    ``costs``: what its models were sent over the life of the folder, and what that cost, dearest first.
    ``leads``: who leads, over items and over items and judges, in sentences.
    ``sampled``: by task, factor and student, what several answers to an item show, where there are any.
    ``checks_alone``: whether all scores are those of checks. ``served``: the models behind the names of
    students and judges, where those are others or several.
    """

    students: tuple[MeasureRow, ...]
    labels: tuple[MeasureRow, ...]
    simulated: bool
    notes: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    beyond_total: tuple[BeyondTotal, ...] = ()
    metrics: tuple[MetricScore, ...] = ()
    missing: tuple[str, ...] = ()
    costs: tuple[ModelCost, ...] = ()
    sampled: tuple[MeasureRow, ...] = ()
    pairs: tuple[MeasureRow, ...] = ()
    people: tuple[MeasureRow, ...] = ()
    checks_alone: bool = False
    leads: tuple[str, ...] = ()
    served: tuple[ServedModel, ...] = ()

    @property
    def only_labelled(self) -> frozenset[str]:
        """The tasks in which labels were compared and nothing was scored."""
        scored = {score.task for score in self.students if score.score is not None}
        return frozenset(label.task for label in self.labels) - scored

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON: a key for each field, a list of mappings for each tuple of records.

        What there is no value for is None.
        """
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    def table(self, name: str = "students") -> Columns:
        """Return ``students``, ``labels``, ``metrics``, ``sampled``, ``pairs``, ``people`` or ``costs`` as
        columns, for ``pandas.DataFrame`` or ``polars.DataFrame``: a row for each record, a column for each of
        its figures.

        Raises UsageError: there is no such table.
        """
        if name not in _TABLES:
            raise UsageError(f"results have no table {name}; there are {', '.join(_TABLES)}")
        rows = getattr(self, name)
        return row_columns(rows) if (kind := _TABLES[name]) is MeasureRow else columns(kind, rows)

    def frame(self, name: str = "students") -> DataFrame:
        """Return `table` as a frame of pandas. Raises UsageError: there is no such table, or no pandas."""
        try:
            from pandas import DataFrame
        except ImportError:
            raise UsageError("frame() needs pandas (pip install pandas); table() does not") from None
        return DataFrame(self.table(name))

    def __repr__(self) -> str:
        overall = [score for score in self.students if score.task is None]
        named = [f"{score.student!r} {self._figure(score)}" for score in overall]
        named += [
            f"{metric.task} {metric.metric} "
            f"{MISSING if metric.value is None else metric_text(metric.value, metric.unit)}"
            for metric in self.metrics
        ]
        shown = named[:3]
        rest = len(named) - len(shown)
        return f"Results({', '.join(shown + [f'{rest} more'] * bool(rest))})"

    def _figure(self, overall: MeasureRow) -> str:
        """A student's score, or where there is none, its first label's accuracy."""
        if (score := points_text(overall.score, overall.low, overall.high)) is not None:
            return score
        for label in self.labels:
            if label.student == overall.student:
                accuracy = points_text(label.accuracy, label.low, label.high)
                return f"{label.task} {label.attribute} {accuracy}"
        return "unscored"

    def _repr_html_(self) -> str:
        return _html(self)


_TABLES = {
    "students": MeasureRow,
    "labels": MeasureRow,
    "metrics": MetricScore,
    "sampled": MeasureRow,
    "pairs": MeasureRow,
    "people": MeasureRow,
    "costs": ModelCost,
}

LABELS = "labels"
"""What marks such a column."""


class LabelColumn(NamedTuple):
    """A label's accuracies by student; ``name``: the task's, with the label's where it has several."""

    name: str
    removed: bool
    accuracies: dict[str, MeasureRow]


def label_columns(results: Results) -> list[LabelColumn]:
    """One for each label that the configuration still names, in the order of ``results.labels``."""
    found: dict[tuple[str, str], LabelColumn] = {}
    for label in results.labels:
        if label.task in results.only_labelled and "label" not in label.removed:
            column = LabelColumn(label.task, "task" in label.removed, {})
            found.setdefault((label.task, label.attribute), column).accuracies[label.student] = label
    labels_of = Counter(task for task, _ in found)
    return [
        column._replace(name=f"{task} {attribute}") if labels_of[task] > 1 else column
        for (task, attribute), column in found.items()
    ]


def _html(results: Results) -> str:
    """Scores, label accuracies and notes. Names and notes are escaped."""
    parts = [html_lines([*[SIMULATED] * results.simulated, *results.leads])]
    if results.students:
        parts.append(_scores(results))
    if results.people:
        both = [(one.student, *both_scales(one)) for one in results.people]
        parts.append(html_table("By judges and by people, in points", ("student", "judged", "people"), both))
    if results.labels:
        parts.append(html_table("Label accuracy", _LABEL, _labels(results)))
    if results.metrics:
        parts.append(html_table("Metrics", _METRIC, map(_metric, results.metrics)))
    if reported := bill(results.costs):
        parts.append(
            html_table("Cost", _COST, [[getattr(cost, name) for name in _COST] for cost in results.costs])
        )
        parts.append(html_lines([f"Cost: {reported}", *map("Prices: {}".format, reported.sources)]))
    return "".join(parts) + html_lines([*answer_findings(results.students), *results.notes, *results.missing])


_COST = ("model", "requests", "input_tokens", "output_tokens", "cost_usd")
_LABEL = ("task", "label", "student", "accuracy", "n", "no label", "failed")
_METRIC = ("task", "samples", "metric", "value", "low", "high", "n", "failed")


def _metric(metric: MetricScore) -> list[object]:
    figures = (metric.value, metric.low, metric.high)
    shown = [None if each is None else metric_text(each, metric.unit) for each in figures]
    return [metric.task, metric.samples, metric.metric, *shown, metric.n, metric.failed]


def answer_findings(scores: Sequence[MeasureRow]) -> Iterator[str]:
    """What of the answers speaks against the scores as they are: in some tasks only, cut off, empty."""
    overall = [score for score in scores if score.task is None]
    cut = [cut_of(score) for score in overall]
    empty = [EmptyAnswers(s.student, s.empty, s.empty_truncated, s.answers) for s in overall]
    found = (
        *missing_sentences(scores),
        unequally_covered_sentence(scores),
        cut_off_sentence(cut, "of"),
        warning_of_cut_off(cut),
        empty_answers_sentence(empty, "of"),
    )
    return (said for said in found if said)


def label_tasks_sentence(scored: int, alone: Mapping[str, int]) -> str:
    """Of how many items scores are; ``alone``: by task of labels alone, how many there are besides."""
    left = sum(alone.values())
    return (
        f"Scores are over {scored:,} of {scored + left:,} items; the other {left:,} ({listed(alone)}) have "
        "labels, reported as accuracy."
    )


class Bounded(NamedTuple):
    """A student's mean with all that failed or is missing at 0, and at 1."""

    name: str
    least: float
    most: float

    def may_fall_behind(self, other: Bounded) -> bool:
        """Whether what is missing might turn their order, and moves more than what is shown hides."""
        widest = max(one.most - one.least for one in (self, other))
        return other.most > self.least and widest >= _SHOWN

    @property
    def placed(self) -> str:
        """``ann between 80.0 and 100.0``, or ``ann at 95.0``."""
        least, most = points(self.least), points(self.most)
        return f"{self.name} at {least}" if least == most else f"{self.name} between {least} and {most}"


def missing_sentences(scores: Sequence[MeasureRow]) -> Iterator[str]:
    """Whose order depends on scores that failed or are missing; ``scores``: best first."""
    order = [
        Bounded(score.student, score.least, score.most)
        for score in scores
        if score.task is None and not score.removed and not score.partial
        if score.least is not None and score.most is not None
    ]
    return order_on_missing(order, "who leads", "scores", "0 or 100")


def missing_label_sentences(place: str, students: Iterable[Bounded]) -> Iterator[str]:
    """Likewise of answers to a label of a task, as ``quiz (colour)``; ``students``: best first."""
    return order_on_missing(list(students), f"who leads in {place}", "answers", "wrong or right")


def order_on_missing(order: Sequence[Bounded], lead: str, what: str, ends: str) -> Iterator[str]:
    """What no interval knows of: the leader and those who might lead, then all others whose places depend on
    what is missing."""
    if not order:
        return
    leader, *others = order
    reported = f"Failed or missing {what} could change {{}}: counted as {ends}, they put {{}}."
    if leading := [one for one in others if leader.may_fall_behind(one)]:
        yield reported.format(lead, _placed((leader, *leading)))
    pairs = [(one, other) for one, other in combinations(others, 2) if one.may_fall_behind(other)]
    rest = [one for one in others if any(one in pair for pair in pairs)]
    if set(rest) - set(leading):  # else all whose places are open are named already
        names = f"the order of {listed((one.name for one in rest), _MOST_NAMED)}"
        yield f"They could also change {names}." if leading else reported.format(names, _placed(rest))


# Of a score: what moves it by less than a point is lost in every interval.
_SHOWN = 0.01
# In a sentence; tables show the others.
_MOST_NAMED, _MOST_PLACED = 4, 2


def _placed(students: Sequence[Bounded]) -> str:
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
    return f"Without a score in some task, so overall is over the other tasks only: {listed(names)}."


def _scores(results: Results) -> str:
    cells = {
        (score.student, score.task): points_text(score.score, score.low, score.high)
        for score in results.students
    }
    tasks = list(
        dict.fromkeys(task for (_, task), cell in cells.items() if task is not None and cell is not None)
    )
    removed = {task for score in results.students if "task" in score.removed and (task := score.task)}
    labelled = label_columns(results)
    overall = [score for score in results.students if score.task is None]
    rows = [
        [
            _named(score.student, bool(score.removed)),
            cells[score.student, None],
            *(cells.get((score.student, task)) for task in tasks),
            *(_accuracy(column.accuracies.get(score.student)) for column in labelled),
            score.n,
            score.failed,
        ]
        for score in overall
    ]
    shown = [_named(task, task in removed) for task in tasks]
    shown += [_named(f"{column.name} ({LABELS})", column.removed) for column in labelled]
    forest = [
        ForestRow(_named(score.student, bool(score.removed)), score.score, score.low, score.high)
        for score in overall
    ]
    return html_table(
        "Scores in points, 0 to 100, with 95% intervals",
        ("student", "overall", *shown, "n", "failed"),
        rows,
    ) + forest_plot("Overall scores with their 95% intervals", forest)


def _labels(results: Results) -> Iterator[list[object]]:
    for label in results.labels:
        yield [
            _named(label.task, "task" in label.removed),
            _named(label.attribute, "label" in label.removed),
            _named(label.student, "student" in label.removed),
            _accuracy(label),
            label.n,
            label.none_of_the_labels,
            label.failed,
        ]


def _accuracy(label: MeasureRow | None) -> str | None:
    return None if label is None else points_text(label.accuracy, label.low, label.high)


def _named(name: str, removed: bool) -> str:
    return f"{name} (removed)" if removed else name
