"""WritingBench: writing tasks, each answer scored from 1 to 10 on five criteria of its own.

Wu et al. 2025, "WritingBench: A Comprehensive Benchmark for Generative Writing". Each criterion is
judged by itself. ``overall`` is the mean of all scores; a domain's score is the mean over its
queries of the query's mean. Of a requirement (style, format, length), R is the mean over the queries
that ask for it, C the mean of only their criteria about it. Formulas: the project's
``calculate_scores.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import xlsxwriter
from xlsxwriter.worksheet import Worksheet

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
from coeval.benchmarks.run.judgment_outcomes import (
    Outcomes,
    clustered_mean_metric,
    look_up_outcomes,
    mean_metric,
)
from coeval.benchmarks.task_registry import WRITE_EXCEL
from coeval.core.records import Completion, Message, Request, SamplingParameters, Schema, judgment_id
from coeval.core.text import fill_template, shared_prefix_length
from coeval.judging.verdict import parse_criterion_score
from coeval.pipeline.prompts import object_schema

# What the official prompt asks for in words; sent where the host takes a schema.
_SCORE = Schema("criterion_grade", object_schema(score={"type": "integer"}, reason={"type": "string"}))
REQUIREMENTS = ("style", "format", "length")


class _Scores(NamedTuple):
    """A query's scores by criterion, in the criteria's order."""

    item: Item
    by_criterion: dict[str, int]

    @property
    def mean(self) -> float:
        return sum(self.by_criterion.values()) / len(self.by_criterion)


class _Required(NamedTuple):
    """A requirement's queries, by item id. R: their means. C: their scores on criteria about it."""

    queries: dict[str, float]
    criteria: dict[str, list[int]]


class _CriterionLine(NamedTuple):
    """A query's score on a criterion; None without a judgment."""

    query: str
    criterion: str
    score: int | None


class WritingBench(Benchmark):
    """``overall``, ``domain1``, ``domain2``, and requirements R and C, in points from 1 to 10."""

    name = "writingbench"
    needs_judge = True
    answer_characters = 6000
    judgment_characters = 500
    official_judge = "claude-sonnet-4-5"
    assets: ClassVar[tuple[str, ...]] = (
        "writingbench/queries",
        *(f"writingbench/{requirement}_{kind}" for requirement in REQUIREMENTS for kind in "RC"),
        "writingbench/judge_system",
        "writingbench/judge_prompt",
    )

    def __init__(self, settings: TaskSettings) -> None:
        super().__init__(settings)
        self._system = self.text("writingbench/judge_system")
        self._prompt = self.text("writingbench/judge_prompt")

    def items(self) -> Sequence[Item]:
        records = read_records(self.settings.assets["writingbench/queries"])
        return [Item(str(record["index"]), (Message("user", record["query"]),), record) for record in records]

    def judge_sampling(self) -> SamplingParameters:
        return SamplingParameters(temperature=1.0, top_p=0.95, max_tokens=2048)

    def judge_template(self) -> str:
        return f"{self._system}\0{self._prompt}"

    def asks(self, item: Item, answer: Answer) -> Sequence[Ask]:
        return [
            self._make_ask(item, number, criterion, answer.response or "")
            for number, criterion in enumerate(item.fields["checklist"], 1)
        ]

    def _make_ask(self, item: Item, number: int, criterion: dict[str, str], response: str) -> Ask:
        def build_judge_request() -> Request:
            # The criterion goes in as the official code formats it: as Python writes a dict.
            values = {"query": item.fields["query"], "response": response, "criteria": str(criterion)}
            messages = (Message("system", self._system), Message("user", fill_template(self._prompt, values)))
            shared = shared_prefix_length(self._prompt, values, ("criteria",))
            return Request(messages, schema=_SCORE, shared=shared)

        def parse(completion: Completion) -> JudgmentValue:
            verdict = parse_criterion_score(completion.text)
            value = {"criterion": criterion["name"], "score": verdict.value, "reason": verdict.reason}
            return value | ({"repaired": True} if verdict.repaired else {})

        return Ask(judgment_id(item.id, f"criterion-{number}"), build_judge_request, parse)

    def score(self, records: TaskRecords) -> Scored:
        """Score queries, as officially, by those of their criteria that were scored."""
        outcomes = look_up_outcomes(self, records)
        scored = _collect_scores(records.items, outcomes)
        overall = clustered_mean_metric([list(query.by_criterion.values()) for query in scored], "points")
        domains = {field: self._domain_means(field, scored) for field in ("domain1", "domain2")}
        by_requirement = self._collect_scores_by_requirement(scored)
        requirement_metrics = {
            "R": {
                name: mean_metric(list(required.queries.values()), "points")
                for name, required in by_requirement.items()
            },
            "C": {
                name: clustered_mean_metric(list(required.criteria.values()), "points")
                for name, required in by_requirement.items()
            },
        }
        return Scored(
            metrics={
                "overall": overall,
                **{
                    f"{name}_{kind}": requirement_metrics[kind][name]
                    for name in REQUIREMENTS
                    for kind in "RC"
                },
            },
            n_expected=outcomes.expected,
            n_scored=outcomes.scored,
            n_failed=outcomes.failed,
            tables={
                **domains,
                **{f"requirement_{kind}": table for kind, table in requirement_metrics.items()},
            },
            items={query.item.id: _item_scores(query, by_requirement) for query in scored},
            weights={query.item.id: _item_weights(query, by_requirement) for query in scored},
        )

    def _domain_means(self, field: str, scored: Sequence[_Scores]) -> dict[str, Metric]:
        """Average queries by domain, in the benchmark's order."""
        means: dict[str, list[float]] = {}
        for query in scored:
            if (domain := query.item.fields.get(field)) is not None:
                means.setdefault(domain, []).append(query.mean)
        return {domain: mean_metric(values, "points") for domain, values in means.items()}

    def _collect_scores_by_requirement(self, scored: Sequence[_Scores]) -> dict[str, _Required]:
        """Collect each requirement's query means, and scores on the criteria about it."""
        by_requirement = {}
        for requirement in REQUIREMENTS:
            with_requirement = self._read_criterion_names_by_item(f"writingbench/{requirement}_R")
            criteria = self._read_criterion_names_by_item(f"writingbench/{requirement}_C")
            means, about = dict[str, float](), dict[str, list[int]]()
            for query in scored:
                if (key := query.item.id) in with_requirement:
                    own, scores = criteria.get(key, set()), query.by_criterion.items()
                    means[key], about[key] = query.mean, [score for name, score in scores if name in own]
            by_requirement[requirement] = _Required(means, about)
        return by_requirement

    def _read_criterion_names_by_item(self, asset: str) -> dict[str, set[str]]:
        """Read item id → names of the criteria that a requirement's file lists for it."""
        return {
            str(record["index"]): {criterion["name"] for criterion in record["checklist"]}
            for record in read_records(self.settings.assets[asset])
        }

    def write_extra(self, folder: Path, records: TaskRecords, scored: Scored) -> None:
        """Write ``scores.xlsx`` where ``--writingbench-write-excel`` is set."""
        if self.settings.options.get(WRITE_EXCEL.name):
            outcomes = look_up_outcomes(self, records)
            write_workbook(
                folder / "scores.xlsx", self._workbook_row(scored), _criteria_lines(records.items, outcomes)
            )

    def _workbook_row(self, scored: Scored) -> dict[str, str | float | None]:
        """Return heading → value, as in the official workbook."""
        overall = scored.metrics["overall"]
        row: dict[str, str | float | None] = {"Model": self.settings.model, "Overall": overall.value}
        row["Count"] = overall.n
        for field, heading in (("domain1", "Domain1"), ("domain2", "Domain2")):
            row |= {f"{heading}_{name}": metric.value for name, metric in scored.tables[field].items()}
        return row | {name: metric.value for name, metric in scored.metrics.items() if name != "overall"}


def _collect_scores(items: Sequence[Item], outcomes: Outcomes) -> list[_Scores]:
    scored = []
    for item in items:
        values = outcomes.values[item.id]
        if by_criterion := {value["criterion"]: value["score"] for value in values if value is not None}:
            scored.append(_Scores(item, by_criterion))
    return scored


def _item_scores(query: _Scores, by_requirement: Mapping[str, _Required]) -> dict[str, float | None]:
    scores: dict[str, float | None] = {"overall": query.mean}
    for name, required in by_requirement.items():
        if query.item.id in required.queries:
            about = required.criteria[query.item.id]
            scores |= {f"{name}_R": query.mean, f"{name}_C": sum(about) / len(about) if about else None}
    return scores


def _item_weights(query: _Scores, by_requirement: Mapping[str, _Required]) -> dict[str, float]:
    """Count a query once for each of its criteria, since all criteria are pooled."""
    about = {name: len(required.criteria.get(query.item.id, ())) for name, required in by_requirement.items()}
    return {"overall": len(query.by_criterion)} | {
        f"{name}_C": float(count) for name, count in about.items() if count
    }


def _criteria_lines(items: Sequence[Item], outcomes: Outcomes) -> list[_CriterionLine]:
    """Yield each query's criteria with their scores, None without a judgment."""
    return [
        _CriterionLine(item.id, criterion["name"], None if value is None else value["score"])
        for item in items
        for criterion, value in zip(item.fields["checklist"], outcomes.values[item.id], strict=True)
    ]


def write_workbook(
    path: Path, row: Mapping[str, str | float | None], lines: Sequence[_CriterionLine]
) -> None:
    """Write a sheet with the model's row of scores, and one with every criterion. Text is written as text:
    what begins with ``=`` is no formula."""
    with xlsxwriter.Workbook(path) as book:
        _write_sheet(book.add_worksheet("scores"), [tuple(row), tuple(row.values())])
        _write_sheet(book.add_worksheet("criteria"), [("index", "criterion", "score"), *lines])


def _write_sheet(sheet: Worksheet, lines: Sequence[Sequence[str | float | None]]) -> None:
    for row, line in enumerate(lines):
        for column, value in enumerate(line):
            if isinstance(value, str):
                sheet.write_string(row, column, value)
            elif value is not None:
                sheet.write_number(row, column, value)
