"""One of those that are compared: a student of a run, or the model of an output folder, and the grids that
hold its scores.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import singledispatch
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from coeval.analysis.answer_costs import AnswerCost
from coeval.analysis.comparison.compared_grid import ComparedGrid
from coeval.analysis.doubtful_answers import ServedModel
from coeval.analysis.intervals import SHARE, Looks, Scale, scale_of
from coeval.analysis.measures.score_grid import ScoreGrid, grid_with_removed, is_planned_task, score_grid
from coeval.analysis.measures.value_grid import label_grid, metric_grid
from coeval.analysis.panel.panel_reading import model_families
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.training.checkpoint_scores import choose_runs
from coeval.core.text import join_names

Measure: TypeAlias = Literal["factor", "label", "metric"]


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
    """``model`` is its name in the ``grids`` of its folder; the sides of one folder have the same. ``items``
    are those of the grids, by number.

    ``methods``: by task and judge, hashes of how answers were judged. ``rubrics``: by task, what each factor
    asks for. ``families``: of the model and its judges, by name. ``fitted``: metrics that no item has a score
    in. ``simulated``: simulated models took part. ``looks``: as in `Reader`. ``compared``: tasks
    judged pairwise. ``scales``: by task and factor, in words.
    ``checks`` reads what `Reader.check_hashes` has. ``served``: by task, whose the answers are, where another
    model gave some.
    """

    label: str
    folder: Path
    model: str
    items: Sequence[RequestedItem]
    grids: Mapping[Measure, ComparedGrid]
    metrics: Sequence[MetricName]
    methods: Mapping[tuple[str, str], frozenset[int]]
    rubrics: Mapping[str, Mapping[str, str]]
    answers: AnswerCounts
    families: Mapping[str, str]
    fitted: tuple[str, ...] = ()
    simulated: bool = False
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

    @property
    def scored_tasks(self) -> frozenset[str]:
        """Those in which it has any score."""
        return frozenset().union(*(grid.scored_tasks[self.model] for grid in self.grids.values()))

    def without(self, judges: Collection[str]) -> Side:
        """The same without the scores of some judges."""
        grids = {measure: one.without(judges) for measure, one in self.grids.items()}
        methods = {place: method for place, method in self.methods.items() if place[1] not in judges}
        return replace(self, grids=grids, methods=methods)


def read_sides(reader: Reader, labels: Mapping[str, str], costs: Mapping[str, AnswerCost]) -> dict[str, Side]:
    """By model, all that it scored in what is read, in the tasks that count; ``labels``: by model."""
    grids = _grids(reader, labels)
    whole = next(iter(grids.values())).grid
    items = _items(reader, whole)
    metrics = tuple(_metrics(reader, grids))
    plans = reader.planned.tasks if reader.planned is not None else {}
    found = {}
    for model, label in labels.items():
        mine, who = reader.of_model(model)
        [counts] = reader.rows(_ANSWERS.format(mine=mine), who)
        found[model] = Side(
            label=label,
            folder=reader.folder,
            model=model,
            items=items,
            grids=grids,
            metrics=metrics,
            methods=_methods(reader, mine, who),
            rubrics=reader.rubrics(),
            answers=AnswerCounts(*counts),
            families=model_families(
                filter(None, (model, *whole.judges)),
                reader.planned.families if reader.planned is not None else {},
            ),
            fitted=_fitted(reader),
            simulated=reader.simulated,
            looks=reader.looks,
            compared=frozenset(task for task, plan in plans.items() if plan.compares),
            scales={
                (task, factor): scale.levels_text()
                for task, plan in plans.items()
                for factor, scale in plan.scales.items()
            },
            checks=lambda: reader.check_hashes,
            cost=costs.get(model),
            served={
                str(one.task): one
                for one in reader.served(by_task=True)
                if one.role == "student" and one.others and (not who or one.model == model)
            },
        )
    return found


@singledispatch
def _grids(reader: Reader, models: Collection[str]) -> dict[Measure, ComparedGrid]:  # noqa: ARG001
    """That of a benchmark's metrics, over the samples that its results count."""
    samples = {runs.scored_as: runs.runs for runs in choose_runs(reader.folder) if runs.runs}
    return {"metric": ComparedGrid(metric_grid(reader, samples))}


@_grids.register
def _(reader: RunReader, models: Collection[str]) -> dict[Measure, ComparedGrid]:
    """Those of a run's scores and labels."""
    grid = score_grid(reader)
    if not {*models} <= {*grid.students}:
        grid = grid_with_removed(reader)
        counts = np.array([is_planned_task(reader.planned, task) for task in grid.tasks], bool)
        grid = grid.select_items(counts[grid.items.task])
    return {"factor": ComparedGrid(grid), "label": ComparedGrid(label_grid(reader, grid))}


def _items(reader: Reader, grid: ScoreGrid) -> tuple[RequestedItem, ...]:
    requested = {(task, item): texts for task, item, *texts in reader.rows(_CONTENTS)}
    found = []
    for place, item in zip(grid.items.task.tolist(), grid.items.ids, strict=True):
        alike = reader.twins[item].first if item in reader.twins else None
        content, reference, made_for = requested.get((grid.tasks[place], item), (None, None, None))
        found.append(RequestedItem(grid.tasks[place], item, content, reference, made_for, alike))
    return tuple(found)


_CONTENTS = "SELECT task, item, content, reference, made_for FROM contents"
_ANSWERS = """
SELECT count(*), count(*) FILTER (truncated), count(*) FILTER (windowed),
       count(*) FILTER (empty), count(*) FILTER (truncated AND empty)
FROM answers WHERE {mine} AND NOT failed
"""


def _metrics(reader: Reader, grids: Mapping[Measure, ComparedGrid]) -> Iterator[MetricName]:
    units = {(figure.task, figure.metric): figure.unit for figure in reader.metrics}
    first = reader.headlines()
    for measure, compared in grids.items():
        for task, metric in compared.parts:
            if measure != "metric":
                yield MetricName(task, measure, metric)
                continue
            unit = units.get((task, metric)) or "share"
            headline = first.get(task) == metric
            yield MetricName(task, measure, metric, unit, scale_of(unit), headline=headline)


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
    other judges. ``compared``: their scores are compared all the same, each side's by its own judges."""

    task: str
    sides: tuple[str, str]
    judges: tuple[tuple[str, ...], tuple[str, ...]]
    nobody_both: bool
    compared: bool = True


def judged_apart(found: Sequence[JudgedApart], sides: Sequence[Side]) -> Iterator[str]:
    """Sentences on all pairs of the ``sides`` that were compared."""
    for compared in (True, False):
        nobody = [one for one in found if one.nobody_both and one.compared is compared]
        so = "the difference is also one of judges" if compared else "their scores are not compared"
        yield from (f"{said}: {so}" for said in _nobody_both(nobody, sides))
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
            f"{join_names(judges)} judged {join_names(_names(labels, sides))}" for judges, labels in panels
        )
        both = "both" if len(panels) == 2 else "any two of these"
        yield f"{join_names(tasks)}: {each}, and nobody {both}"


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
        where = (
            "of the comparison" if len(who) == len(whom) == 1 else f"where compared with {join_names(whom)}"
        )
        yield (
            f"{join_names(tasks)}: {join_names(judges)} judged {join_names(who)} but not {join_names(whom)}, "
            f"{so} left out {where}"
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
