"""``resume_from``: a new run takes over artifacts of an older one."""

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
from coeval.store.jsonl import (
    read_json,
    replaced_whole,
    whole_lines,
    write_json_atomic,
)
from coeval.store.legacy import convert, is_legacy
from coeval.store.rundir import PAIRS, RunDir, move_to_replaced, phase_of_files
from coeval.tables.harvest import inherit_origins

# --- Names that a run took over by ``resume_from``
#
# ``inherited.json`` is written as artifacts are taken over: what counts follows from the folder, and not from
# a source that goes on, or is gone.


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
    values: msgspec.Raw = msgspec.Raw(b"null")
    label_scores: msgspec.Raw = msgspec.Raw(b"null")
    missing: tuple[str | None, ...] = ()


def inherited_by(folder: RunDir) -> frozenset[Name]:
    """The names that a run has taken over; none where it did not resume from another.

    Raises StoreError: ``inherited.json`` is damaged.
    """
    tree = read_json(folder.inherited, dict[Phase, dict[str, dict[NameKind, list[str]]]], missing={})
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
        rubric = read_json(source.rubric(task.name), dict[str, Any], missing={})
        for factor in rubric.keys() - declared.keys():
            yield Name("rubric_mapping", task.name, "factor", factor)


def _names_on_record(source: RunDir, phase: Phase) -> set[Name]:
    read = make_decoder(_Named)
    names: set[Name] = set()
    pairs = source.files(PAIRS) if phase == "evaluation" else []
    for path in (*source.files(phase), *pairs):
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
        for factor in (
            *_keys(bytes(record.scores)),
            *_keys(bytes(record.values)),
            *filter(None, record.missing),
        ):
            yield "factor", factor
        for label in _keys(bytes(record.label_scores)):
            yield "label", label


@lru_cache(maxsize=4096)  # most of a million judgments are alike
def _keys(mapping: bytes) -> tuple[str, ...]:
    return () if mapping == b"null" else tuple(decode(mapping, dict[str, msgspec.Raw]))


def source_folder(config: Config) -> RunDir | None:
    """The run named by ``resume_from``: an id in the storage folder, else a path."""
    experiment = config.experiment
    if experiment.resume_from is None:
        return None
    return RunDir(find_resume_folder(experiment.storage_folder, experiment.resume_from))


def inherited_phases(config: Config) -> list[Phase]:
    """Phases 1–2 unless they are explicitly New; 3–5 where their mode builds on what there is."""
    declared = config.experiment.phases
    return [p for p in PHASES[:2] if declared.get(p) != "New"] + [
        p for p in PHASES[2:] if declared.get(p, "New") != "New"
    ]


class Taken(NamedTuple):
    """What was done, in a sentence, and what was left out, in another one where there was something."""

    done: str
    left_out: str | None = None


def phase_3_source(config: Config) -> RunDir | None:
    """The run whose items are taken over, if any are."""
    return source_folder(config) if "data_generation" in inherited_phases(config) else None


def take_over(config: Config, source: RunDir, target: RunDir) -> Taken:
    """Copy the inherited artifacts; what the target has already stays.

    The rubric of a task with ``rubric: extend`` is not copied but started from. An older layout is
    converted on the way.
    """
    if source.path.resolve() == target.path.resolve():
        raise UsageError(f"resume_from names the run itself ({target.path}); use {CONTINUE} instead")
    phases = inherited_phases(config)
    extended = {source.rubric(task.name).name for task in config.tasks if task.rubric == "extend"}
    if is_legacy(source.path):
        converted = convert(source.path, target.path, phases)
        for name in extended:
            (target.folder("rubric_mapping") / name).unlink(missing_ok=True)
        nouns: dict[str, str] = {of: "file" if of in PHASES[:2] else "record" for of in phases}
        counts = ", ".join(f"{pluralize(n, nouns[of])} of {of}" for of, n in converted.counts.items())
        done = f"took over {source.path}, converted from an older layout: {counts}"
        return Taken(done, _left_out(converted.dropped))
    if "data_generation" in phases:
        inherit_origins(source, target)
    copied = int(copy_once(source.recipes, target.recipes)) if source.recipes.exists() else 0
    for phase in phases:
        folder = source.folder(phase)
        for path in sorted(folder.glob("*.json*")) if folder.is_dir() else []:
            if path.name in extended or (phase in PHASES[:2] and path.name == "proposals.jsonl"):
                continue
            copied += copy_once(path, target.folder(phase) / path.name)
    return Taken(f"took over {copied} files of {source.path}")


def _left_out(dropped: Sequence[str]) -> str | None:
    if not dropped:
        return None
    lines = "line is no record and was" if len(dropped) == 1 else "lines are no records and were"
    return f"{len(dropped):,} {lines} left out, the first at {dropped[0]}"


def copy_once(path: Path, target: Path) -> bool:
    """Copy a file whole, unless something stands in its place; whether it was."""
    if target.exists():
        return False
    with replaced_whole(target) as copy, open_file(path) as source:
        shutil.copyfileobj(source, copy)
    return True


# --- ``--overwrite``: replacing phases in mode New


class Cleared(RunDir):
    """A run folder as it will be when the phases ``gone`` have given way; ``staying`` are files that stay."""

    def __init__(self, path: Path, gone: Collection[Phase], staying: Collection[Path]) -> None:
        super().__init__(path)
        self._gone = gone
        self._staying = staying

    def folder(self, phase: str) -> Path:
        """Artifacts of phases 1–2 are asked for by name, records of 3–5 by `files`."""
        gone = phase in self._gone and phase in PHASES[:2]  # never one of the kinds of record files
        return self.path / "replaced" / "nothing" if gone else super().folder(phase)

    def files(self, phase: str) -> list[Path]:
        found = super().files(phase)
        gone = phase_of_files(phase) in self._gone
        return [path for path in found if path in self._staying] if gone else found


def cleared(config: Config, folder: RunDir) -> Cleared:
    return Cleared(folder.path, _new_phases(config), _supplied_files(config, folder))


def _supplied_files(config: Config, folder: RunDir) -> set[Path]:
    """Files of items and answers that people supply."""
    answers = (
        folder.responses(task.name, of) for task in config.tasks for of in config.students_with_answers(task)
    )
    return {*locate_item_files(config, folder), *answers}


def give_way(config: Config, folder: RunDir) -> Path | None:
    """Move what New phases hold to ``replaced/<UTC time>/``; where it is then, or None if they hold nothing.

    The account of the run (``meta.json``, its errors and configurations) goes along. Where other phases
    hold anything, what is known of them stays: their recipes, and what they took over.
    """
    gone = _new_phases(config)
    move = [path for phase in gone for path in _artifacts(config, folder, phase)]
    if not move:
        return None
    move += [folder.meta, folder.errors]
    if "evaluation" in gone:
        move.append(folder.looks)  # what they showed goes with it
    account = [folder.recipes, folder.inherited]
    if any(folder.holds(phase) for phase in PHASES if phase not in gone):
        moved = move_to_replaced(folder, move, [folder.config, *account])
        if folder.inherited.exists():
            left = [name for name in inherited_by(folder) if name.phase not in gone]
            write_inherited(folder, left)
        return moved
    return move_to_replaced(
        folder, [*move, *account, *sorted(folder.path.glob("config*.yaml")), folder.repaired]
    )


def _new_phases(config: Config) -> list[Phase]:
    return [phase for phase in PHASES if config.experiment.mode(phase) == "New"]


def _artifacts(config: Config, folder: RunDir, phase: Phase) -> Iterator[Path]:
    """The phase's folder; where it holds items of one's own, all that it holds beside them."""
    held = sorted(folder.folder(phase).iterdir()) if folder.holds(phase) else []
    staying = _supplied_files(config, folder) & set(held)
    if held and not staying:
        yield folder.folder(phase)
    else:
        yield from (path for path in held if path not in staying)
