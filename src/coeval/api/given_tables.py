"""Items and answers given from Python: frames of pandas, polars or Arrow, and lists of rows.

Each is written as JSON lines into the run's folder, ``given/``, where `coeval run --continue` finds it again.
No library of frames is imported: a frame is told by what it can do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from coeval.core.errors import UsageError
from coeval.core.text import join_names
from coeval.pipeline.config.document import Document, read_document
from coeval.pipeline.config.load_file import document_from_mapping
from coeval.pipeline.config.names import find_name_problem
from coeval.store.jsonl import write_bytes_atomic
from coeval.store.rundir import in_file_name
from coeval.tables.item_map import USUAL, guess_columns

Rows: TypeAlias = Any
"""A frame of pandas or polars, a table of Arrow, or a list of mappings from column to value."""

_RESPONSES = ("response", "answer", "output", "completion")
# Numbers and arrays of numpy and torch have a ``tolist``; what else no JSON has is written as its text.
_ENCODER = msgspec.json.Encoder(
    enc_hook=lambda value: value.tolist() if hasattr(value, "tolist") else str(value)
)


def with_tables(
    source: Mapping[str, Any] | str | Path,
    items: Rows | Mapping[str, Rows] | None,
    answers: Mapping[str, Rows | Mapping[str, str]] | None,
) -> Document:
    """Read an experiment, with tables given from Python in the place of files.

    ``items`` are those of the only task, or by task; ``answers`` by student: rows, or a mapping from prompt
    to answer. Raises ConfigError, UsageError: the experiment cannot be read, or a table lacks a column.
    """
    document = document_from_mapping(source) if isinstance(source, Mapping) else read_document(Path(source))
    folder = _folder(document.data)
    for task, rows in _by_task(document.data, items).items():
        section = _entry(document.data, "tasks", task)
        if section is None:
            raise UsageError(f"items: no task is named {task}")
        columns, path = _written(folder / f"{task}.items.jsonl", rows)
        found = _part(section, "items", task)
        found |= {**guess_columns(columns), **_id_column(columns), **found, "path": path}
        _need(found, "prompt", f"items of {task}", (columns, USUAL["prompt"]))
    for student, given in (answers or {}).items():
        rows = given
        if isinstance(given, Mapping):
            rows = [{"prompt": prompt, "response": answer} for prompt, answer in given.items()]
        name = in_file_name(_usable(student, is_student=True))
        columns, path = _written(folder / f"{name}.answers.jsonl", rows)
        entry = _entry(document.data, "students", student)
        if entry is None:
            document.data.setdefault("students", []).append(entry := {"name": student})
        found = _part(entry, "responses", student)
        if not found.keys() & {"id", "prompt"}:
            prompt = guess_columns(columns).get("prompt")
            found |= _id_column(columns) or ({"prompt": prompt} if prompt is not None else {})
        answer = next((name for name in _RESPONSES if name in columns), None)
        found |= {**({"response": answer} if answer is not None else {}), **found, "path": path}
        _need(found, "response", f"answers of {student}", (columns, _RESPONSES))
    return document


def _need(found: Mapping[str, Any], key: str, what: str, names: tuple[Iterable[str], Iterable[str]]) -> None:
    if key not in found:
        columns, usual = names
        raise UsageError(
            f"{what}: which column is the {key}? There are {join_names(columns, 30)}, and none is called "
            f"{join_names(usual, 10)}; name it in the experiment"
        )


def _usable(name: str, *, is_student: bool = False) -> str:
    """A name of a task or student, which names a file too."""
    if (problem := find_name_problem(name, is_model=is_student)) is not None:
        raise UsageError(problem)
    return name


def _folder(data: Mapping[str, Any]) -> Path:
    experiment = data.get("experiment")
    given = experiment if isinstance(experiment, Mapping) else {}
    storage, name = given.get("storage_folder"), given.get("id")
    if not isinstance(storage, str) or not isinstance(name, str):
        raise UsageError("items and answers are kept with the run: experiment needs id and storage_folder")
    return Path(storage).expanduser() / _usable(name) / "given"


def _entry(data: Mapping[str, Any], section: str, name: str) -> dict[str, Any] | None:
    """The task or student of a name; raises UsageError where the section is no list of such."""
    entries = data.get(section, [])
    if not isinstance(entries, list):
        raise UsageError(f"{section} is no list")
    return next((each for each in entries if isinstance(each, dict) and each.get("name") == name), None)


def _part(entry: dict[str, Any], key: str, name: str) -> dict[str, Any]:
    found = entry.setdefault(key, {})
    if not isinstance(found, dict):
        raise UsageError(f"{key} of {name} is no mapping")
    return found


def _by_task(data: Mapping[str, Any], items: Rows | Mapping[str, Rows] | None) -> Mapping[str, Rows]:
    if items is None or isinstance(items, Mapping):
        return {_usable(task): rows for task, rows in (items or {}).items()}
    tasks = data.get("tasks")
    names = [each.get("name") for each in tasks if isinstance(each, dict)] if isinstance(tasks, list) else []
    if len(names) != 1:
        there = join_names(map(str, names)) or "none"
        raise UsageError(f"items: give them by task, {{task: rows}}; there are {there}")
    return {_usable(str(names[0])): items}


def _id_column(columns: Iterable[str]) -> dict[str, str]:
    return {"id": "id"} if "id" in columns else {}


def _written(path: Path, rows: Rows) -> tuple[list[str], str]:
    """Write rows as JSON lines; their columns, and the path."""
    records = _records(rows)
    columns = list(dict.fromkeys(name for record in records for name in record))
    if not columns:
        raise UsageError(f"{path.stem}: there are no rows")
    plain = [{name: _plain(value) for name, value in record.items()} for record in records]
    whole = {name for name in columns if all(_is_whole(record.get(name)) for record in plain)}
    lines = (
        _ENCODER.encode(
            {
                name: int(value) if name in whole and isinstance(value, float) else value
                for name, value in record.items()
            }
        )
        for record in plain
    )
    data = b"".join(line + b"\n" for line in lines)
    if not path.exists() or path.read_bytes() != data:
        write_bytes_atomic(path, data)
    return columns, str(path)


def _records(rows: Rows) -> list[dict[str, Any]]:
    if hasattr(rows, "iter_rows"):  # polars
        found = list(rows.iter_rows(named=True))
    elif hasattr(rows, "to_pylist"):  # Arrow
        found = rows.to_pylist()
    elif hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # pandas
        found = rows.to_dict("records")
    else:
        found = list(rows) if isinstance(rows, Iterable) and not isinstance(rows, str | bytes) else [rows]
    if not all(isinstance(record, Mapping) for record in found):
        raise UsageError("items and answers are frames, or lists of mappings from column to value")
    return [{str(name): value for name, value in record.items()} for record in found]


def _is_whole(value: Any) -> bool:
    """Whether a value is missing or a whole number: pandas makes floats of whole numbers where one is
    missing, and a label 1 would be 1.0."""
    return value is None or type(value) is int or (isinstance(value, float) and value.is_integer())


def _plain(value: Any) -> Any:
    """None in the place of a value that is missing: not a number, not a time, or pandas's own."""
    missing = type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    return None if missing else value
