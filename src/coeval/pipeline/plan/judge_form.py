"""What judges are shown of a rubric or a pair, the shape of their reply, and how it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

from coeval.core.records import Level, Schema
from coeval.core.scale import HIGH_MEDIUM_LOW, RubricScale
from coeval.judging.verdict import Levels, parse_level, parse_levels
from coeval.pipeline.config.schema import TaskConfig
from coeval.pipeline.prompts import object_schema, render_rubric

# Beyond so many levels a judge is told the range, and the schema lists none.
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


class FactorsRequested(NamedTuple):
    """What judges are shown of some factors (template variables), and the schema of their reply."""

    values: Mapping[str, str]
    schema: Schema


class JudgeForm:
    """A task's judged factors. ``criteria``: factor → criterion; ``scales``: of each factor, the default one
    where nothing is said; ``rationale``: whether judges give reasons."""

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
        self._of_all: dict[tuple[str, ...], FactorsRequested] = {}

    def of_all(self, factors: tuple[str, ...]) -> FactorsRequested:
        """How judges are asked for these factors at once; worked out once, for all who are asked the same."""
        requested = self._of_all.get(factors)
        if requested is None:
            scales = [self.scales[factor] for factor in factors]
            mixed = len(set(scales)) > 1
            shown = {
                factor: self.criteria[factor] + (f" (levels: {scale.levels_text()})" if mixed else "")
                for factor, scale in zip(factors, scales, strict=True)
            }
            values = {
                "rubric": render_rubric(shown),
                "scale": _described(scales, "each factor"),
                "answer_format": self._format_of_all(scales),
            }
            schema = object_schema(**{factor: self._schema(factor) for factor in factors})
            requested = self._of_all[factors] = FactorsRequested(values, Schema("evaluation", schema))
        return requested

    def of_one(self, factor: str) -> FactorsRequested:
        """How judges are asked for one factor by itself."""
        scale = self.scales[factor]
        values = {
            "factor": factor,
            "criterion": self.criteria[factor],
            "scale": _described([scale], ""),
            "answer_format": self._format_of_one(scale),
        }
        schema = self._schema(factor) if self.rationale else object_schema(score=_level_schema(scale))
        return FactorsRequested(values, Schema("factor_score", schema))

    def read_all(self, text: str, factors: Sequence[str]) -> Levels:
        """Read a reply about these factors. Raises Unparsable: it holds no JSON."""
        found = parse_levels(text, {factor: self.scales[factor] for factor in factors})
        return found._replace(reasons=_cut(found.reasons))

    def read_one(self, text: str, factor: str) -> Levels:
        """Read a reply about one factor. Raises Unparsable: it is not one level."""
        found = parse_level(text, self.scales[factor])
        return Levels({factor: found.level}, (), _cut({factor: found.reason}))

    def scored(self, levels: Mapping[str, str]) -> tuple[dict[str, Level], dict[str, float]]:
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

    def _schema(self, factor: str) -> dict[str, Any]:
        level = _level_schema(self.scales[factor])
        return object_schema(reason={"type": "string"}, score=level) if self.rationale else level

    def _format_of_all(self, scales: Sequence[RubricScale]) -> str:
        score = _choice(scales)
        value = f"Its value is {_REASON}{score}." if self.rationale else f"Its value is {score}."
        return (
            "Answer with one JSON object and nothing else: one key for each factor, spelled exactly as above."
            f" {value}"
        )

    def _format_of_one(self, scale: RubricScale) -> str:
        if self.rationale:
            return f"Answer with one JSON object and nothing else: {_REASON}{_choice([scale])}."
        return f'Answer with one JSON object and nothing else; its one key is "score", {_choice([scale])}.'


def _described(scales: Sequence[RubricScale], what: str) -> str:
    """Say what the levels mean."""
    give = f"Give {what}" if what else "Give"
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
    if scale.is_numeric:
        opening = f"{give} a whole number from {worst} to {best}."
    else:
        opening = f"{give} one of these levels, from worst to best: {scale.levels_text()}."
    between = "those between are equal steps"
    return f"{opening} {best} {_ENDS}; {worst} means that it is not met, or hardly; {between}."


def _choice(scales: Sequence[RubricScale]) -> str:
    """``one of "High", "Medium", "Low"``, or what else the value of a score is."""
    if len(set(scales)) > 1:
        return "one of its levels, in quotes"
    scale = scales[0]
    if len(scale.levels) > _MOST_LISTED:
        return f"a whole number from {scale.levels[0]} to {scale.levels[-1]}"
    return "one of " + ", ".join(f'"{level}"' for level in _as_shown(scale))


def _as_shown(scale: RubricScale) -> tuple[str, ...]:
    return scale.levels[::-1] if scale is HIGH_MEDIUM_LOW else scale.levels


def _level_schema(scale: RubricScale) -> dict[str, Any]:
    """Texts even of numbers, since some hosts admit no other values in a list."""
    if len(scale.levels) > _MOST_LISTED and scale.is_numeric:
        return {"type": "integer"}
    return {"type": "string", "enum": list(_as_shown(scale))}


def _cut(reasons: Mapping[str, str]) -> dict[str, str]:
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
        """What judges are told of the shape of their reply."""
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


def pair_design(task: TaskConfig, students: Sequence[str]) -> PairDesign | None:
    """Return the comparisons of a pairwise task, its ``rationale`` settled: with the baseline, or of every
    pair; None for others."""
    if task.judging != "pairwise":
        return None
    if task.baseline is not None:
        pairs = [(student, task.baseline) for student in students if student != task.baseline]
    else:
        pairs = list(combinations(students, 2))
    orders = tuple(OrderedPair(*order) for one, other in pairs for order in ((one, other), (other, one)))
    return PairDesign(orders, bool(task.rationale))
