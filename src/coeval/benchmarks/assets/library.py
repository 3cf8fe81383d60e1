"""Asset library: presence, fetching, reading and verification."""

from __future__ import annotations

import csv
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coeval.benchmarks.assets.cache import (
    HUBS,
    NLTK_DATA,
    Asset,
    AssetFile,
    AssetMissing,
    Cache,
    Fetcher,
    Manifest,
    Progress,
    has_size,
    nltk_folders,
    read_manifest,
    sha256_of,
)
from coeval.core.errors import StoreError, Undecodable, UsageError
from coeval.core.foreign import decode
from coeval.core.regular_files import open_file
from coeval.models.transport.network import SourceFailed, download
from coeval.store.jsonl import read_json_if_whole, write_json_atomic
from coeval.store.output_folder import cache_folder, safe_file_name

# What could not be had is tried again once an hour, not at every start.
AGAIN_AFTER_S = 3600.0


class _Failure(msgspec.Struct, frozen=True):
    """When a parcel could not be fetched (seconds since 1970), and why: a row of the cache's
    ``unreachable.json``. Losing the file costs one more try."""

    at: float
    reason: str


# Seconds of silence after which a source of optional assets is given up: starts must not hang on them.
SOON_S = 3.0


class Presence(StrEnum):
    """Presence of an asset. ``PACKED``: in a cached parcel, so no network is needed."""

    READY = "yes"
    PACKED = "yes, packed"
    ABSENT = "no"


class AssetOrigin(StrEnum):
    """Origin of the content that was read. ``UNVERIFIED``: a cached file is not the pinned one."""

    OFFICIAL = "official"
    GIVEN = "given by the user"
    UNVERIFIED = "not verified"


class AssetUsed(msgspec.Struct, frozen=True):
    """An asset that a score depends on: the ``sha256`` of what was read, and its origin. A folder's hash is
    that of the lines that ``sha256sum`` prints of its files."""

    path: str
    sha256: str
    origin: AssetOrigin


class Check(NamedTuple):
    """Result of `Library.verify` for one asset; ``problem`` is empty if it passed."""

    name: str
    presence: Presence
    path: Path
    problem: str = ""


class Library:
    """Assets of a manifest, in a cache and the user's NLTK folders."""

    def __init__(self, manifest: Manifest | None = None, root: Path | None = None) -> None:
        self.manifest = manifest or read_manifest()
        self.cache = Cache(root or cache_folder())

    def ensure(
        self,
        names: Iterable[str],
        progress: Progress | None = None,
        *,
        given: Mapping[str, Path | str] | None = None,
        local: Path | None = None,
        rehash: bool = False,
    ) -> dict[str, Path]:
        """Fetch missing or unpinned assets, and return the path of each.

        ``given`` maps assets to the user's own files, used unchanged. ``local`` is a file or folder to copy
        from instead of downloading. Cached files are hashed if size or time changed; with ``rehash`` always.

        Raises AssetMissing: names every asset that no source has, each source's reason, and the ways out;
        UsageError: an unknown name, or a ``given`` file that does not exist.
        """
        fetcher = Fetcher(self.manifest, self.cache, progress, local)
        paths, reasons = self._locate(names, fetcher, given or {}, rehash=rehash)
        if reasons:
            raise self._missing_error(reasons)
        return paths

    def fetch_optional(
        self,
        names: Iterable[str],
        progress: Progress | None = None,
        *,
        given: Mapping[str, Path | str] | None = None,
        failed: Callable[[str, str], None] | None = None,
    ) -> dict[str, Path]:
        """Fetch optional assets as `ensure` does, with one short try, and return the paths of those
        available; call ``failed`` with name and reason of the others, which are tried again after an hour."""
        record, now = self.cache.root / "unreachable.json", time.time()
        failures = read_json_if_whole(record, dict[str, _Failure]) or {}
        lately = {
            key: failure.reason for key, failure in failures.items() if 0 <= now - failure.at < AGAIN_AFTER_S
        }
        fetcher = Fetcher(self.manifest, self.cache, progress, patience_s=SOON_S)
        fetcher.failed.update(lately)
        paths, absent = self._locate(names, fetcher, given or {}, tolerated=(SourceFailed, StoreError))
        if failed is not None:
            for name, reason in absent.items():
                if not lately.keys() & {*self.manifest.asset(name).parcels}:
                    failed(name, reason)
        if fresh := {key: _Failure(now, why) for key, why in fetcher.failed.items() if key not in lately}:
            with suppress(StoreError):
                write_json_atomic(record, failures | fresh)
        return paths

    def _locate(
        self,
        names: Iterable[str],
        fetcher: Fetcher,
        given: Mapping[str, Path | str],
        *,
        rehash: bool = False,
        tolerated: tuple[type[Exception], ...] = (SourceFailed,),
    ) -> tuple[dict[str, Path], dict[str, str]]:
        """Return the path of each asset, and the reason for each that is unavailable."""
        paths: dict[str, Path] = {}
        reasons: dict[str, str] = {}
        for name in names:
            asset = self.manifest.asset(name)
            try:
                if name in given:
                    paths[name] = self._check_own_copy(name, asset, Path(given[name]))
                else:
                    paths[name] = self._find_elsewhere_or_fetch_asset(asset, fetcher, rehash_cached=rehash)
            except tolerated as error:
                reasons[name] = str(error)
        return paths, reasons

    def presence(self, name: str) -> tuple[Presence, Path]:
        """Return whether an asset is available offline, and its path, present or not."""
        asset = self.manifest.asset(name)
        if (path := self._find_present_by_size(asset)) is not None:
            return Presence.READY, path
        parcels = [self.manifest.parcels[key] for key in asset.parcels]
        packed = any(has_size(self.cache.parcel_path(parcel.file), parcel.bytes) for parcel in parcels)
        return (Presence.PACKED if packed else Presence.ABSENT), self.cache.file_or_folder(asset)

    def verify(self, names: Iterable[str]) -> Iterator[Check]:
        for name in names:
            presence, path = self.presence(name)
            yield Check(name, presence, path, self._describe_damage(name, presence, path))

    def is_official(self, name: str, path: Path) -> bool:
        """Check whether ``path`` holds exactly the asset's pinned content."""
        paths = [file_path for file_path, _ in self._pinned_files(name, path)]
        return all(map(Path.is_file, paths)) and self.hash_asset(name, path).origin is AssetOrigin.OFFICIAL

    def _pinned_files(self, name: str, path: Path) -> list[tuple[Path, AssetFile]]:
        """List the paths of an asset's files, each with what the manifest pins."""
        asset = self.manifest.asset(name)
        return [(path / file.path if asset.folder else path, file) for file in asset.files]

    def hash_asset(self, name: str, path: Path) -> AssetUsed:
        """Hash the asset at ``path``, and determine its origin."""
        asset = self.manifest.asset(name)
        hashes = [(sha256_of(file_path), file) for file_path, file in self._pinned_files(name, path)]
        origin = AssetOrigin.UNVERIFIED if path == self.cache.file_or_folder(asset) else AssetOrigin.GIVEN
        if all(sha256 in file.sha256 for sha256, file in hashes):
            origin = AssetOrigin.OFFICIAL
        combined = hashes[0][0]
        if asset.folder:
            lines = "".join(f"{sha256}  {file.path}\n" for sha256, file in hashes)
            combined = hashlib.sha256(lines.encode()).hexdigest()
        return AssetUsed(str(path), combined, origin)

    def _describe_damage(self, name: str, presence: Presence, path: Path) -> str:
        asset = self.manifest.asset(name)
        if presence is Presence.READY:
            if self.is_official(name, path):
                return ""
            if path != self.cache.file_or_folder(asset):
                return "not the pinned copy (used all the same)"
            return f"damaged; `coeval datasets fetch {name}` replaces it"
        damaged = [
            parcel.file
            for parcel in (self.manifest.parcels[key] for key in asset.parcels)
            if self.cache.parcel_path(parcel.file).is_file()
            and sha256_of(self.cache.parcel_path(parcel.file)) != parcel.sha256
        ]
        return f"damaged: {', '.join(damaged)}; `coeval datasets fetch {name}` replaces it" if damaged else ""

    def _find_present_by_size(self, asset: Asset) -> Path | None:
        for folder in nltk_folders() if asset.folder == NLTK_DATA else ():
            if all((folder / file.path).is_file() for file in asset.files):
                return folder
        if all(has_size(self.cache.file_path(asset, file), file.bytes) for file in asset.files):
            return self.cache.file_or_folder(asset)
        return None

    def _find_elsewhere_or_fetch_asset(self, asset: Asset, fetcher: Fetcher, *, rehash_cached: bool) -> Path:
        cache_path = self.cache.file_or_folder(asset)
        ready = self._find_present_by_size(asset)
        if ready is not None and ready != cache_path:
            return ready
        if rehash_cached or not all(self.cache.holds(asset, file) for file in asset.files):
            fetcher.fetch_asset(asset, rehash=rehash_cached)
        return cache_path

    def _check_own_copy(self, name: str, asset: Asset, path: Path) -> Path:
        path = path.expanduser()
        absent = [file.path for file in asset.files if asset.folder and not (path / file.path).is_file()]
        if absent or not (path.is_dir() if asset.folder else path.is_file()):
            expected = f"a folder with {', '.join(absent)}" if asset.folder else "a file"
            raise UsageError(
                f"{name}: {path} is not {expected}; correct it, or leave it out to use the fetched one"
            )
        return path

    def _missing_error(self, failed: Mapping[str, str]) -> AssetMissing:
        reasons: dict[str, list[str]] = {}
        for name, reason in failed.items():
            reasons.setdefault(reason, []).append(name)
        lines = [f"  {', '.join(names)}\n    {reason}" for reason, names in reasons.items()]
        flags = dict.fromkeys(flag for name in failed if (flag := self.manifest.asset(name).flag))
        if any(self.manifest.asset(name).folder == NLTK_DATA for name in failed):
            flags["NLTK_DATA (in the environment)"] = None
        command = f"coeval datasets fetch {' '.join(failed)}"
        lines = [
            "these are missing, and no source provides them:",
            *lines,
            f"On a network, fetch them into {self.cache.root} (or a folder COEVAL_CACHE names):",
            f"  {command}",
            f"From your own files or wheels: {command} --from PATH",
        ]
        if flags:
            lines.append(f"Or name your own copy with {', '.join(flags)}.")
        return AssetMissing("\n".join(lines), tuple(failed))


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Read the records of a data file: JSONL or, by extension, JSON (array or object) or CSV. Raises
    UsageError: the file cannot be read, or a line of it is not a record; the message has file and line."""
    try:
        with TextIOWrapper(open_file(path), encoding="utf-8-sig", newline="") as file:
            match path.suffix.lower():
                case ".csv":
                    yield from csv.DictReader(file)
                case ".json":
                    content = _decode_json(file.read(), path, 1)
                    for number, record in enumerate(content if isinstance(content, list) else [content], 1):
                        yield _require_object(record, f"{path}: entry {number}")
                case _:
                    for number, line in enumerate(file, 1):
                        if line.strip():
                            yield _require_object(_decode_json(line, path, number), f"{path}:{number}")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not in UTF-8; save it as UTF-8") from error
    except (OSError, csv.Error) as error:
        raise UsageError(f"{path} cannot be read as records: {error}") from error


def _decode_json(text: str, path: Path, line: int) -> Any:
    try:
        return decode(text)
    except Undecodable as error:
        raise UsageError(f"{path}:{line} is not JSON: {error}") from error


def _require_object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{where} is not a JSON object")
    return value


# --- Assets from other places than the manifest's


def find_uncached_in_checkout(folder: Path, files: Mapping[str, str]) -> dict[str, Path]:
    """Return those of ``files`` (asset → path in ``folder``) that exist there and are not cached."""
    library = Library()
    return {
        asset: folder / path
        for asset, path in files.items()
        if library.presence(asset)[0] is Presence.ABSENT and (folder / path).is_file()
    }


def download_newest_from_hub(repository: str, file: str) -> Path:
    """Fetch a file of a hub dataset into the cache at its newest revision; raises SourceFailed."""
    hub = HUBS["huggingface"]
    path = hub.path.format(repo=repository, revision="main", path=file)
    target = cache_folder() / "given" / safe_file_name(repository) / file
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    download(f"{os.environ.get(hub.variable) or hub.url}/{path}", partial, None, lambda _: None)
    return partial.replace(target)
