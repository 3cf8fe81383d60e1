"""What a run took over by ``resume_from``, by name: it counts in tables and measures like what the file
names.

``inherited.json`` is written as artifacts are taken over: what counts follows from the folder, and not
from a source that goes on, or is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from coeval.analysis.planned_names import NameKind, Planned
from coeval.core.errors import Undecodable
from coeval.core.foreign import decode, decoder
from coeval.pipeline.config.schema import PHASES, Config, Phase
from coeval.store.jsonl import read_json, whole_lines, write_json_atomic
from coeval.store.rundir import RunDir


class Name(NamedTuple):
    """Somebody or something on record, and the phase whose artifacts name it."""

    phase: Phase
    task: str
    kind: NameKind
    name: str


class _Named(msgspec.Struct):
    """The names in a line of phases 3–5. Factors and labels are keys; what they hold does not matter."""

    task_id: str
    teacher_model_id: str = ""
    student_model_id: str = ""
    judge_model_id: str = ""
    scores: msgspec.Raw = msgspec.Raw(b"null")
    label_scores: msgspec.Raw = msgspec.Raw(b"null")
    missing: tuple[str | None, ...] = ()


def inherited_by(folder: RunDir) -> frozenset[Name]:
    """The names that a run has taken over; none where it did not resume from another.

    Raises
    ------
    StoreError
        ``inherited.json`` is damaged.
    """
    try:
        tree = read_json(folder.inherited, dict[Phase, dict[str, dict[NameKind, list[str]]]])
    except FileNotFoundError:
        return frozenset()
    return frozenset(
        Name(phase, task, kind, name)
        for phase, tasks in tree.items()
        for task, kinds in tasks.items()
        for kind, names in kinds.items()
        for name in names
    )


def write_inherited(folder: RunDir, names: Collection[Name]) -> None:
    tree: dict[str, dict[str, dict[str, list[str]]]] = {}
    for phase, task, kind, name in sorted(names, key=lambda n: (PHASES.index(n.phase), *n[1:])):
        tree.setdefault(phase, {}).setdefault(task, {}).setdefault(kind, []).append(name)
    write_json_atomic(folder.inherited, tree)


def remember_inherited(
    config: Config, source: RunDir, folder: RunDir, phases: Collection[Phase], counted: Planned | None
) -> None:
    """Add what stands in these phases of ``source`` to what the run has inherited.

    ``counted`` is what counts in the source itself (None: all of it): what it removed is not brought back.
    """
    names = {*_rubric_names(config, source)} if "rubric_mapping" in phases else set()
    for phase in PHASES[2:]:
        if phase in phases:
            names |= _names_on_record(source, phase)
    if counted is not None:
        names = {name for name in names if counted.counts(name.task, name.kind, name.name)}
    write_inherited(folder, inherited_by(folder) | names)


def _rubric_names(config: Config, source: RunDir) -> Iterator[Name]:
    """The factors of the source's rubrics that the file does not name: those it does name follow the file."""
    for task in config.tasks:
        declared = task.rubric if isinstance(task.rubric, dict) else {}
        with suppress(FileNotFoundError):
            for factor in read_json(source.rubric(task.name), dict[str, Any]).keys() - declared.keys():
                yield Name("rubric_mapping", task.name, "factor", factor)


def _names_on_record(source: RunDir, phase: Phase) -> set[Name]:
    read = decoder(_Named)
    names: set[Name] = set()
    for path in source.files(phase):
        for _, line in whole_lines(path):
            with suppress(Undecodable):
                record = read(line)
                names.update(Name(phase, record.task_id, kind, name) for kind, name in _named(record, phase))
    return names


def _named(record: _Named, phase: Phase) -> Iterator[tuple[NameKind, str]]:
    if phase == "data_generation":
        yield "teacher", record.teacher_model_id
    elif phase == "response_collection":
        yield "student", record.student_model_id
    else:
        yield "judge", record.judge_model_id
        for factor in (*_keys(bytes(record.scores)), *filter(None, record.missing)):
            yield "factor", factor
        for label in _keys(bytes(record.label_scores)):
            yield "label", label


@lru_cache(maxsize=4096)  # most of a million judgments are alike
def _keys(mapping: bytes) -> tuple[str, ...]:
    return () if mapping == b"null" else tuple(decode(mapping, dict[str, msgspec.Raw]))
