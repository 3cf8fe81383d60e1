"""What counts in a run's tables and measures: it follows from what lies in its folder alone, the
configuration and what was taken over, and never from how the run was last started."""

from __future__ import annotations

from collections.abc import Iterable

from coeval.analysis.planned_names import NameKind, Names, Planned, PlannedTask
from coeval.core.errors import ConfigError
from coeval.core.records import CHECK, EXACT_MATCH
from coeval.pipeline.config.document import read_document
from coeval.pipeline.config.draft import list_item_suppliers, list_item_writers
from coeval.pipeline.config.findings import MOST_SHOWN
from coeval.pipeline.config.schema import Config, TaskConfig
from coeval.pipeline.config.structure import check_structure
from coeval.pipeline.start.inherit import InheritedName, read_inherited_names
from coeval.store.jsonl import read_json
from coeval.store.rundir import RunDir


def planned_names(folder: RunDir) -> Planned | None:
    """What counts: the names that the run's ``config.yaml`` holds, and those that ``resume_from`` took
    over. None where there is no such file (older layouts).

    Where no model plays a role, whoever is on record counts; where phase 3 leaves the items that are there
    (Keep, Model), no total cuts them off. The rules of a start (does the source still exist?) are not asked
    of what has run.

    Raises ConfigError: the file is there and is no configuration; StoreError: a rubric that teachers wrote,
    or what was taken over, cannot be read.
    """
    if not folder.config.exists():
        return None
    structure = check_structure(read_document(folder.config).data)
    if structure.config is None:
        shown = [f"{folder.config}  {finding.message}" for finding in structure.findings[:MOST_SHOWN]]
        raise ConfigError(shown, more=len(structure.findings) - len(shown))
    config, inherited = structure.config, read_inherited_names(folder)
    named = {task.name: _planned_task(config, task, folder, inherited) for task in config.tasks}
    others = dict.fromkeys(sorted({name.task for name in inherited} - named.keys()), _EVERYTHING)
    given = {name for task in config.tasks for name in config.students_with_answers(task)}
    students = frozenset({model.name for model in config.with_role("student")} | given) or None
    players = [*config.models, *config.with_role("student")]
    families = {
        each.name: str(each.parameters.get("family") or each.parameters.get("model") or each.name)
        for each in players
    }
    simulated = frozenset(each.name for each in players if each.interface == "simulated")
    labels = {model.name: model.label for model in config.models if model.label is not None}
    labels |= {student.name: student.label for student in config.students if student.label is not None}
    known = _or_all(students, _of(inherited, "student"))
    samples = {student.name: student.samples for student in config.with_role("student")}
    everybody = {model.name for model in config.with_role("student")}
    own = {
        name: frozenset(task.name for task in config.tasks if name in config.students_with_answers(task))
        for name in given - everybody
    }
    some = {name: tasks for name, tasks in own.items() if len(tasks) < len(named)}
    requested = {each.name: each.spec().open_names for each in players}
    return Planned(known, named | others, families, simulated, labels, samples, some, requested)


# Of a task that was taken over and that the file does not name: this run adds nothing to it.
_EVERYTHING = PlannedTask(teachers=None, judges=None, factors=None, labels=None)


def _planned_task(
    config: Config, task: TaskConfig, folder: RunDir, inherited: frozenset[InheritedName]
) -> PlannedTask:
    mine = frozenset(name for name in inherited if name.task == task.name)
    factors = _or_all(_factors(task, folder), _of(mine, "factor"))
    judged = None if factors is None else factors - task.checks.keys()
    playing = frozenset(model.name for model in config.with_role("judge")) or None
    judges = frozenset() if judged is not None and not judged else playing
    teachers = _or_all(_teachers(config, task), _of(mine, "teacher"))
    stays = config.experiment.mode("data_generation") in ("Keep", "Model")
    return PlannedTask(
        teachers=teachers,
        judges=_or_all(judges, _of(mine, "judge") | {CHECK, EXACT_MATCH}),
        factors=factors,
        labels=frozenset(task.label_attributes) | _of(mine, "label"),
        total=None if teachers is None or stays else task.sampling.most,
        supply=frozenset(list_item_suppliers(config, task)),
        scales={factor: task.scale_of(factor) for factor in sorted(judged or ())},
        checks=frozenset(task.checks),
        weights=task.weights,
        compares=task.judging == "pairwise",
    )


def _of(names: Iterable[InheritedName], kind: NameKind) -> frozenset[str]:
    return frozenset(name.name for name in names if name.kind == kind)


def _or_all(names: Names, more: frozenset[str]) -> Names:
    return None if names is None else names | more


def _teachers(config: Config, task: TaskConfig) -> Names:
    return frozenset((*list_item_suppliers(config, task), *list_item_writers(config, task))) or None


def _factors(task: TaskConfig, folder: RunDir) -> Names:
    """The factors that the file declares; those of phase 2 where teachers write them. A declared rubric
    keeps there what the file has lost."""
    rubric = task.declared_rubric
    if not isinstance(rubric, dict):
        try:
            rubric = read_json(folder.rubric(task.name), dict[str, str])
        except FileNotFoundError:
            return None
    return frozenset(rubric) - {*task.label_attributes}
