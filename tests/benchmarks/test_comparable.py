"""What a summary says of its own figures: answers cut off, parameters refused, and what was really sent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from fakes.invented_task import JUDGING, Bench, Invented, row_of, spec
from fakes.openai_chat import Answer, Behaviour, Broken, Fault, Reply, Server, fake
from made_rows import student_row
from rich.console import Console

from coeval.benchmarks.benchmark import Item, Scored, TaskRecords
from coeval.benchmarks.run.runner import (
    EndOfAsking,
    Prepared,
    ask_owed,
    lock_folders_and_merge_shards,
    prepare_evaluation,
)
from coeval.benchmarks.run.task_run import RecordCounts
from coeval.benchmarks.run.task_summary import Outcome, TaskOutcome, conclude
from coeval.benchmarks.task_registry import TASKS
from coeval.cli.eval_framework.eval_report import print_outcome, read_figures_by_task_and_metric
from coeval.cli.views.results_view import print_results
from coeval.core.records import Message
from coeval.engine.probing import Probing
from coeval.models.keys import Keys
from coeval.reports.result_tables import Results

SAMPLING = {"temperature": 0.7, "top_k": 20, "max_tokens": 5}


class Long(Invented):
    """As many prompts as it takes to tell 1 % from more."""

    name: ClassVar[str] = "long"

    def items(self) -> Sequence[Item]:
        return [Item(f"q{n}", (Message("user", f"Prompt {n}"),)) for n in range(200)]


class Remarked(Invented):
    name: ClassVar[str] = "remarked"

    def score(self, records: TaskRecords) -> Scored:
        scored = super().score(records)
        return msgspec.structs.replace(scored, remarks=("share_good is to be read with care",))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench(tmp_path / "out", monkeypatch)
    for kind in (Long, Remarked):
        monkeypatch.setitem(TASKS.own, kind.name, row_of(kind))
    return bench


def summary(bench: Bench, task: str = "invented") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((bench.output / task / "summary.json").read_text())
    return found


def answers(bench: Bench, task: str = "invented") -> list[dict[str, Any]]:
    lines = (bench.output / task / "responses.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def cutting(count: int) -> Reply:
    """Good judgments; of the answers, so many are cut off."""

    def reply(messages: list[dict[str, Any]]) -> Behaviour:
        text = messages[-1]["content"]
        if text.startswith(JUDGING):
            return Answer("good")
        number = int(text.rpartition(" ")[2]) if text.startswith("Prompt") else count
        return Answer("a", finish_reason="length" if number < count else "stop")

    return reply


@pytest.mark.parametrize(("count", "comparable"), [(0, True), (2, True), (3, False), (200, False)])
async def test_more_than_one_percent_of_cut_answers_cannot_be_compared(
    bench: Bench, count: int, comparable: bool
) -> None:
    async with fake(reply=cutting(count)) as server:
        await bench.run(server.url, "long", judge=spec("official", server.url))
    found = summary(bench, "long")
    assert found["truncated"] == {"n": count, "answers": 200, "share": count / 200, "by_window": 0}
    assert found["comparable"] == comparable
    said = [f"cut off at max_tokens: {count} of 200 answers (more than 1%)"]
    assert found["reasons"] == ([] if comparable else said)


@pytest.mark.parametrize("width", [80, 200])
async def test_both_programs_tell_cut_answers_in_the_same_words(bench: Bench, width: int) -> None:
    async with fake(reply=cutting(200)) as server:
        outcome = await bench.run(server.url, "invented", "long", judge=spec("official", server.url))
    student = student_row("stu", None, 0.5, 0.4, 0.6, 200, 200, 0, answers=200, truncated=200)
    benchmark, experiment = Console(width=width, record=True), Console(width=width, record=True)
    print_outcome(outcome, benchmark, benchmark)
    print_results(Results((student,), (), False), experiment)
    for console, cut, names in (
        (benchmark, "200 of 200 answers to long, 3 of 3 answers to invented", "invented, long"),
        (experiment, "200 of 200 answers of stu", "stu"),
    ):
        said = " ".join(console.export_text().split())
        assert f"Cut off at max_tokens: {cut}." in said
        assert f"More than 1% of the answers cut off: {names}. Raise max_tokens" in said


async def test_a_remark_is_no_reason_and_is_told(bench: Bench) -> None:
    async with fake(reply=cutting(0)) as server:
        outcome = await bench.run(server.url, "remarked", judge=spec("official", server.url))
    found = summary(bench, "remarked")
    assert (found["comparable"], found["remarks"]) == (True, ["share_good is to be read with care"])
    console = Console(width=80, record=True)
    print_outcome(outcome, console, console)
    assert "remarked: share_good is to be read with care\n" in console.export_text()


async def test_one_cut_answer_in_a_hundred_is_told_and_no_more(bench: Bench) -> None:
    async with fake(reply=cutting(2)) as server:
        outcome = await bench.run(server.url, "long", judge=spec("official", server.url))
    console = Console(width=80, record=True)
    print_outcome(outcome, console, console)
    said = console.export_text()
    assert "Cut off at max_tokens: 2 of 200 answers to long." in said
    assert "More than" not in said
    assert "not comparable" not in said


async def test_failed_answers_cannot_be_compared(bench: Bench) -> None:
    def refusing(messages: list[dict[str, Any]]) -> Behaviour:
        text = messages[-1]["content"]
        return (
            Fault(400, "too long") if text in ("Prompt 7", "Prompt 8", "Prompt 9") else cutting(0)(messages)
        )

    async with fake(reply=refusing) as server:
        await bench.run(server.url, "long", judge=spec("official", server.url))
    found = summary(bench, "long")
    assert (found["comparable"], found["reasons"]) == (False, ["records without a value: 3 bad_request"])


async def test_what_is_on_record_is_what_was_sent_and_nothing_is_asked_twice(bench: Bench) -> None:
    async with fake(reply=cutting(0)) as server:
        how: dict[str, Any] = {"sampling": SAMPLING, "droppable": ("top_k",)}
        judge = spec("official", server.url)
        await bench.run(server.url, judge=judge, **how)
        found = summary(bench)
        assert found["inference"]["sampling"] == {"temperature": 0.7, "max_tokens": 5}
        assert found["inference"]["dropped"] == {"top_k": 3}
        assert found["reasons"] == ["the host refused top_k: 3 of 3 answers were made without it"]
        assert [(a["sampling"], a["dropped"]) for a in answers(bench)] == [
            ({"temperature": 0.7, "max_tokens": 5}, ["top_k"])
        ] * 3
        requested = len(server.requested)
        await bench.run(server.url, judge=judge, **how)
        assert len(server.requested) == requested
        assert summary(bench)["reasons"] == found["reasons"]


async def test_answers_with_and_without_a_refused_parameter_are_told_apart(bench: Bench) -> None:
    """The host learns of the parameter between two runs: what stands is kept, and counted."""
    how: dict[str, Any] = {"sampling": SAMPLING, "droppable": ("top_k",)}
    async with fake(reply=cutting(0)) as server:
        await bench.run(server.url, judge=spec("official", server.url), max_examples=2, **how)
    async with fake(reply=cutting(0), extra_fields=["top_k"]) as server:
        await bench.run(server.url, judge=spec("official", server.url), **how)
        requested = [body["messages"][-1]["content"] for body in server.bodies if "top_k" in body]
        assert requested == ["Prompt 2"]
    found = summary(bench)
    assert found["inference"]["sampling"] == {"temperature": 0.7, "max_tokens": 5}
    assert found["inference"]["dropped"] == {"top_k": 2}
    assert found["reasons"] == ["the host refused top_k: 2 of 3 answers were made without it"]
    assert [a["sampling"].get("top_k") for a in answers(bench)] == [None, None, 20]


def seeds_by_prompt(server: Server) -> dict[str, set[int | None]]:
    seeds: dict[str, set[int | None]] = {}
    for body in server.bodies:
        seeds.setdefault(body["messages"][-1]["content"], set()).add(body.get("seed"))
    return seeds


async def test_a_seed_that_the_host_refuses_is_left_out_and_the_score_stays_comparable(bench: Bench) -> None:
    def seedless(body: dict[str, Any]) -> Behaviour:
        refusal = Fault(400, "m does not support parameters: ['seed'], for model=m.")
        return refusal if "seed" in body else cutting(0)(body["messages"])

    async with fake() as server:
        server.answer_to = seedless  # type: ignore[method-assign]
        await bench.run(server.url, judge=spec("official", server.url))
    found = summary(bench)
    assert found["inference"]["dropped"] == {"seed": 3}
    assert (found["comparable"], found["reasons"]) == (True, [])


async def test_no_seed_is_sent_where_none_is_wanted(bench: Bench) -> None:
    async with fake(reply=cutting(0)) as server:
        await bench.run(server.url, judge=spec("official", server.url), seed=None)
    assert {seed for seeds in seeds_by_prompt(server).values() for seed in seeds} == {None}
    assert summary(bench)["seed"] is None


@pytest.mark.parametrize("starts", [1, 2])
async def test_what_a_dead_host_did_not_answer_is_asked_with_the_same_seed(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starts: int
) -> None:
    dead, quiet = Fault(503, "away", headers={"x-should-retry": "false"}), Probing("disable")
    async with fake(reply=cutting(0)) as server:
        await Bench(tmp_path / "quiet", monkeypatch).run(server.url, probing=quiet)
    async with fake(*[dead] * (4 if starts == 1 else 9), reply=cutting(0)) as disturbed:
        for _ in range(starts):
            await bench.run(disturbed.url, probing=quiet)
    assert len(disturbed.requested) > len(server.requested)
    assert seeds_by_prompt(disturbed) == seeds_by_prompt(server)
    assert sum(record["attempts"] for record in answers(bench)) > 3


async def test_a_parameter_that_the_host_takes_is_on_record(bench: Bench) -> None:
    async with fake(reply=cutting(0), extra_fields=["top_k"]) as server:
        judge = spec("official", server.url)
        await bench.run(server.url, judge=judge, sampling=SAMPLING, droppable=("top_k",))
    found = summary(bench)
    assert (found["inference"]["sampling"], found["inference"]["dropped"]) == (SAMPLING, {})
    assert (found["comparable"], found["reasons"]) == (True, [])
    assert [a["sampling"] for a in answers(bench)] == [SAMPLING] * 3


async def test_what_the_user_asks_of_a_judge_is_not_dropped(bench: Bench) -> None:
    """The model judges itself; of its own top_k nobody had asked for."""
    async with fake(reply=cutting(0)) as server:
        how: dict[str, Any] = {"sampling": SAMPLING, "droppable": ("top_k",), "judge": None}
        outcome = await bench.run(server.url, **how, judge_sampling={"top_k": 5})
    assert outcome.exit_code == 3
    assert summary(bench)["n_failed"] == {"bad_request": 3}


# What an evaluation came to: when it was stopped in the middle, and over several samples.


class Stopped(Invented):
    """Somebody presses Ctrl-C while it is scored."""

    name: ClassVar[str] = "stopped"

    def score(self, records: TaskRecords) -> Scored:
        os.kill(os.getpid(), signal.SIGINT)
        return super().score(records)


@pytest.fixture
def stopping_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    stopping_bench = Bench(tmp_path / "out", monkeypatch)
    monkeypatch.setitem(TASKS.own, Stopped.name, row_of(Stopped))
    return stopping_bench


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """As Python answers it by itself; a process that runs tests beside others ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def says_good(_: list[dict[str, Any]]) -> Answer:
    return Answer("good")


async def test_a_task_whose_judgments_are_not_there_is_counted_and_not_scored(
    stopping_bench: Bench, monkeypatch: pytest.MonkeyPatch
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
        outcome = await stopping_bench.run(server.url, tested=tested, interrupt=interrupt)
    [task] = outcome.tasks
    assert (outcome.exit_code, task.summary) == (130, None)
    assert task.left_at is not None
    assert task.left_at.judgments < task.left_at.judgments_needed == 3
    assert not (stopping_bench.output / "invented" / "summary.json").exists()


@pytest.mark.process
async def test_an_answer_that_comes_while_it_stops_still_lacks_its_judgment(stopping_bench: Bench) -> None:
    interrupt = asyncio.Event()

    def reply(messages: list[dict[str, Any]]) -> Behaviour:
        if messages[-1]["content"] == "Prompt 2":
            interrupt.set()
            return Answer("late", delay_s=0.2)
        return Answer("good")

    async with fake(reply=reply) as server:
        tested = spec("tested", server.url, max_concurrency=1, start_concurrency=1)
        outcome = await stopping_bench.run(server.url, tested=tested, interrupt=interrupt)
        assert outcome.tasks[0].left_at == RecordCounts(3, 3, 2, 3)
        again = await stopping_bench.run(server.url, tested=tested)
    assert again.exit_code == 0
    assert again.tasks[0].summary is not None


def stopped_while_scored(stopping_bench: Bench, interrupted: bool) -> None:
    async def requested() -> tuple[Prepared, EndOfAsking]:
        async with fake(reply=says_good) as server:
            tasks = ("invented", "stopped", "broken")
            prepared = prepare_evaluation(
                stopping_bench.evaluation(server.url, *tasks), stopping_bench.onlooker
            )
            keys = Keys.load(None, env={}, cwd=stopping_bench.output, home=stopping_bench.output)
            with lock_folders_and_merge_shards(prepared):
                return prepared, await ask_owed(prepared, keys, stopping_bench.onlooker)

    prepared, ended = asyncio.run(requested())
    with lock_folders_and_merge_shards(prepared):
        conclude(prepared, EndOfAsking(ended.begun, interrupted, ended.stopped))


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("interrupted", [False, True])
def test_ctrl_c_while_a_task_is_scored_ends_at_once(stopping_bench: Bench, interrupted: bool) -> None:
    with pytest.raises(KeyboardInterrupt):
        stopped_while_scored(stopping_bench, interrupted)
    assert (stopping_bench.output / "invented" / "summary.json").exists()
    assert not (stopping_bench.output / "stopped" / "summary.json").exists()


class Samples:
    """Answers name their prompt and sample; ``verdicts`` are those on the last prompt, by sample."""

    def __init__(self, verdicts: Sequence[str]) -> None:
        self.verdicts = verdicts
        self.requested: Counter[str] = Counter()

    def reply(self, messages: list[dict[str, Any]]) -> Behaviour:
        text = messages[-1]["content"]
        if text.startswith(JUDGING):
            prompt, _, sample = text.removeprefix(JUDGING).partition(", sample ")
            return Answer(self.verdicts[int(sample)] if prompt == "Prompt 2" else "good")
        self.requested[text] += 1
        return Answer(f"{text}, sample {self.requested[text] - 1}")

    async def outcome(self, stopping_bench: Bench) -> Outcome:
        async with fake(reply=self.reply) as server:
            tested = spec("tested", server.url, max_concurrency=1, start_concurrency=1)
            return await stopping_bench.run(server.url, tested=tested, num_runs=len(self.verdicts))


async def test_figures_over_samples(stopping_bench: Bench) -> None:
    outcome = await Samples(["bad", "good", "bad"]).outcome(stopping_bench)
    spread = read_figures_by_task_and_metric(outcome)["invented"]["share_good"]
    assert spread.per_run == pytest.approx((2 / 3, 1, 2 / 3))
    assert (spread.n_runs, spread.unit) == (3, "share")
    assert spread.mean == pytest.approx(7 / 9)
    assert spread.std == pytest.approx(0.19245, abs=1e-5)
    console = Console(width=80, record=True)
    print_outcome(outcome, console, console)
    shown = [line.split() for line in console.export_text().splitlines()]
    at = shown.index(["Over", "runs"])
    assert shown[at + 1] == ["task", "metric", "mean", "SEM", "runs", "items"]
    assert shown[at + 2] == ["invented", "share_good", "77.8", "11.1", "3", "3"]


async def test_a_single_sample_has_no_spread(stopping_bench: Bench) -> None:
    async with fake(reply=says_good) as server:
        assert read_figures_by_task_and_metric(await stopping_bench.run(server.url)) == {}


async def test_a_sample_that_was_stopped_is_not_among_those_counted(stopping_bench: Bench) -> None:
    outcome = await Samples(["bad", "good"]).outcome(stopping_bench)
    kept, other = outcome.tasks
    left = TaskOutcome(other.label, other.folder, None, left_at=RecordCounts(1, 3, 0, 3))
    (other.folder / "summary.json").unlink()
    stopped = Outcome([kept, left], interrupted=True)
    spread = read_figures_by_task_and_metric(stopped)["invented"]["share_good"]
    assert (spread.per_run, spread.std, spread.n_runs) == ((spread.mean,), None, 1)
    console = Console(width=80, record=True)
    print_outcome(stopped, console, console)
    shown = [line.split() for line in console.export_text().splitlines()]
    at = shown.index(["Over", "runs"])
    assert shown[at + 1] == ["task", "metric", "mean", "runs", "items"], "one run has no spread"
    assert shown[at + 2] == ["invented", "share_good", "66.7", "1", "3"]
