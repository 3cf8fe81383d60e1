"""Phase 5 of a pairwise task: a judge compares two answers to an item."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from coeval.core.model import MAX_ANSWER_BYTES
from coeval.core.records import Completion, Preference, Request
from coeval.core.text import cut_to_bytes
from coeval.engine.model_work import Asking, ModelWork, RoleModel, spoken
from coeval.engine.work import Tally
from coeval.judging.pairwise import parse_preference
from coeval.pipeline.phases.evaluations import Judged
from coeval.pipeline.plan.judge_form import MOST_REASON
from coeval.pipeline.plan.pair_design import PairDesign
from coeval.pipeline.plan.recipes import compared_input
from coeval.store.rundir import now


@dataclass(slots=True)
class PairWork(ModelWork[Preference]):
    """Ask one judge which of two answers is better; ``first`` is shown first."""

    asking: Asking
    design: PairDesign
    first: Judged
    second: Judged
    role_model: RoleModel
    key: str
    tried: int
    tally: Tally = field(default_factory=Tally)

    phase = "evaluation"
    weight = 1
    record = Preference

    def question(self, _: int) -> Request:
        shown = {
            **self.first.prepared.values,
            "answer_a": self.first.response.response or "",
            "answer_b": self.second.response.response or "",
            "answer_format": self.design.answer_format,
        }
        return self.role_model.prompt(shown, self.design.schema)

    def read(self, completion: Completion) -> dict[str, Any]:
        preferred = parse_preference(spoken(completion, "the judge"))
        return {
            "winner": preferred.winner,
            "reason": preferred.reason[:MOST_REASON] or None,
            "raw": cut_to_bytes(completion.text, MAX_ANSWER_BYTES),
        }

    def identity(self) -> dict[str, Any]:
        first, second = self.first.response, self.second.response
        return {
            "id": self.key,
            "datapoint_id": first.datapoint_id,
            "task_id": first.task_id,
            "teacher_model_id": first.teacher_model_id,
            "first_model_id": first.student_model_id,
            "second_model_id": second.student_model_id,
            "judge_model_id": self.role_model.name,
            "recipe": self.role_model.recipe.hash,
            "input_hash": compared_input(self.first.input_hash, self.second.input_hash),
            "evaluated_at": now(),
        }
