"""What the configuration that lies in a run folder plans, by name: what it removed is told by this."""

from __future__ import annotations

from coeval.analysis.planned import Names, Planned, PlannedTask
from coeval.core.errors import ConfigError
from coeval.core.records import EXACT_MATCH, Role
from coeval.pipeline.config.document import read_document
from coeval.pipeline.config.schema import Config, Phase, TaskConfig
from coeval.pipeline.config.structure import check_structure
from coeval.pipeline.inherit import inherited_phases
from coeval.store.jsonl import read_json
from coeval.store.rundir import RunDir


def planned_names(folder: RunDir) -> Planned | None:
    """The names that the run's ``config.yaml`` holds; None where there is none (older layouts).

    A phase whose mode leaves what is there (Keep, Model) plans what is there, and so does a role that
    no model plays. The rules of a start (does the source still exist?) are not asked of what has run.

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
    config = structure.config
    students = _playing(config, "student", "response_collection")
    return Planned(students, {task.name: _planned_task(config, task, folder) for task in config.tasks})


def _playing(config: Config, role: Role, phase: Phase, *names: str) -> Names:
    playing = {model.name for model in config.with_role(role)}
    return frozenset(playing | {*names}) if playing and not _leaves(config, phase) else None


def _leaves(config: Config, phase: Phase) -> bool:
    return config.experiment.mode(phase) in ("Keep", "Model")


def _planned_task(config: Config, task: TaskConfig, folder: RunDir) -> PlannedTask:
    factors = _factors(config, task, folder)
    judges = _playing(config, "judge", "evaluation", EXACT_MATCH)
    return PlannedTask(
        teachers=_teachers(config, task),
        judges=frozenset({EXACT_MATCH}) if factors is not None and not factors else judges,
        factors=factors,
        labels=None if _leaves(config, "evaluation") else frozenset(task.label_attributes),
    )


def _teachers(config: Config, task: TaskConfig) -> Names:
    supplied = task.category == "benchmark"
    teachers = [m.name for m in config.with_role("teacher") if (m.interface == "benchmark") == supplied]
    return frozenset(teachers) if teachers and not _leaves(config, "data_generation") else None


def _factors(config: Config, task: TaskConfig, folder: RunDir) -> Names:
    """The factors that are judged. The rubric of phase 2 keeps the factors that the file has lost, so it
    counts only where it may hold more than the file by right: written by teachers, or taken over."""
    if _leaves(config, "evaluation"):
        return None
    declared = task.rubric if isinstance(task.rubric, dict) else None
    taken_over = config.experiment.resume_from is not None and "rubric_mapping" in inherited_phases(config)
    stored = None
    if declared is None or taken_over or _leaves(config, "rubric_mapping"):
        try:
            stored = read_json(folder.rubric(task.name))
        except FileNotFoundError:
            if declared is None:
                return None
    return frozenset({*(declared or ()), *(stored or ())} - {*task.label_attributes})
