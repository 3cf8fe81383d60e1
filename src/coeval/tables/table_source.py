"""Sources of items: a file, a folder, a named benchmark, a data set of the hub."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path

import msgspec

from coeval.core.errors import UsageError
from coeval.core.foreign import convert
from coeval.core.text import listed
from coeval.core.yaml_text import yaml_reader
from coeval.tables.hub import HubDataset, Progress, fetch_dataset, folder_tables
from coeval.tables.item_map import ItemMap
from coeval.tables.table import Table, open_table

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
