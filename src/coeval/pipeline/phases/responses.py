"""Phase 4: a student answers an item."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from coeval.core.records import Completion, Response
from coeval.engine.making import failure, made
from coeval.engine.role_model import RoleModel
from coeval.engine.work import Tally, ask
from coeval.pipeline.phases.prepared_item import PreparedItem
from coeval.pipeline.plan.task_setup import Asking, TaskSetup
from coeval.store.rundir import now


@dataclass(slots=True)
class ResponseWork:
    """Make one student's response to a datapoint. An empty answer is an answer."""

    asking: Asking
    setup: TaskSetup
    student: RoleModel
    key: str
    prepared: PreparedItem
    tried: int
    tally: Tally = field(default_factory=Tally)

    phase = "response_collection"

    @property
    def model(self) -> str:
        return self.student.name

    @property
    def weight(self) -> int:
        return self.setup.response_weight

    @property
    def calls(self) -> int:
        return self.tally.calls

    async def do(self) -> Response:
        values = self.prepared.values
        answer = await ask(
            self.asking.models[self.student.name],
            lambda i: self.student.request(
                self.student.prompt(values), "response_collection", self.key, self.tried + i
            ),
            _answer,
            retries=self.asking.retries,
            tally=self.tally,
        )
        return Response(**self._identity(), response=answer, **made(self.tally, self.tried))

    def failed(self, error: Exception) -> Response:
        return Response(**self._identity(), **failure(error, self.tally, self.tried))

    def _identity(self) -> dict[str, Any]:
        item = self.prepared.item
        return {
            "id": self.key,
            "datapoint_id": item.id,
            "task_id": item.task_id,
            "teacher_model_id": item.teacher_model_id,
            "student_model_id": self.student.name,
            "input": item.prompt,
            "recipe": self.student.recipe.hash,
            "input_hash": self.prepared.asked,
            "generated_at": now(),
        }


def _answer(completion: Completion) -> str:
    """What the judge will see: a student that declines has answered so."""
    return completion.text or completion.refusal or ""
