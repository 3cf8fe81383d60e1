"""Items of one's own: what a person or a script writes is used, or told by file and line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pipeline.experiments import Lab, Notes, content, listen, model, quiz, task

from coeval.analysis.planned_names import ItemsBeyondTotal
from coeval.api import load_config
from coeval.core.errors import UsageError
from coeval.pipeline.plan.preview import forecast_start
from coeval.pipeline.run_options import RunOptions
from coeval.pipeline.upkeep.gaps import FileGap
from coeval.pipeline.upkeep.repair import RepairOptions, repair_run
from coeval.store.rundir import RunDir

CAST = [model("ann", "student", "judge"), model("ben", "student", "judge")]


def exam(task: str | None = "story", name: str = "exam") -> dict[str, Any]:
    parameters = {"parameters": {"task": task}} if task else {}
    return {"name": name, "interface": "benchmark", "roles": ["teacher"], **parameters}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Two students and two judges for items that ``exam`` supplies."""
    return Lab(tmp_path, [exam(), *CAST], [task(total=2)])


def file_of(lab: Lab, task: str = "story", teacher: str = "exam") -> Path:
    path = lab.path / "phase3_datapoints" / f"{task}.{teacher}.datapoints.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def put(lab: Lab, *items: dict[str, Any], task: str = "story", teacher: str = "exam") -> Path:
    """Append items, as a script would write them."""
    path = file_of(lab, task, teacher)
    with path.open("a") as file:
        file.writelines(json.dumps(item) + "\n" for item in items)
    return path


def items(first: int, last: int) -> list[dict[str, Any]]:
    return [{"id": n, "prompt": f"Question {n}?"} for n in range(first, last + 1)]


@pytest.mark.process
def test_four_tasks_of_ten_items_are_240_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each benchmark teacher names its task, and the category is left out."""
    names = ["text_summarization", "code_explanation", "email_composition", "data_interpretation"]
    teachers = [exam(name, f"own-{n}") for n, name in enumerate(names)]
    lab = Lab(tmp_path, [*teachers, *CAST], [task(name, total=10) for name in names])
    before = forecast_start(load_config(lab.file), RunOptions()).total
    for n, name in enumerate(names):
        put(lab, *items(1, 10), task=name, teacher=f"own-{n}")
    expected = forecast_start(load_config(lab.file), RunOptions()).total
    requested = listen(monkeypatch)
    run = lab.run()
    assert run.exit_code == 0
    assert requested.phases() == (0, 0, 0, 80, 160)
    assert (before.low, before.high) == (expected.low, expected.high) == (240, 240)
    assert [score.n for score in run.results().students if score.task is None] == [40, 40]
    assert lab.meta()["status"] == "completed"


@pytest.mark.parametrize(
    ("written", "ids"),
    [
        (b'{"id": 1, "prompt": "One?"}\n{"id": 2, "prompt": "Two?"}', ["1", "2"]),
        (b'{"id": 1.50, "prompt": "One?"}\r\n{"id": "true", "prompt": "Two?"}\r\n', ["1.50", "true"]),
        (
            b'\xef\xbb\xbf{"id": "a", "prompt": "One?"}\n\n{"id": "b c__d", "prompt": "Two?"}\n',
            ["a", "b c__d"],
        ),
        (
            b'{"prompt": "One?", "id": "story__exam__x"}\n{"id": "\xc3\xa4", "prompt": "Two?"}\n',
            ["x", "\u00e4"],
        ),
    ],
    ids=["no newline at the end", "carriage returns", "byte order mark and a blank line", "a whole id"],
)
def test_items_are_used_as_they_were_written(lab: Lab, written: bytes, ids: list[str]) -> None:
    file_of(lab).write_bytes(written)
    assert lab.run().exit_code == 0
    found = lab.records("data_generation")
    assert list(found) == [f"story__exam__{own}" for own in ids]
    assert [record["prompt"] for record in found.values()] == ["One?", "Two?"]
    assert all(record["task_id"] == "story" for record in found.values())
    assert all(record["sampled_target_attributes"] == {} for record in found.values())
    assert len(lab.records("evaluation")) == 2 * 2 * 2
    lines = file_of(lab).read_bytes()
    assert lab.run(continue_run=True).exit_code == 0
    assert file_of(lab).read_bytes() == lines, "once taken in, the file stays as it is"


def test_what_a_line_holds_besides_is_kept(lab: Lab) -> None:
    put(
        lab,
        {"id": 1, "prompt": "6 × 7?", "reference_response": 42, "source": {"page": 3}},
        {"id": 2, "prompt": "Blue?", "sampled_target_attributes": {"mood": "glad", "year": 1999}},
    )
    reported = Notes()
    assert lab.run(watcher=reported).exit_code == 0
    first, second = lab.records("data_generation").values()
    assert (first["reference_response"], first["source"]) == ("42", {"page": 3})
    assert second["sampled_target_attributes"] == {"mood": "glad", "year": "1999"}
    assert reported.warnings == [f"{file_of(lab)}:1: the field `source` is not used"]


REFUSED: list[tuple[bytes, str]] = [
    (b'{"id": 1, "prompt": "?", "task_id": "essay"}',
     'its `task_id` is "essay"; items of this file are of story'),
    (b'{"id": 1, "prompt": "?", "teacher_model_id": 5}',
     "its `teacher_model_id` is 5; items of this file are of exam"),
    (b'{"id": 1, "question": "One?", "answer": "1"}', "it has no `prompt`, only `id`, `question`, `answer`"),
    (b'{"id": 1, "prompt": ""}', "its `prompt` is empty"),
    (b'{"id": 1, "prompt": "  "}', "its `prompt` is empty"),
    (b'{"id": 1, "prompt": null}', "its `prompt` is empty"),
    (b'{"id": 1, "prompt": ["One?"]}', "its `prompt` is a list; give text"),
    (b'{"id": 1, "prompt": 7}', "its `prompt` is 7; give text"),
    (b'{"id": true, "prompt": "One?"}', "its `id` is true; give text or a number"),
    (b'{"id": 1, "prompt": "One?", "sampled_target_attributes": {"colour": ["red"]}}',
     "in its `sampled_target_attributes`, colour is a list; give one value, as text or a number"),
    (b'{"id": 1, "prompt": "One?", "sampled_target_attributes": "red"}',
     "its `sampled_target_attributes` is 'red'; give a mapping, such as"),
    (b'{"prompt": "One?"}', "it has no `id`, text or a number"),
    (b'{"id": null, "prompt": "One?"}', "it has no `id`, text or a number"),
    (b'{"id": [1], "prompt": "One?"}', "it has no `id`, text or a number"),
    (b"id,prompt", "it is not JSON"),
    (b"[1]", "it is not a JSON object"),
    (b'{"id": 1, "prompt": "caf\xe9"}', "byte 25 is not UTF-8; save the file as UTF-8"),
    (b'{"id": 1, "prompt": "One?", "status": "failed"}', "it is the record of a failed item"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "why"), REFUSED, ids=[why for _, why in REFUSED])
def test_what_cannot_be_used_is_refused_by_file_and_line(lab: Lab, line: bytes, why: str) -> None:
    good = b'{"id": "a", "prompt": "One?"}\n'
    file_of(lab).write_bytes(good + b"\n" + line + b"\n" + good)
    before = file_of(lab).read_bytes()
    for attempt in (lab.run, lambda: forecast_start(load_config(lab.file), RunOptions())):
        with pytest.raises(UsageError) as refused:
            attempt()
        message = str(refused.value)
        assert f"{file_of(lab)}:3: {why}" in message
        assert "docs/items.md" in message
        assert not re.search("overwrite|ingest", message)
    assert file_of(lab).read_bytes() == before
    assert not (lab.path / "meta.json").exists()


def test_many_lines_of_one_kind_are_told_once(lab: Lab) -> None:
    put(lab, *({"id": n, "question": "?"} for n in range(40)))
    with pytest.raises(UsageError) as refused:
        lab.run()
    assert "jsonl:1: it has no `prompt`" in str(refused.value)
    assert "(also on 39 more lines: 2, 3, 4, 5, 6, …)" in str(refused.value)


def test_a_file_full_of_mistakes_is_told_in_a_screenful(lab: Lab) -> None:
    put(lab, *({"id": n, f"question {n}": "?"} for n in range(400)))
    with pytest.raises(UsageError, match=r"jsonl: … and 380 more of the kind") as refused:
        lab.run()
    assert len(str(refused.value).splitlines()) == 22


def test_what_is_worth_a_look_is_told(lab: Lab) -> None:
    lab.tasks = [quiz("story", total=4)]
    path = put(
        lab,
        {"id": 1, "prompt": "Sky?", "sampled_target_attributes": {"colour": "blue"}},
        {"id": "1", "prompt": "Rose?", "sampled_target_attributes": {"colour": " RED"}},
        {"id": 3, "prompt": "Snow?", "sampled_target_attributes": {"colour": "white"}},
        {"id": 2, "prompt": "Leaf?", "refrence_response": "green"},
    )
    reported = Notes()
    run = lab.run(watcher=reported)
    assert run.exit_code == 3
    assert reported.warnings == [
        f"{path}:2: the id story__exam__1 is already on line 1; the last one counts",
        f"{path}:3: the label colour is white, which target_attributes does not declare",
        f"{path}:4: the field `refrence_response` is not used",
        f"{path}:4: the label colour has no value in `sampled_target_attributes`, and is not compared",
        f"{path} holds 3 of the 4 items that sampling.total requires",
    ]
    assert (
        list(forecast_start(load_config(lab.file), RunOptions(continue_run=True)).warnings)[-1]
        == reported.warnings[-1]
    )


def test_fewer_items_than_the_total_are_a_gap_until_the_rest_is_there(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.tasks = [task(total=5)]
    put(lab, *items(1, 3))
    requested = listen(monkeypatch)
    run = lab.run()
    assert run.exit_code == 3
    assert run.summary is not None
    outcome = run.summary.phases["data_generation"]
    assert (outcome.planned, outcome.missing, outcome.unsupplied, outcome.blocked) == (5, 2, 2, 0)
    assert run.summary.missing == 2
    assert "data_generation" not in lab.meta()["phases_completed"]
    assert requested.phases() == (0, 0, 0, 6, 12)
    [counted] = [
        f for f in repair_run(RunDir(lab.path), RepairOptions(dry_run=True)).files if f.path == file_of(lab)
    ]
    assert counted.gap == FileGap("data_generation", planned=5, there=3)
    put(lab, *items(4, 6))
    expected = forecast_start(load_config(lab.file), RunOptions(continue_run=True)).total
    requested.clear()
    assert lab.run(continue_run=True).exit_code == 0
    assert requested.phases() == (0, 0, 0, 4, 8)
    assert (expected.low, expected.high) == (12, 12)
    assert "story__exam__6__ann" not in lab.records("response_collection"), "the first `total` are used"
    assert lab.meta()["status"] == "completed"


def test_only_models_leaves_items_that_lack_to_others(lab: Lab) -> None:
    put(lab, *items(1, 1))
    assert lab.run(only_models=["ann"]).exit_code == 0
    assert "data_generation" not in lab.meta()["phases_completed"]
    assert lab.run(continue_run=True).exit_code == 3


@pytest.mark.parametrize("written", [None, "", "\n\n"])
def test_without_items_the_file_to_write_is_named(lab: Lab, written: str | None) -> None:
    if written is not None:
        file_of(lab).write_text(written)
    with pytest.raises(UsageError) as refused:
        lab.run()
    message = str(refused.value)
    assert f"{file_of(lab)} (exam for task story)" in message
    assert "`id`, `prompt` and, if there is one, `reference_response` (docs/items.md)" in message
    assert "`coeval ingest TABLE --config FILE`" in message
    assert "overwrite" not in message
    assert not (lab.path / "meta.json").exists()


def test_a_file_of_another_name_is_told_with_the_right_one(lab: Lab) -> None:
    (file_of(lab).parent / "story.jsonl").write_text('{"id": 1, "prompt": "One?"}\n')
    with pytest.raises(UsageError) as refused:
        lab.run()
    assert str(file_of(lab).parent / "story.jsonl") in str(refused.value)
    assert str(file_of(lab)) in str(refused.value)
    assert "overwrite" not in str(refused.value)


def test_a_reworded_item_is_a_change_that_is_asked_about(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    put(lab, *items(1, 2))
    lab.run()
    file_of(lab).unlink()
    put(lab, {"id": 1, "prompt": "Question 1, reworded?"}, *items(2, 2))
    for attempt in (
        lambda: lab.run(continue_run=True),
        lambda: forecast_start(load_config(lab.file), RunOptions(continue_run=True)),
    ):
        with pytest.raises(UsageError, match="content of the datapoint they were made from"):
            attempt()
    requested = listen(monkeypatch)
    assert lab.run(continue_run=True, changed="redo").exit_code == 0
    assert requested.phases() == (0, 0, 0, 2, 4)


@pytest.mark.process
def test_a_task_may_have_a_writer_and_items_of_ones_own(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.models.append(model("tea", "teacher"))
    put(lab, *items(11, 13))
    requested = listen(monkeypatch)
    run = lab.run()
    assert requested.phases() == (0, 0, 2, 8, 16)
    assert {record["teacher_model_id"] for record in lab.records("data_generation").values()} == {
        "exam",
        "tea",
    }
    assert (run.results().beyond_total, run.results().left_out) == ((ItemsBeyondTotal("story", 1),), ())
    assert [score.n for score in run.results().students if score.task is None] == [4, 4]


def test_a_teacher_that_names_its_task_serves_no_other(tmp_path: Path) -> None:
    tasks = [task(total=1), task("essay", total=1, category="benchmark")]
    lab = Lab(tmp_path, [exam(), exam(None, "any"), *CAST], tasks)
    put(lab, *items(1, 1))
    put(lab, *items(1, 1), task="essay", teacher="any")
    assert lab.run().exit_code == 0
    assert set(lab.records("data_generation")) == {"story__exam__1", "essay__any__1"}


def test_nobody_samples_attributes_of_a_task_that_is_supplied(tmp_path: Path) -> None:
    lab = Lab(tmp_path, [exam(), *CAST], [task(total=1, target_attributes={}, sampling={"total": 1})])
    put(lab, *items(1, 1))
    assert lab.run().exit_code == 0


def test_items_stay_where_a_run_is_overwritten(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    put(lab, *items(1, 2))
    lab.run()
    before = file_of(lab).read_bytes()
    requested = listen(monkeypatch)
    assert lab.run(overwrite=True).exit_code == 0
    assert requested.phases() == (0, 0, 0, 4, 8)
    assert file_of(lab).read_bytes() == before


@pytest.mark.parametrize("started", [True, False])
def test_items_are_taken_over(lab: Lab, monkeypatch: pytest.MonkeyPatch, started: bool) -> None:
    """From a run, or from a folder where they were only put."""
    put(lab, *items(1, 2))
    if started:
        lab.run()
    settings = {"resume_from": lab.id, "phases": {"data_generation": "Extend"}}
    heir = Lab(lab.folder, lab.models, lab.tasks, settings, "heir")
    expected = forecast_start(load_config(heir.file), RunOptions()).total
    requested = listen(monkeypatch)
    assert heir.run().exit_code == 0
    assert (expected.low, sum(requested.phases())) == (12, 12)
    assert set(heir.records("data_generation")) == {"story__exam__1", "story__exam__2"}


def test_repair_leaves_waiting_items_and_sets_aside_what_is_none(lab: Lab) -> None:
    put(lab, *items(1, 2))
    with pytest.raises(UsageError, match="holds only items"):
        repair_run(RunDir(lab.path), RepairOptions())
    lab.run()
    lab.tasks[0]["sampling"]["total"] = 4
    lab.run(continue_run=True)
    put(lab, *items(3, 3), {"id": 4})
    looked = repair_run(RunDir(lab.path), RepairOptions(dry_run=True, examples=5))
    assert [(line.number, line.flaw.reason) for line in looked.invalid] == [(4, "item")]
    report = repair_run(RunDir(lab.path), RepairOptions())
    assert report.aside is not None
    assert sum(file.owed for file in report.files if file.phase == "data_generation") == 1
    assert lab.run(continue_run=True).exit_code == 3
    assert set(lab.records("data_generation")) == {f"story__exam__{n}" for n in (1, 2, 3)}


def test_answers_do_not_depend_on_how_the_items_were_written(tmp_path: Path) -> None:
    """By hand, or as whole records."""
    whole = [
        {
            "id": f"story__exam__{n}",
            "task_id": "story",
            "teacher_model_id": "exam",
            "sampled_target_attributes": {},
            "prompt": f"Question {n}?",
        }
        for n in (1, 2)
    ]
    labs = []
    for name, written in (("hand", items(1, 2)), ("whole", whole)):
        labs.append(Lab(tmp_path, [exam(), *CAST], [task(total=2)], id=name))
        put(labs[-1], *written)
        assert labs[-1].run().exit_code == 0
    assert content(labs[0]) == content(labs[1])
    assert all(lab.counts() == (2, 4, 8) for lab in labs)


def test_a_label_in_the_wrong_place_or_misspelt_is_told_with_the_right_one(tmp_path: Path) -> None:
    lab = Lab(tmp_path, [exam(), *CAST], [quiz("story", total=3)])
    path = put(
        lab,
        {"id": 1, "prompt": "Sky?", "colour": "blue"},
        {"id": 2, "prompt": "Sea?", "color": "blue"},
        {"id": 3, "prompt": "Rose?", "sampled_target_attributes": {"color": "red"}},
    )
    reported = Notes()
    lab.run(watcher=reported)
    without = "the label colour has no value in `sampled_target_attributes`, and is not compared"
    assert reported.warnings == [
        f"{path}:1: the field `colour` is not used",
        f"{path}:1: {without} (also on line 2)",
        f"{path}:2: the field `color` is not used",
        f"{path}:3: {without}; color has one: is colour meant?",
    ]
