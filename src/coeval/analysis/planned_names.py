"""Which of a run's records count: those its configuration names, and those inherited from another run. Other
records stay on disk; results mark them, or leave them out of means."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from coeval.core.records import item_number
from coeval.core.scale import RubricScale

Names: TypeAlias = frozenset[str] | None
"""None: whoever is on record is planned."""

Kind: TypeAlias = Literal["teacher", "judge", "factor"]
KINDS: tuple[Kind, ...] = ("teacher", "judge", "factor")

NameKind: TypeAlias = Literal["teacher", "student", "judge", "factor", "label"]


class PlannedTask(msgspec.Struct, frozen=True):
    """Whose items and judgments of a task count, by which factors, and which labels are compared.

    ``total`` items of each teacher are planned (None: all there are): by the number that ends the ids of
    what a model wrote, or, for teachers who ``supply`` items, the first ones on record.

    ``scales`` are those of the judged factors; ``checks`` the factors that a check scores (None: those
    that a check has scored on record); ``weights``: what each factor counts in an item's score, 1 by
    default. Where the task ``compares`` answers, no score of a judge is planned.
    """

    teachers: Names
    judges: Names
    factors: Names
    labels: Names
    total: int | None = None
    supply: frozenset[str] = frozenset()
    scales: dict[str, RubricScale] = {}
    checks: Names = None
    weights: dict[str, float] = {}
    compares: bool = False

    def names_of(self, kind: Literal["teacher", "judge", "factor", "label"]) -> Names:
        names_of: Names = getattr(self, f"{kind}s")
        return names_of

    def is_counted_item(self, teacher: str, item: str, position: int) -> bool:
        """Check whether an item counts. ``position``: its place among its teacher's on record, from 1."""
        if self.teachers is not None and teacher not in self.teachers:
            return False
        if teacher not in self.supply:
            position = item_number(item) or 0
        return self.total is None or position <= self.total


class Planned(msgspec.Struct, frozen=True):
    """The names that a configuration plans, with its tasks by name.

    ``families``: each model's family, or else its own name at its host; ``simulated``: the models that
    are; ``labels``: what pictures call each model; ``samples``: how many answers each student of the file
    gives to an item; ``own_tasks``: the tasks of students that do some only; ``requested``: a model's
    names, including its host's.
    """

    students: Names
    tasks: dict[str, PlannedTask]
    families: dict[str, str] = {}
    simulated: frozenset[str] = frozenset()
    labels: dict[str, str] = {}
    samples: dict[str, int] = {}
    own_tasks: dict[str, frozenset[str]] = {}
    requested: dict[str, tuple[str, ...]] = {}

    def is_assigned(self, student: str, task: str) -> bool:
        """Check whether a student is to do a task; what it is not assigned is never missing."""
        return student not in self.own_tasks or task in self.own_tasks[student]

    def is_counted(self, task: str, kind: NameKind, name: str) -> bool:
        """Check whether a name of a task counts in tables and measures."""
        if task not in self.tasks:
            return False
        names = self.students if kind == "student" else self.tasks[task].names_of(kind)
        return names is None or name in names


def nearest_level_or_number(planned: Planned | None, task: str, factor: str, value: float) -> str:
    """Name a value (0 to 1) by its level, or as a number where none is known, as of checks."""
    plan = planned.tasks.get(task) if planned is not None else None
    scale = plan.scales.get(factor) if plan is not None else None
    return f"{value:.3g}" if scale is None else scale.nearest_level(value)


Removed: TypeAlias = tuple[Literal["student", "task", "label"], ...]
"""Which of a figure's names the run's configuration no longer holds; empty for what is planned."""


def find_removed_names(
    planned: Planned | None, student: str, task: str | None = None, label: str | None = None
) -> Removed:
    """Return which of these names the configuration has lost; with ``planned`` None, none."""
    if planned is None:
        return ()
    removed: list[Literal["student", "task", "label"]] = []
    if planned.students is not None and student not in planned.students:
        removed.append("student")
    if task is not None:
        plan = planned.tasks.get(task)
        if plan is None:
            removed.append("task")
        elif label is not None and plan.labels is not None and label not in plan.labels:
            removed.append("label")
    return tuple(removed)


class LeftOut(msgspec.Struct, frozen=True):
    """A name on record in a planned task that the plan no longer has; excluded from every mean."""

    kind: Kind
    task: str
    name: str


class ItemsBeyondTotal(msgspec.Struct, frozen=True):
    """The good items of planned teachers beyond a task's ``sampling.total``; excluded from every mean."""

    task: str
    items: int
