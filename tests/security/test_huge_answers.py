"""One huge answer makes no run unreadable: answers are cut when they are made, long lines are survived."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.openai_chat import Answer, fake
from hypothesis import given
from hypothesis import strategies as st
from pipeline.experiments import Lab, model, task

from coeval.api import open_run
from coeval.benchmarks.benchmark import Answer as GivenAnswer
from coeval.benchmarks.run.task_folder import TaskFolder, read_first_answer
from coeval.cli.commands.status import status
from coeval.core.model import MAX_ANSWER_BYTES, ModelSpec
from coeval.core.records import Message, Request
from coeval.core.text import cut_to_bytes
from coeval.models.keys import Keys
from coeval.models.open import Models
from coeval.pipeline.upkeep.repair import RepairOptions, repair_run
from coeval.store.jsonl import Appender
from coeval.store.rundir import RunDir

HUGE = 40 << 20
NO_KEYS = Keys.load(None, env={}, cwd=Path("/nowhere"), home=Path("/nowhere"))
HELLO = Request((Message("user", "hello"),))


async def answered(text: str, **limits: Any) -> tuple[str, bool]:
    async with fake(Answer(text)) as server:
        spec = ModelSpec(name="m", interface="vllm", model="m", base_url=server.url, **limits)
        async with Models([spec], NO_KEYS) as models:
            completion = await models["m"].complete(HELLO)
            return completion.text, completion.truncated


async def test_an_answer_of_a_host_is_cut_between_characters_and_marked() -> None:
    text, truncated = await answered("a" + "é" * MAX_ANSWER_BYTES)
    assert (text, truncated) == ("a" + "é" * (MAX_ANSWER_BYTES // 2 - 1), True)
    assert await answered("é" * (MAX_ANSWER_BYTES // 2)) == ("é" * (MAX_ANSWER_BYTES // 2), False)
    assert await answered("naïve", max_answer_bytes=3) == ("na", True)


async def test_reasoning_and_refusals_are_cut_too() -> None:
    message = {"reasoning": "r" * 99, "refusal": "n" * 99}
    async with fake(Answer("ok", finish_reason="f" * 9999, message=message)) as server:
        spec = ModelSpec(name="m", interface="vllm", model="m", base_url=server.url, max_answer_bytes=10)
        async with Models([spec], NO_KEYS) as models:
            completion = await models["m"].complete(HELLO)
    assert (completion.text, completion.reasoning, completion.refusal) == ("ok", "r" * 10, "n" * 10)
    assert len(completion.finish_reason) < 1000


async def test_simulated_models_are_held_to_the_limit_too() -> None:
    spec = ModelSpec(name="m", interface="simulated", model="m", max_answer_bytes=20)
    async with Models([spec], NO_KEYS) as models:
        completion = await models["m"].complete(HELLO)
    assert completion.truncated == (len(completion.text) == 20)
    assert len(completion.text.encode()) <= 20


@given(st.text(), st.integers(0, 30))
def test_what_is_cut_is_a_beginning_as_long_as_fits(text: str, most: int) -> None:
    cut = cut_to_bytes(text, most)
    assert text.startswith(cut)
    assert len(cut.encode()) <= most
    assert cut == text or len(text[: len(cut) + 1].encode()) > most


@pytest.mark.process
async def test_a_run_whose_student_never_ends_is_scored_and_says_that_it_was_cut(tmp_path: Path) -> None:
    async with fake(reply=lambda _: Answer("word " * (HUGE // 5))) as host:
        student = model("pupil", "student")
        student |= {"interface": "vllm", "parameters": {"base_url": host.url, "model": "pupil"}}
        lab = Lab(tmp_path, [model("tea", "teacher", "judge"), student], [task(total=1)])
        run = await lab.arun()
    assert run.exit_code == 0
    (answer,) = lab.records("response_collection").values()
    assert answer["truncated"] is True
    assert len(answer["response"].encode()) == MAX_ANSWER_BYTES
    assert {row.n for row in run.results().students} == {1}


LINES: dict[str, Callable[[bytes], bytes]] = {
    "a record": lambda line: line.replace(b'"response":"', b'"response":"' + b"x" * HUGE),
    "no JSON": lambda line: b"x" * HUGE + b"\n" + line,
    "a record of nothing": lambda line: b'{"more":"' + b"x" * HUGE + b'"}\n' + line,
    "no UTF-8": lambda line: b'{"id":"' + b"\xff" * HUGE + b'"}\n' + line,
    "very deep": lambda line: b"[" * HUGE + b"\n" + line,
    "a torn end": lambda line: line + b'{"id":"story__tea__00009__ann","response":"' + b"x" * HUGE,
}


@pytest.mark.system
@pytest.mark.parametrize("kind", LINES)
def test_long_lines_of_older_files_cost_no_other_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """Results, status, answers, repair and going on: each says what it skipped and gives the rest."""
    lab = Lab(tmp_path, [model("tea", "teacher", "judge"), model("ann", "student")], [task()])
    lab.run()
    before = open_run(lab.path).results().students
    (path,) = lab.path.glob("phase4_responses/*.ann.*")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:-1], LINES[kind](lines[-1])]))
    damaged = kind != "a record"

    results = open_run(lab.path).results()
    assert results.students == before
    assert any("skipped, as no whole record: 1 line" in note for note in results.notes) == damaged
    capsys.readouterr()
    status(lab.path)
    assert "response_collection  yes" in capsys.readouterr().out
    found = repair_run(RunDir(lab.path), RepairOptions(dry_run=True, examples=3))
    assert sum(file.invalid for file in found.files) == damaged
    assert lab.run(continue_run=True, changed="keep").exit_code == 0
    assert open_run(lab.path).results().students[0].student == "ann"
    repair_run(RunDir(lab.path), RepairOptions())
    again = open_run(lab.path).results()
    assert not any("no whole record" in note for note in again.notes)
    assert [row.n for row in again.students] == [row.n for row in before]
    notes = lab.path / "run_errors.jsonl"
    assert not notes.exists() or max(map(len, notes.read_bytes().splitlines() or [b""])) < HUGE // 2
    json.loads((lab.path / "meta.json").read_text())


# A benchmark's folder with lines that no answer is: they are owed again, and the rest is scored.

LONG = 40 << 20
DAMAGE = {
    "no JSON": b"x" * LONG,
    "no UTF-8": b'{"id":"\xff\xfe"}',
    "very deep": b"[" * 100_000,
    "endless digits": b'{"id":"b","attempts":1' + b"0" * 5000 + b"}",
    "a long record of nothing": b'{"more":"' + b"x" * LONG + b'"}',
}


@pytest.mark.process
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_the_answers_around_a_damaged_line_are_read(tmp_path: Path, damage: bytes) -> None:
    folder = TaskFolder(tmp_path)
    for key in ("a", "c"):
        file = Appender(folder.responses)
        file.append(GivenAnswer(id=key, model="m", recipe="r", response=key))
        file.close()
        if key == "a":
            with folder.responses.open("ab") as out:
                out.write(damage + b"\n")
    assert read_first_answer(folder.responses) is not None
    assert set(folder.read_counted_answers(None)) == {"a", "c"}
    reported = f"{folder.responses} has 1 damaged line; its contents are requested again"
    assert list(folder.damage_remarks()) == [reported]
