"""Benchmark assets: data and judge prompts, fetched on demand and verified.

None is kept in the repository. `ensure` fetches everything a task needs before a model is called;
`load_asset`, `records` and `template` return one asset, fetching it if missing. All raise `AssetMissing` with
the ways out where no source has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from coeval.benchmarks.assets.cache import AssetMissing
from coeval.benchmarks.assets.fetch import Progress
from coeval.benchmarks.assets.library import Check, Library, Presence, read_records

__all__ = [
    "AssetMissing",
    "Check",
    "Library",
    "Presence",
    "Progress",
    "ensure",
    "load_asset",
    "read_records",
    "records",
    "template",
    "verify",
]


def ensure(
    names: Iterable[str], progress: Progress | None = None, *, given: Mapping[str, Path | str] | None = None
) -> dict[str, Path]:
    """Fetch missing assets and return the place of each; see `Library.ensure`."""
    return Library().ensure(names, progress, given=given)


def load_asset(name: str, path: Path | str | None = None, progress: Progress | None = None) -> Path:
    """Return the asset's file, or its folder (NLTK data: the one to name in ``NLTK_DATA``).

    ``path`` is the user's own copy, used unchanged.
    """
    return ensure([name], progress, given=None if path is None else {name: path})[name]


def records(name: str, path: Path | str | None = None) -> Iterator[dict[str, Any]]:
    """Read the records of a data asset, one at a time; see `read_records`."""
    return read_records(load_asset(name, path))


def template(name: str, path: Path | str | None = None) -> str:
    """Read a judge's prompt, exactly as published."""
    return load_asset(name, path).read_text(encoding="utf-8")


def verify(names: Iterable[str] = ("all",)) -> list[Check]:
    """Compare present assets with the manifest's SHA-256; names as in `Manifest.select`."""
    library = Library()
    return list(library.verify(library.manifest.select(names)))
