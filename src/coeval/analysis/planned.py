"""What of a run's records its configuration still plans. What it no longer names stays on disk and is
marked, or left out of the means, where results are shown."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Names: TypeAlias = frozenset[str] | None
"""None: whoever is on record is planned."""

Kind: TypeAlias = Literal["teacher", "judge", "factor"]
KINDS: tuple[Kind, ...] = ("teacher", "judge", "factor")


class PlannedTask(msgspec.Struct, frozen=True):
    """Whose items and judgments of a task count, by which factors, and what is compared as a label."""

    teachers: Names
    judges: Names
    factors: Names
    labels: Names

    def names(self, kind: Kind) -> Names:
        match kind:
            case "teacher":
                return self.teachers
            case "judge":
                return self.judges
            case "factor":
                return self.factors


class Planned(msgspec.Struct, frozen=True):
    """The names of a configuration, tasks by name."""

    students: Names
    tasks: dict[str, PlannedTask]


class LeftOut(msgspec.Struct, frozen=True):
    """Somebody or something on record in a planned task that the plan no longer holds: not in any mean."""

    kind: Kind
    task: str
    name: str
