"""A folder of tables: data files by split, as on a hub, or what ``save_to_disk`` of `datasets` left."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from coeval.core.errors import Undecodable, UsageError
from coeval.core.foreign import decode
from coeval.core.plain_file import file_bytes
from coeval.core.text import listed
from coeval.tables.source_bytes import unreadable

_SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".csv", ".tsv", ".json", ".arrow")
_BOOKKEEPING = {"dataset_info.json", "dataset_dict.json", "dataset_infos.json", "state.json"}
_SPLITS = {
    "train": "train", "training": "train",
    "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation",
    "test": "test", "testing": "test", "eval": "test", "evaluation": "test",
}  # fmt: skip
"""Word in a file's name → the split that it means."""


class FolderTables(NamedTuple):
    """The files of one split, in order; ``license`` and ``citation`` as the folder says, else empty."""

    files: list[Path]
    split: str | None
    license: str
    citation: str


def folder_tables(folder: Path, split: str | None) -> FolderTables:
    """
    Raises
    ------
    UsageError
        it holds no table, or several splits of which none, or none that is there, was named.
    """
    try:
        found = sorted(path for path in folder.rglob("*") if _is_table(path))
    except OSError as error:
        raise unreadable(folder, error) from error
    if not found:
        there = sorted({path.suffix for path in folder.rglob("*") if path.is_file() and path.suffix})[:8]
        held = f"; it holds {listed(there)}" if there else ""
        raise UsageError(f"there is no table in {folder} ({', '.join(_SUFFIXES)}, plain or .gz){held}")
    by_split: dict[str | None, list[Path]] = {}
    for path in found:
        by_split.setdefault(_split_of(path, folder), []).append(path)
    named = pick_split([name for name in by_split if name is not None], split, str(folder))
    files = by_split[named] if named is not None else found
    about = _about(files[0].parent) or _about(folder)
    return FolderTables(files, named, str(about.get("license") or ""), str(about.get("citation") or ""))


def pick_split(there: Sequence[str], wanted: str | None, where: str) -> str | None:
    """The split that is wanted; the only one, or ``test``, where nobody says.

    Raises
    ------
    UsageError
        it is not there, or several are and none is named.
    """
    if wanted is not None:
        if wanted in there:
            return wanted
        near = get_close_matches(wanted, there, n=1)
        meant = f"did you mean {near[0]}?" if near else f"it has {listed(there) or 'none'}"
        raise UsageError(f"{where} has no split {wanted}; {meant}")
    if len(there) <= 1:
        return next(iter(there), None)
    raise UsageError(f"{where} has the splits {listed(there)}; choose a split")


def _is_table(path: Path) -> bool:
    name = path.name.lower().removesuffix(".gz")
    hidden = path.name.startswith((".", "_")) or path.name in _BOOKKEEPING
    return name.endswith(_SUFFIXES) and not hidden and path.is_file()


def _split_of(path: Path, folder: Path) -> str | None:
    """By the words of its name, else of the folders between, the nearest first."""
    for part in reversed(path.relative_to(folder).parts):
        for word in re.split(r"[^a-z]+", part.lower()):
            if word in _SPLITS:
                return _SPLITS[word]
    return None


def _about(folder: Path) -> dict[str, Any]:
    """What ``dataset_info.json`` says; nothing where there is none to read."""
    try:
        return decode(file_bytes(folder / "dataset_info.json"), dict[str, Any])
    except (OSError, Undecodable):
        return {}
