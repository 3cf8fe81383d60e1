"""Who plays what: each task with its teachers, students and judges, ready to be asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from coeval.core.model import Model
from coeval.core.records import CallId, Message, Purpose, Request, Role, Schema
from coeval.core.text import fill, placeholders
from coeval.models.catalog import HOSTS
from coeval.pipeline.config.schema import ModelConfig, TaskConfig
from coeval.pipeline.plan.recipes import Recipe, recipe, task_fields
from coeval.pipeline.prompts import find_template
from coeval.pipeline.sampling.samples import ItemSpace, clipping

RANK: dict[Purpose, int] = {"data_generation": 0, "response_collection": 1, "evaluation": 2}
"""Where requests wait for one endpoint, judging goes before answering before generating."""


@dataclass(frozen=True, slots=True)
class RoleModel:
    """A model in one role at one task: how it is asked, and the recipe of what it makes.

    ``labels``: see `Request`; of students only.
    """

    name: str
    template: str
    fields: Mapping[str, str]
    sampling: dict[str, Any]
    system: str | None
    sends_seed: bool
    recipe: Recipe
    labels: dict[str, list[str]] = field(default_factory=dict)

    def request(
        self, purpose: Purpose, values: Mapping[str, str], schema: Schema | None, call: CallId, run_seed: int
    ) -> Request:
        """The request for one item."""
        text = fill(self.template, {**self.fields, **values})
        user = Message("user", text)
        return Request(
            messages=(Message("system", self.system), user) if self.system else (user,),
            sampling=self.sampling,
            schema=schema,
            purpose=purpose,
            call=call,
            seed=call.seed(run_seed) if self.sends_seed else None,
            rank=RANK.get(purpose, 0),
            labels=self.labels,
        )


def role_model(model: ModelConfig, role: Role, task: TaskConfig, template_id: str) -> RoleModel:
    template = find_template(task.prompt_library, template_id, model.name)
    sampling = model.sampling(role)
    host = HOSTS.get(model.interface)  # none for an `auto` that is only counted, not asked
    return RoleModel(
        name=model.name,
        template=template,
        fields=task_fields(task),
        sampling=sampling,
        system=model.system_prompt(role),
        sends_seed=host is not None and host.seeds_by_default and "seed" not in sampling,
        recipe=recipe(model, role, task, template_id, template),
    )


@dataclass(frozen=True, slots=True)
class TaskSetup:
    """One task with its cast. ``rubric`` and ``space`` are known once phases 1–2 are done.

    ``teachers`` are the models that write items for it; ``sources`` the benchmark teachers whose
    items it uses as well. ``criteria`` maps each factor that judges score to the hash of
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
    criteria: Mapping[str, str]

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
        for kind, (declared, asked, there) in proposed.items():
            if isinstance(declared, str) and asked is not None and there and asked[1] > len(there):
                yield f"tasks.{task.name}.sampling.{kind} {clipping(asked, there)}"

    @property
    def response_weight(self) -> int:
        """Records that one response may bring about, itself included."""
        return 1 + len(self.judges) + bool(self.task.label_attributes)

    @property
    def item_weight(self) -> int:
        """Records that one item may bring about, itself included."""
        return 1 + len(self.students) * self.response_weight


@dataclass(frozen=True, slots=True)
class Asking:
    """What every work item of a run needs to ask: the open models, the run's seed and patience."""

    models: Mapping[str, Model]
    run_seed: int
    retries: int
