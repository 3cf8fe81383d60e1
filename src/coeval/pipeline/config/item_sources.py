"""Who supplies a task's items without being asked: benchmark teachers, and where their items lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from coeval.pipeline.config.schema import Config, TaskConfig
from coeval.store.rundir import RunDir

BENCHMARK = "benchmark"
"""An interface whose teachers ask no model, and a category whose tasks no other teachers serve."""


class ItemSource(NamedTuple):
    """A benchmark teacher of a task."""

    task: TaskConfig
    teacher: str


class Suppliers:
    """Benchmark teachers, given with their parameters, by the tasks that they serve: the one that
    ``parameters.task`` names, and no other; where it names none, those of the category ``benchmark``."""

    def __init__(self, teachers: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        self._order: dict[str, int] = {}
        self._assigned: dict[str, list[str]] = {}
        self._others: list[str] = []
        for name, parameters in teachers:
            self._order[name] = len(self._order)
            assigned = parameters.get("task")
            if assigned is None:
                self._others.append(name)
            elif isinstance(assigned, str):
                self._assigned.setdefault(assigned, []).append(name)

    def of(self, task: str | None, category: str | None) -> list[str]:
        """Who serves a task, in the order of the file."""
        assigned = self._assigned.get(task, []) if task is not None else []
        others = self._others if category == BENCHMARK else []
        return sorted([*assigned, *others], key=self._order.__getitem__)

    @classmethod
    def among(cls, config: Config) -> Suppliers:
        teachers = config.with_role("teacher")
        return cls((model.name, model.parameters) for model in teachers if model.interface == BENCHMARK)


def item_sources(config: Config, task: TaskConfig) -> tuple[str, ...]:
    """The benchmark teachers that serve a task."""
    return tuple(Suppliers.among(config).of(task.name, task.category))


def item_writers(config: Config, task: TaskConfig) -> tuple[str, ...]:
    """The models that write items for a task."""
    if task.category == BENCHMARK:
        return ()
    return tuple(model.name for model in config.with_role("teacher") if model.interface != BENCHMARK)


def item_files(config: Config, folder: RunDir) -> dict[Path, ItemSource]:
    """Where the items of the benchmark teachers lie, or are to be put."""
    suppliers = Suppliers.among(config)
    return {
        folder.datapoints(task.name, teacher): ItemSource(task, teacher)
        for task in config.tasks
        for teacher in suppliers.of(task.name, task.category)
    }
