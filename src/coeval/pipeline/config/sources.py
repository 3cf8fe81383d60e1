"""Who supplies a task's items without being asked: benchmark teachers, and where their items lie."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from coeval.pipeline.config.schema import Config, TaskConfig
from coeval.store.rundir import RunDir

BENCHMARK = "benchmark"
"""An interface whose teachers ask no model, and a category whose tasks no other teachers serve."""


class Source(NamedTuple):
    """A benchmark teacher of a task."""

    task: TaskConfig
    teacher: str


def supplies(parameters: Mapping[str, Any], name: str | None, category: str | None) -> bool:
    """Whether a benchmark teacher with these parameters serves a task: the one that ``parameters.task``
    names, and no other; where it names none, those of the category ``benchmark``."""
    assigned = parameters.get("task")
    return category == BENCHMARK if assigned is None else assigned == name


def item_sources(config: Config, task: TaskConfig) -> tuple[str, ...]:
    """The benchmark teachers that serve a task."""
    return tuple(
        model.name
        for model in config.with_role("teacher")
        if model.interface == BENCHMARK and supplies(model.parameters, task.name, task.category)
    )


def item_writers(config: Config, task: TaskConfig) -> tuple[str, ...]:
    """The models that write items for a task."""
    if task.category == BENCHMARK:
        return ()
    return tuple(model.name for model in config.with_role("teacher") if model.interface != BENCHMARK)


def item_files(config: Config, folder: RunDir) -> dict[Path, Source]:
    """Where the items of the benchmark teachers lie, or are to be put."""
    return {
        folder.datapoints(task.name, teacher): Source(task, teacher)
        for task in config.tasks
        for teacher in item_sources(config, task)
    }
