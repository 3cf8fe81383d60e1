"""Sources of items: a file, a folder, a named benchmark, a data set of the hub."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from coeval.core.errors import Undecodable, UsageError
from coeval.core.foreign import convert, decode
from coeval.core.shown_url import mask_url
from coeval.core.text import join_names
from coeval.core.yaml_text import yaml_reader
from coeval.models.transport.network import SourceFailed, download, read_page
from coeval.store.jsonl import store_error
from coeval.store.output_folder import cache_folder, safe_file_name
from coeval.tables.item_map import ItemMap
from coeval.tables.source_bytes import make_read_error
from coeval.tables.table import Table, open_table

Progress = Callable[[str, int, int | None], None]
"""Called with ``(what, bytes so far, None)`` during a download."""


class SourceChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A requested source: ``name`` as written, ``local`` a copy of a benchmark's data on disk."""

    name: str
    local: Path | None = None
    subset: str | None = None
    split: str | None = None
    encoding: str | None = None
    delimiter: str | None = None


class DataSet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of the data set that a table belongs to, and of its place on the hub."""

    url: str = ""
    revision: str = ""
    subset: str = ""
    split: str = ""
    license: str = ""
    citation: str = ""


class TableSource(DataSet, frozen=True, kw_only=True):
    """The files of a source, and where they come from. ``map``: that of a named benchmark, else None."""

    name: str
    files: list[Path]
    encoding: str | None = None
    delimiter: str | None = None
    map: ItemMap | None = None

    def open_tables(self) -> Iterator[Table]:
        """Open the files one after the other; raises UsageError as `open_table`."""
        for path in self.files:
            yield open_table(path, self.encoding, self.delimiter)


# --- Folders of tables, by split

_SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".csv", ".tsv", ".json")
# What `datasets` writes about a folder, not tables.
_METADATA_FILES = {"dataset_info.json", "dataset_infos.json"}
# Word in a file's name → its split.
_SPLITS = {
    "train": "train", "training": "train",
    "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation",
    "test": "test", "testing": "test", "eval": "test", "evaluation": "test",
}  # fmt: skip


def _find_in_folder(choice: SourceChoice, folder: Path) -> TableSource:
    """List the tables of a folder's split, in order: those in it and in its ``data``, the layout of the hub.
    Raises UsageError: the folder has no table, or several splits and none of them is requested."""
    try:
        entries = sorted((*folder.iterdir(), *folder.glob("data/*")))
    except OSError as error:
        raise make_read_error(folder, error) from error
    tables = [entry for entry in entries if _is_table(entry)]
    if not tables:
        kinds = sorted({f"{entry.name}/" if entry.is_dir() else entry.suffix for entry in entries} - {""})
        held = f"; it holds {join_names(kinds)}" if kinds else ""
        raise UsageError(f"there is no table in {folder} ({', '.join(_SUFFIXES)}, plain or .gz){held}")
    by_split: dict[str | None, list[Path]] = {}
    for path in tables:
        by_split.setdefault(_split_in_name(path), []).append(path)
    split = _pick("split", [name for name in by_split if name is not None], choice.split, str(folder))
    return TableSource(
        name=choice.name,
        files=by_split[split] if split is not None else tables,
        encoding=choice.encoding,
        delimiter=choice.delimiter,
        split=split or "",
    )


def _pick(kind: str, names: Sequence[str], requested: str | None, owner: str, usual: str = "") -> str | None:
    """Choose the requested split or subset, else the only one or the ``usual`` one; None if there are none.
    Raises UsageError: ``owner`` lacks it, or has several and none is requested."""
    if requested is not None and requested not in names:
        meant = _suggest_name(requested, names, f"it has {join_names(names) or 'none'}")
        raise UsageError(f"{owner} has no {kind} {requested}; {meant}")
    if requested is None and len(names) > 1 and usual not in names:
        raise UsageError(f"{owner} has the {kind}s {join_names(names)}; choose a {kind}")
    return requested or (usual if usual in names else next(iter(names), None))


def _suggest_name(requested: str, names: Sequence[str], otherwise: str) -> str:
    near = get_close_matches(requested, names, n=1)
    return f"did you mean {near[0]}?" if near else otherwise


def _is_table(path: Path) -> bool:
    name = path.name.lower().removesuffix(".gz")
    hidden = path.name.startswith((".", "_")) or path.name in _METADATA_FILES
    return name.endswith(_SUFFIXES) and not hidden and path.is_file()


def _split_in_name(path: Path) -> str | None:
    """Find the split that a file's name mentions; None if none."""
    words = re.split(r"[^a-z]+", path.name.lower())
    return next((_SPLITS[word] for word in words if word in _SPLITS), None)


# --- Hub
#
# Data sets of the Hugging Face hub, read as the Parquet files that it converts each of them to.
#
# ``{hub}/api/datasets/{repo}`` has revision and licence, ``{hub}/api/datasets/{repo}/parquet`` the files
# by configuration and split (https://huggingface.co/docs/dataset-viewer/parquet). ``HF_ENDPOINT`` names a
# mirror.

_HUB = "https://huggingface.co"
# Not ``hub``, where earlier versions kept different subsets under one name.
_CACHE = "hub-tables"
# Bytes: far above any benchmark, too few to fill a usual disk.
_LARGEST = 16 << 30
# Pages of the hub's API take a second; its search may take several.
_PATIENCE_S = 30.0


_PageT = TypeVar("_PageT")


class _Card(msgspec.Struct):
    license: str | list[str] = ""


class _About(msgspec.Struct, rename={"card": "cardData"}):
    sha: str = ""
    card: _Card | None = None


def _fetch_from_hub(
    repo: str, subset: str | None, requested_split: str | None, progress: Progress | None
) -> TableSource:
    """Download the files of a split, unless the cache has this revision. ``subset`` None: the only one, or
    ``default``. Raises UsageError: the hub cannot be reached, or lacks the data set, subset or split;
    StoreError: the cache cannot be written."""
    base = (os.environ.get("HF_ENDPOINT") or _HUB).rstrip("/")
    api = f"{base}/api/datasets/{quote(repo)}"
    try:
        about = _read_api_page(api, _About)
        listing = _read_api_page(f"{api}/parquet", dict[str, dict[str, list[Any]]])
        config = _pick("subset", list(listing), subset, repo, usual="default") or ""
        splits = listing.get(config, {})
        split = _pick("split", list(splits), requested_split, f"{repo} ({config})")
        if split is None:
            raise UsageError(f"{repo} ({config}) has no splits on the hub")
        folder = cache_folder() / _CACHE / safe_file_name(repo) / safe_file_name(about.sha)
        files = []
        for number in range(len(splits[split])):
            url = f"{api}/parquet/{quote(config, safe='')}/{quote(split, safe='')}/{number}.parquet"
            path = folder / safe_file_name(config) / safe_file_name(split) / f"{number:05d}.parquet"
            if not (about.sha and path.is_file()):  # without a revision a cached file may be outdated
                _download_file(url, path, f"{repo} {config}/{split} {number + 1}", progress)
            files.append(path)
    except SourceFailed as error:
        raise UsageError(_explain_fetch_failure(repo, str(error))) from error
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


def _read_api_page(url: str, kind: type[_PageT]) -> _PageT:
    content = read_page(url, _PATIENCE_S)
    try:
        return decode(content, kind)
    except Undecodable as error:
        raise SourceFailed(f"{mask_url(url)} does not send what the hub documents: {error}") from error


def _download_file(url: str, path: Path, label: str, progress: Progress | None) -> None:
    """Download to a temporary file beside ``path``, then rename it: a file in the cache is always whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")

    def report(bytes_so_far: int) -> None:
        if progress is not None:
            progress(label, bytes_so_far, None)

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        report(0)
        download(url, temporary, _LARGEST, report)
        temporary.replace(path)
    except OSError as error:
        raise store_error("fetch into", path.parent, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def _explain_fetch_failure(repo: str, reason: str) -> str:
    if "status 401" in reason or "status 403" in reason:
        return (
            f"{repo} is not public on the hub ({reason}); download it with an account that has access,"
            " and name the folder"
        )
    if "status 404" in reason:
        return f"the hub has no data set {repo}, or no Parquet files of it ({reason})"
    return (
        f"{repo} cannot be fetched ({reason}). On a machine with network access, download "
        f"{_HUB}/datasets/{repo}, copy the folder here and name it instead (for a named benchmark: "
        "--from FOLDER). HF_ENDPOINT names a mirror of the hub"
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
    """Find a named benchmark, a file or folder, or a data set of the hub, in this order. Raises UsageError:
    nothing has this name, or it cannot be fetched."""
    if choice.name.lower() in named_benchmarks():
        return _find_benchmark(choice, progress)
    if choice.local is not None:
        names = join_names(named_benchmarks())
        raise UsageError(
            f"--from is for a benchmark's data, and {choice.name} is not a benchmark; there are {names}"
        )
    path = Path(choice.name).expanduser()
    repo = _HUB_PREFIX.sub("", choice.name)
    if path.exists() or not (repo != choice.name or (_REPO.fullmatch(repo) and not _looks_local(path))):
        return find_local_source(choice)
    return _fetch_from_hub(repo, choice.subset, choice.split, progress)


def find_local_source(choice: SourceChoice) -> TableSource:
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
        return _find_in_folder(choice, path)
    if not path.exists():
        raise UsageError(_explain_missing_file(path))
    if choice.split is not None:
        raise UsageError(f"only data sets have splits, and {path} is a single file; leave out the split")
    return TableSource(name=choice.name, files=[path], encoding=choice.encoding, delimiter=choice.delimiter)


def _find_benchmark(choice: SourceChoice, progress: Progress | None) -> TableSource:
    """Return a named benchmark's source, from the hub or from ``choice.local``, with its map and licence."""
    name, local = choice.name.lower(), choice.local
    row = named_benchmarks()[name]
    subset, split = choice.subset or row.config, choice.split or row.split
    if local is None:
        source = _fetch_from_hub(row.repo, subset, split, progress)
    else:
        local_split = split if local.is_dir() else choice.split
        source = find_local_source(msgspec.structs.replace(choice, name=str(local), split=local_split))
    return msgspec.structs.replace(
        source,
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
    """Check whether a name with a slash means a local file rather than a data set of the hub."""
    return (
        bool(re.fullmatch(r"\.(jsonl?|ndjson|csv|tsv|txt|parquet|gz|xlsx?)", path.suffix))
        or path.parent.is_dir()
    )


def _explain_missing_file(path: Path) -> str:
    if path.is_symlink():
        return f"{path} is a link to {path.readlink()}, where no file is"
    entries = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    if near := get_close_matches(path.name, entries, n=1):
        return f"there is no file {path}; did you mean {path.with_name(near[0])}?"
    if len(path.parts) == 1 and not path.suffix:
        names = list(named_benchmarks())
        meant = _suggest_name(path.name.lower(), names, f"there are {join_names(names, len(names))}")
        return f"there is no file {path}, and no benchmark of that name; {meant}"
    return f"there is no file {path} (looked for in {Path.cwd() if not path.is_absolute() else path.parent})"
