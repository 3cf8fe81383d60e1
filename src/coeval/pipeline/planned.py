"""What the configuration that lies in a run folder plans, by name: what it removed is told by this."""

from __future__ import annotations

from typing import NamedTuple

from coeval.analysis.planned import Names, Planned, PlannedTask
from coeval.core.errors import ConfigError, StoreError
from coeval.core.records import EXACT_MATCH, Role
from coeval.pipeline.config.document import read_document
from coeval.pipeline.config.schema import Config, Phase, TaskConfig
from coeval.pipeline.config.structure import check_structure
from coeval.pipeline.inherit import inherited_phases
from coeval.store.jsonl import read_json
from coeval.store.rundir import RunDir


class _Started(NamedTuple):
    """A run as it was started last: ``--continue`` heeds neither the modes nor what was taken over."""

    config: Config
    folder: RunDir
    continued: bool

    def leaves(self, phase: Phase) -> bool:
        """Whether the phase plans what is there."""
        return not self.continued and self.config.experiment.mode(phase) in ("Keep", "Model")

    def takes_over(self, phase: Phase) -> bool:
        resumes = self.config.experiment.resume_from is not None
        return resumes and not self.continued and phase in inherited_phases(self.config)

    def playing(self, role: Role, phase: Phase, *names: str) -> Names:
        playing = {model.name for model in self.config.with_role(role)}
        return frozenset(playing | {*names}) if playing and not self.leaves(phase) else None


def planned_names(folder: RunDir) -> Planned | None:
    """The names that the run's ``config.yaml`` holds; None where there is none (older layouts).

    A phase whose mode leaves what is there (Keep, Model) plans what is there, and so does a role that
    no model plays; ``--continue`` makes every mode Extend. The rules of a start (does the source still
    exist?) are not asked of what has run.

    Raises
    ------
    ConfigError
        the file is there and is no configuration.
    StoreError
        a rubric that teachers wrote cannot be read.
    """
    if not folder.config.exists():
        return None
    structure = check_structure(read_document(folder.config).data)
    if structure.config is None:
        raise ConfigError([f"{folder.config}  {finding.message}" for finding in structure.findings])
    run = _Started(structure.config, folder, _continued(folder))
    students = run.playing("student", "response_collection")
    return Planned(students, {task.name: _planned_task(run, task) for task in run.config.tasks})


def _continued(folder: RunDir) -> bool:
    """A run whose ``meta.json`` cannot be read is taken as it was configured."""
    try:
        return folder.read_meta().continued
    except (FileNotFoundError, StoreError):
        return False


def _planned_task(run: _Started, task: TaskConfig) -> PlannedTask:
    teachers, factors = _teachers(run, task), _factors(run, task)
    judges = run.playing("judge", "evaluation", EXACT_MATCH)
    return PlannedTask(
        teachers=teachers,
        judges=frozenset({EXACT_MATCH}) if factors is not None and not factors else judges,
        factors=factors,
        labels=None if run.leaves("evaluation") else frozenset(task.label_attributes),
        total=None if teachers is None else task.sampling.total,
        ingested=task.category == "benchmark",
    )


def _teachers(run: _Started, task: TaskConfig) -> Names:
    supplied = task.category == "benchmark"
    teachers = [m.name for m in run.config.with_role("teacher") if (m.interface == "benchmark") == supplied]
    return frozenset(teachers) if teachers and not run.leaves("data_generation") else None


def _factors(run: _Started, task: TaskConfig) -> Names:
    """The factors that are judged. The rubric of phase 2 keeps the factors that the file has lost, so it
    counts only where it may hold more than the file by right: written by teachers, or taken over."""
    if run.leaves("evaluation"):
        return None
    declared = task.rubric if isinstance(task.rubric, dict) else None
    stored = None
    if declared is None or run.takes_over("rubric_mapping") or run.leaves("rubric_mapping"):
        try:
            stored = read_json(run.folder.rubric(task.name))
        except FileNotFoundError:
            if declared is None:
                return None
    return frozenset({*(declared or ()), *(stored or ())} - {*task.label_attributes})
