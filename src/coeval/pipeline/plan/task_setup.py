"""Who plays what: each task with its teachers, students and judges, ready to be asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from coeval.core.records import Role, model_of
from coeval.core.text import digest, placeholders
from coeval.engine.model_work import Recipe, RoleModel, as_recorded, base_seed, recipe
from coeval.judging.checks.rubric_check import RubricCheck
from coeval.pipeline.config.reasons import Reasons
from coeval.pipeline.config.schema import ModelConfig, TaskConfig
from coeval.pipeline.plan.judge_form import JudgeForm, PairDesign
from coeval.pipeline.plan.recipes import task_fields, template_parts
from coeval.pipeline.prompts import CLOSED_BOOK, FROM_DOCUMENTS, find_template
from coeval.pipeline.samples import ItemSpace, clipping, coverage_shortfall


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
    if template_id == FROM_DOCUMENTS and task.documents is not None and task.documents.closed_book:
        tried = (find_template(task.prompt_library, each, model.name) for each in CLOSED_BOOK)
        shown[f"tasks.{task.name}.documents.closed_book"] = digest(*tried)
    return RoleModel(
        name=model.name,
        model=spec.model,
        role=role,
        sampling=sampling,
        recipe=recipe(spec, role, sampling, system, shown),
        system=system,
        seed=base_seed(spec, sampling, run_seed if model.takes_seeds(role) else None),
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
    reasons: Reasons
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
            return tuple(replace(each, recipe=as_recorded(each.recipe, known)) for each in players)

        return replace(
            self, teachers=cast(self.teachers), students=cast(self.students), judges=cast(self.judges)
        )

    @property
    def labels(self) -> dict[str, list[str]]:
        """Each label attribute with the values that an answer may give to it."""
        return {name: self.space.target.get(name, []) for name in self.task.label_attributes}

    @property
    def item_calls(self) -> int:
        """Requests for one item."""
        documents = self.task.documents
        return 1 + (len(CLOSED_BOOK) if documents is not None and documents.closed_book else 0)

    @property
    def shows_nuance(self) -> bool:
        """Whether a student or a judge is shown what nuance an item has."""
        return any("nuanced_attributes" in placeholders(p.template) for p in (*self.students, *self.judges))

    def clippings(self) -> Iterator[str]:
        """What the file asks of sampling beyond the attributes that teachers proposed, a sentence each; and
        that judges give no reasons, for want of room, once their factors are known."""
        known = not any(factor.startswith(FORESEEN) for factor in self.criteria)
        if self.judges and known and self.reasons.stated is None and self.reasons.lacking:
            yield f"{self.task.name}: judges give no reasons: {self.reasons.lacking}, or set `rationale`"
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

    @property
    def item_weight(self) -> int:
        """Records that one item may bring about, itself included."""
        return 1 + sum(student.samples for student in self.students) * self.response_weight
