"""Phases 1–2: attributes and rubrics, given or proposed, merged, kept, extended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes.openai_chat import Answer, Behaviour, fake
from pipeline.experiments import Lab, listen, model, task

from coeval.core.errors import StoreError

TWO = [model("ann"), model("ben", "teacher", "judge")]


def artifact(lab: Lab, name: str) -> Any:
    return json.loads((lab.path / name).read_text())


def proposals(lab: Lab, folder: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (lab.path / folder / "proposals.jsonl").read_text().splitlines()]


def test_static_sections_are_written_without_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = listen(monkeypatch)
    lab = Lab(tmp_path, TWO, [task(nuanced_attributes={"tone": ["dry"]})])
    lab.run()
    assert asked.phases()[:2] == (0, 0)
    assert artifact(lab, "phase1_attributes/story_target_attrs.json") == {
        "mood": ["glad", "sad"],
        "length": ["short", "long"],
    }
    assert artifact(lab, "phase1_attributes/story_nuanced_attrs.json") == {"tone": ["dry"]}
    assert list(artifact(lab, "phase2_rubric/story.rubric.json")) == ["plot", "style"]
    assert not (lab.path / "phase1_attributes" / "proposals.jsonl").exists()


def test_proposals_are_merged_in_the_order_of_the_file_and_seeds_come_first(tmp_path: Path) -> None:
    seeds = {"topic": ["space"], "mood": ["glad"]}
    auto = task(target_attributes="auto", target_attributes_seed=seeds, rubric="auto")
    lab = Lab(tmp_path, TWO, [auto])
    lab.run()
    made = proposals(lab, "phase1_attributes")
    assert {record["teacher_model_id"] for record in made} == {"ann", "ben"}
    assert {record["kind"] for record in made} == {"target"}
    target = artifact(lab, "phase1_attributes/story_target_attrs.json")
    assert list(target)[:2] == ["topic", "mood"]
    assert target["topic"][0] == "space"
    for record in made:
        for name, values in record["attributes"].items():
            assert set(values) <= set(target[name]), "the union of what was proposed"
    rubric = artifact(lab, "phase2_rubric/story.rubric.json")
    by_teacher = {r["teacher_model_id"]: r["rubric"] for r in proposals(lab, "phase2_rubric")}
    names = list(dict.fromkeys([*by_teacher["ann"], *by_teacher["ben"]]))
    assert list(rubric) == names
    assert {record["id"] for record in made} == {"story__ann__target", "story__ben__target"}


def test_items_have_the_proposed_attributes_and_judges_the_proposed_rubric(tmp_path: Path) -> None:
    lab = Lab(tmp_path, TWO, [task(target_attributes="auto", rubric="auto", total=4)])
    lab.run()
    target = artifact(lab, "phase1_attributes/story_target_attrs.json")
    rubric = artifact(lab, "phase2_rubric/story.rubric.json")
    for item in lab.lines("data_generation"):
        assert item["sampled_target_attributes"]
        assert all(value in target[name] for name, value in item["sampled_target_attributes"].items())
    assert all(list(record["scores"]) == list(rubric) for record in lab.lines("evaluation"))


def test_complete_walks_the_whole_cross_product(tmp_path: Path) -> None:
    lab = Lab(tmp_path, [model("ann")], [task(target_attributes="complete", total=6)])
    lab.run()
    target = artifact(lab, "phase1_attributes/story_target_attrs.json")
    sampled = [item["sampled_target_attributes"] for item in lab.lines("data_generation")]
    assert all(item.keys() == target.keys() for item in sampled)
    assert len({json.dumps(item) for item in sampled}) == 6


def test_a_template_may_use_a_rubric_that_teachers_proposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sample` and `test` may use every variable of the task, also one that phase 2 has drawn."""
    own = (
        'JSON with "prompt" and "response" for {task_description}, {target_attributes}, judged by:\n{rubric}'
    )
    lab = Lab(tmp_path, [model("ann")], [task(rubric="auto", prompt_library={"sample": own})])
    asked = listen(monkeypatch)
    lab.run()
    texts = [r.messages[-1].content for _, r in asked.requests if r.purpose == "data_generation"]
    rubric = artifact(lab, "phase2_rubric/story.rubric.json")
    assert texts
    assert all(f"- {factor}: {criterion}" in text for text in texts for factor, criterion in rubric.items())


def test_a_blueprint_drawn_without_a_teacher_says_so(tmp_path: Path) -> None:
    teachers = [model("ann"), model("ben", "teacher", failure_rate=1.0)]
    lab = Lab(tmp_path, teachers, [task(rubric="auto")], {"probe_mode": "disable"})
    run = lab.run()
    assert run.summary is not None
    assert run.summary.notes == [
        "story: rubric_mapping was drawn without ben, and stays so; "
        "another experiment id or overwrite=True asks again"
    ]
    assert run.exit_code == 3


async def test_a_crash_repeats_no_proposal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One teacher had proposed when the run stopped: --continue asks the other alone."""
    lab = Lab(tmp_path, TWO, [task(rubric="auto")])
    await lab.arun()
    kept = proposals(lab, "phase2_rubric")
    expected = artifact(lab, "phase2_rubric/story.rubric.json")
    for path in lab.path.glob("phase[2345]*/*"):
        path.unlink()
    [first] = [record for record in kept if record["teacher_model_id"] == "ann"]
    (lab.path / "phase2_rubric" / "proposals.jsonl").write_text(json.dumps(first) + "\n")
    asked = listen(monkeypatch)
    run = await lab.arun(continue_run=True)
    assert run.exit_code == 0
    assert [name for name, request in asked.requests if request.purpose == "rubric_mapping"] == ["ben"]
    assert artifact(lab, "phase2_rubric/story.rubric.json") == expected


async def test_names_that_differ_in_spelling_alone_are_one(tmp_path: Path) -> None:
    replies = iter(
        [
            '{"factors": [{"name": "Plot", "criterion": "First."}, {"name": "pace", "criterion": "Fast."}]}',
            '{"factors": [{"name": "plot", "criterion": "Second."}, {"name": "Pace!", "criterion": "?"}]}',
        ]
    )

    def answer(messages: list[dict[str, Any]]) -> Behaviour:
        return Answer(next(replies) if "rubric" in messages[-1]["content"] else "ok")

    async with fake(reply=answer) as server:
        parameters = {"base_url": server.url, "max_concurrency": 1}
        teachers = [
            {"name": name, "interface": "vllm", "roles": ["teacher"], "parameters": parameters}
            for name in ("tea", "tom")
        ]
        models = [*teachers, model("ann", "student", "judge")]
        lab = Lab(tmp_path, models, [task(rubric="auto", total=1)], {"probe_mode": "disable"})
        await lab.arun()
    rubric = artifact(lab, "phase2_rubric/story.rubric.json")
    assert list(rubric) == ["Plot", "pace", "Pace!"]
    assert rubric["Plot"] in ("First.", "Second.")


def test_a_damaged_artifact_is_named(tmp_path: Path) -> None:
    lab = Lab(tmp_path, TWO)
    lab.run()
    (lab.path / "phase2_rubric" / "story.rubric.json").write_text("[]")
    with pytest.raises(StoreError, match=r"story\.rubric\.json holds no mapping; restore it"):
        lab.run(continue_run=True)
