"""Data sets of the Hugging Face hub, as the Parquet files that it makes of every one of them.

``{hub}/api/datasets/{repo}`` tells revision and licence, ``{hub}/api/datasets/{repo}/parquet`` the files by
configuration and split (https://huggingface.co/docs/dataset-viewer/parquet). ``HF_ENDPOINT`` names a mirror.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from coeval.core.errors import Undecodable, UsageError
from coeval.core.foreign import decode
from coeval.core.secrets.shown_url import shown_url
from coeval.core.text import listed
from coeval.models.transport.download import SourceFailed, download, read_page
from coeval.store.cache_folder import cache_folder, file_name_of
from coeval.store.jsonl import store_error
from coeval.tables.dataset_folder import pick_split

_HUB = "https://huggingface.co"
_CACHE = "hub-tables"
"""Not ``hub``, where earlier versions kept different subsets under one name."""
_LARGEST = 16 << 30
_PATIENCE_S = 30.0

Progress = Callable[[str, int, int | None], None]
"""Told ``(what, bytes so far, None)`` while something is fetched."""


class HubDataset(NamedTuple):
    """``config`` is what the hub calls a subset; None for the only one, or ``default``."""

    repo: str
    config: str | None = None
    split: str | None = None


class HubTables(NamedTuple):
    """The files of one split as they lie in the cache, in order."""

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


def fetch_dataset(wanted: HubDataset, progress: Progress | None = None) -> HubTables:
    """Bring the files of a split into the cache, where they are not there yet in this revision.

    Raises
    ------
    UsageError
        the hub cannot be reached, or has no such data set, configuration or split.
    StoreError
        the cache cannot be written.
    """
    base = (os.environ.get("HF_ENDPOINT") or _HUB).rstrip("/")
    api = f"{base}/api/datasets/{quote(wanted.repo)}"
    try:
        about = _page(api, _About)
        listing: dict[str, dict[str, list[Any]]] = _page(f"{api}/parquet", dict[str, dict[str, list[Any]]])
        config = _pick_config(listing, wanted)
        split = pick_split(list(listing[config]), wanted.split, f"{wanted.repo} ({config})")
        if split is None:
            raise UsageError(f"{wanted.repo} ({config}) has no splits on the hub")
        folder = cache_folder() / _CACHE / file_name_of(wanted.repo) / file_name_of(about.sha)
        files = []
        for number in range(len(listing[config][split])):
            url = f"{api}/parquet/{quote(config, safe='')}/{quote(split, safe='')}/{number}.parquet"
            place = folder / file_name_of(config) / file_name_of(split) / f"{number:05d}.parquet"
            if not (about.sha and place.is_file()):  # of an unknown revision nothing is kept for good
                _bring(url, place, f"{wanted.repo} {config}/{split} {number + 1}", progress)
            files.append(place)
    except SourceFailed as error:
        raise UsageError(_out_of_reach(wanted, str(error))) from error
    license_of = about.card.license if about.card is not None else ""
    told = license_of if isinstance(license_of, str) else ", ".join(license_of)
    return HubTables(files, f"{_HUB}/datasets/{wanted.repo}", about.sha, told, split)


def _page(url: str, kind: Any) -> Any:
    _, content = read_page(url, "application/json", _PATIENCE_S)
    try:
        return decode(content, kind)
    except Undecodable as error:
        raise SourceFailed(f"{shown_url(url)} sends something else than it should: {error}") from error


def _pick_config(listing: Mapping[str, Any], wanted: HubDataset) -> str:
    there: Sequence[str] = list(listing)
    if wanted.config is None:
        if len(there) == 1 or "default" in there:
            return there[0] if len(there) == 1 else "default"
        raise UsageError(f"{wanted.repo} has the subsets {listed(there)}; choose a subset")
    if wanted.config in there:
        return wanted.config
    near = get_close_matches(wanted.config, there, n=1)
    meant = f"did you mean {near[0]}?" if near else f"it has {listed(there) or 'none'}"
    raise UsageError(f"{wanted.repo} has no subset {wanted.config}; {meant}")


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


def _out_of_reach(wanted: HubDataset, reason: str) -> str:
    if "status 401" in reason or "status 403" in reason:
        return (
            f"the hub does not give {wanted.repo} to everybody ({reason}); fetch it with an account that may "
            "have it, and give the folder"
        )
    if "status 404" in reason:
        return f"the hub has no data set {wanted.repo}, or no Parquet files of it ({reason})"
    return (
        f"{wanted.repo} cannot be fetched ({reason}). Where there is a network, fetch the data set from "
        f"{_HUB}/datasets/{wanted.repo}, bring the folder here and name it in its place (for a benchmark of "
        "ours: --from FOLDER). HF_ENDPOINT names a mirror of the hub"
    )
