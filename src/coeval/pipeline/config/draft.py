"""An experiment's data while its rules are checked: readable in part, however broken the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from coeval.core.records import variant_name
from coeval.pipeline.config.findings import KeyPath
from coeval.pipeline.config.schema import Config, TaskConfig
from coeval.store.rundir import RunDir


def mappings(section: Any) -> list[dict[str, Any]]:
    """The entries of a section that are mappings at all."""
    return [entry for entry in section if isinstance(entry, dict)] if isinstance(section, list) else []


class Draft:
    """The data as read, and which of its paths the schema found unusable."""

    def __init__(self, data: dict[str, Any], broken: frozenset[KeyPath]) -> None:
        self.data = data
        self._broken = broken
        self._around = {bad[:end] for bad in broken for end in range(len(bad) + 1)}
        self._names: dict[str, dict[int, str]] = {}

    def sound(self, *path: str | int) -> bool:
        """Whether neither the value, nor what surrounds it, nor a part of it is unusable."""
        if not self._broken:
            return True
        return path not in self._around and not any(path[:end] in self._broken for end in range(len(path)))

    def get(self, *path: str | int, default: Any = None) -> Any:
        """The value, or the default where it is absent or unusable."""
        return self.raw(*path, default=default) if self.sound(*path) else default

    def raw(self, *path: str | int, default: Any = None) -> Any:
        """The value whatever it is, or the default where it is absent."""
        value: Any = self.data
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return default
        return value

    def entries(self, section: str) -> list[int]:
        """The indices of a section's entries that are mappings at all."""
        items = self.data.get(section)
        return (
            [i for i, item in enumerate(items) if isinstance(item, dict)] if isinstance(items, list) else []
        )

    def names(self, section: str) -> dict[int, str]:
        """The names of a section's entries that have a usable one, by index."""
        if section not in self._names:
            found = {i: self.get(section, i, "name") for i in self.entries(section)}
            self._names[section] = {i: name for i, name in found.items() if isinstance(name, str)}
        return self._names[section]

    def variants(self, index: int) -> dict[str, Any]:
        """A model's variants by name, as far as their names can be read."""
        found = self.raw("models", index, "variants")
        return {str(name): own for name, own in found.items()} if isinstance(found, dict) else {}

    def players(self) -> list[str]:
        """The names of models, and those of the students that their variants are."""
        models = self.names("models")
        variants = [variant_name(name, each) for i, name in models.items() for each in self.variants(i)]
        return [*models.values(), *variants]

    def all_named(self, section: str) -> bool:
        """Whether the names of a whole section are known, so that a missing one is truly missing."""
        items = self.data.get(section)
        return isinstance(items, list) and len(self.names(section)) == len(items) > 0


def declared_checks(draft: Draft, index: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The factors of a task that are checks, with their options; not those that are labels."""
    rubric = draft.get("tasks", index, "rubric")
    labels = draft.get("tasks", index, "label_attributes", default=[])
    for factor, what in rubric.items() if isinstance(rubric, dict) else ():
        if isinstance(what, dict) and "check" in what and factor not in labels:
            yield factor, what


def resume_folder(storage_folder: str, resume_from: str) -> Path:
    """The run that ``resume_from`` names: an id in the storage folder, else a path (from the CWD)."""
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
    """Who supplies a task's items: its own table, then the benchmark teachers that serve it."""
    return _supplying(Suppliers.among(config), task)


def _supplying(suppliers: Suppliers, task: TaskConfig) -> tuple[str, ...]:
    own = (OWN_ITEMS,) if task.items is not None else ()
    return (*own, *suppliers.of(task.name, task.category))


def item_writers(config: Config, task: TaskConfig) -> tuple[str, ...]:
    """The models that write items for a task."""
    if task.category == BENCHMARK or task.items is not None:
        return ()
    return tuple(model.name for model in config.with_role("teacher") if model.interface != BENCHMARK)


def item_files(config: Config, folder: RunDir) -> dict[Path, ItemSource]:
    """Where the items of the benchmark teachers lie, or are to be put."""
    suppliers = Suppliers.among(config)
    return {
        folder.datapoints(task.name, teacher): ItemSource(task, teacher)
        for task in config.tasks
        for teacher in _supplying(suppliers, task)
    }
