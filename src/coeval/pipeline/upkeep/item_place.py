"""The place of a task's items: which benchmark teacher of which run they are put in for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from coeval.core.errors import UsageError
from coeval.core.text import listed
from coeval.pipeline.config.document import read_document
from coeval.pipeline.config.findings import WayOut
from coeval.pipeline.config.item_sources import ItemSource, Suppliers
from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.config.schema import Config, TaskConfig
from coeval.pipeline.config.structure import check_structure
from coeval.pipeline.existing_run import existing_run
from coeval.pipeline.start.checks import run_folder
from coeval.store.rundir import RunDir

_HOW = (
    "Add one to its models, {name: own, interface: benchmark, roles: [teacher], parameters: {task: NAME}}; "
    "or give a task items: {path: FILE, prompt: COLUMN}, which needs neither a model nor `coeval ingest`."
)


class ItemPlace(NamedTuple):
    """Where the items of a benchmark teacher for a task lie."""

    folder: RunDir
    task: TaskConfig
    teacher: str

    @property
    def path(self) -> Path:
        return self.folder.datapoints(self.task.name, self.teacher)

    @property
    def source(self) -> ItemSource:
        return ItemSource(self.task, self.teacher)


def place_in_config(file: Path, task: str | None = None, teacher: str | None = None) -> ItemPlace:
    """The place in the run folder of an experiment file.

    Raises
    ------
    ConfigError
        the file is none.
    UsageError
        it has no benchmark teacher, or several places of which none is named.
    """
    config = load_config(file)
    return _only_one(config, run_folder(config), (task, teacher), str(file))


def place_in_run(path: Path, task: str | None = None, teacher: str | None = None) -> ItemPlace:
    """The place in a run's folder, by the configuration that lies in it; raises as `place_in_config`."""
    folder = existing_run(path, whole=False)
    if not folder.config.exists():
        raise UsageError(f"{folder.path} holds no config.yaml; name the experiment file by --config")
    structure = check_structure(read_document(folder.config).data)
    if structure.config is None:
        raise UsageError(f"{folder.config} cannot be used; name the experiment file by --config")
    return _only_one(structure.config, folder, (task, teacher), str(folder.config))


def _only_one(config: Config, folder: RunDir, named: tuple[str | None, str | None], file: str) -> ItemPlace:
    task, teacher = named
    tasks = {each.name: each for each in config.tasks}
    if task is not None and task not in tasks:
        raise UsageError(
            f"--task {task}: {file} has no such task; {WayOut(task, tasks, 'tasks:').sentence()}"
        )
    places = list(_places(config, folder))
    found = [p for p in places if task in (None, p.task.name) and teacher in (None, p.teacher)]
    if len(found) == 1:
        return found[0]
    if teacher is not None and not any(place.teacher == teacher for place in places):
        teachers = dict.fromkeys(place.teacher for place in places)
        raise UsageError(
            f"--teacher {teacher}: no benchmark of {file} is named so; "
            f"{WayOut(teacher, teachers, 'benchmarks:').sentence()}"
        )
    if not found:
        if task is not None and (table := tasks[task].items) is not None:
            raise UsageError(f"the task {task} takes its items from {table.path}; change `items` of it")
        whom = f"the task {task}" if task is not None else "any task"
        raise UsageError(f"{file} has no benchmark teacher that serves {whom}. {_HOW}")
    choices = listed(f"--task {p.task.name} --teacher {p.teacher}" for p in found)
    raise UsageError(f"{file} has several places for items: {choices}; name one")


def _places(config: Config, folder: RunDir) -> Iterator[ItemPlace]:
    suppliers = Suppliers.among(config)
    for task in config.tasks:
        for teacher in suppliers.of(task.name, task.category):
            yield ItemPlace(folder, task, teacher)
