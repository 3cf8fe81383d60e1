"""One of those that are compared: a student of a run, or the model of an output folder, with all its scores.

Scores are kept as columns of hashes, so that a million of them are joined in a second; names stand beside.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from coeval.analysis.answer_costs import AnswerCost
from coeval.analysis.doubtful_answers import ServedModel
from coeval.analysis.intervals import SHARE, Floats, Looks, Scale, scale_of
from coeval.analysis.panel.panel_reading import model_families
from coeval.analysis.readers.reader import Reader
from coeval.core.records import CHECK
from coeval.core.text import listed

Hashes: TypeAlias = NDArray[np.uint64]
Measure: TypeAlias = Literal["factor", "label", "metric"]


class Units(NamedTuple):
    """Columns of values, one for each item, judge and metric: the mean over the samples of an item. ``part``:
    the factor's weight in an item's mean, NaN where all values of an item count alike. Items, judges and
    metrics are hashes of their names, or the codes that two sides share."""

    item: NDArray[np.integer[Any]]
    judge: NDArray[np.integer[Any]]
    metric: NDArray[np.integer[Any]]
    value: Floats
    weight: Floats
    part: Floats

    def chosen(self, which: NDArray[np.bool_] | NDArray[np.int64]) -> Units:
        return Units._make(column[which] for column in self)


class RequestedItem(NamedTuple):
    """``content``, ``reference``, ``made_for``: hashes of what was asked, of the reference answer and of the
    attributes; None where they are not on record. ``alike``: the id of the first item of its task that it
    nearly repeats, if it repeats any."""

    task: str
    id: str
    content: int | None
    reference: int | None
    made_for: int | None
    alike: str | None = None


class MetricName(NamedTuple):
    """What values are of, in which unit and on which scale; ``headline``: the first of a benchmark's."""

    task: str
    measure: Measure
    metric: str
    unit: str = "share"
    scale: Scale = SHARE
    headline: bool = False

    @property
    def key(self) -> tuple[str, Measure, str]:
        return self.task, self.measure, self.metric


class AnswerCounts(NamedTuple):
    """Of the answers that did not fail: how many there are, were cut off, these at the server's window, are
    empty, are empty and cut off."""

    good: int
    cut: int
    by_window: int
    empty: int
    empty_cut: int


@dataclass(frozen=True, slots=True)
class Side:
    """``items``, ``judges`` and ``metrics`` by the hashes in ``units``.

    ``lacking``: items and metrics of scores without a value. ``methods``: by task and judge, hashes of how
    answers were judged. ``rubrics``: by task, what each factor asks for. ``families``: of the model and its
    judges, by name. ``fitted``: metrics that no item has a score in. ``simulated``: simulated
    models took part. ``weighed``, ``looks``: as in `Reader`. ``compared``: tasks judged pairwise.
    ``scales``: by task and factor, in words.
    ``checks`` reads what `Reader.check_hashes` has. ``served``: by task, whose the answers are, where another
    model gave some.
    """

    label: str
    folder: Path
    model: str
    items: Mapping[int, RequestedItem]
    units: Units
    lacking: tuple[Hashes, Hashes]
    judges: Mapping[int, str]
    metrics: Mapping[int, MetricName]
    methods: Mapping[tuple[str, str], frozenset[int]]
    rubrics: Mapping[str, Mapping[str, str]]
    answers: AnswerCounts
    families: Mapping[str, str]
    fitted: tuple[str, ...] = ()
    simulated: bool = False
    weighed: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    looks: Looks | None = None
    compared: frozenset[str] = frozenset()
    scales: Mapping[tuple[str, str], str] = field(default_factory=dict)
    checks: Callable[[], Mapping[tuple[str, str], Set[str]]] = dict
    cost: AnswerCost | None = None
    served: Mapping[str, ServedModel] = field(default_factory=dict)

    def otherwise(self, other: Side, task: str, factor: str) -> str:
        """Say how a factor of both is scored otherwise on the other side; empty: it is not."""
        place = (task, factor)
        here, there = self.scales.get(place), other.scales.get(place)
        if here and there and here != there:
            return f"the factor {factor} has the scale {there} in {other.place}, and {here} in {self.place}"
        than = f"for {other.place} than for {self.place}"
        if self.rubrics[task][factor] != other.rubrics[task][factor]:
            return f"the factor {factor} is described otherwise {than}"
        if self.folder != other.folder and self.checks().get(place) != other.checks().get(place):
            return f"the check {factor} runs other code or options {than}"
        return ""

    @property
    def place(self) -> str:
        """Its label without the student: the same for all students of a folder."""
        return self.label.removesuffix(f":{self.model}")

    @property
    def family(self) -> str:
        """The family of its model; empty if the model is unknown."""
        return self.families.get(self.model, "")

    def without(self, judges: Collection[str]) -> Side:
        """The same without the scores of some judges."""
        left_out = np.array([key for key, name in self.judges.items() if name in judges], np.uint64)
        stays = ~np.isin(self.units.judge, left_out)
        methods = {place: method for place, method in self.methods.items() if place[1] not in judges}
        left = self.units.chosen(stays)
        return replace(self, units=left, methods=methods)


def read_side(reader: Reader, model: str, label: str, cost: AnswerCost | None = None) -> Side:
    """All that a model scored in what is read, in the tasks that count."""
    mine, who = reader.of_model(model)
    has_labels = "labels" in reader.views
    labels = _LABELS.format(mine=mine) if has_labels else ""
    found_in = _OF_A_RUN if has_labels else _OF_AN_OUTPUT
    sql = _UNITS.format(mine=mine, labels=labels, **found_in)
    found = reader.columns(sql, who * (1 + has_labels))
    lacking = reader.columns(_LACKING.format(mine=mine), who)
    [counts] = reader.rows(_ANSWERS.format(mine=mine), who)
    judges = dict(reader.rows("SELECT hash(judge), judge FROM methods GROUP BY ALL"))
    plans = reader.planned.tasks if reader.planned is not None else {}
    return Side(
        label=label,
        folder=reader.folder,
        model=model,
        items=_items(reader),
        units=Units(
            np.asarray(found["item"]),
            np.asarray(found["judge"]),
            np.asarray(found["metric"]),
            np.asarray(found["value"]),
            np.asarray(found["weight"]),
            np.ma.filled(np.ma.asarray(found["part"], np.float64), np.nan),
        ),
        lacking=(np.asarray(lacking["item"]), np.asarray(lacking["metric"])),
        judges=judges,
        metrics=_metrics(reader),
        methods=_methods(reader, mine, who),
        rubrics=reader.rubrics(),
        answers=AnswerCounts(*counts),
        families=model_families(
            filter(None, (model, *judges.values())),
            reader.planned.families if reader.planned is not None else {},
        ),
        fitted=_fitted(reader),
        simulated=reader.simulated,
        weighed=reader.weighed,
        looks=reader.looks,
        compared=frozenset(task for task, plan in plans.items() if plan.compares),
        scales={
            (task, factor): scale.spelled()
            for task, plan in plans.items()
            for factor, scale in plan.scales.items()
        },
        checks=lambda: reader.check_hashes,
        cost=cost,
        served={
            str(one.task): one
            for one in reader.served(by_task=True)
            if one.role == "student" and one.others and (not who or one.model == model)
        },
    )


def _items(reader: Reader) -> dict[int, RequestedItem]:
    """Those that count."""
    planned, twins = reader.planned, reader.twins
    found = {}
    for key, task, item, content, reference, made_for in reader.rows(_ITEMS):
        if planned is None or task in planned.tasks:
            alike = twins[item].first if item in twins else None
            found[key] = RequestedItem(task, item, content, reference, made_for, alike)
    return found


_OF_A_RUN = {"scores": "weighed_scores", "nobody": f"judge = '{CHECK}'", "part": "factor_weight"}
_OF_AN_OUTPUT = {"scores": "scores", "nobody": "false", "part": "NULL::DOUBLE"}
_UNITS = """
SELECT item, judge, metric, avg(value) AS value, avg(weight) AS weight, any_value(part) AS part
FROM (
    SELECT hash(task, item) AS item,
           CASE WHEN judge IS NULL OR {nobody} THEN 0::UBIGINT ELSE hash(judge) END AS judge,
           hash('score', task, metric) AS metric, value, weight, {part} AS part
    FROM {scores} WHERE {mine} AND value IS NOT NULL
    {labels}
)
GROUP BY ALL
"""
_LABELS = """
    UNION ALL
    SELECT hash(task, item), 0::UBIGINT, hash('label', task, attribute), match::INTEGER::DOUBLE, 1.0, NULL
    FROM labels WHERE {mine}
"""
_LACKING = """
SELECT DISTINCT hash(task, item) AS item, hash('score', task, metric) AS metric
FROM scores WHERE {mine} AND value IS NULL
"""
_ANSWERS = """
SELECT count(*), count(*) FILTER (truncated), count(*) FILTER (windowed),
       count(*) FILTER (empty), count(*) FILTER (truncated AND empty)
FROM answers WHERE {mine} AND NOT failed
"""
_ITEMS = """
SELECT hash(task, item), task, item, content, reference, made_for
FROM items LEFT JOIN contents USING (task, item) WHERE NOT failed ORDER BY task, item
"""


def _metrics(reader: Reader) -> dict[int, MetricName]:
    known = reader.rows("SELECT DISTINCT hash('score', task, metric), task, metric FROM scores")
    if "labels" in reader.views:  # then scores are levels of factors, and labels stand beside them
        found = {key: MetricName(task, "factor", metric) for key, task, metric in known}
        labels = reader.rows("SELECT DISTINCT hash('label', task, attribute), task, attribute FROM labels")
        return found | {key: MetricName(task, "label", label) for key, task, label in labels}
    units = {(figure.task, figure.metric): figure.unit for figure in reader.metrics}
    first = reader.headlines()
    return {
        key: MetricName(
            task,
            "metric",
            metric,
            unit := units.get((task, metric)) or "share",
            scale_of(unit),
            headline=first.get(task) == metric,
        )
        for key, task, metric in known
    }


def _methods(reader: Reader, mine: str, who: list[str]) -> dict[tuple[str, str], frozenset[int]]:
    found: dict[tuple[str, str], set[int]] = {}
    for task, judge, method in reader.rows(f"SELECT task, judge, method FROM methods WHERE {mine}", who):  # noqa: S608
        found.setdefault((task, judge), set()).add(method)
    return {place: frozenset(methods) for place, methods in found.items()}


def _fitted(reader: Reader) -> tuple[str, ...]:
    """The metrics that no item has a score in: they come of a fit to all items."""
    of_items = {(task, metric) for task, metric in reader.rows("SELECT DISTINCT task, metric FROM scores")}
    return tuple(
        dict.fromkeys(
            f"{figure.task} {figure.metric}"
            for figure in reader.metrics
            if figure.value is not None and (figure.task, figure.metric) not in of_items
        )
    )


# --- Judges who scored one of two compared sides only, in sentences


class JudgedApart(NamedTuple):
    """Of two sides in a task, by label: who judged the one or the other only. ``nobody_both``: they have no
    other judges."""

    task: str
    sides: tuple[str, str]
    judges: tuple[tuple[str, ...], tuple[str, ...]]
    nobody_both: bool


def judged_apart(found: Sequence[JudgedApart], sides: Sequence[Side]) -> Iterator[str]:
    """Sentences on all pairs of the ``sides`` that were compared."""
    yield from _nobody_both([one for one in found if one.nobody_both], sides)
    yield from _one_only([one for one in found if not one.nobody_both], sides)


def _nobody_both(found: Iterable[JudgedApart], sides: Sequence[Side]) -> Iterator[str]:
    by_task: dict[str, dict[tuple[str, ...], dict[str, None]]] = {}
    for one in found:
        for label, judges in zip(one.sides, one.judges, strict=True):
            by_task.setdefault(one.task, {}).setdefault(judges, {})[label] = None
    alike = _grouped(
        (tuple((judges, tuple(labels)) for judges, labels in judged.items()), task)
        for task, judged in by_task.items()
    )
    for panels, tasks in alike.items():
        each = ", ".join(
            f"{listed(judges)} judged {listed(_names(labels, sides))}" for judges, labels in panels
        )
        both = "both" if len(panels) == 2 else "any two of these"
        yield f"{listed(tasks)}: {each}, and nobody {both}: the difference is also one of judges"


def _one_only(found: Iterable[JudgedApart], sides: Sequence[Side]) -> Iterator[str]:
    by_judge: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = {}
    for one in found:
        for place, judges in enumerate(one.judges):
            for judge in judges:
                judged, others = by_judge.setdefault((one.task, judge), ({}, {}))
                judged[one.sides[place]] = others[one.sides[1 - place]] = None
    of_task = _grouped(
        ((task, tuple(judged), tuple(others)), judge) for (task, judge), (judged, others) in by_judge.items()
    )
    alike = _grouped(((has, lacks, judges), task) for (task, has, lacks), judges in of_task.items())
    for (has, lacks, judges), tasks in alike.items():
        who, whom = _names(has, sides), _names(lacks, sides)
        so = "so they are" if len(judges) > 1 else "so it is"
        where = "of the comparison" if len(who) == len(whom) == 1 else f"where compared with {listed(whom)}"
        yield (
            f"{listed(tasks)}: {listed(judges)} judged {listed(who)} but not {listed(whom)}, {so} left out "
            f"{where}"
        )


_Key = TypeVar("_Key", bound=Hashable)


def _grouped(pairs: Iterable[tuple[_Key, str]]) -> Mapping[_Key, tuple[str, ...]]:
    """By key, what belongs to it, in order."""
    found: dict[_Key, tuple[str, ...]] = {}
    for key, value in pairs:
        found[key] = (*found.get(key, ()), value)
    return found


def _names(labels: Sequence[str], sides: Sequence[Side]) -> list[str]:
    """Sides by their labels; a folder with all its students, by its name."""
    of_place: dict[str, set[str]] = {}
    for side in sides:
        of_place.setdefault(side.place, set()).add(side.label)
    place_of = {side.label: side.place for side in sides}
    names = (place_of[label] if of_place[place_of[label]] <= set(labels) else label for label in labels)
    return list(dict.fromkeys(names))
