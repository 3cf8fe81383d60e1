"""An experiment's data while its rules are checked: readable in part even if other parts are broken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from coeval.core.records import variant_name
from coeval.pipeline.config.findings import FileData, KeyPath
from coeval.pipeline.config.schema import Config, TaskConfig
from coeval.pipeline.config.values import CheckOptions
from coeval.store.rundir import RunDir


def keep_mappings(section: Any) -> list[FileData]:
    return [entry for entry in section if isinstance(entry, dict)] if isinstance(section, list) else []


class Draft:
    """The data as read, and the paths that the schema found unusable."""

    def __init__(self, data: FileData, broken: frozenset[KeyPath]) -> None:
        self.data = data
        self._broken = broken
        self._around = {bad[:end] for bad in broken for end in range(len(bad) + 1)}
        self._names: dict[str, dict[int, str]] = {}

    def is_sound(self, *path: str | int) -> bool:
        """Check that a value, everything around it and every part of it are usable."""
        if not self._broken:
            return True
        return path not in self._around and not any(path[:end] in self._broken for end in range(len(path)))

    def get(self, *path: str | int, default: Any = None) -> Any:
        """Return a value, or the default if it is absent or unusable."""
        return self.get_raw(*path, default=default) if self.is_sound(*path) else default

    def get_raw(self, *path: str | int, default: Any = None) -> Any:
        """Return a value, usable or not, or the default if it is absent."""
        value: Any = self.data
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return default
        return value

    def get_mapping(self, *path: str | int) -> dict[str, Any]:
        """Return a mapping, usable or not, or an empty one if there is none."""
        value = self.get_raw(*path)
        return value if isinstance(value, dict) else {}

    def indices(self, section: str) -> list[int]:
        """Return the indices of a section's entries that are mappings."""
        items = self.data.get(section)
        return [
            i for i, item in enumerate(items if isinstance(items, list) else ()) if isinstance(item, dict)
        ]

    def names(self, section: str) -> dict[int, str]:
        """Return index → name of a section's entries with a usable name."""
        if section not in self._names:
            names = {i: self.get(section, i, "name") for i in self.indices(section)}
            self._names[section] = {i: name for i, name in names.items() if isinstance(name, str)}
        return self._names[section]

    def variants_by_name(self, index: int) -> dict[str, object]:
        """Return a model's variants by name, as far as they can be read."""
        return {str(name): own for name, own in self.get_mapping("models", index, "variants").items()}

    def model_and_variant_names(self) -> list[str]:
        """Return the names of models, and of the students that their variants are."""
        models = self.names("models")
        variants = [variant_name(name, own) for i, name in models.items() for own in self.variants_by_name(i)]
        return [*models.values(), *variants]

    def has_all_names(self, section: str) -> bool:
        """Check that every entry of a section has a usable name, so that an unknown name is truly unknown."""
        items = self.data.get(section)
        return isinstance(items, list) and len(self.names(section)) == len(items) > 0


def list_checks(draft: Draft, index: int) -> Iterator[tuple[str, CheckOptions]]:
    """List the factors of a task that are checks, with their options, without those that are labels."""
    rubric = draft.get("tasks", index, "rubric")
    labels = draft.get("tasks", index, "label_attributes", default=[])
    for factor, what in rubric.items() if isinstance(rubric, dict) else ():
        if isinstance(what, dict) and "check" in what and factor not in labels:
            yield factor, what


def find_resume_folder(storage_folder: str, resume_from: str) -> Path:
    """Return the run that ``resume_from`` names: an id in the storage folder, else a path."""
    by_id = Path(storage_folder) / resume_from
    return by_id if by_id.is_dir() else Path(resume_from)


# --- Benchmark teachers

BENCHMARK = "benchmark"
"""An interface whose teachers ask no model, and a category whose tasks no other teachers serve."""


OWN_ITEMS = "items"
"""What stands for a teacher where a task takes its items from a table; no model may be named so then."""


class ItemSource(NamedTuple):
    """A benchmark teacher of a task, or `OWN_ITEMS`."""

    task: TaskConfig
    teacher: str


class BenchmarkTeacher(NamedTuple):
    """A teacher that supplies the items of ``task``, or without one of every task of its category."""

    name: str
    task: Any

    def serves(self, task: str | None, category: str | None) -> bool:
        return category == BENCHMARK if self.task is None else self.task == task


def list_benchmark_teachers(config: Config) -> list[BenchmarkTeacher]:
    teachers = [model for model in config.with_role("teacher") if model.interface == BENCHMARK]
    return [BenchmarkTeacher(model.name, model.parameters.get("task")) for model in teachers]


def list_item_suppliers(config: Config, task: TaskConfig) -> tuple[str, ...]:
    """Name who supplies a task's items: its own table, then the benchmark teachers that serve it."""
    teachers = list_benchmark_teachers(config)
    own = (OWN_ITEMS,) if task.items is not None else ()
    return (*own, *(teacher.name for teacher in teachers if teacher.serves(task.name, task.category)))


def list_models_writing_items(config: Config, task: TaskConfig) -> tuple[str, ...]:
    if task.category == BENCHMARK or task.items is not None:
        return ()
    return tuple(model.name for model in config.with_role("teacher") if model.interface != BENCHMARK)


def locate_item_files(config: Config, folder: RunDir) -> dict[Path, ItemSource]:
    """Map each file of supplied items in a run folder, existing or not, to its task and teacher."""
    return {
        folder.datapoints(task.name, teacher): ItemSource(task, teacher)
        for task in config.tasks
        for teacher in list_item_suppliers(config, task)
    }
