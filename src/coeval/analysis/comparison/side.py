"""A side of a comparison: a student of a run or the model of an output folder, with its grids of scores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import singledispatch
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from coeval.analysis.answer_costs import AnswerCost
from coeval.analysis.doubtful_answers import ServedModel
from coeval.analysis.intervals import SHARE, Looks, Scale, scale_of_unit
from coeval.analysis.measures.pair_scores import ComparedGrid
from coeval.analysis.measures.score_grid import (
    ScoreGrid,
    is_planned_task,
    read_grid_with_removed,
    read_score_grid,
)
from coeval.analysis.measures.value_grid import read_label_grid, read_metric_grid
from coeval.analysis.panel.panel_reading import model_families
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.training.checkpoint_scores import choose_task_runs
from coeval.core.text import join_names

Measure: TypeAlias = Literal["factor", "label", "metric"]


class RequestedItem(NamedTuple):
    """An item as a side was given it. ``content``, ``reference``, ``made_for``: hashes of the prompt, the
    reference answer and the attributes; None if not on record. ``duplicate_of``: the id of the first item
    of its task that it nearly repeats."""

    task: str
    id: str
    content: int | None
    reference: int | None
    made_for: int | None
    duplicate_of: str | None = None


class MetricName(NamedTuple):
    """A metric of a task, its unit and scale; ``headline``: the first metric of a benchmark."""

    task: str
    measure: Measure
    metric: str
    unit: str = "share"
    scale: Scale = SHARE
    headline: bool = False


class AnswerCounts(NamedTuple):
    """Counts of a side's answers that did not fail: all of them, those cut off, those cut off at the server's
    window, empty ones, and those both empty and cut off."""

    good: int
    cut: int
    by_window: int
    empty: int
    empty_cut: int


@dataclass(frozen=True, slots=True)
class Side:
    """``model`` is its name in the ``grids`` of its folder, which all sides of the folder share. ``items``
    are those of the grids, by number.

    ``methods``: by task and judge, hashes of how answers were judged. ``rubrics``: by task, the
    description of each factor. ``families``: by name, of the model and its judges. ``fitted``: metrics
    that no item has a score in. ``simulated``: simulated models took part. ``looks``: as in `Reader`.
    ``compared``: tasks judged pairwise. ``scales``: by task and factor, in words. ``checks`` reads
    `Reader.check_hashes`. ``served``: by task, the model that answered, if it was another one.
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

    def describe_factor_change(self, other: Side, task: str, factor: str) -> str:
        """Say how the other side scores a factor of both differently; empty if it does not."""
        key, mine, theirs = (task, factor), self.folder_label, other.folder_label
        scale, other_scale = self.scales.get(key), other.scales.get(key)
        if scale and other_scale and scale != other_scale:
            return f"the factor {factor} has the scale {other_scale} in {theirs}, and {scale} in {mine}"
        if self.rubrics[task][factor] != other.rubrics[task][factor]:
            return f"the factor {factor} has another description for {theirs} than for {mine}"
        if self.folder != other.folder and self.checks().get(key) != other.checks().get(key):
            return f"the check {factor} runs other code or options for {theirs} than for {mine}"
        return ""

    @property
    def folder_label(self) -> str:
        """Return the label without the student: the same for all students of a folder."""
        return self.label.removesuffix(f":{self.model}")

    @property
    def scored_tasks(self) -> frozenset[str]:
        return frozenset().union(*(grid.scored_tasks_by_student[self.model] for grid in self.grids.values()))

    def excluding_judges(self, judges: Collection[str]) -> Side:
        grids = {measure: grid.excluding_judges(judges) for measure, grid in self.grids.items()}
        methods = {key: hashes for key, hashes in self.methods.items() if key[1] not in judges}
        return replace(self, grids=grids, methods=methods)


def read_sides(reader: Reader, labels: Mapping[str, str], costs: Mapping[str, AnswerCost]) -> dict[str, Side]:
    """Read the scores of a folder's models, in the tasks that count; ``labels`` and ``costs``: by model."""
    grids = _build_grids(reader, labels)
    whole = next(iter(grids.values())).grid
    items = _list_items(reader, whole)
    metrics = tuple(_list_metrics(reader, grids))
    plans = reader.planned.tasks if reader.planned is not None else {}
    sides = {}
    for model, label in labels.items():
        condition, parameters = reader.model_condition_sql(model)
        [counts] = reader.rows(_ANSWERS.format(condition=condition), parameters)
        sides[model] = Side(
            label=label,
            folder=reader.folder,
            model=model,
            items=items,
            grids=grids,
            metrics=metrics,
            methods=_read_method_hashes_by_task_and_judge(reader, condition, parameters),
            rubrics=reader.rubrics(),
            answers=AnswerCounts(*counts),
            families=model_families(
                filter(None, (model, *whole.judges)),
                reader.planned.families if reader.planned is not None else {},
            ),
            fitted=_metrics_without_item_scores(reader),
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
                str(served.task): served
                for served in reader.stand_ins_and_mixtures(by_task=True)
                if served.role == "student" and served.others and (not parameters or served.model == model)
            },
        )
    return sides


@singledispatch
def _build_grids(reader: Reader, models: Collection[str]) -> dict[Measure, ComparedGrid]:  # noqa: ARG001
    """Build the grid of a benchmark's metrics, over the samples that its results count."""
    samples = {runs.recorded_task: runs.runs for runs in choose_task_runs(reader.folder) if runs.runs}
    return {"metric": ComparedGrid(read_metric_grid(reader, samples))}


@_build_grids.register
def _build_run_grids(reader: RunReader, models: Collection[str]) -> dict[Measure, ComparedGrid]:
    grid = read_score_grid(reader)
    if not {*models} <= {*grid.students}:
        grid = read_grid_with_removed(reader)
        counts = np.array([is_planned_task(reader.planned, task) for task in grid.tasks], bool)
        grid = grid.select_items(counts[grid.items.task])
    return {"factor": ComparedGrid(grid), "label": ComparedGrid(read_label_grid(reader, grid))}


def _list_items(reader: Reader, grid: ScoreGrid) -> tuple[RequestedItem, ...]:
    hashes = {(task, item): texts for task, item, *texts in reader.rows(_CONTENTS)}
    items = []
    for task_index, item in zip(grid.items.task.tolist(), grid.items.ids, strict=True):
        task = grid.tasks[task_index]
        duplicate_of = reader.twins[item].first if item in reader.twins else None
        content, reference, made_for = hashes.get((task, item), (None, None, None))
        items.append(RequestedItem(task, item, content, reference, made_for, duplicate_of))
    return tuple(items)


_CONTENTS = "SELECT task, item, content, reference, made_for FROM contents"
_ANSWERS = """
SELECT count(*), count(*) FILTER (truncated), count(*) FILTER (windowed),
       count(*) FILTER (empty), count(*) FILTER (truncated AND empty)
FROM answers WHERE {condition} AND NOT failed
"""


def _list_metrics(reader: Reader, grids: Mapping[Measure, ComparedGrid]) -> Iterator[MetricName]:
    units = {(figure.task, figure.metric): figure.unit for figure in reader.metrics}
    first = reader.headline_metrics()
    for measure, compared in grids.items():
        for task, metric in compared.task_factors:
            if measure != "metric":
                yield MetricName(task, measure, metric)
                continue
            unit = units.get((task, metric)) or "share"
            headline = first.get(task) == metric
            yield MetricName(task, measure, metric, unit, scale_of_unit(unit), headline=headline)


def _read_method_hashes_by_task_and_judge(
    reader: Reader, condition: str, parameters: list[str]
) -> dict[tuple[str, str], frozenset[int]]:
    """Read the method hashes by task and judge of the rows that meet ``condition``."""
    methods: dict[tuple[str, str], set[int]] = {}
    query = f"SELECT task, judge, method FROM methods WHERE {condition}"  # noqa: S608
    for task, judge, method in reader.rows(query, parameters):
        methods.setdefault((task, judge), set()).add(method)
    return {key: frozenset(hashes) for key, hashes in methods.items()}


def _metrics_without_item_scores(reader: Reader) -> tuple[str, ...]:
    """Return the metrics in which no item has a score, since they are fitted to all items."""
    of_items = {(task, metric) for task, metric in reader.rows("SELECT DISTINCT task, metric FROM scores")}
    return tuple(
        dict.fromkeys(
            f"{figure.task} {figure.metric}"
            for figure in reader.metrics
            if figure.value is not None and (figure.task, figure.metric) not in of_items
        )
    )


# --- Judges who scored one of two compared sides only, in sentences


class OneSideJudges(NamedTuple):
    """The judges in a task who scored only the one or the other of two sides (their labels).
    ``none_shared``: nobody scored both. ``compared``: the scores are compared all the same, each side's by
    its own judges."""

    task: str
    sides: tuple[str, str]
    judges: tuple[tuple[str, ...], tuple[str, ...]]
    none_shared: bool
    compared: bool = True


def one_side_judge_notes(pairs: Sequence[OneSideJudges], sides: Sequence[Side]) -> Iterator[str]:
    """Report, for all compared pairs of the ``sides``, which judges scored only one of them."""
    for compared in (True, False):
        separate = [pair for pair in pairs if pair.none_shared and pair.compared is compared]
        effect = "the difference also reflects the judges" if compared else "their scores are not compared"
        yield from (f"{note}: {effect}" for note in _separate_panel_notes(separate, sides))
    yield from _left_out_judge_notes([pair for pair in pairs if not pair.none_shared], sides)


def _separate_panel_notes(pairs: Iterable[OneSideJudges], sides: Sequence[Side]) -> Iterator[str]:
    by_task: dict[str, dict[tuple[str, ...], dict[str, None]]] = {}
    for pair in pairs:
        for label, judges in zip(pair.sides, pair.judges, strict=True):
            by_task.setdefault(pair.task, {}).setdefault(judges, {})[label] = None
    tasks_by_panels = _group_values(
        (tuple((judges, tuple(labels)) for judges, labels in judged.items()), task)
        for task, judged in by_task.items()
    )
    for panels, tasks in tasks_by_panels.items():
        parts = (
            f"{join_names(judges)} judged {join_names(_name_folders_or_sides(labels, sides))}"
            for judges, labels in panels
        )
        both = "both" if len(panels) == 2 else "any two of these"
        yield f"{join_names(tasks)}: {', '.join(parts)}, and no judge {both}"


def _left_out_judge_notes(pairs: Iterable[OneSideJudges], sides: Sequence[Side]) -> Iterator[str]:
    by_judge: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = {}
    for pair in pairs:
        for at, judges in enumerate(pair.judges):
            for judge in judges:
                judged, others = by_judge.setdefault((pair.task, judge), ({}, {}))
                judged[pair.sides[at]] = others[pair.sides[1 - at]] = None
    judges_by_sides = _group_values(
        ((task, tuple(judged), tuple(others)), judge) for (task, judge), (judged, others) in by_judge.items()
    )
    alike = _group_values(
        ((has, lacks, judges), task) for (task, has, lacks), judges in judges_by_sides.items()
    )
    for (has, lacks, judges), tasks in alike.items():
        one_side, other_side = (_name_folders_or_sides(has, sides), _name_folders_or_sides(lacks, sides))
        left_out = f"so {'they are' if len(judges) > 1 else 'it is'} left out"
        single = len(one_side) == len(other_side) == 1
        where = "of the comparison" if single else f"where compared with {join_names(other_side)}"
        judged_one = f"{join_names(judges)} judged {join_names(one_side)} but not {join_names(other_side)}"
        yield f"{join_names(tasks)}: {judged_one}, {left_out} {where}"


_Key = TypeVar("_Key", bound=Hashable)


def _group_values(pairs: Iterable[tuple[_Key, str]]) -> Mapping[_Key, tuple[str, ...]]:
    groups: dict[_Key, tuple[str, ...]] = {}
    for key, value in pairs:
        groups[key] = (*groups.get(key, ()), value)
    return groups


def _name_folders_or_sides(labels: Sequence[str], sides: Sequence[Side]) -> list[str]:
    """Name sides by their labels, or by their folder if all its students are among them."""
    labels_by_folder: dict[str, set[str]] = {}
    for side in sides:
        labels_by_folder.setdefault(side.folder_label, set()).add(side.label)
    folder_of = {side.label: side.folder_label for side in sides}
    names = (folder_of[name] if labels_by_folder[folder_of[name]] <= {*labels} else name for name in labels)
    return list(dict.fromkeys(names))
