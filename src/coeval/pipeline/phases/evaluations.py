"""The works of phases 3–5: items, answers, judgments; labels and checks need no judge."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from coeval.core.errors import CheckFailed, Gap, Pending, Unparsable
from coeval.core.model import MAX_ANSWER_BYTES
from coeval.core.records import (
    CHECK,
    EXACT_MATCH,
    Completion,
    Datapoint,
    Evaluation,
    Failure,
    Preference,
    Request,
    Response,
    Schema,
    evaluation_id,
    judgment_id,
)
from coeval.core.text import cut_to_bytes
from coeval.engine.model_work import ModelWork, answer_text, make_failure
from coeval.engine.work import Tally
from coeval.judging.checks.check_runner import CheckRunner
from coeval.judging.checks.rubric_check import checked_answer
from coeval.judging.labels import score_labels
from coeval.judging.verdict import Levels, parse_preference
from coeval.pipeline.phases.proposals import parse_item
from coeval.pipeline.plan.judge_form import MOST_REASON, PairDesign
from coeval.pipeline.plan.recipes import (
    CHECK_RECIPE,
    answer_input,
    compared_input,
    item_content,
    item_recipe,
    judged_input,
    label_recipe,
)
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.pipeline.prompts import BENCHMARK_ITEM, render_attributes
from coeval.pipeline.samples import Sample
from coeval.store.rundir import utc_now

# --- Prepared items


class PreparedItem:
    """A datapoint, the template variables it fills, and what its answers and judgments are made from:
    ``requested`` is the ``input_hash`` of its responses, ``content`` goes into that of its evaluations.

    ``nuance`` is what the teacher was given, whether the item stores it or not.
    """

    __slots__ = ("_nuance", "_values", "content", "item", "requested")

    def __init__(self, item: Datapoint, nuance: Mapping[str, str]) -> None:
        prompt, reference = item.prompt or "", item.reference_response or ""
        self.item, self._nuance = item, nuance
        self._values: Mapping[str, str] = {}
        self.requested = answer_input(prompt)
        self.content = item_content(prompt, reference, item.sampled_target_attributes)

    @property
    def values(self) -> Mapping[str, str]:
        if not self._values:  # made for the first prompt: cached_property takes a lock
            self._values = {
                "input": self.item.prompt or "",
                "reference": self.item.reference_response or "",
                "target_attributes": render_attributes(self.item.sampled_target_attributes),
                "nuanced_attributes": render_attributes(self._nuance),
            }
        return self._values


# --- Phase 4: answers of students


@dataclass(slots=True)
class ResponseWork(ModelWork[Response]):
    """Make one student's response to a datapoint. An empty answer is an answer."""

    setup: TaskSetup
    prepared: PreparedItem

    phase = "response_collection"
    record = Response

    @property
    def weight(self) -> int:
        return self.setup.response_weight

    def question(self, _: int) -> Request:
        return self.role_model.prompt(self.prepared.values)

    def parse_fields(self, completion: Completion) -> dict[str, Any]:
        """What the judge will see: a student that declines has answered so."""
        return {"response": completion.text or completion.refusal or ""}

    def identity_fields(self) -> dict[str, Any]:
        item = self.prepared.item
        return {
            "id": self.key,
            "datapoint_id": item.id,
            "task_id": item.task_id,
            "teacher_model_id": item.teacher_model_id,
            "student_model_id": self.role_model.name,
            "sample": self.role_model.sample,
            "input": item.prompt,
            "recipe": self.role_model.recipe.hash,
            "input_hash": self.prepared.requested,
            "generated_at": utc_now(),
        }


@dataclass(slots=True)
class Judged:
    """What is judged: the item, the answer, and what an earlier record of the judge holds already."""

    setup: TaskSetup
    prepared: PreparedItem
    response: Response
    earlier: Evaluation | None = None
    _hash: str = ""

    @property
    def input_hash(self) -> str:
        if not self._hash:
            self._hash = judged_input(self.prepared.content, self.response.response or "")
        return self._hash

    def identity_fields(self, judge: str, recipe: str, made_from: str | None = None) -> dict[str, Any]:
        """``made_from``: what scores that are kept were computed from."""
        response = self.response
        return {
            "id": evaluation_id(response.id, judge),
            "response_id": response.id,
            "datapoint_id": response.datapoint_id,
            "task_id": response.task_id,
            "teacher_model_id": response.teacher_model_id,
            "student_model_id": response.student_model_id,
            "sample": response.sample,
            "judge_model_id": judge,
            "recipe": recipe,
            "input_hash": self.input_hash if made_from is None else made_from,
            "scores": {},
            "evaluated_at": utc_now(),
        }


@dataclass(slots=True)
class EvaluationWork(ModelWork[Evaluation]):
    """Ask one judge for ``factors`` of one response; a record that has others already is completed."""

    judged: Judged
    factors: tuple[str, ...]
    levels: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    said: dict[str, list[str]] = field(default_factory=dict)

    phase = "evaluation"
    weight = 1
    record = Evaluation

    async def do(self) -> Evaluation:
        if self.judged.setup.task.evaluation_mode == "per_factor":
            await self._ask_each()
        else:
            await self.ask(self.key, self.question, self.parse_fields, self.tally)
        return self.make_record(self._scored())

    def make_failed_record(self, error: Exception) -> Evaluation:
        if self._known():  # what was scored stays scored; only the rest is missing
            return self.make_record(self._scored())
        return ModelWork.make_failed_record(self, error)

    def question(self, _: int) -> Request:
        """One for all factors; what its answer leaves out is asked again by itself."""
        return self._prompt(*self.judged.setup.form.of_all(self._left()))

    def parse_fields(self, completion: Completion) -> dict[str, Any]:
        verdict = self.judged.setup.form.read_all(self._hear(completion), self._left())
        self._take(verdict)
        if verdict.missing:
            raise Unparsable(f"no score for {', '.join(verdict.missing)}", raw=completion.text)
        return {}

    def _take(self, verdict: Levels) -> None:
        self.levels |= verdict.scores
        self.reasons |= verdict.reasons

    def _left(self) -> tuple[str, ...]:
        if not self.levels:
            return self.factors
        return tuple(factor for factor in self.factors if factor not in self.levels)

    async def _ask_each(self) -> None:
        """One call per factor, all at once; a factor that fails does not take the others with it."""
        tallies = [Tally() for _ in self.factors]
        results = await asyncio.gather(*map(self._ask_one, self.factors, tallies), return_exceptions=True)
        for tally in tallies:  # in the order of the factors, not in that of the answers
            self.tally.merge(tally)
        errors = [result for result in results if isinstance(result, BaseException)]
        for error in sorted(errors, key=lambda error: not isinstance(error, Pending)):
            if not isinstance(error, Gap):
                raise error
        if errors and not self.levels:
            raise errors[0]

    async def _ask_one(self, factor: str, tally: Tally) -> None:
        form = self.judged.setup.form
        values, schema = form.of_one(factor)

        def read(completion: Completion) -> None:
            self._take(form.read_one(self._hear(completion, factor), factor))

        key = judgment_id(self.key, factor)
        varying = ("factor", "criterion") if len(self.factors) > 1 else ()
        await self.ask(key, lambda _: self._prompt(values, schema, varying), read, tally)

    def _prompt(self, values: Mapping[str, str], schema: Schema, varying: Collection[str] = ()) -> Request:
        judged = self.judged
        shown = {**judged.prepared.values, "response": judged.response.response or "", **values}
        return self.role_model.prompt(shown, schema, varying)

    def _hear(self, completion: Completion, factor: str = "") -> str:
        said = completion.text if completion.refusal is None else completion.refusal
        self.said.setdefault(factor, []).append(f"{factor}: {said}" if factor else said)
        return answer_text(completion, "the judge")

    def _known(self) -> bool:
        """Whether the record has a score: an earlier one that was not asked again, or one of this run."""
        return bool(self.levels or any(self._kept(self.judged.earlier)))

    def _kept(self, earlier: Evaluation | None) -> Iterator[dict[str, Any]]:
        """The scores, values and reasons of an earlier record that were not asked for again."""
        of = (earlier.scores, earlier.values, earlier.reasons) if earlier is not None else (None,) * 3
        for fields in of:
            yield {f: what for f, what in (fields or {}).items() if f not in self.factors}

    def _scored(self) -> dict[str, Any]:
        setup, earlier = self.judged.setup, self.judged.earlier
        now_requested, levels = setup.criteria, self.levels
        fields: dict[str, dict[str, Any]] = {"scores": {}, "values": {}, "reasons": {}}
        made: tuple[dict[str, Any], ...] = (*setup.form.scored(levels), self.reasons)
        for name, kept, new in zip(fields, self._kept(earlier), made, strict=True):
            both = {**kept, **new}
            fields[name] = {f: both[f] for f in (*now_requested, *both) if f in both}
        known = {**fields["scores"], **fields["values"]}
        criteria = dict(earlier.criteria or {}) if earlier else {}
        criteria |= {factor: text for factor, text in now_requested.items() if factor in levels}
        completed: dict[str, Any] = {
            "scores": fields["scores"],
            "values": fields["values"] or None,
            "reasons": fields["reasons"] or None,
            "missing": tuple(f for f in now_requested if f not in known),
            "criteria": {f: text for f, text in criteria.items() if f in known},
            "raw": cut_to_bytes("\n".join(self._heard()), MAX_ANSWER_BYTES),
        }
        if earlier is not None and known.keys() - levels.keys():
            # scores kept from it stay what they were: made by its recipe, of what it judged
            completed |= {"recipe": earlier.recipe, "input_hash": earlier.input_hash}
        return completed

    def _heard(self) -> list[str]:
        """All that the judge said, whatever came of it."""
        if len(self.said) == 1:
            return next(iter(self.said.values()))
        return [said for factor in ("", *self.factors) for said in self.said.get(factor, ())]

    def identity_fields(self) -> dict[str, Any]:
        return self.judged.identity_fields(self.role_model.name, self.role_model.recipe.hash)


@dataclass(slots=True)
class LabelWork:
    """Hold a response against its datapoint's labels: no model, no cost."""

    judged: Judged
    key: str

    phase = "evaluation"
    weight = 1
    calls = 0
    at_once = True
    model = EXACT_MATCH

    async def do(self) -> Evaluation:
        attributes = self.judged.prepared.item.sampled_target_attributes
        labels = self.judged.setup.labels
        expected = {name: attributes[name] for name in labels if name in attributes}
        return Evaluation(
            **self._identity(),
            label_scores=score_labels(self.judged.response.response or "", expected, labels),
        )

    def make_failed_record(self, error: Exception) -> Evaluation:
        return Evaluation(**self._identity(), status="failed", error=make_failure(error))

    def _identity(self) -> dict[str, Any]:
        return self.judged.identity_fields(EXACT_MATCH, label_recipe(self.judged.setup.labels))


# --- Phase 3: items of teachers


@dataclass(slots=True)
class ItemWork(ModelWork[Datapoint]):
    """Make the datapoint of one slot: ask its teacher."""

    setup: TaskSetup
    sample: Sample

    phase = "data_generation"
    record = Datapoint

    @property
    def weight(self) -> int:
        return 1 + sum(student.samples for student in self.setup.students) * self.setup.response_weight

    def question(self, _: int) -> Request:
        return self.role_model.prompt(self.sample.values, BENCHMARK_ITEM)

    def parse_fields(self, completion: Completion) -> dict[str, Any]:
        """What one that was cut off holds is not mended into half an item."""
        text = answer_text(completion, "the teacher")
        item = parse_item(text)
        if item.repaired and completion.truncated:
            raise Unparsable("it holds half an item", raw=text)
        return {"prompt": item.prompt, "reference_response": item.response, "repaired": item.repaired}

    def identity_fields(self) -> dict[str, Any]:
        task = self.setup.task
        stored = {"sampled_nuanced_attributes": self.sample.nuance} if task.store_nuanced else {}
        return {
            "id": self.key,
            "task_id": task.name,
            "teacher_model_id": self.role_model.name,
            "sampled_target_attributes": self.sample.target,
            "recipe": item_recipe(self.role_model.recipe.hash, self.sample.target, self.sample.nuance),
            "generated_at": utc_now(),
            **stored,
        }


# --- Phase 5 of a pairwise task


@dataclass(slots=True)
class PairWork(ModelWork[Preference]):
    """Ask one judge which of two answers is better; ``first`` is shown first."""

    design: PairDesign
    first: Judged
    second: Judged

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

    def parse_fields(self, completion: Completion) -> dict[str, Any]:
        preferred = parse_preference(answer_text(completion, "the judge"))
        return {
            "winner": preferred.value,
            "reason": preferred.reason[:MOST_REASON] or None,
            "raw": cut_to_bytes(completion.text, MAX_ANSWER_BYTES),
        }

    def identity_fields(self) -> dict[str, Any]:
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
            "evaluated_at": utc_now(),
        }


# --- Phase 5 without a judge: checks


@dataclass(slots=True)
class CheckWork:
    """Compute ``factors`` of one response: no model, no cost. What cannot be computed is missing."""

    judged: Judged
    key: str
    factors: tuple[str, ...]
    runner: CheckRunner
    at_once: bool

    phase = "evaluation"
    weight = 1
    calls = 0
    model = CHECK

    async def do(self) -> Evaluation:
        judged = self.judged
        answer, checks = checked_answer(judged.prepared.item, judged.response), judged.setup.checks
        values: dict[str, float] = {}
        reasons: dict[str, str] = {}
        for factor in self.factors:
            try:
                check = checks[factor]
                value, why = check.score(answer) if self.at_once else await self.runner.score(check, answer)
            except CheckFailed as failure:
                reasons[factor] = str(failure)
                continue
            values[factor] = value
            if why:
                reasons[factor] = why
        return self._record(values, reasons)

    def make_failed_record(self, error: Exception) -> Evaluation:
        identity = self.judged.identity_fields(CHECK, CHECK_RECIPE)
        return Evaluation(**identity, status="failed", error=make_failure(error), missing=self.factors)

    def _record(self, values: dict[str, float], reasons: dict[str, str]) -> Evaluation:
        """The record: with what an earlier one holds, unless all is computed again."""
        hashes, earlier = self.judged.setup.check_hashes, self.judged.earlier
        criteria, made_from = {factor: hashes[factor] for factor in values}, None
        if earlier is not None and len(self.factors) < len(hashes):
            kept = {f: value for f, value in (earlier.values or {}).items() if f not in self.factors}
            values, reasons = kept | values, _of(kept, earlier.reasons) | reasons
            criteria = _of(kept, earlier.criteria) | criteria
            made_from = earlier.input_hash
        identity = self.judged.identity_fields(CHECK, CHECK_RECIPE, made_from)
        left = hashes.keys() - values.keys()
        missing = tuple(factor for factor in hashes if factor in left) if left else ()
        found: dict[str, Any] = {"criteria": criteria or None, "reasons": reasons or None, "missing": missing}
        if not values:
            why = f"{missing[0]}: {reasons[missing[0]]}"
            return Evaluation(**identity, **found, status="failed", error=Failure(CheckFailed.kind, why))
        found["values"] = {factor: values[factor] for factor in (*hashes, *values) if factor in values}
        return Evaluation(**identity, **found)


def _of(factors: dict[str, float], texts: dict[str, str] | None) -> dict[str, str]:
    return {factor: text for factor, text in (texts or {}).items() if factor in factors}
