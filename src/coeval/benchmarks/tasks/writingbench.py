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
from typing import Any, ClassVar, NamedTuple

import xlsxwriter
from xlsxwriter.worksheet import Worksheet

from coeval.benchmarks.assets.library import read_records
from coeval.benchmarks.benchmark import Answer, Ask, Benchmark, Item, Judgment, Metric, Scored, TaskSettings
from coeval.benchmarks.run.judgment_outcomes import Outcomes, mean_metric, mean_of_groups, settle
from coeval.benchmarks.task_registry import WRITE_EXCEL
from coeval.core.records import Completion, Message, Request, SamplingParameters, Schema, judgment_id
from coeval.core.text import fill_template, shared_prefix_length
from coeval.judging.verdict import parse_criterion_score
from coeval.pipeline.prompts import object_schema

# What the official prompt asks for in words; sent where the host takes a schema.
_SCORE = Schema("criterion_grade", object_schema(score={"type": "integer"}, reason={"type": "string"}))
REQUIREMENTS = ("style", "format", "length")


class _Scores(NamedTuple):
    """Of one query: its scores by criterion, in the criteria's order."""

    item: Item
    by_criterion: dict[str, int]

    @property
    def mean(self) -> float:
        return sum(self.by_criterion.values()) / len(self.by_criterion)


class _Required(NamedTuple):
    """What asks for a requirement. R: the means of these queries. C: their criteria's scores about it."""

    queries: dict[str, float]
    criteria: dict[str, list[int]]


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
            self._ask(item, number, criterion, answer.response or "")
            for number, criterion in enumerate(item.fields["checklist"], 1)
        ]

    def _ask(self, item: Item, number: int, criterion: dict[str, str], response: str) -> Ask:
        def request() -> Request:
            # The criterion goes in as the official code formats it: as Python writes a dict.
            values = {"query": item.fields["query"], "response": response, "criteria": str(criterion)}
            messages = (Message("system", self._system), Message("user", fill_template(self._prompt, values)))
            shared = shared_prefix_length(self._prompt, values, ("criteria",))
            return Request(messages, schema=_SCORE, shared=shared)

        def parse(completion: Completion) -> dict[str, Any]:
            given = parse_criterion_score(completion.text)
            value = {"criterion": criterion["name"], "score": given.value, "reason": given.reason}
            return value | ({"repaired": True} if given.repaired else {})

        return Ask(judgment_id(item.id, f"criterion-{number}"), request, parse)

    def score(
        self, items: Sequence[Item], answers: Mapping[str, Answer], judgments: Mapping[str, Judgment]
    ) -> Scored:
        """Score queries, as officially, with those of their criteria that were scored."""
        outcomes = settle(self, items, answers, judgments)
        scored = _scored(items, outcomes)
        overall = mean_of_groups([list(one.by_criterion.values()) for one in scored], "points")
        domains = {field: self._by(field, scored) for field in ("domain1", "domain2")}
        requested_for = self._requirements(scored)
        of_requirements = {
            "R": {
                name: mean_metric(list(of.queries.values()), "points") for name, of in requested_for.items()
            },
            "C": {
                name: mean_of_groups(list(of.criteria.values()), "points")
                for name, of in requested_for.items()
            },
        }
        return Scored(
            metrics={
                "overall": overall,
                **{f"{name}_{kind}": of_requirements[kind][name] for name in REQUIREMENTS for kind in "RC"},
            },
            n_expected=outcomes.expected,
            n_scored=outcomes.scored,
            n_failed=outcomes.failed,
            tables={
                **domains,
                **{f"requirement_{kind}": table for kind, table in of_requirements.items()},
            },
            items={one.item.id: _item_scores(one, requested_for) for one in scored},
            weights={one.item.id: _item_weights(one, requested_for) for one in scored},
        )

    def _by(self, field: str, scored: Sequence[_Scores]) -> dict[str, Metric]:
        """The mean over a domain's queries, by domain in the order of the benchmark."""
        means: dict[str, list[float]] = {}
        for one in scored:
            if (domain := one.item.fields.get(field)) is not None:
                means.setdefault(domain, []).append(one.mean)
        return {domain: mean_metric(values, "points") for domain, values in means.items()}

    def _requirements(self, scored: Sequence[_Scores]) -> dict[str, _Required]:
        found = {}
        for name in REQUIREMENTS:
            queries = self._criteria_of(f"writingbench/{name}_R")
            listed = self._criteria_of(f"writingbench/{name}_C")
            chosen = [one for one in scored if one.item.id in queries]
            about = {
                one.item.id: [
                    score
                    for criterion, score in one.by_criterion.items()
                    if criterion in listed.get(one.item.id, ())
                ]
                for one in chosen
            }
            found[name] = _Required({one.item.id: one.mean for one in chosen}, about)
        return found

    def _criteria_of(self, asset: str) -> dict[str, set[str]]:
        """Item id → the names of the criteria that a requirement's file lists for it."""
        return {
            str(record["index"]): {criterion["name"] for criterion in record["checklist"]}
            for record in read_records(self.settings.assets[asset])
        }

    def write_extra(
        self,
        folder: Path,
        items: Sequence[Item],
        answers: Mapping[str, Answer],
        judgments: Mapping[str, Judgment],
        scored: Scored,
    ) -> None:
        """Write ``scores.xlsx`` where ``--writingbench-write-excel`` is set."""
        if self.settings.options.get(WRITE_EXCEL.name):
            outcomes = settle(self, items, answers, judgments)
            write_workbook(folder / "scores.xlsx", self._row(scored), _criteria_lines(items, outcomes))

    def _row(self, scored: Scored) -> dict[str, str | float | None]:
        """Heading → value, as in the official workbook."""
        overall = scored.metrics["overall"]
        row: dict[str, str | float | None] = {"Model": self.settings.model, "Overall": overall.value}
        row["Count"] = overall.n
        for field, heading in (("domain1", "Domain1"), ("domain2", "Domain2")):
            row |= {f"{heading}_{name}": metric.value for name, metric in scored.tables[field].items()}
        return row | {name: metric.value for name, metric in scored.metrics.items() if name != "overall"}


def _scored(items: Sequence[Item], outcomes: Outcomes) -> list[_Scores]:
    """The queries of which anything was scored."""
    scored = []
    for item in items:
        given = {
            value["criterion"]: value["score"] for value in outcomes.values[item.id] if value is not None
        }
        if given:
            scored.append(_Scores(item, given))
    return scored


def _item_scores(one: _Scores, requested_for: Mapping[str, _Required]) -> dict[str, float | None]:
    scores: dict[str, float | None] = {"overall": one.mean}
    for name, of in requested_for.items():
        if one.item.id in of.queries:
            about = of.criteria[one.item.id]
            scores |= {f"{name}_R": one.mean, f"{name}_C": sum(about) / len(about) if about else None}
    return scores


def _item_weights(one: _Scores, requested_for: Mapping[str, _Required]) -> dict[str, float]:
    """Where all criteria are pooled, a query counts once for each of them."""
    about = {f"{name}_C": float(len(of.criteria.get(one.item.id, ()))) for name, of in requested_for.items()}
    return {"overall": len(one.by_criterion)} | {name: count for name, count in about.items() if count}


def _criteria_lines(items: Sequence[Item], outcomes: Outcomes) -> list[tuple[str, str, int | None]]:
    """Query, criterion and score; None where the judgment is not there."""
    return [
        (item.id, criterion["name"], None if value is None else value["score"])
        for item in items
        for criterion, value in zip(item.fields["checklist"], outcomes.values[item.id], strict=True)
    ]


def write_workbook(
    path: Path, row: Mapping[str, str | float | None], lines: Sequence[tuple[str, str, int | None]]
) -> None:
    """Write a sheet with the model's row of scores, and one with every criterion.

    Every text is written as text: what begins with ``=`` is no formula.
    """
    with xlsxwriter.Workbook(path) as book:
        _fill(book.add_worksheet("scores"), [tuple(row), tuple(row.values())])
        _fill(book.add_worksheet("criteria"), [("index", "criterion", "score"), *lines])


def _fill(sheet: Worksheet, lines: Sequence[Sequence[str | float | None]]) -> None:
    for row, line in enumerate(lines):
        for column, value in enumerate(line):
            if isinstance(value, str):
                sheet.write_string(row, column, value)
            elif value is not None:
                sheet.write_number(row, column, value)
