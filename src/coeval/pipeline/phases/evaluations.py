"""Phase 5: a judge scores a response against the rubric; labels are compared without a judge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coeval.core.errors import Gap, Refused, Unparsable
from coeval.core.ids import evaluation_id, judgment_id
from coeval.core.model import MAX_ANSWER_BYTES
from coeval.core.records import (
    EXACT_MATCH,
    Completion,
    Evaluation,
    Level,
    Request,
    Response,
    Schema,
)
from coeval.core.text import cut_to_bytes
from coeval.engine.making import failure, made
from coeval.engine.role_model import RoleModel
from coeval.engine.work import Tally, ask
from coeval.judging.labels import score_labels
from coeval.judging.verdict import parse_level, parse_levels
from coeval.pipeline.phases.prepared_item import PreparedItem
from coeval.pipeline.plan.recipes import judged_input, label_recipe
from coeval.pipeline.plan.task_setup import Asking, TaskSetup
from coeval.pipeline.prompts import FACTOR_SCORE, evaluation_schema, render_rubric
from coeval.store.rundir import now


@dataclass(slots=True)
class Judged:
    """What is judged: the item, the answer, and what an earlier record of the judge holds already."""

    setup: TaskSetup
    prepared: PreparedItem
    response: Response
    earlier: Evaluation | None = None
    input_hash: str = field(init=False)

    def __post_init__(self) -> None:
        self.input_hash = judged_input(self.prepared.content, self.response.response or "")

    def identity(self, judge: str) -> dict[str, Any]:
        response = self.response
        return {
            "id": evaluation_id(response.id, judge),
            "response_id": response.id,
            "datapoint_id": response.datapoint_id,
            "task_id": response.task_id,
            "teacher_model_id": response.teacher_model_id,
            "student_model_id": response.student_model_id,
            "judge_model_id": judge,
            "input_hash": self.input_hash,
            "evaluated_at": now(),
        }


@dataclass(slots=True)
class EvaluationWork:
    """Ask one judge for ``factors`` of one response; a record that has others already is completed."""

    asking: Asking
    judged: Judged
    judge: RoleModel
    key: str
    factors: tuple[str, ...]
    tried: int
    scores: dict[str, Level] = field(default_factory=dict)
    said: dict[str, list[str]] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)

    phase = "evaluation"
    weight = 1

    @property
    def model(self) -> str:
        return self.judge.name

    @property
    def calls(self) -> int:
        return self.tally.calls

    async def do(self) -> Evaluation:
        if self.judged.setup.task.evaluation_mode == "per_factor":
            await self._ask_each()
        else:
            await self._ask_together()
        return self._record()

    def failed(self, error: Exception) -> Evaluation:
        if self._known():  # what was scored stays scored; only the rest is missing
            return self._record()
        return Evaluation(**self._identity(), scores={}, **failure(error, self.tally, self.tried))

    async def _ask_together(self) -> None:
        """One call for all factors; what it leaves out is asked again by itself."""

        def left() -> list[str]:
            return [factor for factor in self.factors if factor not in self.scores]

        def make(attempt: int) -> Request:
            factors = left()
            values = {"rubric": render_rubric(self._criteria(factors))}
            return self._request(values, evaluation_schema(tuple(factors)), self.key, attempt)

        def parse(completion: Completion) -> None:
            self._hear(completion)
            levels = parse_levels(completion.text, left())
            self.scores |= levels.scores
            if levels.missing:
                raise Unparsable(f"no score for {', '.join(levels.missing)}", raw=completion.text)

        await self._ask(make, parse, self.tally)

    async def _ask_each(self) -> None:
        """One call per factor, all at once; a factor that fails does not take the others with it."""
        tallies = [Tally() for _ in self.factors]
        results = await asyncio.gather(*map(self._ask_one, self.factors, tallies), return_exceptions=True)
        for tally in tallies:  # in the order of the factors, not in that of the answers
            self.tally.merge(tally)
        errors = [result for result in results if isinstance(result, BaseException)]
        for error in errors:
            if not isinstance(error, Gap):
                raise error
        if errors and not self.scores:
            raise errors[0]

    async def _ask_one(self, factor: str, tally: Tally) -> None:
        criterion = self.judged.setup.rubric[factor]

        def make(attempt: int) -> Request:
            values = {"factor": factor, "criterion": criterion}
            return self._request(values, FACTOR_SCORE, judgment_id(self.key, factor), attempt)

        def parse(completion: Completion) -> None:
            self._hear(completion, factor)
            self.scores[factor] = parse_level(completion.text)

        await self._ask(make, parse, tally)

    async def _ask(
        self, make: Callable[[int], Request], parse: Callable[[Completion], None], tally: Tally
    ) -> None:
        await ask(self.asking.models[self.judge.name], make, parse, retries=self.asking.retries, tally=tally)

    def _request(self, values: Mapping[str, str], schema: Schema, key: str, attempt: int) -> Request:
        judged = self.judged
        values = {**judged.prepared.values, "response": judged.response.response or "", **values}
        asked = self.judge.prompt(values, schema)
        return self.judge.request(asked, "evaluation", key, self.tried + attempt)

    def _hear(self, completion: Completion, factor: str = "") -> None:
        said = completion.text if completion.refusal is None else completion.refusal
        self.said.setdefault(factor, []).append(f"{factor}: {said}" if factor else said)
        if completion.refusal is not None:
            raise Refused(f"the judge declined: {said[:200]}", raw=said)

    def _criteria(self, factors: Sequence[str]) -> dict[str, str]:
        return {factor: self.judged.setup.rubric[factor] for factor in factors}

    def _known(self) -> dict[str, Level]:
        """All scores of the record: earlier ones that were not asked again, and those of this run."""
        earlier = self.judged.earlier.scores if self.judged.earlier else {}
        kept = {factor: level for factor, level in earlier.items() if factor not in self.factors}
        return kept | self.scores

    def _record(self) -> Evaluation:
        setup, known, earlier = self.judged.setup, self._known(), self.judged.earlier
        criteria = dict(earlier.criteria or {}) if earlier else {}
        criteria |= {factor: setup.criteria[factor] for factor in self.scores}
        identity = self._identity()
        if earlier is not None and known.keys() - self.scores.keys():
            # scores kept from it stay what they were: made by its recipe, of what it judged
            identity |= {"recipe": earlier.recipe, "input_hash": earlier.input_hash}
        return Evaluation(
            **identity,
            scores={f: known[f] for f in (*setup.criteria, *known) if f in known},
            missing=tuple(f for f in setup.criteria if f not in known),
            criteria={f: criteria[f] for f in known if f in criteria},
            raw=cut_to_bytes("\n".join(self._heard()), MAX_ANSWER_BYTES),
            **made(self.tally, self.tried),
        )

    def _heard(self) -> Iterator[str]:
        """All that the judge said, whatever came of it."""
        for factor in ("", *self.factors):
            yield from self.said.get(factor, ())

    def _identity(self) -> dict[str, Any]:
        return self.judged.identity(self.judge.name) | {"recipe": self.judge.recipe.hash}


@dataclass(slots=True)
class LabelWork:
    """Hold a response against its datapoint's labels: no model, no cost."""

    judged: Judged
    key: str

    phase = "evaluation"
    weight = 1
    calls = 0
    model = EXACT_MATCH

    async def do(self) -> Evaluation:
        attributes = self.judged.prepared.item.sampled_target_attributes
        labels = self.judged.setup.labels
        expected = {name: attributes[name] for name in labels if name in attributes}
        return Evaluation(
            **self._identity(),
            scores={},
            label_scores=score_labels(self.judged.response.response or "", expected, labels),
        )

    def failed(self, error: Exception) -> Evaluation:
        return Evaluation(**self._identity(), scores={}, **failure(error, Tally(), 0))

    def _identity(self) -> dict[str, Any]:
        return self.judged.identity(EXACT_MATCH) | {"recipe": label_recipe(self.judged.setup.labels)}
