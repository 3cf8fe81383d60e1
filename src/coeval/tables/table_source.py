"""Sources of items: a file, a folder, a named benchmark, a data set of the hub."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from coeval.core.errors import Undecodable, UsageError
from coeval.core.foreign import convert, decode
from coeval.core.plain import file_bytes
from coeval.core.shown_url import shown_url
from coeval.core.text import listed
from coeval.core.yaml_text import yaml_reader
from coeval.models.transport.network import SourceFailed, download, read_page
from coeval.store.jsonl import store_error
from coeval.store.output_folder import cache_folder, file_name_of
from coeval.tables.item_map import ItemMap
from coeval.tables.source_bytes import unreadable
from coeval.tables.table import Table, open_table

# --- Hub
#
# Data sets of the Hugging Face hub, read as the Parquet files that it converts each of them to.
#
# ``{hub}/api/datasets/{repo}`` tells revision and licence, ``{hub}/api/datasets/{repo}/parquet`` the files
# by configuration and split (https://huggingface.co/docs/dataset-viewer/parquet). ``HF_ENDPOINT`` names a
# mirror.

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


def find_source(choice: SourceChoice, progress: Progress | None = None) -> TableSource:
    """Find the source of a name.

    Raises UsageError: there is no such thing, or it cannot be fetched.
    """
    benchmark = named_benchmarks().get(choice.name.lower())
    if benchmark is not None:
        return _benchmark(choice, progress)
    if choice.local is not None:
        names = listed(named_benchmarks())
        raise UsageError(f"--from is for a benchmark's data, and {choice.name} is none; there are {names}")
    path = Path(choice.name).expanduser()
    repo = _HUB_PREFIX.sub("", choice.name)
    if path.exists() or not (repo != choice.name or (_REPO.fullmatch(repo) and not _looks_local(path))):
        return local_source(choice)
    found = fetch_dataset(HubDataset(repo, choice.subset, choice.split), progress)
    return TableSource(
        name=repo,
        files=found.files,
        url=found.url,
        revision=found.revision,
        subset=choice.subset or "",
        split=found.split or "",
        license=found.license,
    )


def local_source(choice: SourceChoice) -> TableSource:
    """Find a file or folder; the UsageError for a missing one suggests similar names."""
    if _ADDRESS.match(choice.name):
        raise UsageError(
            f"{choice.name} is an address, which is not fetched: download it, and name the file. Data sets "
            "of the hub are fetched by `coeval ingest OWNER/NAME`."
        )
    path = Path(choice.name).expanduser()
    if path.is_dir():
        return _folder(choice, path)
    if not path.exists():
        raise UsageError(_nothing_there(path))
    for option, value in (("a subset", choice.subset), ("a split", choice.split)):
        if value is not None:
            raise UsageError(f"{option} is chosen of data sets, and {path} is a single file; leave it out")
    return TableSource(name=choice.name, files=[path], encoding=choice.encoding, delimiter=choice.delimiter)


def _benchmark(choice: SourceChoice, progress: Progress | None) -> TableSource:
    name = choice.name.lower()
    row = named_benchmarks()[name]
    subset, split = choice.subset or row.config, choice.split or row.split
    url, revision = f"https://huggingface.co/datasets/{row.repo}", ""
    if choice.local is None:
        fetched = fetch_dataset(HubDataset(row.repo, subset, split), progress)
        files, revision = fetched.files, fetched.revision
    elif choice.local.is_dir():
        whole = choice.subset is None and not (choice.local / subset).is_dir()
        files = folder_tables(choice.local if whole else _subset_of(choice.local, subset), split).files
    else:
        files = [choice.local]
    return TableSource(
        name=name,
        files=files,
        url=url,
        revision=revision,
        subset=subset,
        split=split,
        license=row.license,
        citation=row.citation,
        map=row.map,
        encoding=choice.encoding,
        delimiter=choice.delimiter,
    )


def _folder(choice: SourceChoice, path: Path) -> TableSource:
    found = folder_tables(path if choice.subset is None else _subset_of(path, choice.subset), choice.split)
    return TableSource(
        name=choice.name,
        files=found.files,
        encoding=choice.encoding,
        delimiter=choice.delimiter,
        subset=choice.subset or "",
        split=found.split or "",
        license=found.license,
        citation=found.citation,
    )


def _subset_of(folder: Path, subset: str) -> Path:
    """The folder of a subset; raises UsageError where there is none, since others' items are not its."""
    if Path(subset).name == subset and (folder / subset).is_dir():
        return folder / subset
    there = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    near = get_close_matches(subset, there, n=1)
    meant = f"did you mean {near[0]}?" if near else f"its folders are {listed(there) or 'none'}"
    raise UsageError(f"{folder} has no folder of the subset {subset}; {meant}")


def _looks_local(path: Path) -> bool:
    """Whether a name with a slash means a file here rather than a data set of the hub."""
    return (
        bool(re.fullmatch(r"\.(jsonl?|ndjson|csv|tsv|txt|parquet|gz|xlsx?|arrow)", path.suffix))
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
        meant = f"did you mean {near[0]}?" if near else f"there are {listed(names, len(names))}"
        return f"there is no file {path}, and no benchmark of that name; {meant}"
    return f"there is no file {path} (looked for in {Path.cwd() if not path.is_absolute() else path.parent})"
