"""Phase 4: a student answers an item."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from coeval.core.records import Completion, Request, Response
from coeval.engine.model_work import Asking, ModelWork
from coeval.engine.role_model import RoleModel
from coeval.engine.work import Tally
from coeval.pipeline.phases.prepared_item import PreparedItem
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.store.rundir import now


@dataclass(slots=True)
class ResponseWork(ModelWork[Response]):
    """Make one student's response to a datapoint. An empty answer is an answer."""

    asking: Asking
    setup: TaskSetup
    role_model: RoleModel
    key: str
    prepared: PreparedItem
    tried: int
    tally: Tally = field(default_factory=Tally)

    phase = "response_collection"
    record = Response

    @property
    def weight(self) -> int:
        return self.setup.response_weight

    def question(self, _: int) -> Request:
        return self.role_model.prompt(self.prepared.values)

    def read(self, completion: Completion) -> dict[str, Any]:
        """What the judge will see: a student that declines has answered so."""
        return {"response": completion.text or completion.refusal or ""}

    def identity(self) -> dict[str, Any]:
        item = self.prepared.item
        return {
            "id": self.key,
            "datapoint_id": item.id,
            "task_id": item.task_id,
            "teacher_model_id": item.teacher_model_id,
            "student_model_id": self.role_model.name,
            "input": item.prompt,
            "recipe": self.role_model.recipe.hash,
            "input_hash": self.prepared.asked,
            "generated_at": now(),
        }
