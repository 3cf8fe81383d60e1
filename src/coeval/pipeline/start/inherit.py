"""Artifacts that a new run inherits by ``resume_from``, and those that ``--overwrite`` replaces."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coeval.analysis.planned_names import NameKind, Planned
from coeval.core.errors import Undecodable, UsageError
from coeval.core.foreign import decode, make_decoder
from coeval.core.options import CONTINUE
from coeval.core.regular_files import open_file
from coeval.core.text import pluralize
from coeval.pipeline.config.draft import find_resume_folder, locate_item_files
from coeval.pipeline.config.schema import PHASES, Config, Phase
from coeval.store.jsonl import read_json, read_whole_lines, replace_file, write_json_atomic
from coeval.store.legacy import convert_run, is_legacy
from coeval.store.rundir import PAIRS, RunDir, move_to_replaced, phase_of_kind
from coeval.tables.harvest import inherit_origins

# --- Names that a run took over by ``resume_from``
#
# ``inherited.json`` is written as artifacts are taken over: what counts follows from the folder, and not from
# a source that goes on, or is gone.


class InheritedName(NamedTuple):
    """A model, factor or label of inherited records, and the phase whose artifacts name it."""

    phase: Phase
    task: str
    kind: NameKind
    name: str


class _NameFields(msgspec.Struct):
    """The names in a line of phases 3–5. Factors and labels are keys; their values do not matter."""

    task_id: str
    teacher_model_id: str = ""
    student_model_id: str = ""
    judge_model_id: str = ""
    scores: msgspec.Raw = msgspec.Raw(b"null")
    values: msgspec.Raw = msgspec.Raw(b"null")
    label_scores: msgspec.Raw = msgspec.Raw(b"null")
    missing: tuple[str | None, ...] = ()


def read_inherited_names(folder: RunDir) -> frozenset[InheritedName]:
    """Read the names that a run has inherited, if any; raises StoreError if ``inherited.json`` is damaged."""
    tree = read_json(folder.inherited, dict[Phase, dict[str, dict[NameKind, list[str]]]], missing={})
    return frozenset(
        InheritedName(phase, task, kind, name)
        for phase, tasks in tree.items()
        for task, kinds in tasks.items()
        for kind, names in kinds.items()
        for name in names
    )


def write_inherited_names(folder: RunDir, names: Collection[InheritedName]) -> None:
    tree: dict[str, dict[str, dict[str, list[str]]]] = {}
    for phase, task, kind, name in sorted(names, key=lambda n: (PHASES.index(n.phase), *n[1:])):
        tree.setdefault(phase, {}).setdefault(task, {}).setdefault(kind, []).append(name)
    write_json_atomic(folder.inherited, tree)


def record_inherited_names(
    config: Config, source: RunDir, folder: RunDir, phases: Collection[Phase], counted: Planned | None
) -> None:
    """Add the names in these phases of ``source`` to those that the run has inherited. ``counted`` are the
    names that count in the source (None: all), so that removed ones do not come back."""
    names = {*_read_undeclared_rubric_factors(config, source)} if "rubric_mapping" in phases else set()
    for phase in PHASES[2:]:
        if phase in phases:
            names |= _read_record_names(source, phase)
    if counted is not None:
        names = {name for name in names if counted.is_counted(name.task, name.kind, name.name)}
    write_inherited_names(folder, read_inherited_names(folder) | names)


def _read_undeclared_rubric_factors(config: Config, source: RunDir) -> Iterator[InheritedName]:
    for task in config.tasks:
        declared = task.rubric if isinstance(task.rubric, dict) else {}
        rubric = read_json(source.rubric(task.name), dict[str, Any], missing={})
        for factor in rubric.keys() - declared.keys():
            yield InheritedName("rubric_mapping", task.name, "factor", factor)


def _read_record_names(source: RunDir, phase: Phase) -> set[InheritedName]:
    read = make_decoder(_NameFields)
    names: set[InheritedName] = set()
    pairs = source.files(PAIRS) if phase == "evaluation" else []
    for path in (*source.files(phase), *pairs):
        for _, line in read_whole_lines(path):
            with suppress(Undecodable):
                record = read(line)
                names.update(
                    InheritedName(phase, record.task_id, kind, name)
                    for kind, name in _list_names_in_record(record, phase)
                )
    return names


def _list_names_in_record(record: _NameFields, phase: Phase) -> Iterator[tuple[NameKind, str]]:
    """Yield the names in a record, by kind."""
    if phase == "data_generation":
        yield "teacher", record.teacher_model_id
    elif phase == "response_collection":
        yield "student", record.student_model_id
    else:
        yield "judge", record.judge_model_id
        for factor in (
            *_read_keys(bytes(record.scores)),
            *_read_keys(bytes(record.values)),
            *filter(None, record.missing),
        ):
            yield "factor", factor
        for label in _read_keys(bytes(record.label_scores)):
            yield "label", label


@lru_cache(maxsize=4096)  # most of a million judgments are alike
def _read_keys(mapping: bytes) -> tuple[str, ...]:
    return () if mapping == b"null" else tuple(decode(mapping, dict[str, msgspec.Raw]))


def find_source_run(config: Config) -> RunDir | None:
    """Return the run that ``resume_from`` names, by id in the storage folder or by path; None without it."""
    experiment = config.experiment
    if experiment.resume_from is None:
        return None
    return RunDir(find_resume_folder(experiment.storage_folder, experiment.resume_from))


def phases_to_inherit(config: Config) -> list[Phase]:
    """List the phases to inherit: 1–2 unless New in so many words, 3–5 if their mode builds on records."""
    declared = config.experiment.phases
    return [p for p in PHASES[:2] if declared.get(p) != "New"] + [
        p for p in PHASES[2:] if declared.get(p, "New") != "New"
    ]


class CopyResult(NamedTuple):
    """A sentence on what was copied, and one on what was left out, if anything."""

    done: str
    left_out: str | None = None


def find_item_source_run(config: Config) -> RunDir | None:
    """Return the run whose items are inherited; None if none are."""
    return find_source_run(config) if "data_generation" in phases_to_inherit(config) else None


def copy_inherited(config: Config, source: RunDir, target: RunDir) -> CopyResult:
    """Copy the inherited artifacts that the target lacks, converting older layouts, without a rubric to
    extend."""
    if source.path.resolve() == target.path.resolve():
        raise UsageError(f"resume_from names the run itself ({target.path}); use {CONTINUE} instead")
    phases = phases_to_inherit(config)
    extended = {source.rubric(task.name).name for task in config.tasks if task.rubric == "extend"}
    if is_legacy(source.path):
        converted = convert_run(source.path, target.path, phases)
        for name in extended:
            (target.folder("rubric_mapping") / name).unlink(missing_ok=True)
        nouns: dict[str, str] = {name: "file" if name in PHASES[:2] else "record" for name in phases}
        counts = ", ".join(f"{pluralize(n, nouns[name])} of {name}" for name, n in converted.counts.items())
        done = f"reused {source.path}, converted from an older layout: {counts}"
        return CopyResult(done, _describe_dropped_lines(converted.dropped_reasons))
    if "data_generation" in phases:
        inherit_origins(source, target)
    copied = int(copy_if_absent(source.recipes, target.recipes)) if source.recipes.exists() else 0
    for phase in phases:
        folder = source.folder(phase)
        for path in sorted(folder.glob("*.json*")) if folder.is_dir() else []:
            if path.name in extended or (phase in PHASES[:2] and path.name == "proposals.jsonl"):
                continue
            copied += copy_if_absent(path, target.folder(phase) / path.name)
    return CopyResult(f"reused {copied} files of {source.path}")


def _describe_dropped_lines(dropped: Sequence[str]) -> str | None:
    if not dropped:
        return None
    lines = "line is not a record and was" if len(dropped) == 1 else "lines are not records and were"
    return f"{len(dropped):,} {lines} left out, the first at {dropped[0]}"


def copy_if_absent(path: Path, target: Path) -> bool:
    if target.exists():
        return False
    with replace_file(target) as copy, open_file(path) as source:
        shutil.copyfileobj(source, copy)
    return True


# --- ``--overwrite``: replacing phases in mode New


class ClearedFolder(RunDir):
    """A run folder once the phases ``gone`` were moved away; ``staying`` are files that remain."""

    def __init__(self, path: Path, gone: Collection[Phase], staying: Collection[Path]) -> None:
        super().__init__(path)
        self._gone = gone
        self._staying = staying

    def folder(self, phase: str) -> Path:
        """Return a phase's folder, or a nonexistent one for phases 1–2 that are gone; 3–5: see `files`."""
        gone = phase in self._gone and phase in PHASES[:2]  # never one of the kinds of record files
        return self.path / "replaced" / "nothing" if gone else super().folder(phase)

    def files(self, phase: str) -> list[Path]:
        paths = super().files(phase)
        gone = phase_of_kind(phase) in self._gone
        return [path for path in paths if path in self._staying] if gone else paths


def foresee_cleared_folder(config: Config, folder: RunDir) -> ClearedFolder:
    return ClearedFolder(folder.path, _list_phases_of_mode_new(config), _list_supplied_paths(config, folder))


def _list_supplied_paths(config: Config, folder: RunDir) -> set[Path]:
    """List the files of items and answers that people supply."""
    answers = (
        folder.responses(task.name, student)
        for task in config.tasks
        for student in config.students_with_existing_answers(task)
    )
    return {*locate_item_files(config, folder), *answers}


def move_phases_of_mode_new_aside(config: Config, folder: RunDir) -> Path | None:
    """Move what New phases hold to ``replaced/<UTC time>/``; return that folder, or None if they hold
    nothing. The run's account (``meta.json``, errors, configurations) goes along. If other phases hold
    records, recipes and inherited names stay."""
    gone = _list_phases_of_mode_new(config)
    move = [path for phase in gone for path in _list_paths_but_supplied_files(config, folder, phase)]
    if not move:
        return None
    move += [folder.meta, folder.errors]
    if "evaluation" in gone:
        move.append(folder.looks)  # what they showed goes with it
    account = [folder.recipes, folder.inherited]
    if any(folder.holds(phase) for phase in PHASES if phase not in gone):
        moved = move_to_replaced(folder, move, [folder.config, *account])
        if folder.inherited.exists():
            left = [name for name in read_inherited_names(folder) if name.phase not in gone]
            write_inherited_names(folder, left)
        return moved
    return move_to_replaced(
        folder, [*move, *account, *sorted(folder.path.glob("config*.yaml")), folder.repaired]
    )


def _list_phases_of_mode_new(config: Config) -> list[Phase]:
    return [phase for phase in PHASES if config.experiment.mode(phase) == "New"]


def _list_paths_but_supplied_files(config: Config, folder: RunDir, phase: Phase) -> Iterator[Path]:
    """List a phase's folder, or, if it holds supplied files, all other files in it."""
    held = sorted(folder.folder(phase).iterdir()) if folder.holds(phase) else []
    staying = _list_supplied_paths(config, folder) & set(held)
    if held and not staying:
        yield folder.folder(phase)
    else:
        yield from (path for path in held if path not in staying)
