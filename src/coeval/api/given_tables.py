"""Items and answers given from Python: frames of pandas, polars or Arrow, and lists of rows.

Each is written as JSON lines into the run's folder, ``given/``, where `coeval run --continue` finds it
again. Frames are recognised by their methods, so no library of frames is imported.
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


def read_with_tables(
    source: Mapping[str, Any] | str | Path,
    items: Rows | Mapping[str, Rows] | None,
    answers: Mapping[str, Rows | Mapping[str, str]] | None,
) -> Document:
    """Read an experiment, with tables from Python instead of files: ``items`` of the only task, or by task;
    ``answers`` by student, as rows or a mapping from prompt to answer.

    Raises ConfigError, UsageError: the experiment cannot be read, or a table lacks a column.
    """
    document = document_from_mapping(source) if isinstance(source, Mapping) else read_document(Path(source))
    folder = _folder_for_given_tables(document.data)
    for task, rows in _split_by_task(document.data, items).items():
        task_entry = _find_entry(document.data, "tasks", task)
        if task_entry is None:
            raise UsageError(f"items: no task is named {task}")
        path = folder / f"{task}.items.jsonl"
        columns = _write_rows_and_list_columns(path, rows)
        item_section = _get_or_add_section(task_entry, "items", task)
        item_section |= {**guess_columns(columns), **_map_id_column(columns), **item_section}
        item_section["path"] = str(path)
        _require_column_choice(item_section, "prompt", f"items of {task}", columns, USUAL["prompt"])
    for student, rows in (answers or {}).items():
        if isinstance(rows, Mapping):
            rows = [{"prompt": prompt, "response": answer} for prompt, answer in rows.items()]
        name = in_file_name(_require_file_name(student, is_student=True))
        path = folder / f"{name}.answers.jsonl"
        columns = _write_rows_and_list_columns(path, rows)
        entry = _find_entry(document.data, "students", student)
        if entry is None:
            document.data.setdefault("students", []).append(entry := {"name": student})
        section = _get_or_add_section(entry, "responses", student)
        if not section.keys() & {"id", "prompt"}:
            prompt = guess_columns(columns).get("prompt")
            section |= _map_id_column(columns) or ({"prompt": prompt} if prompt is not None else {})
        answer = next((name for name in _RESPONSES if name in columns), None)
        section |= {**({"response": answer} if answer is not None else {}), **section, "path": str(path)}
        _require_column_choice(section, "response", f"answers of {student}", columns, _RESPONSES)
    return document


def _require_column_choice(
    section: Mapping[str, Any], key: str, label: str, columns: Iterable[str], usual_columns: Iterable[str]
) -> None:
    if key not in section:
        raise UsageError(
            f"{label}: which column is the {key}? There are {join_names(columns, 30)}, and none is called "
            f"{join_names(usual_columns, 10)}; name it in the experiment"
        )


def _require_file_name(name: str, *, is_student: bool = False) -> str:
    """Return the name of a task or student if it can name a file too; else raise UsageError."""
    if (problem := find_name_problem(name, is_model=is_student)) is not None:
        raise UsageError(problem)
    return name


def _folder_for_given_tables(config_data: Mapping[str, Any]) -> Path:
    experiment = config_data.get("experiment")
    experiment = experiment if isinstance(experiment, Mapping) else {}
    storage, name = experiment.get("storage_folder"), experiment.get("id")
    if not isinstance(storage, str) or not isinstance(name, str):
        raise UsageError("items and answers are kept with the run: experiment needs id and storage_folder")
    return Path(storage).expanduser() / _require_file_name(name) / "given"


def _find_entry(data: Mapping[str, Any], section: str, name: str) -> dict[str, Any] | None:
    """Return the task or student of a name, None if absent; raises UsageError if the section is no list."""
    entries = data.get(section, [])
    if not isinstance(entries, list):
        raise UsageError(f"{section} is not a list")
    return next((entry for entry in entries if isinstance(entry, dict) and entry.get("name") == name), None)


def _get_or_add_section(entry: dict[str, Any], key: str, name: str) -> dict[str, Any]:
    section = entry.setdefault(key, {})
    if not isinstance(section, dict):
        raise UsageError(f"{key} of {name} is not a mapping")
    return section


def _split_by_task(data: Mapping[str, Any], items: Rows | Mapping[str, Rows] | None) -> Mapping[str, Rows]:
    if items is None or isinstance(items, Mapping):
        return {_require_file_name(task): rows for task, rows in (items or {}).items()}
    tasks = data.get("tasks")
    names = [task.get("name") for task in tasks if isinstance(task, dict)] if isinstance(tasks, list) else []
    if len(names) != 1:
        tasks_text = join_names(map(str, names)) or "none"
        raise UsageError(f"items: give them by task, {{task: rows}}; there are {tasks_text}")
    return {_require_file_name(str(names[0])): items}


def _map_id_column(columns: Iterable[str]) -> dict[str, str]:
    return {"id": "id"} if "id" in columns else {}


def _write_rows_and_list_columns(path: Path, rows: Rows) -> list[str]:
    """Write rows as JSON lines unless the file has them already; return their columns."""
    records = _convert_rows_to_dicts(rows)
    columns = list(dict.fromkeys(name for record in records for name in record))
    if not columns:
        raise UsageError(f"{path.stem}: there are no rows")
    plain = [{name: _replace_missing(value) for name, value in record.items()} for record in records]
    whole = {name for name in columns if all(_is_whole_or_missing(record.get(name)) for record in plain)}
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
    return columns


def _convert_rows_to_dicts(rows: Rows) -> list[dict[str, Any]]:
    if hasattr(rows, "iter_rows"):  # polars
        records = list(rows.iter_rows(named=True))
    elif hasattr(rows, "to_pylist"):  # Arrow
        records = rows.to_pylist()
    elif hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # pandas
        records = rows.to_dict("records")
    else:
        records = list(rows) if isinstance(rows, Iterable) and not isinstance(rows, str | bytes) else [rows]
    if not all(isinstance(record, Mapping) for record in records):
        raise UsageError("items and answers are frames, or lists of mappings from column to value")
    return [{str(name): value for name, value in record.items()} for record in records]


def _is_whole_or_missing(value: Any) -> bool:
    """Check whether a value is missing or a whole number: pandas turns a column of whole numbers with a gap
    into floats, and a label 1 would become 1.0."""
    return value is None or type(value) is int or (isinstance(value, float) and value.is_integer())


def _replace_missing(value: Any) -> Any:
    """Return None for NaN, NaT and pandas's NA, else the value."""
    missing = type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    return None if missing else value
