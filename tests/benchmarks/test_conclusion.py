"""What an evaluation came to: when it was stopped in the middle, and over several samples."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fakes.invented_task import JUDGING, Bench, Invented, row_of, spec
from fakes.openai_chat import Answer, Behaviour, Broken, fake
from rich.console import Console

from coeval.benchmarks.benchmark import Answer as Record
from coeval.benchmarks.benchmark import Item, Judgment, Scored
from coeval.benchmarks.run.conclusion import Outcome, TaskOutcome, conclude, over_runs
from coeval.benchmarks.run.runner import EndOfAsking, Prepared, ask_owed, held, prepare
from coeval.benchmarks.run.task_run import RecordCounts
from coeval.benchmarks.task_registry import TASKS
from coeval.cli.eval_framework.eval_report import show
from coeval.models.keys import Keys


class Stopped(Invented):
    """Somebody presses Ctrl-C while it is scored."""

    name: ClassVar[str] = "stopped"

    def score(
        self, items: Sequence[Item], answers: Mapping[str, Record], judgments: Mapping[str, Judgment]
    ) -> Scored:
        os.kill(os.getpid(), signal.SIGINT)
        return super().score(items, answers, judgments)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench(tmp_path / "out", monkeypatch)
    monkeypatch.setitem(TASKS.own, Stopped.name, row_of(Stopped))
    return bench


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """As Python answers it by itself; a process that runs tests beside others ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def good(_: list[dict[str, Any]]) -> Answer:
    return Answer("good")


async def test_a_task_whose_judgments_are_not_there_is_counted_and_not_scored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coeval.engine.session.DRAIN_S", 0.05)
    interrupt = asyncio.Event()

    def reply(messages: list[dict[str, Any]]) -> Behaviour:
        text = messages[-1]["content"]
        if text.startswith(JUDGING) and "Prompt 1" in text:
            interrupt.set()
            return Broken.HANG
        return Answer("good") if text.startswith(JUDGING) else Answer(f"Answer to {text}")

    async with fake(reply=reply) as server:
        tested = spec("tested", server.url, max_concurrency=1, start_concurrency=1)
        outcome = await bench.run(server.url, tested=tested, interrupt=interrupt)
    [task] = outcome.tasks
    assert (outcome.exit_code, task.summary) == (130, None)
    assert task.left_at is not None
    assert task.left_at.judgments < task.left_at.judgments_needed == 3
    assert not (bench.output / "invented" / "summary.json").exists()


async def test_an_answer_that_comes_while_it_stops_still_lacks_its_judgment(bench: Bench) -> None:
    interrupt = asyncio.Event()

    def reply(messages: list[dict[str, Any]]) -> Behaviour:
        if messages[-1]["content"] == "Prompt 2":
            interrupt.set()
            return Answer("late", delay_s=0.2)
        return Answer("good")

    async with fake(reply=reply) as server:
        tested = spec("tested", server.url, max_concurrency=1, start_concurrency=1)
        outcome = await bench.run(server.url, tested=tested, interrupt=interrupt)
        assert outcome.tasks[0].left_at == RecordCounts(3, 3, 2, 3)
        again = await bench.run(server.url, tested=tested)
    assert again.exit_code == 0
    assert again.tasks[0].summary is not None


def stopped_while_scored(bench: Bench, interrupted: bool) -> Outcome:
    async def asked() -> tuple[Prepared, EndOfAsking]:
        async with fake(reply=good) as server:
            tasks = ("invented", "stopped", "broken")
            prepared = prepare(bench.evaluation(server.url, *tasks), bench.onlooker)
            keys = Keys.load(None, env={}, cwd=bench.output, home=bench.output)
            with held(prepared):
                return prepared, await ask_owed(prepared, keys, bench.onlooker)

    prepared, ended = asyncio.run(asked())
    with held(prepared):
        return conclude(prepared, EndOfAsking(ended.begun, interrupted, ended.stopped))


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_a_task_is_scored_shows_those_that_are(bench: Bench) -> None:
    outcome = stopped_while_scored(bench, interrupted=False)
    assert outcome.exit_code == 130
    done, stopped, left = outcome.tasks
    assert done.summary is not None
    assert (stopped.summary, stopped.left_at) == (None, RecordCounts(3, 3, 3, 3))
    assert (left.summary, left.problem, left.left_at) == (None, None, RecordCounts(3, 3, 3, 3))
    console = Console(width=80, record=True)
    show(outcome, console, console)
    shown = console.export_text()
    assert "stopped was stopped: 3 of 3 answers and 3 of 3 judgments are there" in shown
    assert "share_good" in shown


@pytest.mark.usefixtures("ctrl_c")
def test_a_second_ctrl_c_does_not_wait_for_scores(bench: Bench) -> None:
    with pytest.raises(KeyboardInterrupt):
        stopped_while_scored(bench, interrupted=True)
    assert (bench.output / "invented" / "summary.json").exists()
    assert not (bench.output / "stopped" / "summary.json").exists()


class Samples:
    """Answers name their prompt and sample; ``verdicts`` are those on the last prompt, by sample."""

    def __init__(self, verdicts: Sequence[str]) -> None:
        self.verdicts = verdicts
        self.asked: Counter[str] = Counter()

    def reply(self, messages: list[dict[str, Any]]) -> Behaviour:
        text = messages[-1]["content"]
        if text.startswith(JUDGING):
            prompt, _, sample = text.removeprefix(JUDGING).partition(", sample ")
            return Answer(self.verdicts[int(sample)] if prompt == "Prompt 2" else "good")
        self.asked[text] += 1
        return Answer(f"{text}, sample {self.asked[text] - 1}")

    async def outcome(self, bench: Bench) -> Outcome:
        async with fake(reply=self.reply) as server:
            tested = spec("tested", server.url, max_concurrency=1, start_concurrency=1)
            return await bench.run(server.url, tested=tested, num_runs=len(self.verdicts))


async def test_figures_over_samples(bench: Bench) -> None:
    outcome = await Samples(["bad", "good", "bad"]).outcome(bench)
    spread = over_runs(outcome.tasks)["invented"]["share_good"]
    assert spread.per_run == pytest.approx((2 / 3, 1, 2 / 3))
    assert (spread.n_runs, spread.unit) == (3, "share")
    assert spread.mean == pytest.approx(7 / 9)
    assert spread.std == pytest.approx(0.19245, abs=1e-5)
    console = Console(width=80, record=True)
    show(outcome, console, console)
    shown = [line.split() for line in console.export_text().splitlines()]
    assert ["task", "and", "metric,", "over", "runs", "mean", "std", "runs"] in shown
    assert ["share_good", "0.778", "0.192", "3"] in shown


async def test_a_single_sample_has_no_spread(bench: Bench) -> None:
    async with fake(reply=good) as server:
        assert over_runs((await bench.run(server.url)).tasks) == {}


async def test_a_sample_that_was_stopped_is_not_among_those_counted(bench: Bench) -> None:
    outcome = await Samples(["bad", "good"]).outcome(bench)
    kept, other = outcome.tasks
    left = TaskOutcome(other.label, other.folder, None, left_at=RecordCounts(1, 3, 0, 3))
    stopped = Outcome([kept, left], interrupted=True)
    spread = over_runs(stopped.tasks)["invented"]["share_good"]
    assert (spread.per_run, spread.std, spread.n_runs) == ((spread.mean,), None, 1)
    console = Console(width=80, record=True)
    show(stopped, console, console)
    assert ["share_good", "0.667", "–", "1"] in [line.split() for line in console.export_text().splitlines()]
