"""A run's datapoints as a data set of its own: JSON lines, Parquet, and where all of it comes from, with
hashes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from coeval.analysis.measures.benchmark_measures import ItemMeasures
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import StoreError, UsageError
from coeval.store.jsonl import read_json, store_error, write_bytes_atomic

PROVENANCE = "provenance.json"


class ExportedFile(msgspec.Struct, frozen=True):
    """``path`` within the folder; ``rows`` of a task."""

    path: str
    task: str
    rows: int
    sha256: str


class ExportedBenchmark(msgspec.Struct, frozen=True):
    """What was written, as ``provenance.json`` has it. ``sources`` are those of the run's ``sources.json``:
    where items that are no model's were taken from, and under which licence. ``simulated``: simulated models
    took part; ``simulated_teachers`` wrote items."""

    experiment: str
    created_at: str
    coeval_version: str
    simulated: bool
    teachers: tuple[str, ...]
    files: tuple[ExportedFile, ...]
    sources: Any = None
    simulated_teachers: tuple[str, ...] = ()


def export_benchmark(reader: RunReader, items: Mapping[str, ItemMeasures], out: Path) -> ExportedBenchmark:
    """Write the good datapoints that count in a run into a new folder. ``items`` are those of
    `coeval.analysis.measures.benchmark_measures`: what was found of each stands beside it.

    Raises UsageError: the folder holds something already, or there is no datapoint; StoreError: a file cannot
    be read or written.
    """
    if not items:
        raise UsageError(f"{reader.run.path} holds no datapoints; there is nothing to export")
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UsageError(f"{out} is there already; name a new folder for the data set")
        (out / "data").mkdir(parents=True, exist_ok=True)
        (out / "jsonl").mkdir(exist_ok=True)
    except OSError as error:
        raise store_error("write", out, error) from error
    rows = _rows(reader, items)
    files: list[ExportedFile] = []
    for task, of_task in rows.items():
        lines = out / "jsonl" / f"{task}.jsonl"
        parquet = out / "data" / f"{task}.parquet"
        write_bytes_atomic(lines, b"".join(msgspec.json.encode(row) + b"\n" for row in of_task))
        _write_parquet(lines, parquet, list(of_task[0]))
        for path in (lines, parquet):
            relative = path.relative_to(out).as_posix()
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            files.append(ExportedFile(relative, task, len(of_task), digest))
    found = _provenance(reader, rows, files)
    provenance = msgspec.json.format(msgspec.json.encode(found), indent=2)
    write_bytes_atomic(out / PROVENANCE, provenance + b"\n")
    return found


def _rows(reader: RunReader, items: Mapping[str, ItemMeasures]) -> dict[str, list[dict[str, Any]]]:
    """By task, the same columns in every row: an attribute has one of its own, named ``attribute_NAME``."""
    texts = reader.texts(items)
    attributes = {
        item: found or {}
        for item, found in reader.rows("SELECT item, attributes FROM items WHERE NOT failed")
    }
    names: dict[str, dict[str, None]] = {}
    for item, measures in items.items():
        names.setdefault(measures.task, {}).update(dict.fromkeys(sorted(attributes.get(item, {}))))
    rows: dict[str, list[dict[str, Any]]] = {}
    for item, measures in sorted(items.items()):
        if item not in texts:
            continue
        task, text = measures.task, texts[item]
        rows.setdefault(task, []).append(
            {
                "id": item,
                "task": task,
                "teacher": measures.teacher,
                "prompt": text.prompt,
                "reference_response": text.reference_response,
                **{f"attribute_{name}": attributes[item].get(name) for name in names[task]},
                "difficulty": measures.difficulty,
                "discrimination": measures.discrimination,
                "near_duplicate_of": measures.near_duplicate_of,
            }
        )
    return rows


_NUMBERS = ("difficulty", "discrimination")


def _write_parquet(lines: Path, parquet: Path, columns: Sequence[str]) -> None:
    kinds = {name: "DOUBLE" if name in _NUMBERS else "VARCHAR" for name in columns}
    with duckdb.connect(":memory:") as db:
        try:
            rows = db.read_json(
                str(lines), format="newline_delimited", columns=kinds, maximum_object_size=1 << 28
            )
            rows.write_parquet(str(parquet))
        except duckdb.Error as error:
            raise StoreError(f"cannot write {parquet}: {error}") from error


def _provenance(
    reader: RunReader, rows: Mapping[str, Sequence[Mapping[str, Any]]], files: Sequence[ExportedFile]
) -> ExportedBenchmark:
    meta: dict[str, Any] = {}
    sources: Any = None
    try:
        meta = read_json(reader.run.meta, dict[str, Any])
    except FileNotFoundError:
        meta = {"experiment_id": reader.run.path.resolve().name}
    if reader.run.sources.exists():
        sources = _without_folders(read_json(reader.run.sources))
    teachers = tuple(sorted({row["teacher"] for of_task in rows.values() for row in of_task}))
    planned = reader.planned
    return ExportedBenchmark(
        experiment=str(meta.get("experiment_id", "")),
        created_at=str(meta.get("created_at", "")),
        coeval_version=str(meta.get("coeval_version", "")),
        simulated=reader.simulated,
        teachers=teachers,
        simulated_teachers=tuple(
            name for name in teachers if reader.simulated and (planned is None or name in planned.simulated)
        ),
        files=tuple(files),
        sources=sources,
    )


def _without_folders(sources: Any) -> Any:
    """The file's name, without the folders of this machine."""
    match sources:
        case dict():
            return {
                key: Path(value).name
                if isinstance(value, str) and (key == "path" or Path(value).is_absolute())
                else _without_folders(value)
                for key, value in sources.items()
            }
        case list():
            return [_without_folders(each) for each in sources]
        case _:
            return sources
