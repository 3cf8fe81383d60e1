"""HealthBench: health conversations, each answer graded by a physician's rubric.

Arora et al. 2025, "HealthBench: Evaluating Large Language Models Towards Improved Human Health". Each rubric
item is graded on its own, on the whole conversation and shown with its points; an example's score is the
points met as a share of the points that can be gained. ``overall_score`` is the mean, clipped to 0 … 1, with
the standard deviation of its bootstrap; likewise for every tag: a theme's over its examples, an axis's over
the examples' scores on the rubric items of that axis.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from coeval.analysis.pairwise.rates import clipped_mean, healthbench_score
from coeval.benchmarks.assets.library import read_records
from coeval.benchmarks.benchmark import (
    Answer,
    Ask,
    Benchmark,
    Item,
    JudgmentValue,
    Metric,
    Scored,
    TaskRecords,
    TaskSettings,
)
from coeval.benchmarks.run.judgment_outcomes import look_up_outcomes
from coeval.core.records import Completion, Message, Request, SamplingParameters, Schema, judgment_id
from coeval.judging.verdict import parse_criteria_met
from coeval.pipeline.prompts import object_schema

# Examples behind the published scores; HealthBench Hard and Consensus are other selections.
PUBLISHED_EXAMPLES = 5000
_SAMPLED = f"published scores are means over {PUBLISHED_EXAMPLES:,} examples, these over {{:,}}"

# What the official prompt asks for in words; sent where the host takes a schema.
_GRADE = Schema(
    "rubric_item_grade", object_schema(explanation={"type": "string"}, criteria_met={"type": "boolean"})
)
_SLOT = re.compile(r"<<(conversation|rubric_item)>>")


class _Score(NamedTuple):
    """An example's score on some of its rubric items, and the least possible score on these."""

    value: float
    least: float


class HealthBench(Benchmark):
    """``overall_score``, and scores by theme, axis and every other tag, as shares."""

    name = "healthbench"
    needs_judge = True
    answer_characters = 2000
    judgment_characters = 350
    official_judge = "gpt-4.1-2025-04-14"
    assets: ClassVar[tuple[str, ...]] = ("healthbench/examples", "healthbench/grader")

    def __init__(self, settings: TaskSettings) -> None:
        super().__init__(settings)
        self._grader = self.text("healthbench/grader")

    def items(self) -> Sequence[Item]:
        records = read_records(self.settings.assets["healthbench/examples"])
        return [
            Item(
                record["prompt_id"], tuple(Message(t["role"], t["content"]) for t in record["prompt"]), record
            )
            for record in records
        ]

    def judge_sampling(self) -> SamplingParameters:
        """Return simple-evals' settings: its sampler's default temperature, and 2,048 tokens."""
        return SamplingParameters(temperature=0.5, max_tokens=2048)

    def judge_template(self) -> str:
        return self._grader

    def asks(self, item: Item, answer: Answer) -> Sequence[Ask]:
        turns = [*item.messages, Message("assistant", answer.response or "")]
        conversation = "\n\n".join(f"{turn.role}: {turn.content}" for turn in turns)
        return [
            self._make_ask(judgment_id(item.id, f"item-{number}"), conversation, rubric_item)
            for number, rubric_item in enumerate(item.fields["rubrics"], 1)
        ]

    def _make_ask(self, ask_id: str, conversation: str, rubric_item: dict[str, Any]) -> Ask:
        """Make the judgment of one rubric item; requests of one item share their head, for prompt caches."""
        rubric_line = f"[{rubric_item['points']}] {rubric_item['criterion']}"
        values = {"conversation": conversation, "rubric_item": rubric_line}

        def fill_slots(template: str) -> str:
            return _SLOT.sub(lambda slot: values[slot[1]], template)

        def request() -> Request:
            head = self._grader.partition("<<rubric_item>>")[0]
            return Request(
                (Message("user", fill_slots(self._grader)),), schema=_GRADE, shared=len(fill_slots(head))
            )

        def parse(completion: Completion) -> JudgmentValue:
            verdict = parse_criteria_met(completion.text)
            value = {"criteria_met": verdict.value, "explanation": verdict.reason}
            return value | ({"repaired": True} if verdict.repaired else {})

        return Ask(ask_id, request, parse)

    def score(self, records: TaskRecords) -> Scored:
        """Score the examples all of whose rubric items were graded."""
        outcomes, n_examples = look_up_outcomes(self, records), len(records.items)
        by_item: dict[str, float | None] = {}
        scores_by_name: dict[str, list[_Score]] = {"overall_score": []}
        for item in records.items:
            if (values := outcomes.complete_values(item.id)) is None:
                continue
            scores = example_scores(item.fields, [value["criteria_met"] for value in values])
            least = example_scores(item.fields, [rubric["points"] < 0 for rubric in item.fields["rubrics"]])
            by_item[item.id] = scores["overall_score"]
            for name, score in scores.items():
                if score is not None:
                    scores_by_name.setdefault(name, []).append(_Score(score, least[name] or 0.0))
        metrics = {name: self._clipped_metric(scores) for name, scores in scores_by_name.items()}
        tables: dict[str, dict[str, Metric]] = {"theme": {}, "axis": {}, "tags": {}}
        for name in sorted(metrics.keys() - {"overall_score"}):
            prefix, _, suffix = name.partition(":")
            table, row = (prefix, suffix) if prefix in ("theme", "axis") else ("tags", name)
            tables[table][row] = metrics[name]
        return Scored(
            metrics={"overall_score": metrics["overall_score"]},
            n_expected=outcomes.expected,
            n_scored=outcomes.scored,
            n_failed=outcomes.failed,
            reasons=() if n_examples == PUBLISHED_EXAMPLES else (_SAMPLED.format(n_examples),),
            tables=tables,
            items={item: {"overall_score": score} for item, score in by_item.items()},
        )

    def _clipped_metric(self, scores: Sequence[_Score]) -> Metric:
        clipped = clipped_mean(
            [score.value for score in scores], [score.least for score in scores], seed=self.settings.seed
        )
        return Metric(clipped.mean, clipped.bootstrap_std, clipped.bounds, clipped.n, "share")


def example_scores(example: Mapping[str, Any], met: Sequence[bool]) -> dict[str, float | None]:
    """Compute ``overall_score``, which is that of each tag of the example too, and a score for each tag of
    its rubric items: on these alone, None where no points can be gained on them."""
    rubrics = example["rubrics"]
    overall = healthbench_score([rubric["points"] for rubric in rubrics], met)
    scores: dict[str, float | None] = {"overall_score": overall}
    scores.update(dict.fromkeys(example.get("example_tags", ()), overall))
    for tag in dict.fromkeys(tag for rubric in rubrics for tag in rubric.get("tags", ())):
        tagged = [number for number, rubric in enumerate(rubrics) if tag in rubric.get("tags", ())]
        scores[tag] = healthbench_score([rubrics[n]["points"] for n in tagged], [met[n] for n in tagged])
    return scores
