from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from written_run import append

from coeval.core.errors import UsageError
from coeval.core.records import Datapoint, Evaluation, Response
from coeval.store.legacy import (
    convert_run,
    find_target_attrs_file,
    is_legacy,
    read_declared_attributes,
    read_legacy,
)
from coeval.store.rundir import FOLDERS, RunDir

LEGACY = Path(__file__).parents[2].parent / "shared" / "reference" / "legacy_run"
needs_reference = pytest.mark.skipif(not LEGACY.is_dir(), reason=f"reference data not found at {LEGACY}")
RECORDS = ("data_generation", "response_collection", "evaluation")


def response(n: int, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"t__a__{n:05d}__s.1",
        "datapoint_id": f"t__a__{n:05d}",
        "task_id": "t",
        "teacher_model_id": "a",
        "student_model_id": "s.1",
        "response": f"answer {n}",
    } | fields


def evaluation(n: int, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"t__a__{n:05d}__s.1__j",
        "response_id": f"t__a__{n:05d}__s.1",
        "datapoint_id": f"t__a__{n:05d}",
        "task_id": "t",
        "teacher_model_id": "a",
        "judge_model_id": "j",
        "scores": {"clarity": "High"},
    } | fields


@pytest.fixture
def older(tmp_path: Path) -> Path:
    return tmp_path / "older"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


def answers(folder: Path) -> Path:
    return folder / "phase4_responses" / "t.a.s.1.responses.jsonl"


def judgments(folder: Path) -> Path:
    return folder / "phase5_evaluations" / "t.a.j.evaluations.jsonl"


def read_all(path: Path, kind: type[Any]) -> list[Any]:
    return [msgspec.json.decode(line, type=kind) for line in path.read_bytes().splitlines()]


@needs_reference
def test_the_reference_run_becomes_a_current_one(target: Path) -> None:
    converted = convert_run(LEGACY, target, tuple(FOLDERS))
    assert converted.dropped_reasons == ()
    assert is_legacy(LEGACY)
    assert not is_legacy(target)
    run = RunDir(target)
    assert converted.counts["attribute_mapping"] == 4
    assert json.loads(run.target_attrs("unit_conversion").read_text())["steps"] == ["one", "two"]
    assert json.loads(run.nuanced_attrs("haiku_writing").read_text()) == {"tone": ["dry", "warm"]}
    assert list(json.loads(run.rubric("haiku_writing").read_text())) == ["form", "imagery"]
    for phase in RECORDS:
        ids = {
            json.loads(line)["id"]
            for path in RunDir(LEGACY).files(phase)
            for line in path.read_text().splitlines()
        }
        lines = [line for path in run.files(phase) for line in path.read_text().splitlines()]
        assert converted.counts[phase] == len(lines) == len(ids)
        assert {json.loads(line)["id"] for line in lines} == ids
    both_teachers = read_all(run.responses("haiku_writing", "gamma.small"), Response)
    assert {record.teacher_model_id for record in both_teachers} == {"alpha-1.5", "beta"}
    for record in read_all(run.evaluations("haiku_writing", "beta", "alpha-1.5"), Evaluation):
        assert record.response_id == f"{record.datapoint_id}__{record.student_model_id}"
    assert sorted(path.name for path in target.iterdir()) == sorted(FOLDERS.values())


def test_a_good_record_goes_before_a_failed_one(older: Path, target: Path) -> None:
    failed = response(1, response=None, status="failed", error="timeout")
    append(answers(older), failed, response(1, status=None), failed, response(2, status="failed"))
    convert_run(older, target, ["response_collection"])
    records = read_all(RunDir(target).responses("t", "s.1"), Response)
    assert [(record.status, record.response) for record in records] == [
        ("ok", "answer 1"),
        ("failed", "answer 2"),
    ]


def test_what_is_no_record_is_dropped_and_reported(older: Path, target: Path) -> None:
    append(
        answers(older), response(1), "garbage\n", response(2, student_model_id=5), response(3), '{"id": "t__'
    )
    converted = convert_run(older, target, ["response_collection"])
    assert converted.counts == {"response_collection": 2}
    assert len(converted.dropped_reasons) == 2  # a torn last line is none
    assert any("student_model_id" in dropped for dropped in converted.dropped_reasons)
    assert all(f" of {answers(older)}: " in dropped for dropped in converted.dropped_reasons)


def test_a_whole_last_record_without_a_line_end_is_kept(older: Path, target: Path) -> None:
    append(answers(older), response(1), json.dumps(response(2)))
    assert convert_run(older, target, ["response_collection"]).counts == {"response_collection": 2}


def test_an_evaluation_takes_its_student_from_its_response(older: Path, target: Path) -> None:
    append(answers(older), response(1))
    append(judgments(older), evaluation(1), evaluation(2))
    converted = convert_run(older, target, ["evaluation"])
    [record] = read_all(RunDir(target).evaluations("t", "a", "j"), Evaluation)
    assert record.student_model_id == "s.1"
    [dropped] = converted.dropped_reasons
    assert "student_model_id" in dropped


def test_scores_keep_their_level_and_lose_nothing_silently(older: Path, target: Path) -> None:
    scores = {"a": "high", "b": "Medium", "c": "excellent", "d": None}
    append(judgments(older), evaluation(1, student_model_id="s.1", scores=scores, status="success"))
    convert_run(older, target, ["evaluation"])
    [record] = read_all(RunDir(target).evaluations("t", "a", "j"), Evaluation)
    assert record.scores == {"a": "High", "b": "Medium"}
    assert record.missing == ("c", "d")


def test_failures_stay_failures(older: Path, target: Path) -> None:
    append(answers(older), response(1, response=None, status="failed", error="timed out"))
    convert_run(older, target, ["response_collection"])
    [record] = read_all(RunDir(target).responses("t", "s.1"), Response)
    assert (record.status, record.response, record.error.message) == ("failed", None, "timed out")


def test_declared_attribute_values_become_text_too(older: Path, tmp_path: Path) -> None:
    declared = {"lines": [3, 5], "rhymed": [True, False], "form": ["free"]}
    append(older / "phase1_attributes" / "t.target_attrs.json", json.dumps(declared))
    expected = {"lines": ["3", "5"], "rhymed": ["true", "false"], "form": ["free"]}
    assert read_declared_attributes(RunDir(older), "t") == expected
    assert read_declared_attributes(RunDir(older), "nothing") == {}
    convert_run(older, tmp_path / "new", ["attribute_mapping"])
    assert json.loads(RunDir(tmp_path / "new").target_attrs("t").read_text()) == expected


def test_attribute_values_become_text(older: Path) -> None:
    append(
        older / "phase3_datapoints" / "t.a.datapoints.jsonl",
        {
            "id": "t__a__00001",
            "task_id": "t",
            "teacher_model_id": "a",
            "sampled_target_attributes": {"lines": 3, "rhymed": True, "form": "free"},
            "prompt": "p",
        },
    )
    [record] = read_legacy(older, "data_generation", [])
    assert isinstance(record, Datapoint)
    assert record.sampled_target_attributes == {"lines": "3", "rhymed": "true", "form": "free"}


def test_names_cannot_lead_out_of_the_run(older: Path, target: Path) -> None:
    append(answers(older), response(1, task_id="../../outside"))
    converted = convert_run(older, target, ["response_collection"])
    assert converted.counts == {"response_collection": 0}
    assert "cannot be part of a file name" in converted.dropped_reasons[0]


def test_repeating_a_conversion_changes_nothing(older: Path, target: Path) -> None:
    append(answers(older), response(1))
    convert_run(older, target, ["response_collection"])
    before = RunDir(target).responses("t", "s.1").read_bytes()
    convert_run(older, target, ["response_collection"])
    assert RunDir(target).responses("t", "s.1").read_bytes() == before


def test_other_work_in_the_target_is_never_overwritten(older: Path, target: Path) -> None:
    append(answers(older), response(1))
    standing = RunDir(target).responses("t", "s.1")
    append(standing, response(9))
    before = standing.read_bytes()
    with pytest.raises(UsageError, match="holds something else"):
        convert_run(older, target, ["response_collection"])
    assert standing.read_bytes() == before


def test_a_current_run_is_copied_and_not_called_legacy(older: Path, target: Path) -> None:
    append(RunDir(older).responses("t", "s.1"), response(1))
    append(RunDir(older).evaluations("t", "a", "j"), evaluation(1, student_model_id="s.1"))
    append(RunDir(older).target_attrs("t"), "{}")
    assert not is_legacy(older)
    assert convert_run(older, target, tuple(FOLDERS)).dropped_reasons == ()
    assert json.loads(RunDir(target).responses("t", "s.1").read_text()) == response(1)


def test_each_sign_of_an_older_layout_is_enough(tmp_path: Path) -> None:
    append(tmp_path / "1" / "phase1_attributes" / "t.target_attrs.json", "{}")
    append(answers(tmp_path / "4"), response(1))
    append(judgments(tmp_path / "5"), evaluation(1))
    assert [is_legacy(tmp_path / name) for name in ("1", "4", "5")] == [True, True, True]
    assert not is_legacy(tmp_path / "nowhere")


def test_the_current_name_counts_where_both_stand(older: Path, target: Path) -> None:
    append(older / "phase1_attributes" / "t.target_attrs.json", '{"old": []}')
    assert find_target_attrs_file(RunDir(older), "t").name == "t.target_attrs.json"
    append(RunDir(older).target_attrs("t"), '{"new": []}')
    assert find_target_attrs_file(RunDir(older), "t").name == "t_target_attrs.json"
    assert convert_run(older, target, ["attribute_mapping"]).counts == {"attribute_mapping": 1}
    assert json.loads(RunDir(target).target_attrs("t").read_text()) == {"new": []}


def test_bytes_that_are_no_text_are_dropped_and_hide_no_layout(tmp_path: Path) -> None:
    path = tmp_path / "phase5_evaluations" / "t.a.j.evaluations.jsonl"
    older = {key: value for key, value in evaluation(1).items() if key != "student_model_id"}
    append(tmp_path / "phase4_responses" / "t.s.1.responses.jsonl", response(1))
    append(path, older, older | {"id": "second", "finish_reason": "odd"})
    path.write_bytes(b'{"id": "\xff"}\n' + path.read_bytes().replace(b'"odd"', b'"\xff"'))
    assert is_legacy(tmp_path)
    dropped: list[str] = []
    assert [record.id for record in read_legacy(tmp_path, "evaluation", dropped)] == [older["id"]]
    assert dropped[0].startswith("byte 0 of ")
    assert len(dropped) == 2
