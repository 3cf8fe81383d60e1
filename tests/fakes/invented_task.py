"""A small judged benchmark, and evaluating it against a fake host."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from coeval.benchmarks.benchmark import (
    Answer,
    Ask,
    Benchmark,
    Item,
    Metric,
    Scored,
    TaskRecords,
    count_failures,
)
from coeval.benchmarks.run.eval_spec import EvalSpec, TaskRequest
from coeval.benchmarks.run.runner import ask_owed, lock_folders_and_merge_shards, prepare_evaluation
from coeval.benchmarks.run.task_summary import Outcome, conclude
from coeval.benchmarks.task_registry import TASKS, TaskRow
from coeval.core.errors import Unparsable
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Message, Request, SamplingParameters
from coeval.engine.progress import Board
from coeval.models.keys import Keys

GOOD, JUDGING = "good", "Judge this: "


class Invented(Benchmark):
    """Three prompts; a judge says good or bad of each answer."""

    name: ClassVar[str] = "invented"
    needs_judge: ClassVar[bool] = True
    official_judge: ClassVar[str] = "official"

    def items(self) -> Sequence[Item]:
        return [Item(f"q{n}", (Message("user", f"Prompt {n}"),)) for n in range(3)]

    def judge_sampling(self) -> SamplingParameters:
        return SamplingParameters(temperature=0.0, max_tokens=9)

    def asks(self, item: Item, answer: Answer) -> Sequence[Ask]:
        request = Request((Message("user", f"{JUDGING}{answer.response}"),))
        return (Ask(f"{item.id}__verdict", lambda: request, self._verdict),)

    @staticmethod
    def _verdict(completion: Completion) -> dict[str, Any]:
        if completion.text not in (GOOD, "bad"):
            raise Unparsable("neither good nor bad", raw=completion.text)
        return {"good": completion.text == GOOD}

    def score(self, records: TaskRecords) -> Scored:
        found = [records.judgments.get(f"{item.id}__verdict") for item in records.items]
        values = [record.value["good"] for record in found if record and record.value]
        share = sum(values) / len(values) if values else None
        return Scored(
            metrics={"share_good": Metric(share, n=len(values), unit="share")},
            n_expected=len(records.items),
            n_scored=len(values),
            n_failed=count_failures(found),
        )


class Broken(Invented):
    name: ClassVar[str] = "broken"

    def score(self, records: TaskRecords) -> Scored:
        raise ZeroDivisionError("a bug")


def row_of(kind: type[Benchmark]) -> TaskRow:
    """A test's benchmark as a task that can be named."""
    return TaskRow(name=kind.name, place=f"{kind.__module__}:{kind.__name__}")


class Onlooker:
    """A watcher that remembers what it was told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.board: Board | None = None

    def note(self, message: str) -> None:
        self.notes.append(message)

    def warn(self, message: str) -> None:
        self.notes.append(message)

    def begin(self, board: Board) -> None:
        self.board = board


class Bench:
    """Evaluations of one output folder at one host; ``changes`` are fields of `EvalSpec`, or of each
    `TaskRequest`."""

    def __init__(self, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for kind in (Invented, Broken):
            monkeypatch.setitem(TASKS.own, kind.name, row_of(kind))
        self.output = output
        self.onlooker = Onlooker()

    def evaluation(self, url: str, *tasks: str, **changes: Any) -> EvalSpec:
        of_each = {"max_examples": changes.pop("max_examples", None)}
        if (num_runs := changes.pop("num_runs", 1)) > 1:
            of_each["runs"] = tuple(range(num_runs))
        given: dict[str, Any] = {
            "output": self.output,
            "tasks": tuple(TaskRequest(name=name, **of_each) for name in tasks or ("invented",)),
            "tested": spec("tested", url),
            "judge": spec("judge-1", url),
            "sampling": {"temperature": 0.7, "max_tokens": 99},
        }
        given |= changes
        for name in given.keys() & {"sampling", "judge_sampling"}:
            given[name] = SamplingParameters.of(given[name])
        return EvalSpec(**given)

    async def run(
        self, url: str, *tasks: str, interrupt: asyncio.Event | None = None, **changes: Any
    ) -> Outcome:
        prepared = prepare_evaluation(self.evaluation(url, *tasks, **changes), self.onlooker)
        keys = Keys.load(None, env={}, cwd=self.output, home=self.output)
        with lock_folders_and_merge_shards(prepared):
            return conclude(prepared, await ask_owed(prepared, keys, self.onlooker, interrupt))


def spec(model: str, url: str, **changes: Any) -> ModelSpec:
    return ModelSpec(**{"name": model, "interface": "vllm", "model": model, "base_url": url} | changes)
