"""Who is to be asked how often in a task, and about whose texts: the plan's counts, as an estimate takes
them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from coeval.core.records import EXACT_MATCH, Purpose
from coeval.engine.model_work import RoleModel
from coeval.engine.progress import Calls, WorkCounts
from coeval.pipeline.config.schema import Config, TaskConfig
from coeval.pipeline.phases.blueprint import KINDS, PHASE_OF, Kind
from coeval.pipeline.plan.preview import Preview
from coeval.pipeline.plan.task_setup import TaskSetup

__all__ = ["Mix", "PhaseCalls", "TaskCalls", "task_calls"]

Mix: TypeAlias = Mapping[str, float]
"""How much each model's texts count among those that others are asked about; in all 1."""


class PhaseCalls(NamedTuple):
    """Calls of a model in a phase."""

    phase: Purpose
    role_model: RoleModel
    calls: Calls


class Factors(NamedTuple):
    """``known`` factors; ``proposals`` are still to come, which may add so many that there are ``least`` to
    ``most`` in all."""

    known: tuple[str, ...]
    proposals: int
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class TaskCalls:
    """``proposals`` are those that teachers are asked for, by kind. ``authors`` are whose items are answered,
    ``judged_authors`` and ``answerers`` whose items and answers are judged."""

    setup: TaskSetup
    factors: Factors
    proposals: list[tuple[Kind, RoleModel]]
    asked: list[PhaseCalls]
    authors: Mix
    judged_authors: Mix
    answerers: Mix

    @property
    def name(self) -> str:
        return self.setup.task.name

    def counted(self) -> Iterator[tuple[Purpose, str, Calls]]:
        """Calls by phase and model."""
        for kind, teacher in self.proposals:
            yield PHASE_OF[kind], teacher.name, Calls(1, 1)
        for phase, role_model, calls in self.asked:
            yield phase, role_model.name, calls


def task_calls(config: Config, preview: Preview) -> list[TaskCalls]:
    """The tasks of a configuration, in the order of the file."""
    setups = {setup.task.name: setup for setup in preview.plan.setups}
    return [_of_task(task, setups[task.name], preview) for task in config.tasks]


def _of_task(task: TaskConfig, setup: TaskSetup, preview: Preview) -> TaskCalls:
    most, least = preview.plan_count, preview.least
    cast: dict[Purpose, tuple[RoleModel, ...]] = {
        "data_generation": setup.teachers,
        "response_collection": setup.students,
        "evaluation": setup.judges,
    }
    asked = []
    for phase, role_models in cast.items():
        for each in role_models:
            place = (phase, task.name, each.name)
            few, many = least.by_model.get(place), most.by_model.get(place)
            low = few.calls - few.spared_calls if few is not None else 0
            asked.append(PhaseCalls(phase, each, Calls(low, many.calls if many is not None else 0)))
    authors = _mix(most, task.name, "data_generation", "response_collection")
    return TaskCalls(
        setup=setup,
        factors=_factors(task, setup, preview),
        proposals=[
            (kind, teacher) for kind in KINDS for teacher, _ in preview.blueprint.owed_proposals(task, kind)
        ],
        asked=asked,
        authors=authors,
        judged_authors=_mix(most, task.name, "data_generation", "evaluation"),
        answerers=_mix(most, task.name, "response_collection", "evaluation"),
    )


def _factors(task: TaskConfig, setup: TaskSetup, preview: Preview) -> Factors:
    proposals = len(preview.blueprint.owed_proposals(task, "rubric"))
    if task.name not in preview.unsettled or not proposals:
        known = tuple(setup.criteria)
        return Factors(known, 0, len(known), len(known))
    heard = preview.blueprint.heard_rubric(task)
    known = tuple(factor for factor in setup.criteria if factor in heard)
    return Factors(known, proposals, max(1, len(known)), len(setup.criteria))


def _mix(counts: WorkCounts, task: str, written: Purpose, asked: Purpose) -> Mix:
    """Whose texts of a phase those of a later one are asked about: all that follows from texts that are still
    owed is owed, the rest is about texts that stand."""
    owed, standing = {}, {}
    for (phase, of, name), count in counts.by_model.items():
        if (phase, of) == (written, task) and name != EXACT_MATCH:
            owed[name], standing[name] = count.owed, count.planned - count.owed
    wanted = counts.total(asked, task=task).owed
    each = _followers(counts, task, written, asked)
    rest = max(0, wanted - each * sum(owed.values()))
    there = sum(standing.values()) or 1
    weights = {name: each * owed[name] + rest * standing[name] / there for name in owed}
    total = sum(weights.values())
    return {name: weight / total if total else 1 / len(weights) for name, weight in weights.items()}


def _followers(counts: WorkCounts, task: str, written: Purpose, asked: Purpose) -> float:
    """How many records of a phase each of an earlier one brings about."""
    planned = counts.total(written, task=task).planned
    return counts.total(asked, task=task).planned / planned if planned else 0.0
