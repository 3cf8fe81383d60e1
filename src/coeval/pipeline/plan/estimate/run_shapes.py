"""The calls of a run as shapes: what is known of their prompts, with the texts that models are yet to
write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from coeval.core.records import Purpose
from coeval.engine.progress import Calls
from coeval.engine.role_model import RoleModel
from coeval.pipeline.phases.blueprint import PHASE_OF
from coeval.pipeline.plan.estimate.guessed_lengths import FACTOR_LINE, verdict_characters
from coeval.pipeline.plan.estimate.known_prompts import (
    KnownPrompt,
    item_prompt,
    judge_prompt,
    proposal_prompt,
    student_prompt,
)
from coeval.pipeline.plan.estimate.planned_calls import TaskCalls
from coeval.pipeline.plan.estimate.text_lengths import TextLengths, mixed
from coeval.pricing.estimate.call_shape import AskedModel, CallShape, surely
from coeval.pricing.estimate.evidence import ScenarioDraws
from coeval.pricing.estimate.span import Scenarios
from coeval.pricing.estimate.unknowns import Cell, ErrorSpread, Guess

__all__ = ["JSON_OF_ITEM", "AskedIn", "run_shapes", "with_other_teachers"]

AskedIn: TypeAlias = Callable[[Purpose, RoleModel], AskedModel]
"""How the calls of a model in a phase are priced and timed."""

_NEW_FACTORS = ErrorSpread(shared=0.2, task=0.25, model=0.0, cell=0.0, item=0.12)
_OF_ONE = 4.5
"""Factors that a teacher proposes."""
_ADDED, _LESS = 1.6, 0.6
"""Factors that a second teacher adds to them, and how many of what one added the next one adds."""
JSON_OF_ITEM = 34
"""Characters of an item's JSON beside its two texts."""
_STAND_IN = "(proposed 1)"
_NAME = "a_usual_name"


def run_shapes(
    tasks: Sequence[TaskCalls], lengths: TextLengths, asked_in: AskedIn, draws: ScenarioDraws
) -> Iterator[CallShape]:
    """Those of all tasks."""
    guesses = {
        Cell(task.name, ""): Guess(with_other_teachers(_OF_ONE, _ADDED, task.factors.proposals - 1))
        for task in tasks
        if task.factors.proposals
    }
    new_factors = draws.means("new factors", guesses, _NEW_FACTORS)
    for task in tasks:
        new = new_factors.get(Cell(task.name, ""), surely(0.0))
        yield from _TaskShapes(task, lengths, asked_in, draws, new).all()


def with_other_teachers(factors: float, added: float, others: int) -> float:
    """How many factors there are once so many other teachers have proposed theirs, of whom the first adds so
    many: most of what one proposes has been proposed before."""
    return factors + added * (1 - _LESS**others) / (1 - _LESS)


class _TaskShapes(NamedTuple):
    """What the shapes of one task are made of."""

    task: TaskCalls
    lengths: TextLengths
    asked_in: AskedIn
    draws: ScenarioDraws
    new_factors: Scenarios

    def all(self) -> Iterator[CallShape]:
        name, lengths = self.task.name, self.lengths
        for kind, teacher in self.task.proposals:
            prompt = proposal_prompt(teacher)
            reply = lengths.proposal[Cell(f"{name} {kind}", teacher.name)]
            yield self._shape(PHASE_OF[kind], teacher, surely(1), prompt, surely(0), reply)
        for phase, role_model, calls in self.task.asked:
            if calls.high:
                yield self._of_phase(phase, role_model, calls)

    def _of_phase(self, phase: Purpose, role_model: RoleModel, calls: Calls) -> CallShape:
        name, setup, lengths = self.task.name, self.task.setup, self.lengths
        cell = Cell(name, role_model.name)
        match role_model.role:
            case "teacher":
                prompt, made = item_prompt(setup, role_model), lengths.item[cell] + lengths.reference[cell]
                return self._shape(
                    phase, role_model, self._between(calls), prompt, surely(0), made + JSON_OF_ITEM
                )
            case "student":
                prompt = student_prompt(setup, role_model)
                unknown = prompt.times["input"] * mixed(lengths.item, name, self.task.authors)
                return self._shape(
                    phase, role_model, self._between(calls), prompt, unknown, lengths.answer[cell]
                )
            case "judge":
                return self._judged(phase, role_model, calls)

    def _judged(self, phase: Purpose, judge: RoleModel, calls: Calls) -> CallShape:
        task = self.task
        alone = task.setup.task.evaluation_mode == "per_factor"
        prompt = judge_prompt(task.setup, judge, task.factors.known or (_STAND_IN,))
        texts = self._texts()
        unknown = _unknown(prompt.times, texts)
        known, factors = task.factors.known, self._factors()
        reply, new = surely(verdict_characters(("score",) if alone else known)), factors - len(known)
        if task.factors.proposals and not alone:
            unknown = unknown + new * FACTOR_LINE
            reply = reply + new * (verdict_characters((_NAME,)) - verdict_characters(()))
        elif task.factors.proposals:
            unknown = unknown + (0 if task.factors.known else FACTOR_LINE)
        reply = reply * self.lengths.verdict[Cell(task.name, judge.name)]
        made = self._judgments(calls, factors, alone=alone)
        shape = self._shape(phase, judge, made, prompt, unknown, reply)
        if not alone or not prompt.head.characters:
            return shape
        head = prompt.head.characters + _unknown(prompt.head_times, texts)
        return shape._replace(
            together=float(factors[0]), head=head * prompt.size.tokens / prompt.size.characters
        )

    def _factors(self) -> Scenarios:
        """How many factors a judge scores in the end."""
        known = self.task.factors
        return np.clip(len(known.known) + np.round(self.new_factors), known.least, known.most)

    def _judgments(self, calls: Calls, factors: Scenarios, *, alone: bool) -> Scenarios:
        """The calls of a judge: as many as there are factors, where each is asked for by itself."""
        known = self.task.factors
        if not known.proposals or known.most == known.least:
            return self._between(calls)
        share = (factors - known.least) / (known.most - known.least) if alone else factors > len(known.known)
        return np.asarray(calls.low + (calls.high - calls.low) * share, dtype=np.float64)

    def _between(self, calls: Calls) -> Scenarios:
        """Calls, some of which are not made where a lost record comes again as it was."""
        if calls.low == calls.high:
            return surely(calls.high)
        return np.round(self.draws.between(calls.low, calls.high, calls.high))

    def _texts(self) -> Mapping[str, Scenarios]:
        """The texts that judges are shown, in the mean over whose they are."""
        name, task, lengths = self.task.name, self.task, self.lengths
        return {
            "input": mixed(lengths.item, name, task.judged_authors),
            "reference": mixed(lengths.reference, name, task.judged_authors),
            "response": mixed(lengths.answer, name, task.answerers),
        }

    def _shape(
        self,
        phase: Purpose,
        role_model: RoleModel,
        calls: Scenarios,
        prompt: KnownPrompt,
        unknown: Scenarios,
        reply: Scenarios,
    ) -> CallShape:
        asked = self.asked_in(phase, role_model)
        return CallShape(phase, self.task.name, asked, calls, prompt.size, prompt.messages, unknown, reply)


def _unknown(times: Mapping[str, int], texts: Mapping[str, Scenarios]) -> Scenarios:
    return sum((texts[name] * often for name, often in times.items() if often), surely(0.0))
