"""Evaluating tasks over HTTP: what is asked, kept, asked again and reported."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from fakes.invented_task import JUDGING, Bench, Invented, spec
from fakes.openai_chat import Answer, Behaviour, Broken, Fault, Server, fake

from coeval.benchmarks.benchmark import Benchmark, Item
from coeval.benchmarks.run.eval_spec import TaskRequest
from coeval.core.errors import ModelUnavailable, UsageError
from coeval.core.model import Model
from coeval.core.records import Message, Request
from coeval.engine.probing import Probing

PROBE = "Reply with"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path / "out", monkeypatch)


def said(messages: list[dict[str, Any]]) -> Behaviour:
    """Answers echo their prompt; the judge likes those about prompts 0 and 1."""
    text = messages[-1]["content"]
    if text.startswith(JUDGING):
        return Answer("bad" if "Prompt 2" in text else "good")
    return Answer(f"Answer to {text}")


def questions(server: Server, model: str | None = None, since: int = 0) -> list[str]:
    """What was asked, probes aside."""
    requested = [(body["model"], body["messages"][-1]["content"]) for body in server.bodies[since:]]
    return sorted(text for name, text in requested if model in (None, name) and not text.startswith(PROBE))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def summary(bench: Bench, task: str = "invented") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((bench.output / task / "summary.json").read_text())
    return found


async def test_prompts_are_answered_judged_and_scored(bench: Bench) -> None:
    async with fake(reply=said) as server:
        outcome = await bench.run(server.url)
    assert outcome.exit_code == 0
    assert questions(server, "tested") == ["Prompt 0", "Prompt 1", "Prompt 2"]
    assert len(questions(server, "judge-1")) == 3
    folder = bench.output / "invented"
    answers = lines(folder / "responses.jsonl")
    assert {(a["id"], a["prompt"], a["response"]) for a in answers} == {
        (f"q{n}", f"Prompt {n}", f"Answer to Prompt {n}") for n in range(3)
    }
    scores = {line["id"]: line["judgments"][0]["value"] for line in lines(folder / "scores.jsonl")}
    assert scores == {"q0": {"good": True}, "q1": {"good": True}, "q2": {"good": False}}
    found = summary(bench)
    assert found["metrics"]["share_good"]["value"] == pytest.approx(2 / 3)
    assert (found["n_expected"], found["n_scored"], found["n_failed"]) == (3, 3, {})
    assert (found["model"], found["judge"]["model"], found["complete"]) == ("tested", "judge-1", True)
    assert found["inference"]["sampling"] == {"temperature": 0.7, "max_tokens": 99}
    assert found["judge"]["sampling"] == {"temperature": 0.0, "max_tokens": 9}
    assert (found["inference"]["calls"], found["inference"]["input_tokens"]) == (3, 33)
    assert found["truncated"] == {"n": 0, "answers": 3, "share": 0.0, "by_window": 0}


async def test_what_is_there_is_not_asked_again(bench: Bench) -> None:
    async with fake(reply=said) as server:
        await bench.run(server.url)
        before = len(server.requested)
        outcome = await bench.run(server.url)
        assert outcome.exit_code == 0
        assert len(server.requested) == before, "not even a probe"
        await bench.run(server.url, max_examples=2)
        assert len(server.requested) == before
    assert summary(bench)["n_expected"] == 2
    assert len(lines(bench.output / "invented" / "responses.jsonl")) == 3


async def test_more_examples_ask_only_for_the_new_ones(bench: Bench) -> None:
    async with fake(reply=said) as server:
        await bench.run(server.url, max_examples=1)
        before = len(server.requested)
        await bench.run(server.url)
        assert questions(server, "tested", before) == ["Prompt 1", "Prompt 2"]
        assert len(questions(server, "judge-1", before)) == 2


async def test_other_sampling_sets_answers_aside_and_takes_them_up_again(bench: Bench) -> None:
    async with fake(reply=said) as server:
        await bench.run(server.url)
        first = (bench.output / "invented" / "responses.jsonl").read_text()
        before = len(server.requested)
        await bench.run(server.url, sampling={"temperature": 0.1})
        assert questions(server, "tested", before) == ["Prompt 0", "Prompt 1", "Prompt 2"]
        assert any("kept in responses.tested-" in note for note in bench.onlooker.notes)
        before = len(server.requested)
        await bench.run(server.url)
        assert len(server.requested) == before
    assert (bench.output / "invented" / "responses.jsonl").read_text() == first


async def test_what_answers_were_made_with_is_kept_and_what_differs_is_named(bench: Bench) -> None:
    async with fake(reply=said, extra_fields=["min_p"]) as server:
        await bench.run(server.url)
        tested = spec("tested", server.url, extra_body={"min_p": 0.1})
        before = len(server.requested)
        await bench.run(server.url, tested=tested, sampling={"temperature": 0.1, "max_tokens": 99})
        assert len(questions(server, "tested", before)) == 3
    (said_aside,) = (note for note in bench.onlooker.notes if "kept in" in note)
    assert "other settings (temperature, extra_body) are kept" in said_aside
    found = summary(bench)
    assert found["inference"]["parts"]["parameters.temperature (student)"] == "0.1"
    assert found["judge"]["parts"]["parameters.max_tokens (judge)"] == "9"
    await bench.run("http://127.0.0.1:1/v1", mode="judge", tested=None)
    assert summary(bench)["inference"] == found["inference"]


async def test_a_second_judge_writes_beside_the_first(bench: Bench) -> None:
    async with fake(reply=said) as server:
        await bench.run(server.url)
        before = len(server.requested)
        await bench.run(server.url, judge=spec("judge/2", server.url))
        assert questions(server, "tested", before) == []
        assert len(questions(server, "judge/2", before)) == 3
        await bench.run(server.url, judge_sampling={"temperature": 1.0})
        assert len(questions(server, "judge-1")) == 6
    names = sorted(path.name.rpartition("-")[0] for path in (bench.output / "invented").glob("judgments.*"))
    assert names == ["judgments.judge-1", "judgments.judge-1", "judgments.judge_2"]


async def test_a_changed_answer_is_judged_again(bench: Bench) -> None:
    async with fake(reply=said) as server:
        await bench.run(server.url)
        path = bench.output / "invented" / "responses.jsonl"
        path.write_text(path.read_text().replace("Answer to Prompt 1", "Something else"))
        before = len(server.requested)
        await bench.run(server.url)
        assert questions(server, since=before) == [f"{JUDGING}Something else"]


async def test_an_unreadable_judgment_is_counted_and_owed(bench: Bench) -> None:
    def mumbling(messages: list[dict[str, Any]]) -> Behaviour:
        text = messages[-1]["content"]
        return Answer("well…") if text == f"{JUDGING}Answer to Prompt 0" else said(messages)

    async with fake(reply=mumbling) as server:
        outcome = await bench.run(server.url)
        assert outcome.exit_code == 3
        assert questions(server, "judge-1").count(f"{JUDGING}Answer to Prompt 0") == 1, "greedy"
    found = summary(bench)
    assert (found["n_scored"], found["n_failed"]) == (2, {"unparsable": 1})
    assert found["metrics"]["share_good"] == {
        "value": 0.5, "standard_error": None, "ci95": None, "n": 2, "unit": "share",
    }  # fmt: skip
    assert not found["complete"]
    assert not found["comparable"]
    async with fake(reply=said) as server:
        assert (await bench.run(server.url)).exit_code == 0
        assert questions(server) == [f"{JUDGING}Answer to Prompt 0"]
    assert summary(bench)["n_failed"] == {}


async def test_a_failed_redo_hides_no_good_answer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt that was reworded is asked anew, in vain; then it is as it was, and so is its answer."""

    def failing(messages: list[dict[str, Any]]) -> Behaviour:
        return Fault(400, "too long") if messages[-1]["content"].startswith("Reworded") else said(messages)

    items = Invented.items
    async with fake(reply=failing) as server:
        await bench.run(server.url)
        before = summary(bench)["metrics"]
        with monkeypatch.context() as reworded:
            message = Message("user", "Reworded")
            reworded.setattr(Invented, "items", lambda self: [Item("q0", (message,)), *items(self)[1:]])
            assert (await bench.run(server.url)).exit_code == 3
            assert summary(bench)["missing"] == {"bad_request": 1}
        requested = len(server.requested)
        assert (await bench.run(server.url)).exit_code == 0
        assert len(server.requested) == requested
    assert summary(bench)["metrics"] == before


async def test_an_answer_that_fails_is_not_judged(bench: Bench) -> None:
    def refusing(messages: list[dict[str, Any]]) -> Behaviour:
        return Fault(400, "too long") if messages[-1]["content"] == "Prompt 1" else said(messages)

    async with fake(reply=refusing) as server:
        outcome = await bench.run(server.url)
    assert outcome.exit_code == 3
    assert len(questions(server, "judge-1")) == 2
    assert summary(bench)["missing"] == {"bad_request": 1}


async def test_a_task_that_breaks_does_not_stop_the_others(bench: Bench) -> None:
    async with fake(reply=said) as server:
        outcome = await bench.run(server.url, "broken", "invented")
    assert outcome.exit_code == 3
    broken, good = outcome.tasks
    assert "a bug" in (broken.problem or "")
    assert good.summary is not None
    assert good.summary.complete
    assert len(lines(bench.output / "broken" / "responses.jsonl")) == 3


async def test_inference_first_judging_later(bench: Bench) -> None:
    async with fake(reply=said) as server:
        outcome = await bench.run(server.url, mode="inference")
        assert outcome.exit_code == 0
        assert questions(server, "judge-1") == []
        assert summary(bench)["metrics"] == {}
        before = len(server.requested)
        # Neither the model nor its sampling is needed to judge what it said.
        await bench.run(server.url, mode="judge", tested=None, sampling={})
        assert questions(server, "tested", before) == []
    found = summary(bench)
    assert found["model"] == "tested"
    assert found["inference"]["sampling"] == {"temperature": 0.7, "max_tokens": 99}
    assert found["metrics"]["share_good"]["n"] == 3


async def test_a_model_that_does_not_answer_is_asked_nothing_more(bench: Bench) -> None:
    async with fake(reply=said, models={"tested"}) as server:
        with pytest.raises(ModelUnavailable, match="judge-1"):
            await bench.run(server.url)
        assert questions(server) == []


async def test_samples_lie_apart_and_have_seeds_of_their_own(bench: Bench) -> None:
    async with fake(reply=said) as server:
        outcome = await bench.run(server.url, num_runs=2)
    assert [task.label for task in outcome.tasks] == ["run_0 invented", "run_1 invented"]
    assert len(lines(bench.output / "run_1" / "invented" / "responses.jsonl")) == 3
    requested = [body for body in server.bodies if body["messages"][-1]["content"] == "Prompt 0"]
    seeds = {body["seed"] for body in requested}
    assert len(seeds) == len(requested) == 2


async def test_who_is_probed_where_judgments_alone_are_owed(bench: Bench) -> None:
    """All models, those with work left, or none: the model whose answers are there has none."""
    async with fake(reply=said) as server:
        await bench.run(server.url, mode="inference")
        for probing, probed in (
            (Probing("full"), ["tested", "judge-1"]),
            (Probing("resume"), ["judge-1"]),
            (Probing("disable"), []),
        ):
            for path in bench.output.rglob("judgments.*.jsonl"):
                path.unlink()
            before = len(server.requested)
            assert (await bench.run(server.url, probing=probing)).exit_code == 0
            bodies = server.bodies[before:]
            assert [b["model"] for b in bodies if b["messages"][-1]["content"].startswith(PROBE)] == probed
            assert len(questions(server, "judge-1", before)) == 3


async def test_a_judge_that_cannot_be_met_is_only_told_where_that_is_wanted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers are there when it can be asked again."""

    async def meet(_: Benchmark, judge: Model) -> None:
        await judge.complete(Request((Message("user", "Who are you?"),)))

    monkeypatch.setattr(Invented, "detect_judge_abilities", meet)
    async with fake(reply=said, models=["tested"]) as server:
        with pytest.raises(ModelUnavailable, match=r"the judge judge-1 cannot be used for invented: .*404"):
            await bench.run(server.url, probing=Probing("disable"))
        outcome = await bench.run(server.url, probing=Probing("disable", "warn"))
        assert outcome.exit_code == 3
        assert [note for note in bench.onlooker.notes if "judge-1 cannot be used for invented" in note]
        assert len(lines(bench.output / "invented" / "responses.jsonl")) == 3


async def test_all_threads_are_used_at_once(bench: Bench) -> None:
    def hang(messages: list[dict[str, Any]]) -> Behaviour:
        content = messages[-1]["content"]
        return Broken.HANG if content.startswith("Prompt") else said(messages)

    async with fake(reply=hang) as server:
        tested = spec("tested", server.url, max_concurrency=2, start_concurrency=2)
        running = asyncio.create_task(
            bench.run(server.url, tested=tested, num_runs=20, mode="inference", judge=None)
        )
        await server.arrived(3)  # the probe, and two
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(server.requested) == 3
        server.release()
        await running
        assert len(server.requested) == 61


async def test_interrupting_ends_the_wait_for_a_model_that_does_not_answer(bench: Bench) -> None:
    interrupt = asyncio.Event()
    async with fake(Broken.HANG, reply=said) as server:
        waiting = asyncio.create_task(bench.run(server.url, interrupt=interrupt))
        await server.arrived(1)
        interrupt.set()
        outcome = await waiting
        assert outcome.exit_code == 130
        assert not (bench.output / "invented" / "responses.jsonl").exists()


async def test_two_processes_do_not_share_a_folder(bench: Bench) -> None:
    async with fake(Broken.HANG, reply=said) as server:
        first = asyncio.create_task(bench.run(server.url))
        await server.arrived(1)
        with pytest.raises(UsageError, match="in use"):
            await bench.run(server.url)
        server.release()
        assert (await first).exit_code == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"max_examples": 2}, "only the first 2 of 3 prompts (--max-examples)"),
        ({"judge": None}, "the tested model judged itself"),
        ({}, "judged by judge-1; published numbers are by official"),
        ({"judge_sampling": {"max_tokens": 8}}, "not the official one: max_tokens"),
    ],
)
async def test_figures_say_why_they_cannot_be_compared(
    bench: Bench, changes: dict[str, Any], reason: str
) -> None:
    async with fake(reply=said) as server:
        await bench.run(server.url, **changes)
    found = summary(bench)
    assert not found["comparable"]
    assert any(reason in shown for shown in found["reasons"]), found["reasons"]


@pytest.mark.parametrize("max_examples", [None, 3, 4])
async def test_the_official_setup_is_comparable(bench: Bench, max_examples: int | None) -> None:
    async with fake(reply=said) as server:
        await bench.run(server.url, judge=spec("official", server.url), max_examples=max_examples)
    assert (summary(bench)["comparable"], summary(bench)["reasons"]) == (True, [])


async def test_a_torn_line_is_asked_for_again(bench: Bench) -> None:
    async with fake(reply=said) as server:
        await bench.run(server.url)
        path = bench.output / "invented" / "responses.jsonl"
        whole = path.read_text()
        last = json.loads(whole.splitlines()[-1])
        path.write_text(whole[:-20])
        before = len(server.requested)
        await bench.run(server.url)
        assert questions(server, since=before) == [last["prompt"]]
    assert len(lines(path)) == 3


async def test_unknown_tasks_are_refused(bench: Bench) -> None:
    with pytest.raises(UsageError, match="there is no task 'nothing'"):
        await bench.run("http://127.0.0.1:1/v1", tasks=(TaskRequest(name="nothing"),))


async def test_totals_stand_from_the_start_and_what_cannot_come_is_counted(bench: Bench) -> None:
    """Judgments of answers that are still to come are planned; those of an answer that fails are cut off."""
    seen = set()

    def watched(messages: list[dict[str, Any]]) -> Behaviour:
        board = bench.onlooker.board
        if board is not None:
            seen.add(tuple(count.planned for count in board.phases.values()))
        return Fault(400) if messages[-1]["content"] == "Prompt 1" else said(messages)

    async with fake(reply=watched) as server:
        outcome = await bench.run(server.url)
    assert outcome.exit_code == 3
    assert seen == {(3, 3)}
    board = bench.onlooker.board
    assert board is not None
    judging = board.phases["invented judging"]
    assert (judging.done, judging.cut_off, judging.ended, str(judging.expected)) == (2, 1, 3, "3")
