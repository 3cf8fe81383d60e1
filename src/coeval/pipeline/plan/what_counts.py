"""What counts in a run's tables: it follows from the configuration and inherited names in its folder, never
from how the run was last started."""

from __future__ import annotations

from collections.abc import Iterable

from coeval.analysis.planned_names import NameKind, Names, Planned, PlannedTask
from coeval.core.errors import ConfigError
from coeval.core.records import CHECK, EXACT_MATCH
from coeval.pipeline.config.document import read_document
from coeval.pipeline.config.draft import list_item_suppliers, list_models_writing_items
from coeval.pipeline.config.findings import MOST_SHOWN
from coeval.pipeline.config.schema import Config, TaskConfig
from coeval.pipeline.config.structure import check_structure
from coeval.pipeline.start.inherit import InheritedName, read_inherited_names
from coeval.store.jsonl import read_json
from coeval.store.rundir import RunDir


def read_planned_names(folder: RunDir) -> Planned | None:
    """Read the names that count: those in the run's ``config.yaml``, and inherited ones. None without such a
    file (older layouts).

    If no model plays a role, everybody on record counts; if phase 3 keeps existing items (Keep, Model), no
    total limits them. Rules of a start (does the source still exist?) are not applied.

    Raises ConfigError: the file is no configuration; StoreError: a rubric by teachers, or the inherited
    names, cannot be read.
    """
    if not folder.config.exists():
        return None
    structure = check_structure(read_document(folder.config).data)
    if structure.config is None:
        lines = [f"{folder.config}  {finding.message}" for finding in structure.findings[:MOST_SHOWN]]
        raise ConfigError(lines, more=len(structure.findings) - len(lines))
    config, inherited = structure.config, read_inherited_names(folder)
    named = {task.name: _find_planned_names_of_task(config, task, folder, inherited) for task in config.tasks}
    others = dict.fromkeys(sorted({name.task for name in inherited} - named.keys()), _EVERYTHING)
    answered = {name for task in config.tasks for name in config.students_with_existing_answers(task)}
    students = frozenset({model.name for model in config.with_role("student")} | answered) or None
    players = [*config.models, *config.with_role("student")]
    families = {
        player.name: str(player.parameters.get("family") or player.parameters.get("model") or player.name)
        for player in players
    }
    simulated = frozenset(player.name for player in players if player.interface == "simulated")
    labels = {model.name: model.label for model in config.models if model.label is not None}
    labels |= {student.name: student.label for student in config.students if student.label is not None}
    counted_students = _add_names(students, _select_names(inherited, "student"))
    samples = {student.name: student.samples for student in config.with_role("student")}
    everybody = {model.name for model in config.with_role("student")}
    own = {
        name: frozenset(
            task.name for task in config.tasks if name in config.students_with_existing_answers(task)
        )
        for name in answered - everybody
    }
    some = {name: tasks for name, tasks in own.items() if len(tasks) < len(named)}
    requested = {player.name: player.spec().open_names for player in players}
    return Planned(counted_students, named | others, families, simulated, labels, samples, some, requested)


# Of a task that was taken over and that the file does not name: this run adds nothing to it.
_EVERYTHING = PlannedTask(teachers=None, judges=None, factors=None, labels=None)


def _find_planned_names_of_task(
    config: Config, task: TaskConfig, folder: RunDir, inherited: frozenset[InheritedName]
) -> PlannedTask:
    """Return which teachers, judges, factors and labels of a task count."""
    mine = frozenset(name for name in inherited if name.task == task.name)
    factors = _add_names(_read_planned_factors(task, folder), _select_names(mine, "factor"))
    judged = None if factors is None else factors - task.checks.keys()
    playing = frozenset(model.name for model in config.with_role("judge")) or None
    judges = frozenset() if judged is not None and not judged else playing
    supplying = frozenset((*list_item_suppliers(config, task), *list_models_writing_items(config, task)))
    teachers = _add_names(supplying or None, _select_names(mine, "teacher"))
    stays = config.experiment.mode("data_generation") in ("Keep", "Model")
    return PlannedTask(
        teachers=teachers,
        judges=_add_names(judges, _select_names(mine, "judge") | {CHECK, EXACT_MATCH}),
        factors=factors,
        labels=frozenset(task.label_attributes) | _select_names(mine, "label"),
        total=None if teachers is None or stays else task.sampling.max_items,
        supply=frozenset(list_item_suppliers(config, task)),
        scales={factor: task.scale_of(factor) for factor in sorted(judged or ())},
        checks=frozenset(task.checks),
        weights=task.weights,
        compares=task.judging == "pairwise",
    )


def _select_names(names: Iterable[InheritedName], kind: NameKind) -> frozenset[str]:
    return frozenset(name.name for name in names if name.kind == kind)


def _add_names(names: Names, more: frozenset[str]) -> Names:
    return None if names is None else names | more


def _read_planned_factors(task: TaskConfig, folder: RunDir) -> Names:
    """Return the factors of a declared rubric, not those dropped from it, else those of phase 2, if any."""
    rubric = task.rubric_texts_or_word
    if not isinstance(rubric, dict):
        try:
            rubric = read_json(folder.rubric(task.name), dict[str, str])
        except FileNotFoundError:
            return None
    return frozenset(rubric) - {*task.label_attributes}
