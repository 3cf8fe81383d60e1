"""``resume_from``: a new run takes over artifacts of an older one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from coeval.core.errors import UsageError
from coeval.core.options import CONTINUE
from coeval.pipeline.config.draft import resume_folder
from coeval.pipeline.config.schema import PHASES, Config, Phase
from coeval.store.counting_lines import Dropped
from coeval.store.jsonl import store_error, write_bytes_atomic
from coeval.store.legacy import convert, is_legacy
from coeval.store.rundir import RunDir
from coeval.tables.origin import inherit_origins


def source_folder(config: Config) -> RunDir | None:
    """The run named by ``resume_from``: an id in the storage folder, else a path."""
    experiment = config.experiment
    if experiment.resume_from is None:
        return None
    return RunDir(resume_folder(experiment.storage_folder, experiment.resume_from))


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
        counts = ", ".join(_counted(phase, count) for phase, count in converted.counts.items())
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


def _counted(phase: str, count: int) -> str:
    noun = "file" if phase in PHASES[:2] else "record"
    return f"{count:,} {noun if count == 1 else noun + 's'} of {phase}"


def _left_out(dropped: Sequence[Dropped]) -> str | None:
    if not dropped:
        return None
    lines = "line is no record and was" if len(dropped) == 1 else "lines are no records and were"
    first = dropped[0]
    return (
        f"{len(dropped):,} {lines} left out, the first at byte {first.offset} of {first.path}: {first.reason}"
    )


def copy_once(path: Path, target: Path) -> bool:
    """Copy a file whole, unless something stands in its place; whether it was."""
    if target.exists():
        return False
    if path.suffix == ".json":
        write_bytes_atomic(target, path.read_bytes())
        return True
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, temporary)
        temporary.replace(target)
    except OSError as error:
        raise store_error("copy to", target, error) from error
    return True
