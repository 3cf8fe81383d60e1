"""The setup of a task: its configuration and finished blueprint, with each model in its roles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from coeval.core.records import Role, model_of
from coeval.core.text import digest, placeholders
from coeval.engine.model_work import Recipe, RoleModel, choose_base_seed, find_absent_code_recipe, make_recipe
from coeval.judging.checks.check_options import read_check
from coeval.judging.checks.rubric_check import RubricCheck
from coeval.judging.verdict import criterion_hash
from coeval.pipeline.config.draft import list_item_suppliers, list_models_writing_items
from coeval.pipeline.config.schema import Config, ModelConfig, ReasonSetting, TaskConfig
from coeval.pipeline.phases.answer_file import EXISTING_ANSWERS
from coeval.pipeline.plan.judge_form import JudgeForm, PairDesign, build_pair_design
from coeval.pipeline.plan.recipes import build_task_variables, hash_template_parts
from coeval.pipeline.prompts import COMPARE_PAIR, FROM_DOCUMENTS, find_template
from coeval.pipeline.samples import ItemSpace, describe_clipped_range, describe_coverage_shortfall
from coeval.tables.documents import CutDocuments


def build_role_model(
    model: ModelConfig, role: Role, task: TaskConfig, template_id: str, run_seed: int | None
) -> RoleModel:
    """Build a model in a role at a task, with its template and recipe."""
    described = bool(task.output_description.strip())
    template = find_template(task.prompt_library, template_id, model.name, has_output_description=described)
    spec, sampling, system = model.spec(), model.sampling(role), model.system_prompt(role)
    fields = build_task_variables(task)
    template_hashes = hash_template_parts(task.name, template_id, template, fields, role)
    if "answer_format" in placeholders(template):
        template_hashes[f"tasks.{task.name}.rationale"] = digest(str(task.rationale))
    return RoleModel(
        name=model.name,
        model=spec.model,
        role=role,
        sampling=sampling,
        recipe=make_recipe(spec, role, sampling, system, template_hashes),
        system=system,
        seed=choose_base_seed(spec, sampling, run_seed if model.accepts_run_seed(role) else None),
        template=template,
        fields=fields,
        variant_of=model_of(model.name),
        samples=model.samples if role == "student" else 1,
    )


PROPOSED_PREFIX = "(proposed "
"""Begins the name of a factor that teachers are still to propose."""


@dataclass(frozen=True, slots=True)
class TaskSetup:
    """One task with its models. ``rubric`` and ``space`` are known once phases 1–2 are done; ``reasons`` says
    whether judges give reasons, as the ``rationale`` of ``task`` then does.

    ``teachers`` are the models that write its items; ``sources`` the benchmark teachers that supply some.
    ``students_with_existing_answers`` are not called. ``criteria`` maps each judged factor to
    the hash of its criterion and scale; factors named like a label are compared, not judged, and without
    criteria there are no judges. ``form`` is what judges are asked; ``pairs`` what they compare if they
    score nothing. ``checks`` are the computed factors, ``check_hashes`` what their scores depend on.
    """

    task: TaskConfig
    teachers: tuple[RoleModel, ...]
    sources: tuple[str, ...]
    students: tuple[RoleModel, ...]
    judges: tuple[RoleModel, ...]
    rubric: Mapping[str, str]
    space: ItemSpace
    criteria: dict[str, str]
    form: JudgeForm
    reasons: ReasonSetting
    students_with_existing_answers: frozenset[str] = frozenset()
    checks: Mapping[str, RubricCheck] = field(default_factory=dict)
    check_hashes: Mapping[str, str] = field(default_factory=dict)
    pairs: PairDesign | None = None

    @property
    def recipes(self) -> list[Recipe]:
        return [cast.recipe for cast in (*self.teachers, *self.students, *self.judges)]

    def with_recorded_recipes_of_absent_functions(
        self, recipes_by_hash: Mapping[str, Mapping[str, str]]
    ) -> TaskSetup:
        """Copy the setup with recorded recipes (parts by hash) for functions whose source is not here."""

        def cast(players: tuple[RoleModel, ...]) -> tuple[RoleModel, ...]:
            return tuple(
                replace(player, recipe=find_absent_code_recipe(player.recipe, recipes_by_hash))
                for player in players
            )

        return replace(
            self, teachers=cast(self.teachers), students=cast(self.students), judges=cast(self.judges)
        )

    @property
    def labels(self) -> dict[str, list[str]]:
        """Return each label attribute with the values that an answer may give."""
        return {name: self.space.target.get(name, []) for name in self.task.label_attributes}

    @property
    def shows_nuance(self) -> bool:
        """Check whether a student or a judge is shown an item's nuance."""
        return any("nuanced_attributes" in placeholders(p.template) for p in (*self.students, *self.judges))

    def list_clipped_ranges_dropped_reasons(self) -> Iterator[str]:
        """Say which ranges exceed the proposed attributes, and that limits leave no room for reasons."""
        factors_known = not any(factor.startswith(PROPOSED_PREFIX) for factor in self.criteria)
        problem = self.reasons.limit_problem
        if self.judges and factors_known and self.reasons.stated is None and problem:
            yield f"{self.task.name}: judges give no reasons: {problem}, or set `rationale`"
        task, space = self.task, self.space
        others = [name for name in space.target if name not in space.labels]
        proposed = {
            "target": (task.target_attributes, space.chosen_range, others),
            "nuance": (task.nuanced_attributes, space.nuance_range, list(space.nuance)),
        }
        for kind, (declared, requested, names) in proposed.items():
            if isinstance(declared, str) and requested is not None and names and requested[1] > len(names):
                yield f"tasks.{task.name}.sampling.{kind} {describe_clipped_range(requested, names)}"

    def describe_coverage_shortfalls(self) -> Iterator[str]:
        """Say which target attributes the items of one teacher cannot cover."""
        total = self.task.sampling.max_items
        if self.teachers and total is not None and self.space.target:
            prefix = "of each teacher alone: " if len(self.teachers) > 1 else ""
            yield from (f"{prefix}{sentence}" for sentence in describe_coverage_shortfall(self.space, total))

    @property
    def records_per_response(self) -> int:
        """Return how many records one response may lead to, itself included."""
        judgments = len(self.judges)
        if self.pairs is not None:  # a comparison comes of two answers
            judgments *= len(self.pairs.orders)
        return 1 + judgments + bool(self.task.label_attributes) + bool(self.checks)


# --- Setups


@dataclass(frozen=True, slots=True)
class TaskBlueprint:
    """A task's finished attributes and rubric."""

    target: dict[str, list[str]]
    nuanced: dict[str, list[str]]
    rubric: dict[str, str]


UNKNOWN = TaskBlueprint(target={}, nuanced={}, rubric={"(to be proposed)": ""})
"""Stands for what phases 1–2 have yet to propose, where records are only counted."""


def build_setup(
    config: Config, task: TaskConfig, blueprint: TaskBlueprint, documents: CutDocuments | None = None
) -> TaskSetup:
    """Build a task's setup; ``documents`` are needed only where items may be written."""
    names = list_models_writing_items(config, task)
    writers = [model for model in config.with_role("teacher") if model.name in names]
    judge_template = "evaluate_per_factor" if task.evaluation_mode == "per_factor" else "evaluate_single"
    if task.judging == "pairwise":
        judge_template = COMPARE_PAIR
    labels = set(task.label_attributes)
    library = {**config.variant_prompts_by_library_key(), **task.prompt_library}
    unjudged = labels | task.checks.keys()
    judged = {factor: text for factor, text in blueprint.rubric.items() if factor not in unjudged}
    reasons = config.decide_reasons(task, len(judged))
    task = task.model_copy(update={"rationale": reasons.are_given})
    settled = task.model_copy(update={"rubric": blueprint.rubric, "prompt_library": library})
    form = build_judge_form(task, judged)
    criteria = {factor: criterion_hash(text, form.scales[factor]) for factor, text in judged.items()}

    answered = config.students_with_existing_answers(task)
    checks = {name: read_check(options) for name, options in task.checks.items() if name not in labels}
    declared = {name: blueprint.target[name] for name in task.label_attributes if name in blueprint.target}

    def build_players(models: list[ModelConfig], role: Role, template: str) -> tuple[RoleModel, ...]:
        # what nobody judges is no criterion of a comparison
        task_as_shown = settled.model_copy(update={"rubric": judged}) if template == COMPARE_PAIR else settled
        return tuple(
            build_role_model(model, role, task_as_shown, template, config.experiment.seed) for model in models
        )

    students = (
        *(
            replace(student, labels=declared)
            for student in build_players(config.with_role("student"), "student", "test")
        ),
        *(RoleModel(name=name, model=name, role="student", recipe=EXISTING_ANSWERS) for name in answered),
    )
    return TaskSetup(
        task=task,
        teachers=build_players(writers, "teacher", "sample" if task.documents is None else FROM_DOCUMENTS),
        sources=list_item_suppliers(config, task),
        students=students,
        students_with_existing_answers=frozenset(answered),
        judges=build_players(config.with_role("judge") if criteria else [], "judge", judge_template),
        rubric=blueprint.rubric,
        space=_build_item_space(task, blueprint, documents),
        criteria=criteria,
        form=form,
        reasons=reasons,
        checks=checks,
        check_hashes={factor: check.definition_hash() for factor, check in checks.items()},
        pairs=build_pair_design(task, [student.name for student in students]) if criteria else None,
    )


def build_judge_form(task: TaskConfig, criteria: Mapping[str, str]) -> JudgeForm:
    """Return what judges are asked about these factors of a task, whose ``rationale`` is settled."""
    scales = {factor: task.scale_of(factor) for factor in criteria}
    return JudgeForm(criteria, scales, rationale=bool(task.rationale))


def _build_item_space(
    task: TaskConfig, blueprint: TaskBlueprint, documents: CutDocuments | None
) -> ItemSpace:
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
