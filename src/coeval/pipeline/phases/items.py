"""Phase 3: a teacher writes an item with sampled attributes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from coeval.core.errors import Refused, Unparsable
from coeval.core.records import Completion, Datapoint
from coeval.engine.making import failure, made
from coeval.engine.role_model import RoleModel
from coeval.engine.work import Tally, ask
from coeval.pipeline.phases.proposals import ParsedItem, parse_item
from coeval.pipeline.plan.recipes import item_recipe
from coeval.pipeline.plan.task_setup import Asking, TaskSetup
from coeval.pipeline.prompts import BENCHMARK_ITEM, render_attributes
from coeval.pipeline.sampling.samples import Sample
from coeval.store.rundir import now


@dataclass(slots=True)
class ItemWork:
    """Make the datapoint of one slot. ``tried`` counts the askings that earlier runs recorded."""

    asking: Asking
    setup: TaskSetup
    teacher: RoleModel
    key: str
    sample: Sample
    tried: int
    tally: Tally = field(default_factory=Tally)

    phase = "data_generation"

    @property
    def model(self) -> str:
        return self.teacher.name

    @property
    def weight(self) -> int:
        return self.setup.item_weight

    @property
    def calls(self) -> int:
        return self.tally.calls

    async def do(self) -> Datapoint:
        values = {
            "target_attributes": render_attributes(self.sample.target),
            "nuanced_attributes": render_attributes(self.sample.nuance),
        }
        item = await ask(
            self.asking.models[self.teacher.name],
            lambda i: self.teacher.request(
                self.teacher.prompt(values, BENCHMARK_ITEM), "data_generation", self.key, self.tried + i
            ),
            written_item,
            retries=self.asking.retries,
            tally=self.tally,
        )
        return Datapoint(
            **self._identity(),
            prompt=item.prompt,
            reference_response=item.response,
            repaired=item.repaired,
            **made(self.tally, self.tried),
        )

    def failed(self, error: Exception) -> Datapoint:
        return Datapoint(**self._identity(), **failure(error, self.tally, self.tried))

    def _identity(self) -> dict[str, Any]:
        task = self.setup.task
        stored = {"sampled_nuanced_attributes": self.sample.nuance} if task.store_nuanced else {}
        return {
            "id": self.key,
            "task_id": task.name,
            "teacher_model_id": self.teacher.name,
            "sampled_target_attributes": self.sample.target,
            "recipe": item_recipe(self.teacher.recipe.hash, self.sample.target, self.sample.nuance),
            "generated_at": now(),
            **stored,
        }


def written_item(completion: Completion) -> ParsedItem:
    """The item in a teacher's answer; one that was cut off is not mended into half an item."""
    if completion.refusal is not None:
        raise Refused(f"the teacher declined: {completion.refusal[:200]}", raw=completion.refusal)
    item = parse_item(completion.text)
    if item.repaired and completion.truncated:
        raise Unparsable("it holds half an item", raw=completion.text)
    return item
