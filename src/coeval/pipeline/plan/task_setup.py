"""Who plays what: a configuration and a finished blueprint make a task's setup, ready to be asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from coeval.core.records import Role, model_of
from coeval.core.text import digest, placeholders
from coeval.engine.model_work import Recipe, RoleModel, choose_base_seed, find_recorded_recipe, make_recipe
from coeval.judging.checks.check_options import read_check
from coeval.judging.checks.rubric_check import RubricCheck
from coeval.judging.verdict import criterion_hash
from coeval.pipeline.config.draft import list_item_suppliers, list_item_writers
from coeval.pipeline.config.schema import Config, ModelConfig, ReasonSetting, TaskConfig
from coeval.pipeline.phases.answer_file import GIVEN
from coeval.pipeline.plan.judge_form import JudgeForm, PairDesign, pair_design
from coeval.pipeline.plan.recipes import task_fields, template_parts
from coeval.pipeline.prompts import COMPARE_PAIR, FROM_DOCUMENTS, find_template
from coeval.pipeline.samples import ItemSpace, clipping, coverage_shortfall
from coeval.tables.documents import CutDocuments


def role_model(
    model: ModelConfig, role: Role, task: TaskConfig, template_id: str, run_seed: int | None
) -> RoleModel:
    """Who plays ``role`` at a task, asked by the template of this id."""
    described = bool(task.output_description.strip())
    template = find_template(task.prompt_library, template_id, model.name, described=described)
    spec, sampling, system = model.spec(), model.sampling(role), model.system_prompt(role)
    fields = task_fields(task)
    shown = template_parts(task.name, template_id, template, fields, role)
    if "answer_format" in placeholders(template):
        shown[f"tasks.{task.name}.rationale"] = digest(str(task.rationale))
    return RoleModel(
        name=model.name,
        model=spec.model,
        role=role,
        sampling=sampling,
        recipe=make_recipe(spec, role, sampling, system, shown),
        system=system,
        seed=choose_base_seed(spec, sampling, run_seed if model.accepts_run_seed(role) else None),
        template=template,
        fields=fields,
        variant_of=model_of(model.name),
        samples=model.samples if role == "student" else 1,
    )


FORESEEN = "(proposed "
"""Begins the name of a factor that teachers are still to propose."""


@dataclass(frozen=True, slots=True)
class TaskSetup:
    """One task with its cast. ``rubric`` and ``space`` are known once phases 1–2 are done; ``reasons`` says
    whether judges give any, as the ``rationale`` of ``task`` does then.

    ``teachers`` are the models that write items for it; ``sources`` the benchmark teachers whose
    items it uses as well. Students that are ``given`` are not asked: their answers exist.
    ``criteria`` maps each factor that judges score to the hash of
    its criterion and scale; factors named like a label attribute are compared, not judged, and a setup
    without criteria has no judges. ``form`` is what judges are asked; ``pairs`` what they compare, where they
    score nothing.
    ``checks`` are the factors that are computed, ``check_hashes`` what their scores follow from.
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
    given: frozenset[str] = frozenset()
    checks: Mapping[str, RubricCheck] = field(default_factory=dict)
    check_hashes: Mapping[str, str] = field(default_factory=dict)
    pairs: PairDesign | None = None

    @property
    def recipes(self) -> list[Recipe]:
        return [cast.recipe for cast in (*self.teachers, *self.students, *self.judges)]

    def as_recorded(self, known: Mapping[str, Mapping[str, str]]) -> TaskSetup:
        """Return the setup with the recipes of ``known``, parts by hash, where functions are not here."""

        def cast(players: tuple[RoleModel, ...]) -> tuple[RoleModel, ...]:
            return tuple(replace(each, recipe=find_recorded_recipe(each.recipe, known)) for each in players)

        return replace(
            self, teachers=cast(self.teachers), students=cast(self.students), judges=cast(self.judges)
        )

    @property
    def labels(self) -> dict[str, list[str]]:
        """Each label attribute with the values that an answer may give to it."""
        return {name: self.space.target.get(name, []) for name in self.task.label_attributes}

    @property
    def shows_nuance(self) -> bool:
        """Whether a student or a judge is shown what nuance an item has."""
        return any("nuanced_attributes" in placeholders(p.template) for p in (*self.students, *self.judges))

    def clippings(self) -> Iterator[str]:
        """What the file asks of sampling beyond the attributes that teachers proposed, a sentence each; and
        that judges give no reasons, for want of room, once their factors are known."""
        are_known = not any(factor.startswith(FORESEEN) for factor in self.criteria)
        problem = self.reasons.limit_problem
        if self.judges and are_known and self.reasons.stated is None and problem:
            yield f"{self.task.name}: judges give no reasons: {problem}, or set `rationale`"
        task, space = self.task, self.space
        others = [name for name in space.target if name not in space.labels]
        proposed = {
            "target": (task.target_attributes, space.chosen_range, others),
            "nuance": (task.nuanced_attributes, space.nuance_range, list(space.nuance)),
        }
        for kind, (declared, requested, there) in proposed.items():
            if isinstance(declared, str) and requested is not None and there and requested[1] > len(there):
                yield f"tasks.{task.name}.sampling.{kind} {clipping(requested, there)}"

    def shortfalls(self) -> Iterator[str]:
        """What of the target attributes the items of one teacher cannot cover, a sentence each."""
        total = self.task.sampling.most
        if self.teachers and total is not None and self.space.target:
            each = "of each teacher alone: " if len(self.teachers) > 1 else ""
            yield from (f"{each}{sentence}" for sentence in coverage_shortfall(self.space, total))

    @property
    def response_weight(self) -> int:
        """Records that one response may bring about, itself included."""
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
    """A task with its cast, attributes and rubric; its ``documents`` where items may be written."""
    names = list_item_writers(config, task)
    writers = [model for model in config.with_role("teacher") if model.name in names]
    judge_template = "evaluate_per_factor" if task.evaluation_mode == "per_factor" else "evaluate_single"
    if task.judging == "pairwise":
        judge_template = COMPARE_PAIR
    labels = set(task.label_attributes)
    library = {**config.variant_prompts(), **task.prompt_library}
    unjudged = labels | task.checks.keys()
    judged = {factor: text for factor, text in blueprint.rubric.items() if factor not in unjudged}
    reasons = config.decide_reasons(task, len(judged))
    task = task.model_copy(update={"rationale": reasons.are_given})
    settled = task.model_copy(update={"rubric": blueprint.rubric, "prompt_library": library})
    form = build_judge_form(task, judged)
    criteria = {factor: criterion_hash(text, form.scales[factor]) for factor, text in judged.items()}

    given = config.students_with_answers(task)
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
        sources=list_item_suppliers(config, task),
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


def build_judge_form(task: TaskConfig, criteria: Mapping[str, str]) -> JudgeForm:
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
