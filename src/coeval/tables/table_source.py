"""Sources of items: a file, a folder, a named benchmark, a data set of the hub."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from coeval.core.errors import Undecodable, UsageError
from coeval.core.foreign import convert, decode
from coeval.core.shown_url import mask_url
from coeval.core.text import join_names
from coeval.core.yaml_text import yaml_reader
from coeval.models.transport.network import SourceFailed, download, read_page
from coeval.store.jsonl import store_error
from coeval.store.output_folder import cache_folder, file_name_of
from coeval.tables.item_map import ItemMap
from coeval.tables.source_bytes import unreadable
from coeval.tables.table import Table, open_table

Progress = Callable[[str, int, int | None], None]
"""Called with ``(what, bytes so far, None)`` during a download."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChoice:
    """A requested source: ``name`` as written, ``local`` a copy of a benchmark's data on disk."""

    name: str
    local: Path | None = None
    subset: str | None = None
    split: str | None = None
    encoding: str | None = None
    delimiter: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """The files of a source. ``map`` is a named benchmark's, else None."""

    name: str
    files: list[Path]
    encoding: str | None = None
    delimiter: str | None = None
    url: str = ""
    revision: str = ""
    subset: str = ""
    split: str = ""
    license: str = ""
    citation: str = ""
    map: ItemMap | None = None

    def tables(self) -> Iterator[Table]:
        """Open the files one after the other; raises UsageError as `open_table`."""
        for path in self.files:
            yield open_table(path, self.encoding, self.delimiter)


# --- Folders of tables, by split

_SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".csv", ".tsv", ".json")
# What `datasets` says of a folder.
_ABOUT = {"dataset_info.json", "dataset_infos.json"}
# Word in a file's name → the split that it means.
_SPLITS = {
    "train": "train", "training": "train",
    "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation",
    "test": "test", "testing": "test", "eval": "test", "evaluation": "test",
}  # fmt: skip


def _of_folder(choice: SourceChoice, folder: Path) -> TableSource:
    """The tables of a folder's split, in order: those in it, and in its ``data``, as the hub keeps them.

    Raises UsageError: it holds no table, or several splits of which none, or none that is there, was named.
    """
    try:
        entries = sorted(entry for entry in (*folder.iterdir(), *folder.glob("data/*")))
    except OSError as error:
        raise unreadable(folder, error) from error
    found = [entry for entry in entries if _is_table(entry)]
    if not found:
        there = sorted({f"{entry.name}/" if entry.is_dir() else entry.suffix for entry in entries} - {""})
        held = f"; it holds {join_names(there)}" if there else ""
        raise UsageError(f"there is no table in {folder} ({', '.join(_SUFFIXES)}, plain or .gz){held}")
    by_split: dict[str | None, list[Path]] = {}
    for path in found:
        by_split.setdefault(_split_of(path), []).append(path)
    named = _pick_split([name for name in by_split if name is not None], choice.split, str(folder))
    return TableSource(
        name=choice.name,
        files=by_split[named] if named is not None else found,
        encoding=choice.encoding,
        delimiter=choice.delimiter,
        split=named or "",
    )


def _pick_split(there: Sequence[str], needed: str | None, where: str) -> str | None:
    """Choose the split: the requested one, else the only one.

    Raises UsageError: it is not there, or several are and none is named.
    """
    if needed is not None:
        if needed not in there:
            raise UsageError(f"{where} has no split {needed}; {_meant(needed, there, 'it has')}")
        return needed
    if len(there) <= 1:
        return next(iter(there), None)
    raise UsageError(f"{where} has the splits {join_names(there)}; choose a split")


def _meant(needed: str, there: Collection[str], otherwise: str) -> str:
    near = get_close_matches(needed, there, n=1)
    return f"did you mean {near[0]}?" if near else f"{otherwise} {join_names(there) or 'none'}"


def _is_table(path: Path) -> bool:
    name = path.name.lower().removesuffix(".gz")
    hidden = path.name.startswith((".", "_")) or path.name in _ABOUT
    return name.endswith(_SUFFIXES) and not hidden and path.is_file()


def _split_of(path: Path) -> str | None:
    """Find the split that a file's name mentions; None if none."""
    words = re.split(r"[^a-z]+", path.name.lower())
    return next((_SPLITS[word] for word in words if word in _SPLITS), None)


# --- Hub
#
# Data sets of the Hugging Face hub, read as the Parquet files that it converts each of them to.
#
# ``{hub}/api/datasets/{repo}`` tells revision and licence, ``{hub}/api/datasets/{repo}/parquet`` the files
# by configuration and split (https://huggingface.co/docs/dataset-viewer/parquet). ``HF_ENDPOINT`` names a
# mirror.

_HUB = "https://huggingface.co"
# Not ``hub``, where earlier versions kept different subsets under one name.
_CACHE = "hub-tables"
# Bytes: far above any benchmark, below what fills a usual disk unasked.
_LARGEST = 16 << 30
# Pages of the hub's API take a second; its search may take several.
_PATIENCE_S = 30.0


class _Card(msgspec.Struct):
    license: str | list[str] = ""


class _About(msgspec.Struct, rename={"card": "cardData"}):
    sha: str = ""
    card: _Card | None = None


def _of_hub(repo: str, subset: str | None, needed: str | None, progress: Progress | None) -> TableSource:
    """Download the files of a split, unless this revision is in the cache. ``subset``: None for the only one,
    or ``default``.

    Raises UsageError: the hub cannot be reached, or has no such data set, subset or split; StoreError: the
    cache cannot be written.
    """
    base = (os.environ.get("HF_ENDPOINT") or _HUB).rstrip("/")
    api = f"{base}/api/datasets/{quote(repo)}"
    try:
        about = _page(api, _About)
        listing: dict[str, dict[str, list[Any]]] = _page(f"{api}/parquet", dict[str, dict[str, list[Any]]])
        config = _pick_config(list(listing), subset, repo)
        split = _pick_split(list(listing[config]), needed, f"{repo} ({config})")
        if split is None:
            raise UsageError(f"{repo} ({config}) has no splits on the hub")
        folder = cache_folder() / _CACHE / file_name_of(repo) / file_name_of(about.sha)
        files = []
        for number in range(len(listing[config][split])):
            url = f"{api}/parquet/{quote(config, safe='')}/{quote(split, safe='')}/{number}.parquet"
            place = folder / file_name_of(config) / file_name_of(split) / f"{number:05d}.parquet"
            if not (about.sha and place.is_file()):  # of an unknown revision nothing is kept for good
                _bring(url, place, f"{repo} {config}/{split} {number + 1}", progress)
            files.append(place)
    except SourceFailed as error:
        raise UsageError(_out_of_reach(repo, str(error))) from error
    license_of = about.card.license if about.card is not None else ""
    return TableSource(
        name=repo,
        files=files,
        url=f"{_HUB}/datasets/{repo}",
        revision=about.sha,
        subset=subset or "",
        split=split,
        license=license_of if isinstance(license_of, str) else ", ".join(license_of),
    )


def _page(url: str, kind: Any) -> Any:
    content = read_page(url, _PATIENCE_S)
    try:
        return decode(content, kind)
    except Undecodable as error:
        raise SourceFailed(f"{mask_url(url)} sends something else than it should: {error}") from error


def _pick_config(there: Sequence[str], needed: str | None, repo: str) -> str:
    if needed is None:
        if len(there) == 1 or "default" in there:
            return there[0] if len(there) == 1 else "default"
        raise UsageError(f"{repo} has the subsets {join_names(there)}; choose a subset")
    if needed not in there:
        raise UsageError(f"{repo} has no subset {needed}; {_meant(needed, there, 'it has')}")
    return needed


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


def _out_of_reach(repo: str, reason: str) -> str:
    if "status 401" in reason or "status 403" in reason:
        return (
            f"the hub does not give {repo} to everybody ({reason}); fetch it with an account that may "
            "have it, and give the folder"
        )
    if "status 404" in reason:
        return f"the hub has no data set {repo}, or no Parquet files of it ({reason})"
    return (
        f"{repo} cannot be fetched ({reason}). Where there is a network, fetch the data set from "
        f"{_HUB}/datasets/{repo}, bring the folder here and name it in its place (for a benchmark of "
        "ours: --from FOLDER). HF_ENDPOINT names a mirror of the hub"
    )


# --- Named benchmarks: ``benchmarks.yaml``

PACKAGED_BENCHMARKS = Path(__file__).with_name("benchmarks.yaml")


class NamedBenchmark(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A split of a hub data set, and its map to items."""

    about: str
    repo: str
    config: str
    split: str
    license: str
    citation: str
    map: ItemMap


@cache
def named_benchmarks() -> dict[str, NamedBenchmark]:
    data = yaml_reader().load(PACKAGED_BENCHMARKS.read_text(encoding="utf-8"))
    return convert(data, dict[str, NamedBenchmark])


_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_HUB_PREFIX = re.compile(r"(hf://datasets/|https://huggingface\.co/datasets/)")


def find_source(choice: SourceChoice, progress: Progress | None = None) -> TableSource:
    """Find the source of a name.

    Raises UsageError: there is no such thing, or it cannot be fetched.
    """
    if choice.name.lower() in named_benchmarks():
        return _benchmark(choice, progress)
    if choice.local is not None:
        names = join_names(named_benchmarks())
        raise UsageError(f"--from is for a benchmark's data, and {choice.name} is none; there are {names}")
    path = Path(choice.name).expanduser()
    repo = _HUB_PREFIX.sub("", choice.name)
    if path.exists() or not (repo != choice.name or (_REPO.fullmatch(repo) and not _looks_local(path))):
        return local_source(choice)
    return _of_hub(repo, choice.subset, choice.split, progress)


def local_source(choice: SourceChoice) -> TableSource:
    """Find a file or folder; the UsageError for a missing one suggests similar names."""
    if _ADDRESS.match(choice.name):
        raise UsageError(
            f"{choice.name} is an address, which is not fetched: download it, and name the file. Data sets "
            "of the hub are fetched by `coeval ingest OWNER/NAME`."
        )
    path = Path(choice.name).expanduser()
    if choice.subset is not None:
        raise UsageError(
            f"only Hub data sets have subsets, and {path} is local; name the subset's folder or file"
        )
    if path.is_dir():
        return _of_folder(choice, path)
    if not path.exists():
        raise UsageError(_nothing_there(path))
    if choice.split is not None:
        raise UsageError(f"only data sets have splits, and {path} is a single file; leave out the split")
    return TableSource(name=choice.name, files=[path], encoding=choice.encoding, delimiter=choice.delimiter)


def _benchmark(choice: SourceChoice, progress: Progress | None) -> TableSource:
    name, local = choice.name.lower(), choice.local
    row = named_benchmarks()[name]
    subset, split = choice.subset or row.config, choice.split or row.split
    if local is None:
        found = _of_hub(row.repo, subset, split, progress)
    else:
        of = split if local.is_dir() else choice.split
        found = local_source(replace(choice, name=str(local), split=of))
    return replace(
        found,
        name=name,
        url=f"{_HUB}/datasets/{row.repo}",
        subset=subset,
        split=split,
        license=row.license,
        citation=row.citation,
        map=row.map,
        encoding=choice.encoding,
        delimiter=choice.delimiter,
    )


def _looks_local(path: Path) -> bool:
    """Whether a name with a slash means a file here rather than a data set of the hub."""
    return (
        bool(re.fullmatch(r"\.(jsonl?|ndjson|csv|tsv|txt|parquet|gz|xlsx?)", path.suffix))
        or path.parent.is_dir()
    )


def _nothing_there(path: Path) -> str:
    if path.is_symlink():
        return f"{path} is a link to {path.readlink()}, where no file is"
    near: list[str] = []
    if path.parent.is_dir():
        near = get_close_matches(path.name, (entry.name for entry in path.parent.iterdir()), n=1)
    if near:
        return f"there is no file {path}; did you mean {path.with_name(near[0])}?"
    if len(path.parts) == 1 and not path.suffix:
        names = list(named_benchmarks())
        near = get_close_matches(path.name.lower(), names, n=1)
        meant = f"did you mean {near[0]}?" if near else f"there are {join_names(names, len(names))}"
        return f"there is no file {path}, and no benchmark of that name; {meant}"
    return f"there is no file {path} (looked for in {Path.cwd() if not path.is_absolute() else path.parent})"
