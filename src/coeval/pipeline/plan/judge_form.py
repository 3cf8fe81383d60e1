"""What judges are shown of a rubric or a pair, the schema of their reply, and how it is parsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from coeval.core.records import Level, Schema
from coeval.core.scale import HIGH_MEDIUM_LOW, RubricScale
from coeval.judging.verdict import Levels, parse_level, parse_levels
from coeval.pipeline.config.schema import TaskConfig
from coeval.pipeline.prompts import JsonSchema, object_schema, render_rubric

# With more levels, prompts name the range and the schema lists none.
_MOST_LISTED = 20
# A reason is one sentence; a judge that writes a page is cut.
MOST_REASON = 2_000

_ENDS = "means that the criterion is fully met, or all but for trifles"
_DEFAULT = (
    f"High {_ENDS}. Medium means that it is partly met, with a clear shortcoming. Low means that it is not "
    "met, or hardly."
)
_REASON = (
    'an object with two keys, in this order: "reason", one sentence of at most 25 words that names what in '
    'the answer decides the level, and "score", '
)


class FactorQuestion(NamedTuple):
    """Template variables about some factors, and the schema of the reply."""

    values: Mapping[str, str]
    schema: Schema


class JudgeForm:
    """The judged factors of a task. ``criteria``: factor → criterion; ``scales``: factor → scale, by default
    High, Medium, Low; ``rationale``: whether judges give reasons."""

    def __init__(
        self,
        criteria: Mapping[str, str],
        scales: Mapping[str, RubricScale] | None = None,
        *,
        rationale: bool = True,
    ) -> None:
        self.criteria = criteria
        self.scales = scales or dict.fromkeys(criteria, HIGH_MEDIUM_LOW)
        self.rationale = rationale
        self._joint_questions: dict[tuple[str, ...], FactorQuestion] = {}

    def build_joint_question(self, factors: tuple[str, ...]) -> FactorQuestion:
        """Return the question about all these factors at once; cached, since answers share it."""
        requested = self._joint_questions.get(factors)
        if requested is None:
            scales = [self.scales[factor] for factor in factors]
            mixed = len(set(scales)) > 1
            criteria_with_levels = {
                factor: self.criteria[factor] + (f" (levels: {scale.levels_text()})" if mixed else "")
                for factor, scale in zip(factors, scales, strict=True)
            }
            values = {
                "rubric": render_rubric(criteria_with_levels),
                "scale": _describe_levels(scales, "each factor"),
                "answer_format": self._describe_joint_format(scales),
            }
            schema = object_schema(**{factor: self._build_factor_schema(factor) for factor in factors})
            requested = self._joint_questions[factors] = FactorQuestion(values, Schema("evaluation", schema))
        return requested

    def build_factor_question(self, factor: str) -> FactorQuestion:
        scale = self.scales[factor]
        values = {
            "factor": factor,
            "criterion": self.criteria[factor],
            "scale": _describe_levels([scale], ""),
            "answer_format": self._describe_factor_format(scale),
        }
        schema = (
            self._build_factor_schema(factor)
            if self.rationale
            else object_schema(score=_build_level_schema(scale))
        )
        return FactorQuestion(values, Schema("factor_score", schema))

    def parse_joint_reply(self, text: str, factors: Sequence[str]) -> Levels:
        """Parse a reply about these factors. Raises Unparsable: it holds no JSON."""
        levels = parse_levels(text, {factor: self.scales[factor] for factor in factors})
        return levels._replace(reasons=_truncate_reasons(levels.reasons))

    def parse_factor_reply(self, text: str, factor: str) -> Levels:
        """Parse a reply about one factor. Raises Unparsable: it is not one level."""
        reply = parse_level(text, self.scales[factor])
        return Levels({factor: reply.value}, (), _truncate_reasons({factor: reply.reason}))

    def split_by_scale(self, levels: Mapping[str, str]) -> tuple[dict[str, Level], dict[str, float]]:
        """Split levels by factor into words of the default scale, and numbers from 0 to 1 of other scales."""
        scores: dict[str, Level] = {}
        values: dict[str, float] = {}
        for factor, level in levels.items():
            scale = self.scales[factor]
            if scale is HIGH_MEDIUM_LOW:
                scores[factor] = level  # type: ignore[assignment]  # its levels are just these words
            else:
                values[factor] = scale.value(level)
        return scores, values

    def _build_factor_schema(self, factor: str) -> JsonSchema:
        level = _build_level_schema(self.scales[factor])
        return object_schema(reason={"type": "string"}, score=level) if self.rationale else level

    def _describe_joint_format(self, scales: Sequence[RubricScale]) -> str:
        score = _describe_choice(scales)
        value = f"Its value is {_REASON}{score}." if self.rationale else f"Its value is {score}."
        return (
            "Answer with one JSON object and nothing else: one key for each factor, spelled exactly as above."
            f" {value}"
        )

    def _describe_factor_format(self, scale: RubricScale) -> str:
        if self.rationale:
            return f"Answer with one JSON object and nothing else: {_REASON}{_describe_choice([scale])}."
        choice = _describe_choice([scale])
        return f'Answer with one JSON object and nothing else; its one key is "score", {choice}.'


def _describe_levels(scales: Sequence[RubricScale], subject: str) -> str:
    """Say what the levels mean."""
    give = f"Give {subject}" if subject else "Give"
    if len(set(scales)) > 1:
        return (
            f"{give} one of its levels; each factor lists them from worst to best. The best {_ENDS}; the "
            "worst means that it is not met, or hardly; those between are equal steps."
        )
    scale = scales[0]
    worst, best = scale.levels[0], scale.levels[-1]
    if scale is HIGH_MEDIUM_LOW:
        return f"{give} one of three levels. {_DEFAULT}"
    if len(scale.levels) == 2:
        return f"{give} one of two levels. {best} {_ENDS}; {worst} means that it is not."
    if scale.has_consecutive_integers:
        opening = f"{give} a whole number from {worst} to {best}."
    else:
        opening = f"{give} one of these levels, from worst to best: {scale.levels_text()}."
    between = "those between are equal steps"
    return f"{opening} {best} {_ENDS}; {worst} means that it is not met, or hardly; {between}."


def _describe_choice(scales: Sequence[RubricScale]) -> str:
    """Describe the value of a score: ``one of "High", "Medium", "Low"``, or a range."""
    if len(set(scales)) > 1:
        return "one of its levels, in quotes"
    scale = scales[0]
    if len(scale.levels) > _MOST_LISTED:
        return f"a whole number from {scale.levels[0]} to {scale.levels[-1]}"
    return "one of " + ", ".join(f'"{level}"' for level in _order_levels(scale))


def _order_levels(scale: RubricScale) -> tuple[str, ...]:
    return scale.levels[::-1] if scale is HIGH_MEDIUM_LOW else scale.levels


def _build_level_schema(scale: RubricScale) -> JsonSchema:
    """Build the schema of a level; numbers are text too, since some hosts allow only that in an enum."""
    if len(scale.levels) > _MOST_LISTED and scale.has_consecutive_integers:
        return {"type": "integer"}
    return {"type": "string", "enum": list(_order_levels(scale))}


def _truncate_reasons(reasons: Mapping[str, str]) -> dict[str, str]:
    return {factor: reason[:MOST_REASON] for factor, reason in reasons.items() if reason}


# --- Comparisons of answers


class OrderedPair(NamedTuple):
    """Two students of a task; the answer of ``first`` is shown first."""

    first: str
    second: str


@dataclass(frozen=True, slots=True)
class PairDesign:
    """The comparisons of one item, each in both ``orders``."""

    orders: tuple[OrderedPair, ...]
    rationale: bool

    @property
    def answer_format(self) -> str:
        verdict = '"verdict", one of "A", "B" or "tie"'
        if not self.rationale:
            return f"Answer with one JSON object and nothing else; its one key is {verdict}."
        return (
            'Answer with one JSON object and nothing else; it has two keys, in this order: "reason", one '
            f"sentence of at most 25 words that names what decides, and {verdict}."
        )

    @property
    def schema(self) -> Schema:
        verdict = {"type": "string", "enum": ["A", "B", "tie"]}
        reason = {"reason": {"type": "string"}} if self.rationale else {}
        return Schema("pair_verdict", object_schema(**reason, verdict=verdict))


def build_pair_design(task: TaskConfig, students: Sequence[str]) -> PairDesign | None:
    """Return the comparisons of a pairwise task with its baseline or of every pair; None for other tasks."""
    if task.judging != "pairwise":
        return None
    if task.baseline is not None:
        pairs = [(student, task.baseline) for student in students if student != task.baseline]
    else:
        pairs = list(combinations(students, 2))
    orders = tuple(OrderedPair(*order) for pair in pairs for order in (pair, pair[::-1]))
    return PairDesign(orders, bool(task.rationale))
