"""What of a run's records counts: what its configuration names, and what it took over from another run.
The rest stays on disk and is marked, or left out of the means, where results are shown."""

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
    """Whose items and judgments of a task count, by which factors, and what is compared as a label.

    Of each teacher ``total`` items are planned (None: all there are): by the number that ends the ids
    of what a model wrote, or, of those who ``supply`` items, the first ones on record.

    ``scales`` are those of the judged factors, by factor; ``checks`` the factors that a check scores (None:
    those that one has scored on record); ``weights``, by factor, what each counts in an item's score, 1
    where nothing is said. Where the task ``compares`` answers, no score of a judge is planned.
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

    def names(self, kind: Literal["teacher", "judge", "factor", "label"]) -> Names:
        names: Names = getattr(self, f"{kind}s")
        return names

    def holds(self, teacher: str, item: str, place: int) -> bool:
        """Whether an item counts; ``place``: which of its teacher's items on record it is, from 1."""
        if self.teachers is not None and teacher not in self.teachers:
            return False
        if teacher not in self.supply:
            place = item_number(item) or 0
        return self.total is None or place <= self.total


class Planned(msgspec.Struct, frozen=True):
    """The names of a configuration, tasks by name. ``families``: by model, what tells its family: the name of
    one, or else the model's own at its host; ``simulated``: the models that are; ``labels``: by model, what
    pictures call it; ``samples``: by student of the file, how many answers it gives to an item;
    ``own_tasks``: by student, its tasks, where it is to do some only; ``requested``: the names of a
    model, its host's among them."""

    students: Names
    tasks: dict[str, PlannedTask]
    families: dict[str, str] = {}
    simulated: frozenset[str] = frozenset()
    labels: dict[str, str] = {}
    samples: dict[str, int] = {}
    own_tasks: dict[str, frozenset[str]] = {}
    requested: dict[str, tuple[str, ...]] = {}

    def does(self, student: str, task: str) -> bool:
        """Whether a student is to do a task: what it is not to do, it does not lack."""
        return student not in self.own_tasks or task in self.own_tasks[student]

    def counts(self, task: str, kind: NameKind, name: str) -> bool:
        """Whether somebody or something of a task counts in tables and measures."""
        if task not in self.tasks:
            return False
        names = self.students if kind == "student" else self.tasks[task].names(kind)
        return names is None or name in names


def level_name(planned: Planned | None, task: str, factor: str, value: float) -> str:
    """Name a value (0 to 1) by its level, or as a number where none is known, as of checks."""
    plan = planned.tasks.get(task) if planned is not None else None
    scale = plan.scales.get(factor) if plan is not None else None
    return f"{value:.3g}" if scale is None else scale.nearest_level(value)


Removed: TypeAlias = tuple[Literal["student", "task", "label"], ...]
"""Which of a figure's names the run's configuration no longer holds; empty for what is planned."""


def removed_names(
    planned: Planned | None, student: str, task: str | None = None, label: str | None = None
) -> Removed:
    """Of these names; ``planned`` None: all that is on record counts."""
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
    """Somebody or something on record in a planned task that the plan no longer holds: not in any mean."""

    kind: Kind
    task: str
    name: str


class BeyondTotal(msgspec.Struct, frozen=True):
    """How many good items of planned teachers a task has beyond its ``sampling.total``: not in any mean."""

    task: str
    items: int
