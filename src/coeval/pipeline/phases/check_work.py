"""Phase 5 without a judge: the checks of a response, computed as one record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coeval.core.errors import CheckFailed
from coeval.core.records import CHECK, Evaluation, Failure
from coeval.engine.model_work import reason
from coeval.judging.checks.check_runner import CheckRunner
from coeval.judging.checks.rubric_check import checked_answer
from coeval.pipeline.phases.evaluations import Judged
from coeval.pipeline.plan.recipes import CHECK_RECIPE


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

    def failed(self, error: Exception) -> Evaluation:
        identity = self.judged.identity(CHECK, CHECK_RECIPE)
        return Evaluation(**identity, status="failed", error=reason(error), missing=self.factors)

    def _record(self, values: dict[str, float], reasons: dict[str, str]) -> Evaluation:
        """The record: with what an earlier one holds, unless all is computed again."""
        hashes, earlier = self.judged.setup.check_hashes, self.judged.earlier
        criteria, made_from = {factor: hashes[factor] for factor in values}, None
        if earlier is not None and len(self.factors) < len(hashes):
            kept = {f: value for f, value in (earlier.values or {}).items() if f not in self.factors}
            values, reasons = kept | values, _of(kept, earlier.reasons) | reasons
            criteria = _of(kept, earlier.criteria) | criteria
            made_from = earlier.input_hash
        identity = self.judged.identity(CHECK, CHECK_RECIPE, made_from)
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
