"""Where fetched files lie: ``~/.cache/coeval``, or the folder that ``COEVAL_CACHE`` names.

``parcels/`` holds what was fetched whole, ``files/`` what was taken out of it. Whatever stands
under its own name is whole: it was verified, and moved there in one step.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from coeval.benchmarks.assets.manifest import Asset, AssetFile
from coeval.core.plain_file import open_file
from coeval.store.jsonl import store_error

__all__ = ["Cache", "cache_folder", "is_whole", "nltk_folders", "sha256_of"]

NLTK_DATA = "nltk_data"


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    return Path(environment.get("COEVAL_CACHE") or "~/.cache/coeval").expanduser()


def nltk_folders(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """The user's own folders of NLTK data: those that ``NLTK_DATA`` names, then ``~/nltk_data``."""
    named = [entry for entry in environment.get("NLTK_DATA", "").split(os.pathsep) if entry]
    return [Path(entry).expanduser() for entry in (*named, f"~/{NLTK_DATA}")]


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hex; `StoreError` where it cannot be read."""
    try:
        with open_file(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise store_error("read", path, error) from error


def is_whole(path: Path, size: int | None) -> bool:
    """Whether a file of that size (any, if None) stands there."""
    try:
        found = path.stat().st_size
    except OSError:
        return False
    return found == size if size is not None else path.is_file()


class Cache:
    """The folder ``root``. Nothing is made or locked before something is to be written."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def place(self, asset: Asset) -> Path:
        """Where the asset is, or will be: its file, or its folder."""
        files = self.root / "files"
        return files / asset.folder if asset.folder else files / asset.files[0].path

    def file(self, asset: Asset, file: AssetFile) -> Path:
        return self.root / "files" / asset.folder / file.path

    def parcel(self, name: str) -> Path:
        return self.root / "parcels" / name

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """One process at a time; the others wait."""
        folder = self.root / "locks"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(folder / f"{name.replace('/', '_')}.lock")
            lock.acquire()
        except OSError as error:
            raise store_error("lock", folder, error) from error
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def workspace(self, name: str) -> Iterator[Path]:
        """An empty folder, removed afterwards; what a killed process left in it goes first."""
        folder = self.root / "partial" / name
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir(parents=True)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
