"""Tasks made ready: the configuration and a finished blueprint become a setup."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from coeval.core.records import Role
from coeval.engine.model_work import RoleModel
from coeval.judging.checks.check_options import read_check
from coeval.judging.verdict import criterion_hash
from coeval.pipeline.config.draft import item_sources, item_writers
from coeval.pipeline.config.reasons import reasons_of
from coeval.pipeline.config.schema import Config, ModelConfig, TaskConfig
from coeval.pipeline.phases.answer_file import GIVEN
from coeval.pipeline.phases.blueprint import TaskBlueprint
from coeval.pipeline.plan.judge_form import JudgeForm, pair_design
from coeval.pipeline.plan.task_setup import TaskSetup, role_model
from coeval.pipeline.prompts import COMPARE_PAIR, FROM_DOCUMENTS
from coeval.pipeline.samples import ItemSpace
from coeval.tables.documents import CutDocuments

UNKNOWN = TaskBlueprint(target={}, nuanced={}, rubric={"(to be proposed)": ""})
"""Stands for what phases 1–2 have yet to propose, where records are only counted."""


def build_setup(
    config: Config, task: TaskConfig, blueprint: TaskBlueprint, documents: CutDocuments | None = None
) -> TaskSetup:
    """A task with its cast, attributes and rubric; its ``documents`` where items may be written."""
    names = item_writers(config, task)
    writers = [model for model in config.with_role("teacher") if model.name in names]
    judge_template = "evaluate_per_factor" if task.evaluation_mode == "per_factor" else "evaluate_single"
    if task.judging == "pairwise":
        judge_template = COMPARE_PAIR
    labels = set(task.label_attributes)
    library = {**config.variant_prompts(), **task.prompt_library}
    unjudged = labels | task.checks.keys()
    judged = {factor: text for factor, text in blueprint.rubric.items() if factor not in unjudged}
    reasons = reasons_of(config, task, len(judged))
    task = task.model_copy(update={"rationale": reasons.given})
    settled = task.model_copy(update={"rubric": blueprint.rubric, "prompt_library": library})
    form = judge_form(task, judged)
    criteria = {factor: criterion_hash(text, form.scales[factor]) for factor, text in judged.items()}

    given = config.answered_by(task)
    checks = {name: read_check(options) for name, options in task.checks.items() if name not in labels}
    declared = {name: blueprint.target[name] for name in task.label_attributes if name in blueprint.target}

    def cast(models: list[ModelConfig], role: Role, template: str) -> tuple[RoleModel, ...]:
        # what nobody judges is no criterion of a comparison
        shown = settled.model_copy(update={"rubric": judged}) if template == COMPARE_PAIR else settled
        return tuple(role_model(model, role, shown, template, config.experiment.seed) for model in models)

    students = (
        *(
            replace(student, labels=declared)
            for student in cast(config.with_role("student"), "student", "test")
        ),
        *(RoleModel(name=name, model=name, role="student", recipe=GIVEN) for name in given),
    )
    return TaskSetup(
        task=task,
        teachers=cast(writers, "teacher", "sample" if task.documents is None else FROM_DOCUMENTS),
        sources=item_sources(config, task),
        students=students,
        given=frozenset(given),
        judges=cast(config.with_role("judge") if criteria else [], "judge", judge_template),
        rubric=blueprint.rubric,
        space=_space(task, blueprint, documents),
        criteria=criteria,
        form=form,
        reasons=reasons,
        checks=checks,
        check_hashes={factor: check.fingerprint() for factor, check in checks.items()},
        pairs=pair_design(task, [student.name for student in students]) if criteria else None,
    )


def judge_form(task: TaskConfig, criteria: Mapping[str, str]) -> JudgeForm:
    """What judges of a task, its ``rationale`` settled, are asked about these factors."""
    scales = {factor: task.scale_of(factor) for factor in criteria}
    return JudgeForm(criteria, scales, rationale=bool(task.rationale))


def _space(task: TaskConfig, blueprint: TaskBlueprint, documents: CutDocuments | None) -> ItemSpace:
    sampling = task.sampling
    return ItemSpace(
        target=blueprint.target,
        nuance=blueprint.nuanced,
        target_range=sampling.target,
        nuance_range=sampling.nuance,
        labels=tuple(task.label_attributes),
        walk_product=sampling.target == "all" or task.target_attributes == "complete",
        passages=documents.passages if documents is not None else (),
        per_item=task.documents.per_item if task.documents is not None else 1,
    )
