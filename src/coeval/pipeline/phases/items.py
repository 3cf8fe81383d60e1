"""Phase 3: a teacher writes an item with sampled attributes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from coeval.core.errors import Unparsable
from coeval.core.records import Completion, Datapoint, Request
from coeval.engine.model_work import Asking, ModelWork, spoken
from coeval.engine.role_model import RoleModel
from coeval.engine.work import Tally
from coeval.pipeline.phases.proposals import parse_item
from coeval.pipeline.plan.recipes import item_recipe
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.pipeline.prompts import BENCHMARK_ITEM, render_attributes
from coeval.pipeline.sampling.samples import Sample
from coeval.store.rundir import now


@dataclass(slots=True)
class ItemWork(ModelWork[Datapoint]):
    """Make the datapoint of one slot: ask its teacher."""

    asking: Asking
    setup: TaskSetup
    role_model: RoleModel
    key: str
    sample: Sample
    tried: int
    tally: Tally = field(default_factory=Tally)

    phase = "data_generation"
    record = Datapoint

    @property
    def weight(self) -> int:
        return self.setup.item_weight

    def question(self, _: int) -> Request:
        values = {
            "target_attributes": render_attributes(self.sample.target),
            "nuanced_attributes": render_attributes(self.sample.nuance),
        }
        return self.role_model.prompt(values, BENCHMARK_ITEM)

    def read(self, completion: Completion) -> dict[str, Any]:
        """What one that was cut off holds is not mended into half an item."""
        text = spoken(completion, "the teacher")
        item = parse_item(text)
        if item.repaired and completion.truncated:
            raise Unparsable("it holds half an item", raw=text)
        return {"prompt": item.prompt, "reference_response": item.response, "repaired": item.repaired}

    def identity(self) -> dict[str, Any]:
        task = self.setup.task
        stored = {"sampled_nuanced_attributes": self.sample.nuance} if task.store_nuanced else {}
        return {
            "id": self.key,
            "task_id": task.name,
            "teacher_model_id": self.role_model.name,
            "sampled_target_attributes": self.sample.target,
            "recipe": item_recipe(self.role_model.recipe.hash, self.sample.target, self.sample.nuance),
            "generated_at": now(),
            **stored,
        }
