"""Data sets of the Hugging Face hub, read as the Parquet files that it converts each of them to.

``{hub}/api/datasets/{repo}`` tells revision and licence, ``{hub}/api/datasets/{repo}/parquet`` the files by
configuration and split (https://huggingface.co/docs/dataset-viewer/parquet). ``HF_ENDPOINT`` names a mirror.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from coeval.core.errors import Undecodable, UsageError
from coeval.core.foreign import decode
from coeval.core.plain import file_bytes
from coeval.core.shown_url import shown_url
from coeval.core.text import listed
from coeval.models.transport.network import SourceFailed, download, read_page
from coeval.store.jsonl import store_error
from coeval.store.output_folder import cache_folder, file_name_of
from coeval.tables.source_bytes import unreadable

# --- Folders of tables, by split

_SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".csv", ".tsv", ".json", ".arrow")
_BOOKKEEPING = {"dataset_info.json", "dataset_dict.json", "dataset_infos.json", "state.json"}
# Word in a file's name → the split that it means.
_SPLITS = {
    "train": "train", "training": "train",
    "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation",
    "test": "test", "testing": "test", "eval": "test", "evaluation": "test",
}  # fmt: skip


class FolderTables(NamedTuple):
    """Files of one split, in order; ``license`` and ``citation`` from the folder, else empty."""

    files: list[Path]
    split: str | None
    license: str
    citation: str


def folder_tables(folder: Path, split: str | None) -> FolderTables:
    """Find the tables of a folder's split.

    Raises UsageError: it holds no table, or several splits of which none, or none that is there, was named.
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


def pick_split(there: Sequence[str], needed: str | None, where: str) -> str | None:
    """Choose the split: the requested one, else the only one or ``test``.

    Raises UsageError: it is not there, or several are and none is named.
    """
    if needed is not None:
        if needed in there:
            return needed
        near = get_close_matches(needed, there, n=1)
        meant = f"did you mean {near[0]}?" if near else f"it has {listed(there) or 'none'}"
        raise UsageError(f"{where} has no split {needed}; {meant}")
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


_HUB = "https://huggingface.co"
# Not ``hub``, where earlier versions kept different subsets under one name.
_CACHE = "hub-tables"
# Bytes: far above any benchmark, below what fills a usual disk unasked.
_LARGEST = 16 << 30
# Pages of the hub's API take a second; its search may take several.
_PATIENCE_S = 30.0

Progress = Callable[[str, int, int | None], None]
"""Called with ``(what, bytes so far, None)`` during a download."""


class HubDataset(NamedTuple):
    """A data set. ``config`` is the hub's name of a subset; None for the only one, or ``default``."""

    repo: str
    config: str | None = None
    split: str | None = None


class HubTables(NamedTuple):
    """Files of one split in the cache, in order."""

    files: list[Path]
    url: str
    revision: str
    license: str
    split: str | None


class _Card(msgspec.Struct):
    license: str | list[str] = ""


class _About(msgspec.Struct, rename={"card": "cardData"}):
    sha: str = ""
    card: _Card | None = None


def fetch_dataset(needed: HubDataset, progress: Progress | None = None) -> HubTables:
    """Download the files of a split, unless this revision is in the cache.

    Raises UsageError: the hub cannot be reached, or has no such data set, configuration or split; StoreError:
    the cache cannot be written.
    """
    base = (os.environ.get("HF_ENDPOINT") or _HUB).rstrip("/")
    api = f"{base}/api/datasets/{quote(needed.repo)}"
    try:
        about = _page(api, _About)
        listing: dict[str, dict[str, list[Any]]] = _page(f"{api}/parquet", dict[str, dict[str, list[Any]]])
        config = _pick_config(listing, needed)
        split = pick_split(list(listing[config]), needed.split, f"{needed.repo} ({config})")
        if split is None:
            raise UsageError(f"{needed.repo} ({config}) has no splits on the hub")
        folder = cache_folder() / _CACHE / file_name_of(needed.repo) / file_name_of(about.sha)
        files = []
        for number in range(len(listing[config][split])):
            url = f"{api}/parquet/{quote(config, safe='')}/{quote(split, safe='')}/{number}.parquet"
            place = folder / file_name_of(config) / file_name_of(split) / f"{number:05d}.parquet"
            if not (about.sha and place.is_file()):  # of an unknown revision nothing is kept for good
                _bring(url, place, f"{needed.repo} {config}/{split} {number + 1}", progress)
            files.append(place)
    except SourceFailed as error:
        raise UsageError(_out_of_reach(needed, str(error))) from error
    license_of = about.card.license if about.card is not None else ""
    reported = license_of if isinstance(license_of, str) else ", ".join(license_of)
    return HubTables(files, f"{_HUB}/datasets/{needed.repo}", about.sha, reported, split)


def _page(url: str, kind: Any) -> Any:
    _, content = read_page(url, "application/json", _PATIENCE_S)
    try:
        return decode(content, kind)
    except Undecodable as error:
        raise SourceFailed(f"{shown_url(url)} sends something else than it should: {error}") from error


def _pick_config(listing: Mapping[str, Any], needed: HubDataset) -> str:
    there: Sequence[str] = list(listing)
    if needed.config is None:
        if len(there) == 1 or "default" in there:
            return there[0] if len(there) == 1 else "default"
        raise UsageError(f"{needed.repo} has the subsets {listed(there)}; choose a subset")
    if needed.config in there:
        return needed.config
    near = get_close_matches(needed.config, there, n=1)
    meant = f"did you mean {near[0]}?" if near else f"it has {listed(there) or 'none'}"
    raise UsageError(f"{needed.repo} has no subset {needed.config}; {meant}")


def _bring(url: str, place: Path, what: str, progress: Progress | None) -> None:
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")

    def tell(taken: int) -> None:
        if progress is not None:
            progress(what, taken, None)

    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        tell(0)
        download(url, temporary, _LARGEST, tell)
        temporary.replace(place)
    except OSError as error:
        raise store_error("fetch into", place.parent, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def _out_of_reach(needed: HubDataset, reason: str) -> str:
    if "status 401" in reason or "status 403" in reason:
        return (
            f"the hub does not give {needed.repo} to everybody ({reason}); fetch it with an account that may "
            "have it, and give the folder"
        )
    if "status 404" in reason:
        return f"the hub has no data set {needed.repo}, or no Parquet files of it ({reason})"
    return (
        f"{needed.repo} cannot be fetched ({reason}). Where there is a network, fetch the data set from "
        f"{_HUB}/datasets/{needed.repo}, bring the folder here and name it in its place (for a benchmark of "
        "ours: --from FOLDER). HF_ENDPOINT names a mirror of the hub"
    )
