"""The nuance that recorded items were written with: known from the plan, also where no record stores it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coeval.core.ids import item_id, item_number
from coeval.core.records import Datapoint
from coeval.pipeline.config.schema import TaskConfig
from coeval.pipeline.plan.recipes import base_recipe, item_recipe
from coeval.pipeline.sampling.samples import Nuances


class KnownNuance:
    """The nuance of one task's items; ``nuanced`` are the task's attributes, as phase 1 settled them."""

    def __init__(self, task: TaskConfig, nuanced: Mapping[str, Sequence[str]]) -> None:
        self._task = task
        self._nuanced = nuanced
        self._of_teacher: dict[str, Nuances] = {}

    def of(self, item: Datapoint) -> Mapping[str, str]:
        """As the item stores it, else as it was planned, where the item's recipe says that it was made so.

        Empty for items that were ingested, and for those of a plan that the file has changed since.
        """
        if item.sampled_nuanced_attributes is not None:
            return item.sampled_nuanced_attributes
        number = item_number(item.id)
        ours = number is not None and item.id == item_id(item.task_id, item.teacher_model_id, number)
        if number is None or not ours or not item.recipe or not self._nuanced:
            return {}
        planned = self._plan(item.teacher_model_id).of(number)
        made = item_recipe(base_recipe(item.recipe), item.sampled_target_attributes, planned)
        return planned if made == item.recipe else {}

    def _plan(self, teacher: str) -> Nuances:
        plan = self._of_teacher.get(teacher)
        if plan is None:
            sampling = self._task.sampling
            plan = self._of_teacher[teacher] = Nuances(
                self._nuanced, sampling.nuance, seed=sampling.seed, task=self._task.name, teacher=teacher
            )
        return plan
