"""An experiment's data while its rules are checked: readable in part, however broken the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coeval.pipeline.config.findings import KeyPath


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

    def all_named(self, section: str) -> bool:
        """Whether the names of a whole section are known, so that a missing one is truly missing."""
        items = self.data.get(section)
        return isinstance(items, list) and len(self.names(section)) == len(items) > 0


def resume_folder(storage_folder: str, resume_from: str) -> Path:
    """The run that ``resume_from`` names: an id in the storage folder, else a path (from the CWD)."""
    by_id = Path(storage_folder) / resume_from
    return by_id if by_id.is_dir() else Path(resume_from)
