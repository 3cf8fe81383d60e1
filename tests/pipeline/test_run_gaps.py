"""Runs that end with gaps: quota, refusals, failures, partial answers. Each says so, and is filled later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes.openai_chat import Answer, Behaviour, Fault, Server, fake
from pipeline.experiments import PHASES, Lab, listen, model, task

import coeval
from coeval.core.errors import ModelUnavailable
from coeval.engine.progress import Board, Unwatched
from coeval.pipeline.run_session import RunSummary

TEA, ANN, BEN = model("tea", "teacher"), model("ann", "student", "judge"), model("ben", "student", "judge")


def hosted(name: str, server: Server, *roles: str) -> dict[str, Any]:
    """A model on a scripted host."""
    parameters = {"base_url": server.url}
    return {"name": name, "interface": "openai", "roles": list(roles), "parameters": parameters} | {
        "access_key": "sk-test-key"
    }


def ended(run: Any) -> RunSummary:
    assert run.summary is not None
    summary: RunSummary = run.summary
    return summary


def errors(lab: Lab) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (lab.path / "run_errors.jsonl").read_text().splitlines()]


# --- quota ---------------------------------------------------------------------------------------


def test_a_model_at_its_ceiling_leaves_gaps_that_a_higher_one_fills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, [TEA, ANN, BEN], settings={"quota": {"ben": {"max_calls": 1 + 5}}})
    requested = listen(monkeypatch)
    run = lab.run()
    summary = ended(run)
    assert run.exit_code == 3
    assert sum(name == "ben" for name, _ in requested.requests) == 5, "the sixth request was the probe"
    assert json.loads((lab.path / "usage.json").read_text())["models"]["ben"]["requests"] == 6
    judged = summary.phases["evaluation"]
    assert summary.missing == judged.missing + summary.phases["response_collection"].missing > 0
    assert judged.gaps["quota"] + summary.phases["response_collection"].gaps["quota"] > 0
    assert "experiment.quota.ben.max_calls" in summary.stopped["ben"]
    assert "continue_run=True" in summary.stopped["ben"]
    log = (lab.path / "run.log").read_text()
    assert log.count("WARNING model ben has used 6 of the 6 requests") == 1
    assert lab.meta()["status"] == "incomplete"
    assert "evaluation" not in lab.meta()["phases_completed"]
    assert all(r["status"] != "failed" for r in lab.lines("evaluation") if "status" in r)
    again = lab.run(continue_run=True)
    assert again.exit_code == 3, "a ceiling that is not raised stops nobody else, and no probe"
    lab.settings = {"quota": {"ben": {"max_calls": 100}}}
    assert lab.run(continue_run=True).exit_code == 0
    assert lab.counts() == (3, 6, 12)
    assert lab.meta()["status"] == "completed"


def test_a_ceiling_that_suffices_is_no_gap(tmp_path: Path) -> None:
    lab = Lab(tmp_path, [TEA, ANN, BEN], settings={"quota": {"tea": {"max_calls": 1 + 3}}})
    assert lab.run().exit_code == 0
    lab.tasks[0]["rubric"]["ending"] = "It ends well."
    run = lab.run(continue_run=True)
    assert run.exit_code == 0, "tea has no calls left for a probe, and no work either"


def test_quota_in_the_middle_of_a_judgment_keeps_what_was_scored(tmp_path: Path) -> None:
    lab = Lab(
        tmp_path,
        [TEA, model("ann", "student"), model("jay", "judge")],
        [task(total=1, evaluation_mode="per_factor")],
        {"quota": {"jay": {"max_calls": 1}}, "probe_mode": "disable"},
    )
    run = lab.run()
    assert run.exit_code == 3
    [record] = lab.lines("evaluation")
    assert (len(record["scores"]), len(record["missing"])) == (1, 1)
    assert ended(run).phases["evaluation"].incomplete == 1
    lab.settings["quota"] = {}
    assert lab.run(continue_run=True).exit_code == 0
    first, last = lab.lines("evaluation")
    assert last["scores"].items() > first["scores"].items()
    assert "missing" not in last


# --- replies -------------------------------------------------------------------------------------


async def test_a_partial_evaluation_is_completed_by_asking_for_the_rest_alone(tmp_path: Path) -> None:
    def forgetful(messages: list[dict[str, Any]]) -> Behaviour:
        return Answer('{"plot": "High"}' if "- plot:" in messages[-1]["content"] else '{"style": "so so"}')

    async with fake(reply=forgetful) as server:
        lab = Lab(tmp_path, [TEA, model("ann", "student"), hosted("jay", server, "judge")])
        run = await lab.arun()
        assert run.exit_code == 3
        assert len(server.requested) == 1 + 3 * (1 + 2), (
            "a probe, and each asked again as often as the file says"
        )
    for record in lab.records("evaluation").values():
        assert (record["scores"], record["missing"]) == ({"plot": "High"}, ["style"])
        assert record["attempts"] == 3
        assert record["raw"].splitlines()[0] == '{"plot": "High"}'
    outcome = ended(run).phases["evaluation"]
    assert (outcome.missing, outcome.incomplete) == (3, 3)
    assert {(line["kind"], line["attempts"]) for line in errors(lab)} == {("unparsable", 3)}
    async with fake(reply=lambda _: Answer('{"plot": "Low", "style": "medium"}')) as server:
        lab.models[2] = hosted("jay", server, "judge")
        assert (await lab.arun(continue_run=True)).exit_code == 0
        questions = [requested.body["messages"][-1]["content"] for requested in server.requested[1:]]
    assert len(questions) == 3
    assert all("- style:" in text and "- plot:" not in text for text in questions)
    for record in lab.records("evaluation").values():
        assert record["scores"] == {"plot": "High", "style": "Medium"}
        assert record["attempts"] == 4
        assert "missing" not in record
    assert len(lab.lines("evaluation")) == 6


async def test_an_empty_answer_is_an_answer_and_is_judged(tmp_path: Path) -> None:
    async with fake(reply=lambda _: Answer("")) as server:
        lab = Lab(tmp_path, [TEA, hosted("mute", server, "student"), model("jay", "judge")])
        run = await lab.arun()
        assert len(server.requested) == 1 + 3, "an empty answer is not asked for again"
    assert run.exit_code == 0
    assert [record["response"] for record in lab.lines("response_collection")] == [""] * 3
    assert len(lab.lines("evaluation")) == 3


def test_what_was_not_answered_keeps_its_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"generation_retries": 1, "probe_mode": "disable"}
    lab = Lab(tmp_path, [model("tea", "teacher", failure_rate=1), ANN], settings=settings)
    requested = listen(monkeypatch)
    run = lab.run()
    assert run.exit_code == 3
    assert requested.phases() == (0, 0, 6, 0, 0)
    for line in lab.lines("data_generation"):
        assert (line["status"], line["attempts"], line["error"]["kind"]) == ("failed", 2, "server")
        assert "prompt" not in line
    summary = ended(run)
    assert summary.phases["data_generation"].failed == {"server": 3}
    assert [summary.phases[phase].blocked for phase in PHASES] == [0, 3, 3]
    assert summary.missing == 9
    assert [line["id"] for line in errors(lab)] == [f"story__tea__{n:05}" for n in (1, 2, 3)]
    assert run.results().students == (), "nothing to score is no reason to fail"
    lab.models[0]["parameters"]["failure_rate"] = 0
    assert lab.run(continue_run=True).exit_code == 0
    assert {record["attempts"] for record in lab.records("data_generation").values()} == {3}
    seeds = [request.seed for _, request in requested.requests if request.purpose == "data_generation"]
    assert (len(seeds), len(set(seeds))) == (9, 3)


# --- models that do not answer -------------------------------------------------------------------


async def test_a_model_that_is_refused_stops_alone(tmp_path: Path) -> None:
    async with fake(reply=lambda _: Fault(401, "Incorrect API key provided.")) as server:
        refused = hosted("ray", server, "student")
        refused["parameters"]["max_concurrency"] = 1
        lab = Lab(tmp_path, [TEA, ANN, refused], [task(total=8)], {"probe_mode": "disable"})
        run = await lab.arun()
        assert len(server.requested) == 3
    summary = ended(run)
    assert run.exit_code == 3
    assert "model ray is no longer called" in summary.stopped["ray"]
    outcome = summary.phases["response_collection"]
    assert (outcome.made, outcome.failed["access_denied"], outcome.gaps["stopped"]) == (8, 3, 5)
    assert len(lab.lines("evaluation")) == 8, "everybody else's work is done"
    lab.models[2] = model("ray", "student")
    assert (await lab.arun(continue_run=True)).exit_code == 0


async def test_a_probe_finds_it_before_anything_is_run(tmp_path: Path) -> None:
    async with fake(keys=["another"]) as server:
        lab = Lab(tmp_path, [TEA, ANN, hosted("ray", server, "student")])
        with pytest.raises(ModelUnavailable, match=r"1 of 3 models does not answer:\n  ray: .*401"):
            await lab.arun()
        assert not (lab.path / "meta.json").exists()
        assert lab.counts() == (0, 0, 0)
        assert "sk-test-key" not in (lab.path / "probe_results.json").read_text()
        lab.settings = {"probe_on_fail": "warn"}
        run = await lab.arun()
    assert run.exit_code == 3, "a start that failed can be repeated"
    assert ended(run).phases["response_collection"].made == 3


async def test_a_task_without_a_blueprint_does_not_hold_up_another(tmp_path: Path) -> None:
    def silent_on_rubrics(messages: list[dict[str, Any]]) -> Behaviour:
        text = messages[-1]["content"]
        return Answer("I would rather not." if "rubric" in text else '{"prompt": "Tell", "response": "So"}')

    async with fake(reply=silent_on_rubrics) as server:
        tasks = [task(), task("vague", rubric="auto")]
        lab = Lab(tmp_path, [hosted("tea", server, "teacher"), ANN], tasks)
        run = await lab.arun()
        summary = ended(run)
        assert run.exit_code == 3
        assert lab.counts() == (3, 3, 3)
        assert summary.phases["rubric_mapping"].failed == {"unparsable": 1}
        assert [summary.phases[phase].blocked for phase in PHASES] == [3, 3, 3]
        assert any("vague" in note for note in summary.notes)
        assert lab.meta()["phases_completed"] == ["attribute_mapping"]
        lab.tasks[1]["rubric"] = {"plot": "There is one."}
        assert (await lab.arun(continue_run=True)).exit_code == 0
    assert lab.counts() == (6, 6, 6)


def test_what_cannot_follow_from_a_failed_item_is_not_waited_for(tmp_path: Path) -> None:
    """Its answers and their judgments are counted as not to come, and every bar is full at the end."""
    models = [TEA, model("mute", "teacher", failure_rate=1), ANN, BEN]
    lab = Lab(tmp_path, models, [task(total=2)])
    lab.settings = {"probe_mode": "disable"}
    boards: list[Board] = []

    class Looking(Unwatched):
        def begin(self, board: Board) -> None:
            boards.append(board)

    assert coeval.run(lab.file, watcher=Looking()).exit_code == 3
    [board] = boards
    counts = [board.phases[phase] for phase in PHASES]
    assert [(c.done, c.failed.total(), c.cut_off) for c in counts] == [(2, 2, 0), (4, 0, 4), (8, 0, 8)]
    assert all(count.ended == count.owed for count in counts)
