"""What lies in a run's folder is the run's own: files and folders, and no link that leads out of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from coeval.core.errors import StoreError
from coeval.core.plain_file import kind_of
from coeval.store.jsonl import store_error

__all__ = ["refuse_foreign"]


def refuse_foreign(folder: Path, below: Iterable[str]) -> None:
    """Look at what a folder and those ``below`` it hold; where there is no folder, all is well.

    Raises
    ------
    StoreError
        something is a pipe, a socket or a device, or a link to somewhere else; it is named.
    """
    try:
        root = folder.resolve()
        for place in (folder, *(folder / name for name in below)):
            for entry in _entries(place):
                _refuse(entry, root)
    except OSError as error:
        raise store_error("read", folder, error) from error


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError):
        return


def _refuse(entry: os.DirEntry[str], root: Path) -> None:
    if entry.is_symlink():
        target = Path(os.path.realpath(entry.path))  # `resolve` has no word for links in a circle
        if not target.is_relative_to(root):
            raise StoreError(
                f"{entry.path} is a link to {target}, outside of its run, and is neither read nor written; "
                "put a copy in its place"
            )
    elif not entry.is_file() and not entry.is_dir():
        kind = kind_of(entry.stat(follow_symlinks=False).st_mode)
        raise StoreError(f"{entry.path} is {kind}, not a file; take it away")
