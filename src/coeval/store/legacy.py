"""Older layouts of a run: detected, read, and converted to the current one; never written.

What differed: ``{task}.target_attrs.json`` and ``{task}.nuanced_attrs.json`` in phase 1, one file
per task, teacher and student in phase 4, evaluations without ``student_model_id`` in phase 5.
File names are never parsed for names, which may hold dots: ids stand in the records.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from coeval.core.errors import Misshapen, StoreError, Undecodable, UsageError
from coeval.core.foreign import convert as converted
from coeval.core.foreign import decode
from coeval.core.options import OVERWRITE
from coeval.core.records import Datapoint, Evaluation, Record, Response, choose_counted, keep_valid_levels
from coeval.store.jsonl import (
    read_decodable_lines,
    read_json,
    read_whole_lines,
    write_bytes_atomic,
    write_json_atomic,
)
from coeval.store.rundir import RunDir

_KINDS: dict[str, type[Datapoint] | type[Response] | type[Evaluation]] = {
    "data_generation": Datapoint,
    "response_collection": Response,
    "evaluation": Evaluation,
}
# Of each kind, the file it goes to and the fields that name that one.
_FILES: dict[type[Record], tuple[Callable[..., Path], tuple[str, ...]]] = {
    Datapoint: (RunDir.datapoints, ("task_id", "teacher_model_id")),
    Response: (RunDir.responses, ("task_id", "student_model_id")),
    Evaluation: (RunDir.evaluations, ("task_id", "teacher_model_id", "judge_model_id")),
}
_RENAMED = {".target_attrs.json": "_target_attrs.json", ".nuanced_attrs.json": "_nuanced_attrs.json"}
_NAME = re.compile(r"[A-Za-z0-9._-]+")


class ConversionResult(msgspec.Struct, frozen=True):
    """Result of a conversion: files (phases 1–2) or records (3–5) per phase, and why lines were left out."""

    counts: dict[str, int]
    dropped_reasons: tuple[str, ...]


class _Answered(msgspec.Struct):
    id: str
    student_model_id: str


def find_target_attrs_file(run: RunDir, task: str) -> Path:
    """Return the file of a task's target attributes, in the current layout or else the older one."""
    current = run.target_attrs(task)
    older = current.with_name(f"{task}.target_attrs.json")
    return older if older.exists() and not current.exists() else current


def read_declared_attributes(run: RunDir, task: str) -> dict[str, list[str]]:
    """Read the attribute space that phase 1 declared for a task; empty without a file. Raises StoreError: the
    file cannot be read, or holds something else."""
    values_by_name = read_json(find_target_attrs_file(run, task), dict[str, list[Any]], missing={})
    return {name: [_value_as_text(value) for value in values] for name, values in values_by_name.items()}


def is_legacy(folder: Path) -> bool:
    """Check whether a run folder holds files of an older layout; reads one record per file. Runs begun by
    this version are marked in ``meta.json``, however damaged a record may be."""
    run = RunDir(folder)
    with suppress(FileNotFoundError, StoreError):
        if run.read_meta().coeval_version:
            return False
    if any(path.name.endswith(tuple(_RENAMED)) for path in run.folder("attribute_mapping").glob("*.json")):
        return True
    for path in run.files("response_collection"):
        first = _read_first_record(path)
        if first and path.name == (
            f"{first.get('task_id')}.{first.get('teacher_model_id')}.{first.get('student_model_id')}.responses.jsonl"
        ):
            return True
    for path in run.files("evaluation"):
        first = _read_first_record(path)
        if first and "student_model_id" not in first:
            return True
    return False


def read_legacy(folder: Path, phase: str, dropped_reasons: list[str]) -> list[Record]:
    """Read the records of a phase 3–5, of any layout, in the current form, in file order, one per id as by
    `choose_counted`. ``dropped_reasons`` gets a sentence on each line that is not a record."""
    run = RunDir(folder)
    students = _read_students_by_response(run) if phase == "evaluation" else {}

    def records() -> Iterator[Record]:
        for path in run.files(phase):
            for offset, text in read_whole_lines(path):
                try:
                    yield _convert_record(phase, students, text)
                except Undecodable as error:
                    dropped_reasons.append(f"byte {offset} of {path}: {error}")

    return list(choose_counted(records()).values())


def convert_run(source: Path, target: Path, phases: Sequence[str]) -> ConversionResult:
    """Convert phases of a run, in any layout, to the current layout in another folder. Each file appears
    whole or not at all; repeating an interrupted conversion completes it. Raises UsageError: the target
    already holds a file of that name with other content; StoreError: a file cannot be read or written."""
    source_run, target_run = RunDir(source), RunDir(target)
    counts: dict[str, int] = {}
    dropped_reasons: list[str] = []
    for phase in phases:
        if phase in _KINDS:
            counts[phase] = _convert_records(source_run, target_run, phase, dropped_reasons)
        else:
            counts[phase] = _convert_documents(source_run, target_run, phase)
    return ConversionResult(counts, tuple(dropped_reasons))


def _read_first_record(path: Path) -> dict[str, Any] | None:
    return next(read_decodable_lines(path, dict[str, Any]), None)


def _read_students_by_response(run: RunDir) -> dict[str, str]:
    """Read which student gave each response, by its id; damaged lines are reported by their own reader."""
    return {
        answered.id: answered.student_model_id
        for path in run.files("response_collection")
        for answered in read_decodable_lines(path, _Answered)
    }


def _convert_record(phase: str, students: dict[str, str], text: bytes) -> Record:
    """Convert a line of an older layout to a current record. Raises Undecodable: it is no JSON; Misshapen: it
    lacks or misstates a record's fields."""
    fields = decode(text, dict[str, Any])
    if fields.get("status") != "failed":
        fields.pop("status", None)
    if isinstance(error := fields.get("error"), str):
        fields["error"] = {"kind": "unknown", "message": error}
    for key in ("sampled_target_attributes", "sampled_nuanced_attributes"):
        if isinstance(sampled := fields.get(key), dict):
            fields[key] = {name: _value_as_text(value) for name, value in sampled.items()}
    if phase == "evaluation":
        if "student_model_id" not in fields and (student := students.get(fields.get("response_id", ""))):
            fields["student_model_id"] = student
        _move_invalid_scores_to_missing(fields)
    record = converted(fields, _KINDS[phase])
    for name in (getattr(record, field) for field in _FILES[type(record)][1]):
        if not _NAME.fullmatch(name):
            raise Misshapen(f"{name!r} cannot be part of a file name")
    return record


def _convert_listed_values_to_text(document: Any) -> Any:
    """Convert a document of phases 1–2: lists, which are attributes' values, become texts."""
    if not isinstance(document, dict):
        return document
    return {
        name: [_value_as_text(value) for value in values] if isinstance(values, list) else values
        for name, values in document.items()
    }


def _value_as_text(value: Any) -> str:
    """Convert an attribute's value to text: older runs kept the numbers and booleans of their YAML."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _move_invalid_scores_to_missing(fields: dict[str, Any]) -> None:
    """Move scores that are none of the three levels to ``missing``."""
    scores = fields.get("scores")
    if not isinstance(scores, dict):
        return
    fields["scores"] = valid = keep_valid_levels(scores)
    if lost := [factor for factor in scores if factor not in valid]:
        fields["missing"] = [*fields.get("missing", []), *lost]


def _convert_documents(source: RunDir, target: RunDir, phase: str) -> int:
    """Convert the JSON files of phases 1–2 to their current names; a file with the current name wins."""
    paths = sorted(source.folder(phase).glob("*.json"), key=lambda path: path.name.endswith(tuple(_RENAMED)))
    done: set[str] = set()
    for path in paths:
        name = path.name
        for older, current in _RENAMED.items():
            if name.endswith(older):
                name = name.removesuffix(older) + current
        if name not in done:
            write_json_atomic(target.folder(phase) / name, _convert_listed_values_to_text(read_json(path)))
            done.add(name)
    return len(done)


def _convert_records(source: RunDir, target: RunDir, phase: str, dropped_reasons: list[str]) -> int:
    """Convert the records of a phase 3–5 into the current files; return their number."""
    records = read_legacy(source.path, phase, dropped_reasons)
    files: defaultdict[Path, list[Record]] = defaultdict(list)
    for record in records:
        file_of, fields = _FILES[type(record)]
        files[file_of(target, *(getattr(record, field) for field in fields))].append(record)
    texts = {path: msgspec.json.Encoder().encode_lines(file_records) for path, file_records in files.items()}
    for path, text in texts.items():
        if path.exists() and path.read_bytes() != text:
            raise UsageError(
                f"{path} exists already and holds something else than the run to resume from; "
                f"use another experiment id, or {OVERWRITE}"
            )
    for path, text in texts.items():
        write_bytes_atomic(path, text)
    return len(records)
