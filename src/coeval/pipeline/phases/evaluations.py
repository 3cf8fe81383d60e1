"""The works of phases 3–5: items, answers, judgments. Label scores and checks call no model."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from coeval.core import records
from coeval.core.errors import CheckFailed, Gap, Pending, Unparsable
from coeval.core.model import MAX_ANSWER_BYTES
from coeval.core.text import cut_to_bytes
from coeval.engine.model_work import ModelWork, RecordFields, make_failure, text_unless_refused
from coeval.engine.work import Tally
from coeval.judging.checks.check_runner import CheckRunner
from coeval.judging.checks.rubric_check import build_checked_answer
from coeval.judging.labels import score_labels
from coeval.judging.verdict import Levels, parse_preference
from coeval.pipeline.phases.proposals import parse_item
from coeval.pipeline.plan.judge_form import MOST_REASON, PairDesign
from coeval.pipeline.plan.recipes import (
    CHECK_RECIPE,
    hash_answer_input,
    hash_item_content,
    hash_item_recipe,
    hash_judged_input,
    hash_label_recipe,
    join_judged_inputs,
)
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.pipeline.prompts import BENCHMARK_ITEM, render_attributes
from coeval.pipeline.samples import Sample
from coeval.store.rundir import utc_now

# --- Prepared items


class PreparedItem:
    """An item with its template variables and the hashes of what follows from it. ``requested`` is the
    ``input_hash`` of its responses, ``content`` a part of that of its evaluations. ``nuance`` is what the
    teacher was given, whether or not the item stores it."""

    __slots__ = ("_nuance", "_values", "content", "item", "requested")

    def __init__(self, item: records.Datapoint, nuance: Mapping[str, str]) -> None:
        prompt, reference = item.prompt or "", item.reference_response or ""
        self.item, self._nuance = item, nuance
        self._values: Mapping[str, str] = {}
        self.requested = hash_answer_input(prompt)
        self.content = hash_item_content(prompt, reference, item.sampled_target_attributes)

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
class ResponseWork(ModelWork[records.Response]):
    """Makes one student's response to an item. An empty answer is an answer."""

    setup: TaskSetup
    prepared: PreparedItem

    phase = "response_collection"
    record = records.Response

    @property
    def weight(self) -> int:
        return self.setup.records_per_response

    def question(self, _: int) -> records.Request:
        return self.role_model.prompt(self.prepared.values)

    def parse_fields(self, completion: records.Completion) -> RecordFields:
        """Return what judges will see: a refusal is an answer."""
        return {"response": completion.text or completion.refusal or ""}

    def identity_fields(self) -> RecordFields:
        item = self.prepared.item
        return {
            "datapoint_id": item.id,
            "task_id": item.task_id,
            "teacher_model_id": item.teacher_model_id,
            "student_model_id": self.role_model.name,
            "sample": self.role_model.sample,
            "input": item.prompt,
            "input_hash": self.prepared.requested,
            "generated_at": utc_now(),
        }


@dataclass(slots=True)
class JudgeInput:
    """An item with an answer to it, and the judge's earlier record, if it is to be completed."""

    setup: TaskSetup
    prepared: PreparedItem
    response: records.Response
    earlier: records.Evaluation | None = None
    _hash: str = ""

    @property
    def input_hash(self) -> str:
        if not self._hash:
            self._hash = hash_judged_input(self.prepared.content, self.response.response or "")
        return self._hash

    def identity_fields(self, judge: str, recipe: str, kept_input_hash: str | None = None) -> RecordFields:
        """Return a judgment's fields but its outcome. ``kept_input_hash``: that of kept scores."""
        response = self.response
        return {
            "id": records.evaluation_id(response.id, judge),
            "response_id": response.id,
            "datapoint_id": response.datapoint_id,
            "task_id": response.task_id,
            "teacher_model_id": response.teacher_model_id,
            "student_model_id": response.student_model_id,
            "sample": response.sample,
            "judge_model_id": judge,
            "recipe": recipe,
            "input_hash": self.input_hash if kept_input_hash is None else kept_input_hash,
            "scores": {},
            "evaluated_at": utc_now(),
        }


@dataclass(slots=True)
class EvaluationWork(ModelWork[records.Evaluation]):
    """Asks one judge for ``factors`` of one response; a record that has others already is completed."""

    judged: JudgeInput
    factors: tuple[str, ...]
    levels: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    replies: dict[str, list[str]] = field(default_factory=dict)

    phase = "evaluation"
    weight = 1
    record = records.Evaluation

    async def do(self) -> records.Evaluation:
        if self.judged.setup.task.evaluation_mode == "per_factor":
            await self._ask_by_factor()
        else:
            await self.ask(self.key, self.question, self.parse_fields, self.tally)
        return self.make_record(self._merge_into_record_fields())

    def make_failed_record(self, error: Exception) -> records.Evaluation:
        if self._has_score():  # what was scored stays scored; only the rest is missing
            return self.make_record(self._merge_into_record_fields())
        return ModelWork.make_failed_record(self, error)

    def question(self, _: int) -> records.Request:
        """Ask for all factors at once; those that a reply lacks are asked for again."""
        return self._build_prompt(*self.judged.setup.form.build_joint_question(self._missing_factors()))

    def parse_fields(self, completion: records.Completion) -> RecordFields:
        verdict = self.judged.setup.form.parse_joint_reply(
            self._record_text_and_raise_if_refused(completion), self._missing_factors()
        )
        self._store_levels(verdict)
        if verdict.missing:
            raise Unparsable(f"no score for {', '.join(verdict.missing)}", raw=completion.text)
        return {}

    def _store_levels(self, verdict: Levels) -> None:
        self.levels |= verdict.scores
        self.reasons |= verdict.reasons

    def _missing_factors(self) -> tuple[str, ...]:
        if not self.levels:
            return self.factors
        return tuple(factor for factor in self.factors if factor not in self.levels)

    async def _ask_by_factor(self) -> None:
        """Ask for each factor in a call of its own, all at once; if one fails, the others go on."""
        tallies = [Tally() for _ in self.factors]
        results = await asyncio.gather(*map(self._ask_factor, self.factors, tallies), return_exceptions=True)
        for tally in tallies:  # in the order of the factors, not in that of the answers
            self.tally.merge(tally)
        errors = [result for result in results if isinstance(result, BaseException)]
        for error in sorted(errors, key=lambda error: not isinstance(error, Pending)):
            if not isinstance(error, Gap):
                raise error
        if errors and not self.levels:
            raise errors[0]

    async def _ask_factor(self, factor: str, tally: Tally) -> None:
        form = self.judged.setup.form
        values, schema = form.build_factor_question(factor)

        def read(completion: records.Completion) -> None:
            text = self._record_text_and_raise_if_refused(completion, factor)
            self._store_levels(form.parse_factor_reply(text, factor))

        key = records.judgment_id(self.key, factor)
        varying = ("factor", "criterion") if len(self.factors) > 1 else ()
        await self.ask(key, lambda _: self._build_prompt(values, schema, varying), read, tally)

    def _build_prompt(
        self, values: Mapping[str, str], schema: records.Schema, varying: Collection[str] = ()
    ) -> records.Request:
        judged = self.judged
        variables = {**judged.prepared.values, "response": judged.response.response or "", **values}
        return self.role_model.prompt(variables, schema, varying)

    def _record_text_and_raise_if_refused(self, completion: records.Completion, factor: str = "") -> str:
        reply_text = completion.text if completion.refusal is None else completion.refusal
        self.replies.setdefault(factor, []).append(f"{factor}: {reply_text}" if factor else reply_text)
        return text_unless_refused(completion, "the judge")

    def _has_score(self) -> bool:
        """Check whether the record has a score, kept from an earlier record or new."""
        return bool(self.levels or any(self._list_kept_scores_and_reasons(self.judged.earlier)))

    def _list_kept_scores_and_reasons(self, earlier: records.Evaluation | None) -> Iterator[RecordFields]:
        """Yield scores, values and reasons of an earlier record for factors that were not asked for again."""
        field_groups = (
            (earlier.scores, earlier.values, earlier.reasons) if earlier is not None else [None] * 3
        )
        for fields in field_groups:
            yield {f: what for f, what in (fields or {}).items() if f not in self.factors}

    def _merge_into_record_fields(self) -> RecordFields:
        """Merge kept and new scores into the fields of the record."""
        setup, earlier = self.judged.setup, self.judged.earlier
        now_requested, levels = setup.criteria, self.levels
        fields: dict[str, dict[str, Any]] = {"scores": {}, "values": {}, "reasons": {}}
        made: tuple[RecordFields, ...] = (*setup.form.split_by_scale(levels), self.reasons)
        for name, kept, new in zip(fields, self._list_kept_scores_and_reasons(earlier), made, strict=True):
            both = {**kept, **new}
            fields[name] = {f: both[f] for f in (*now_requested, *both) if f in both}
        scored = {**fields["scores"], **fields["values"]}
        criteria = dict(earlier.criteria or {}) if earlier else {}
        criteria |= {factor: text for factor, text in now_requested.items() if factor in levels}
        completed: RecordFields = {
            "scores": fields["scores"],
            "values": fields["values"] or None,
            "reasons": fields["reasons"] or None,
            "missing": tuple(f for f in now_requested if f not in scored),
            "criteria": {f: text for f, text in criteria.items() if f in scored},
            "raw": cut_to_bytes("\n".join(self._list_replies()), MAX_ANSWER_BYTES),
        }
        if earlier is not None and scored.keys() - levels.keys():
            # scores kept from it stay what they were: made by its recipe, of what it judged
            completed |= {"recipe": earlier.recipe, "input_hash": earlier.input_hash}
        return completed

    def _list_replies(self) -> list[str]:
        """List all that the judge replied, usable or not, in the order of the factors."""
        if len(self.replies) == 1:
            return next(iter(self.replies.values()))
        return [reply for factor in ("", *self.factors) for reply in self.replies.get(factor, ())]

    def identity_fields(self) -> RecordFields:
        return self.judged.identity_fields(self.role_model.name, self.role_model.recipe.hash)


@dataclass(slots=True)
class LabelWork:
    """Compares a response with its item's labels: no model, no cost."""

    judged: JudgeInput
    key: str

    phase = "evaluation"
    weight = 1
    calls = 0
    at_once = True
    model = records.EXACT_MATCH

    async def do(self) -> records.Evaluation:
        attributes = self.judged.prepared.item.sampled_target_attributes
        labels = self.judged.setup.labels
        expected = {name: attributes[name] for name in labels if name in attributes}
        return records.Evaluation(
            **self._identity_fields(),
            label_scores=score_labels(self.judged.response.response or "", expected, labels),
        )

    def make_failed_record(self, error: Exception) -> records.Evaluation:
        return records.Evaluation(**self._identity_fields(), status="failed", error=make_failure(error))

    def _identity_fields(self) -> RecordFields:
        return self.judged.identity_fields(records.EXACT_MATCH, hash_label_recipe(self.judged.setup.labels))


# --- Phase 3: items of teachers


@dataclass(slots=True)
class ItemWork(ModelWork[records.Datapoint]):
    """Asks a teacher for the item of one slot."""

    setup: TaskSetup
    sample: Sample

    phase = "data_generation"
    record = records.Datapoint

    @property
    def weight(self) -> int:
        return 1 + sum(student.samples for student in self.setup.students) * self.setup.records_per_response

    def question(self, _: int) -> records.Request:
        return self.role_model.prompt(self.sample.prompt_variables, BENCHMARK_ITEM)

    def parse_fields(self, completion: records.Completion) -> RecordFields:
        """Parse the item; one that was cut off is not repaired into half an item."""
        text = text_unless_refused(completion, "the teacher")
        item = parse_item(text)
        if item.repaired and completion.truncated:
            raise Unparsable("it holds half an item", raw=text)
        return {"prompt": item.prompt, "reference_response": item.response, "repaired": item.repaired}

    def identity_fields(self) -> RecordFields:
        task = self.setup.task
        stored = {"sampled_nuanced_attributes": self.sample.nuance} if task.store_nuanced else {}
        return {
            "task_id": task.name,
            "teacher_model_id": self.role_model.name,
            "sampled_target_attributes": self.sample.target,
            "recipe": hash_item_recipe(self.role_model.recipe.hash, self.sample.target, self.sample.nuance),
            "generated_at": utc_now(),
            **stored,
        }


# --- Phase 5 of a pairwise task


@dataclass(slots=True)
class PairWork(ModelWork[records.Preference]):
    """Asks one judge which of two answers is better; ``first`` is shown first."""

    design: PairDesign
    first: JudgeInput
    second: JudgeInput

    phase = "evaluation"
    weight = 1
    record = records.Preference

    def question(self, _: int) -> records.Request:
        variables = {
            **self.first.prepared.values,
            "answer_a": self.first.response.response or "",
            "answer_b": self.second.response.response or "",
            "answer_format": self.design.answer_format,
        }
        return self.role_model.prompt(variables, self.design.schema)

    def parse_fields(self, completion: records.Completion) -> RecordFields:
        preferred = parse_preference(text_unless_refused(completion, "the judge"))
        return {
            "winner": preferred.value,
            "reason": preferred.reason[:MOST_REASON] or None,
            "raw": cut_to_bytes(completion.text, MAX_ANSWER_BYTES),
        }

    def identity_fields(self) -> RecordFields:
        first, second = self.first.response, self.second.response
        return {
            "datapoint_id": first.datapoint_id,
            "task_id": first.task_id,
            "teacher_model_id": first.teacher_model_id,
            "first_model_id": first.student_model_id,
            "second_model_id": second.student_model_id,
            "judge_model_id": self.role_model.name,
            "input_hash": join_judged_inputs(self.first.input_hash, self.second.input_hash),
            "evaluated_at": utc_now(),
        }


# --- Phase 5 without a judge: checks


@dataclass(slots=True)
class CheckWork:
    """Computes ``factors`` of one response without a model; those that cannot be computed are missing."""

    judged: JudgeInput
    key: str
    factors: tuple[str, ...]
    runner: CheckRunner
    at_once: bool

    phase = "evaluation"
    weight = 1
    calls = 0
    model = records.CHECK

    async def do(self) -> records.Evaluation:
        """Compute each factor, in this process or by a worker."""
        judged = self.judged
        response, checks = judged.response, judged.setup.checks
        answer = build_checked_answer(judged.prepared.item, response.response, response)
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
        return self._merge_earlier_values(values, reasons)

    def make_failed_record(self, error: Exception) -> records.Evaluation:
        identity = self.judged.identity_fields(records.CHECK, CHECK_RECIPE)
        return records.Evaluation(
            **identity, status="failed", error=make_failure(error), missing=self.factors
        )

    def _merge_earlier_values(self, values: dict[str, float], reasons: dict[str, str]) -> records.Evaluation:
        """Build the record, with an earlier one's values unless all are computed again."""
        hashes, earlier = self.judged.setup.check_hashes, self.judged.earlier
        criteria, made_from = {factor: hashes[factor] for factor in values}, None
        if earlier is not None and len(self.factors) < len(hashes):
            kept = {f: value for f, value in (earlier.values or {}).items() if f not in self.factors}
            values, reasons = kept | values, _keep_texts_of_factors(kept, earlier.reasons) | reasons
            criteria = _keep_texts_of_factors(kept, earlier.criteria) | criteria
            made_from = earlier.input_hash
        identity = self.judged.identity_fields(records.CHECK, CHECK_RECIPE, made_from)
        left = hashes.keys() - values.keys()
        missing = tuple(factor for factor in hashes if factor in left) if left else ()
        fields: RecordFields = {"criteria": criteria or None, "reasons": reasons or None, "missing": missing}
        if not values:
            why = f"{missing[0]}: {reasons[missing[0]]}"
            return records.Evaluation(
                **identity, **fields, status="failed", error=records.Failure(CheckFailed.kind, why)
            )
        fields["values"] = {factor: values[factor] for factor in (*hashes, *values) if factor in values}
        return records.Evaluation(**identity, **fields)


def _keep_texts_of_factors(factors: dict[str, float], texts: dict[str, str] | None) -> dict[str, str]:
    return {factor: text for factor, text in (texts or {}).items() if factor in factors}
