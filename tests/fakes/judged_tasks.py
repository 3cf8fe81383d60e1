"""Small invented versions of the judged benchmarks, and judging them without a host."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coeval.benchmarks.benchmark import (
    Answer,
    Ask,
    Benchmark,
    Item,
    JudgeSettings,
    Judgment,
    Metric,
    Scored,
    TaskRecords,
    TaskSettings,
)
from coeval.core.errors import AskError
from coeval.core.records import Completion, Failure, Request

MODEL, JUDGE = "tested", "judge-1"


class Shelf:
    """Assets in a folder, each written under its name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths: dict[str, Path] = {}

    def text(self, name: str, text: str) -> None:
        self._write(name, ".txt", text)

    def lines(self, name: str, records: Iterable[Mapping[str, Any]]) -> None:
        self._write(name, ".jsonl", "".join(json.dumps(record) + "\n" for record in records))

    def list(self, name: str, records: Iterable[Mapping[str, Any]]) -> None:
        self._write(name, ".json", json.dumps(list(records)))

    def table(self, name: str, lines: Iterable[str]) -> None:
        self._write(name, ".csv", "".join(f"{line}\n" for line in lines))

    def _write(self, name: str, suffix: str, text: str) -> None:
        path = self.folder / (name.replace("/", "_") + suffix)
        path.write_text(text, encoding="utf-8")
        self.paths[name] = path

    def settings(self, **changes: Any) -> TaskSettings:
        given: dict[str, Any] = {"model": MODEL, "assets": self.paths, "judge": JudgeSettings(JUDGE)}
        return TaskSettings(**(given | changes))


Reply = Callable[[str, Request], str | Completion]
"""What the judge says to an ask, by its id."""


class Panel:
    """A benchmark with its ``first`` items, the model's responses, and what a judge made of them."""

    def __init__(
        self, benchmark: Benchmark, respond: Callable[[Item], str | None], first: int | None = None
    ) -> None:
        self.benchmark = benchmark
        self.items: Sequence[Item] = benchmark.items()[:first]
        self.answers = {item.id: answered(item.id, respond(item)) for item in self.items}
        self.judgments: dict[str, Judgment] = {}

    def asks(self) -> list[tuple[Item, Ask]]:
        return [
            (item, ask)
            for item in self.items
            if self.answers[item.id].status == "ok"
            for ask in self.benchmark.asks(item, self.answers[item.id])
        ]

    def requests(self) -> dict[str, Request]:
        return {ask.id: ask.request() for _, ask in self.asks()}

    def judge(self, reply: Reply) -> Scored:
        """Everything asked once; what cannot be read fails."""
        for item, ask in self.asks():
            said = reply(ask.id, ask.request())
            self.judgments[ask.id] = judged(item, ask, said if isinstance(said, Completion) else _text(said))
        return self.score()

    def records(self) -> TaskRecords:
        return TaskRecords(self.items, self.answers, self.judgments)

    def score(self) -> Scored:
        return self.benchmark.score(self.records())

    def write(self, folder: Path) -> None:
        self.benchmark.write_extra(folder, self.records(), self.score())


def answered(item: str, response: str | None) -> Answer:
    if response is None:
        return Answer(id=item, model=MODEL, status="failed", error=Failure("timeout", "too slow"))
    return Answer(id=item, model=MODEL, response=response)


def judged(item: Item, ask: Ask, said: Completion) -> Judgment:
    kept: dict[str, Any] = {"id": ask.id, "item": item.id, "judge": JUDGE, "raw": said.text}
    try:
        return Judgment(**kept, value=ask.parse(said))
    except AskError as error:
        return Judgment(**kept, status="failed", error=Failure(error.kind, str(error)))


def _text(text: str) -> Completion:
    return Completion(text)


def hold_on_the_scale(metrics: Iterable[Metric], least: float, most: float) -> bool:
    """Whether each figure has an interval that holds it, stays between the ends, and has a width."""
    for metric in metrics:
        assert metric.value is not None
        assert metric.ci95 is not None
        low, high = metric.ci95
        rounding = (most - least) * 1e-12
        assert least <= low <= metric.value + rounding
        assert metric.value - rounding <= high <= most
        assert high - low > (most - least) / 100
    return True


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
