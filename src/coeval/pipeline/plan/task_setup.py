"""Who plays what: each task with its teachers, students and judges, ready to be asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from coeval.core.records import Role, Schema, model_of
from coeval.core.text import placeholders
from coeval.engine.model_work import Recipe, RoleModel, own_seed, recipe
from coeval.pipeline.config.schema import ModelConfig, TaskConfig
from coeval.pipeline.plan.recipes import task_fields, template_parts
from coeval.pipeline.prompts import evaluation_schema, find_template, render_rubric
from coeval.pipeline.samples import ItemSpace, clipping, coverage_shortfall


def role_model(
    model: ModelConfig, role: Role, task: TaskConfig, template_id: str, run_seed: int
) -> RoleModel:
    """Who plays ``role`` at a task, asked by the template of this id."""
    described = bool(task.output_description.strip())
    template = find_template(task.prompt_library, template_id, model.name, described=described)
    spec, sampling, system = model.spec(), model.sampling(role), model.system_prompt(role)
    fields = task_fields(task)
    shown = template_parts(task.name, template_id, template, fields, role)
    return RoleModel(
        name=model.name,
        model=spec.model,
        role=role,
        sampling=sampling,
        recipe=recipe(spec, role, sampling, system, shown),
        system=system,
        seed=own_seed(spec, sampling, run_seed),
        template=template,
        fields=fields,
        variant_of=model_of(model.name),
        samples=model.samples if role == "student" else 1,
    )


class FactorsRequested(NamedTuple):
    """What judges are shown of the rubric, and the shape of their answer."""

    values: Mapping[str, str]
    schema: Schema


@dataclass(frozen=True, slots=True)
class TaskSetup:
    """One task with its cast. ``rubric`` and ``space`` are known once phases 1–2 are done.

    ``teachers`` are the models that write items for it; ``sources`` the benchmark teachers whose
    items it uses as well. Students that are ``given`` are not asked: their answers exist.
    ``criteria`` maps each factor that judges score to the hash of
    its criterion; factors named like a label attribute are compared, not judged, and a setup
    without criteria has no judges.
    """

    task: TaskConfig
    teachers: tuple[RoleModel, ...]
    sources: tuple[str, ...]
    students: tuple[RoleModel, ...]
    judges: tuple[RoleModel, ...]
    rubric: Mapping[str, str]
    space: ItemSpace
    criteria: dict[str, str]
    given: frozenset[str] = frozenset()
    _requested_about: dict[tuple[str, ...], FactorsRequested] = field(
        default_factory=dict, repr=False, compare=False
    )

    def requested_about(self, factors: tuple[str, ...]) -> FactorsRequested:
        """How judges are asked for these factors at once; worked out once, for all who are asked the same."""
        requested = self._requested_about.get(factors)
        if requested is None:
            shown = render_rubric({factor: self.rubric[factor] for factor in factors})
            requested = self._requested_about[factors] = FactorsRequested(
                {"rubric": shown}, evaluation_schema(factors)
            )
        return requested

    @property
    def recipes(self) -> list[Recipe]:
        return [cast.recipe for cast in (*self.teachers, *self.students, *self.judges)]

    @property
    def labels(self) -> dict[str, list[str]]:
        """Each label attribute with the values that an answer may give to it."""
        return {name: self.space.target.get(name, []) for name in self.task.label_attributes}

    @property
    def shows_nuance(self) -> bool:
        """Whether a student or a judge is shown what nuance an item has."""
        return any("nuanced_attributes" in placeholders(p.template) for p in (*self.students, *self.judges))

    def clippings(self) -> Iterator[str]:
        """What the file asks of sampling beyond the attributes that teachers proposed, a sentence each."""
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
        return 1 + len(self.judges) + bool(self.task.label_attributes)

    @property
    def item_weight(self) -> int:
        """Records that one item may bring about, itself included."""
        return 1 + sum(student.samples for student in self.students) * self.response_weight
