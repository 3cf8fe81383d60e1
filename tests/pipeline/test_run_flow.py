"""How a run flows: phases overlap; barriers and interruptions change no record."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fakes.tiny_model import tiny_model
from pipeline.experiments import PHASES, Lab, content, listen, model, over_http, quiz, served, task

from coeval.core.errors import UsageError
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Request
from coeval.models.local.local_transformers import TransformersEngine
from coeval.pipeline.config.schema import Phase
from coeval.simulation.simulated_model import SimulatedModel

ONE_EACH = [model("tea", "teacher"), model("stu", "student"), model("jay", "judge")]


class Gate:
    """Holds back the requests of one model until it is opened, and notes every request's beginning."""

    def __init__(self, patch: pytest.MonkeyPatch, held: str) -> None:
        self.begun: list[str] = []
        self.open = asyncio.Event()
        self._news = asyncio.Condition()
        gate, complete = self, SimulatedModel.complete

        async def watched(self: SimulatedModel, request: Request) -> Completion:
            await gate.note(self.name)
            if self.name == held:
                await gate.open.wait()
            return await complete(self, request)

        patch.setattr(SimulatedModel, "complete", watched)

    def count(self, name: str) -> int:
        return self.begun.count(name)

    async def note(self, name: str) -> None:
        async with self._news:
            self.begun.append(name)
            self._news.notify_all()

    async def until(self, name: str, count: int) -> None:
        """Wait until a model has been asked so often."""
        async with self._news:
            await self._news.wait_for(lambda: self.count(name) >= count)


async def test_items_are_made_while_a_student_still_thinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, held="stu")
    lab = Lab(tmp_path, ONE_EACH, [task(total=6)], {"probe_mode": "disable"})
    run = asyncio.create_task(lab.arun())
    await gate.until("tea", 6)
    await gate.until("stu", 6)
    assert gate.count("jay") == 0
    assert not run.done()
    gate.open.set()
    assert (await run).exit_code == 0
    assert gate.count("jay") == 6


async def test_the_first_answer_is_judged_while_the_teacher_writes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One teacher is stuck: the other's items are answered and judged meanwhile."""
    gate = Gate(monkeypatch, held="slow")
    models = [*ONE_EACH, model("slow", "teacher")]
    lab = Lab(tmp_path, models, [task(total=2)], {"probe_mode": "disable"})
    run = asyncio.create_task(lab.arun())
    await gate.until("jay", 2)
    assert gate.count("slow") == 2
    assert not run.done()
    gate.open.set()
    assert (await run).exit_code == 0


async def test_with_barriers_a_phase_waits_for_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, ONE_EACH, [task(total=4)], {"probe_mode": "disable"})
    requested = listen(monkeypatch)
    assert (await lab.arun(phase_barriers=True)).exit_code == 0
    purposes = [request.purpose for _, request in requested.requests]
    assert purposes == [phase for phase in PHASES for _ in range(4)]


async def test_barriers_change_no_record(tmp_path: Path) -> None:
    models = [model("ann", malformed_rate=0.2, failure_rate=0.1), model("ben")]
    tasks = [task(total=5, evaluation_mode="per_factor"), quiz(total=3), task("vague", rubric="auto")]
    flowing, stepping = Lab(tmp_path, models, tasks, id="flow"), Lab(tmp_path, models, tasks, id="steps")
    first = await flowing.arun()
    second = await stepping.arun(phase_barriers=True)
    assert first.exit_code == second.exit_code
    assert content(flowing) == content(stepping)
    assert first.summary is not None
    assert second.summary is not None
    assert first.summary.phases == second.summary.phases


async def test_items_are_asked_for_in_order_and_teachers_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = listen(monkeypatch)
    lab = Lab(tmp_path, [model("ann"), model("ben")], [task(total=3)])
    await lab.arun()
    teachers = [name for name, request in requested.requests if request.purpose == "data_generation"]
    assert teachers == ["ann", "ben"] * 3


@pytest.mark.parametrize("barriers", [False, True])
async def test_an_interrupted_run_saves_what_is_finished_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, barriers: bool
) -> None:
    monkeypatch.setattr("coeval.engine.session.DRAIN_S", 0.01)  # the student never answers: no use waiting
    whole = Lab(tmp_path, ONE_EACH, [task(total=4)], {"probe_mode": "disable"}, id="whole")
    await whole.arun()
    interrupt = asyncio.Event()
    lab = Lab(tmp_path, ONE_EACH, [task(total=4)], {"probe_mode": "disable"})
    with monkeypatch.context() as patch:
        gate = Gate(patch, held="stu")
        run = asyncio.create_task(lab.arun(interrupt=interrupt, phase_barriers=barriers))
        await gate.until("stu", 4)
        interrupt.set()
        stopped = await run
    assert stopped.exit_code == 130
    assert lab.counts() == (4, 0, 0)
    assert lab.meta()["status"] == "interrupted"
    assert lab.meta()["phases_completed"] == ["attribute_mapping", "rubric_mapping", "data_generation"]
    assert stopped.summary is not None
    assert stopped.summary.missing == 8
    assert not (lab.path / "run_errors.jsonl").exists(), "what was not asked is no failure"
    requested = listen(monkeypatch)
    assert (await lab.arun(continue_run=True)).exit_code == 0
    assert requested.phases() == (0, 0, 0, 4, 4)
    assert content(lab) == content(whole)


async def test_what_is_on_the_wire_may_still_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interruption lets go on what was asked, and begins nothing that would follow."""
    gate = Gate(monkeypatch, held="stu")
    interrupt = asyncio.Event()
    lab = Lab(tmp_path, ONE_EACH, [task(total=2)], {"probe_mode": "disable"})
    run = asyncio.create_task(lab.arun(interrupt=interrupt))
    await gate.until("stu", 2)
    interrupt.set()
    await asyncio.sleep(0)
    gate.open.set()
    assert (await run).exit_code == 130
    assert lab.counts() == (2, 2, 0)


async def test_an_interruption_while_models_are_probed_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, held="stu")
    interrupt = asyncio.Event()
    lab = Lab(tmp_path, ONE_EACH)
    run = asyncio.create_task(lab.arun(interrupt=interrupt))
    await gate.until("stu", 1)
    interrupt.set()
    stopped = await run
    assert stopped.exit_code == 130
    assert not (lab.path / "meta.json").exists()
    gate.open.set()
    assert (await lab.arun()).exit_code == 0, "a start that was stopped can be repeated"


# The same experiment in process and through HTTP: nothing of what is recorded differs.

SAID = ("prompt", "reference_response", "response", "scores", "label_scores", "raw", "attempts", "status")


def experiment(folder: Path, name: str, *, structured: bool) -> Lab:
    """Models that fail and talk nonsense now and then, so that many questions are asked again."""
    models = [
        model(name, skill=skill, malformed_rate=0.25, failure_rate=0.05)
        for name, skill in (("ann", 0.9), ("ben", 0.3))
    ]
    tasks = [
        task(total=6),
        task("essay", total=4, evaluation_mode="per_factor", rubric="auto", target_attributes="auto"),
        quiz(total=4, output_description="Say what you see."),
    ]
    return Lab(folder, [entry | {"structured_output": structured} for entry in models], tasks, id=name)


@pytest.mark.system
@pytest.mark.parametrize("structured", [True, False])
async def test_the_same_seeds_make_the_same_records_over_http(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, structured: bool
) -> None:
    inside = experiment(tmp_path, "inside", structured=structured)
    requested = listen(monkeypatch)
    here = await inside.arun()
    questions = sum(requested.phases())
    async with served(inside.models) as host:
        outside = experiment(tmp_path, "outside", structured=structured)
        outside.models = [over_http(entry, host) for entry in outside.models]
        there = await outside.arun()
    assert outside.counts() == inside.counts()
    for phase in PHASES:
        assert said(outside, phase) == said(inside, phase)
    assert there.exit_code == here.exit_code
    assert there.results().students == here.results().students
    assert len(host.bodies) == questions > sum(inside.counts()) + 10
    asking_for_json = [body for body in host.bodies if "JSON" in body["messages"][-1]["content"]]
    assert asking_for_json
    assert all(("response_format" in body) == structured for body in asking_for_json)


def said(lab: Lab, phase: Phase) -> dict[str, list[Any]]:
    return {key: [record.get(name) for name in SAID] for key, record in lab.records(phase).items()}


# Runs of models in this process: loaded once, and refused before anything is made where they cannot be.


def lab(folder: Path, weights: object) -> Lab:
    """A student in this process beside a simulated teacher and judge."""
    local: dict[str, Any] = {
        "name": "tiny",
        "interface": "huggingface",
        "roles": ["student"],
        "parameters": {"model": str(weights), "device": "cpu", "max_new_tokens": 4, "temperature": 0},
    }
    return Lab(folder, [model("ann", "teacher", "judge"), local], [task(total=2)])


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models whose weights were loaded, in order."""
    loaded: list[str] = []
    load = TransformersEngine.__init__

    def counted(self: TransformersEngine, spec: ModelSpec, device: str) -> None:
        loaded.append(spec.model)
        load(self, spec, device)

    monkeypatch.setattr(TransformersEngine, "__init__", counted)
    return loaded


@pytest.mark.process
@pytest.mark.filterwarnings("default")
def test_weights_are_loaded_once(tmp_path: Path, loads: list[str]) -> None:
    weights = tiny_model(tmp_path / "tiny")
    run = lab(tmp_path, weights).run()
    assert run.exit_code == 0
    assert loads == [str(weights)]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("written", ["./typo", "../typo", "~/typo", "/nowhere/typo", "models/v2/typo"])
def test_a_folder_that_is_not_there_is_named_before_anything_is_made(
    tmp_path: Path, loads: list[str], written: str
) -> None:
    experiment = lab(tmp_path, written)
    with pytest.raises(UsageError, match=r"local model tiny: there is no folder ") as refused:
        experiment.run()
    assert written in str(refused.value)
    assert not experiment.path.exists()
    assert loads == []


@pytest.mark.filterwarnings("default")
def test_a_folder_without_a_model_is_no_model(tmp_path: Path, loads: list[str]) -> None:
    (tmp_path / "empty").mkdir()
    experiment = lab(tmp_path, tmp_path / "empty")
    with pytest.raises(UsageError, match=r"empty holds no config\.json"):
        experiment.run()
    assert not experiment.path.exists()
    assert loads == []
