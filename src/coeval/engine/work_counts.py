"""What is to be made, in numbers: by phase, task and model, of a run and of an evaluation alike."""

from __future__ import annotations

from dataclasses import dataclass, field

from coeval.core.records import Purpose


@dataclass(slots=True)
class ModelCount:
    """Records planned, records owed, and the calls that owed ones will make.

    ``spared`` are those among the owed records, and ``spared_calls`` those among the calls, that are not made
    where a lost item comes again the same, and so keeps its answers, or a lost answer its judgments.
    """

    planned: int = 0
    owed: int = 0
    calls: int = 0
    spared: int = 0
    spared_calls: int = 0

    def add(self, other: ModelCount) -> None:
        self.planned += other.planned
        self.owed += other.owed
        self.calls += other.calls
        self.spared += other.spared
        self.spared_calls += other.spared_calls


@dataclass(slots=True)
class WorkCounts:
    """``by_model``: by phase, task and the name of who makes the records (labels are compared by
    ``exact_match``)."""

    by_model: dict[tuple[Purpose, str, str], ModelCount] = field(default_factory=dict)

    def of(self, phase: Purpose, task: str, model: str) -> ModelCount:
        """The count of this place, to be added to."""
        return self.by_model.setdefault((phase, task, model), ModelCount())

    def total(
        self, phase: Purpose | None = None, *, task: str | None = None, model: str | None = None
    ) -> ModelCount:
        """The sum of a phase, of a task, of a model: of all that is named."""
        found = ModelCount()
        for place, count in self.by_model.items():
            if all(wanted in (None, part) for wanted, part in zip((phase, task, model), place, strict=True)):
                found.add(count)
        return found

    def owing(self) -> set[str]:
        """Who is to make records that are owed."""
        return {name for (_, _, name), count in self.by_model.items() if count.owed}
