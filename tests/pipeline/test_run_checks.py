"""Checks in a run: planned, computed, stored and owed like judgments, at no cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, listen, model, task

import coeval
from coeval.analysis.measures.compute import compute_run_measures
from coeval.analysis.readers.run_reader import RunReader
from coeval.api import open_run
from coeval.cli.commands.run_command import print_dry_run
from coeval.core.errors import ConfigError
from coeval.pipeline.config.load_file import load_config, read_config
from coeval.pipeline.plan.preview import forecast_start
from coeval.pipeline.plan.what_counts import read_planned_names
from coeval.pipeline.run_options import RunOptions
from coeval.pipeline.upkeep.repair import RepairOptions, repair_run
from coeval.store.rundir import RunDir

SHORT = {"check": "length", "most": 50_000}
MOOD = {"check": "contains", "attribute": "mood", "case": False}
LATENCY = {"check": "latency_ms", "most": 60_000}


def lab_of(tmp_path: Path, rubric: dict[str, Any], *, judge: bool = True, **settings: Any) -> Lab:
    roles = ("teacher", "student", "judge") if judge else ("teacher", "student")
    return Lab(tmp_path, [model("ann", *roles), model("ben", "student")], [task(rubric=rubric, **settings)])


def checked(lab: Lab) -> dict[str, dict[str, Any]]:
    """The records of checks, by answer."""
    found = lab.records("evaluation").values()
    return {record["response_id"]: record for record in found if record["judge_model_id"] == "check"}


def owed(lab: Lab) -> tuple[int, int]:
    """What a run that goes on would make in phase 5: records and calls."""
    foreseen = forecast_start(load_config(lab.file), RunOptions(continue_run=True))
    records, calls = foreseen.sum_phase_owed("evaluation"), foreseen.sum_phase_calls("evaluation")
    assert records.low == records.high
    assert calls.low == calls.high
    return records.high, calls.high


def test_a_rubric_of_checks_alone_needs_no_judge_and_makes_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = lab_of(tmp_path, {"short": SHORT, "quick": LATENCY}, judge=False)
    requested = listen(monkeypatch)
    run = lab.run()
    assert run.exit_code == 0
    assert all(request.purpose != "evaluation" for _, request in requested.requests)
    records = checked(lab)
    assert len(records) == 6
    for answer, record in records.items():
        assert record["id"] == f"{answer}__check"
        assert record["values"] == {"short": 1.0, "quick": 1.0}
        assert record["scores"] == {}
        assert "usage" not in record
    assert {row.score for row in run.results().students} == {1.0}
    assert lab.run(continue_run=True).exit_code == 0
    assert lab.counts() == (3, 6, 6)


def test_dry_run_and_run_agree_and_a_new_check_owes_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = lab_of(tmp_path, {"plot": "Things happen.", "short": SHORT})
    foreseen = forecast_start(load_config(lab.file), RunOptions())
    assert foreseen.sum_phase_owed("evaluation").high == 12
    assert foreseen.sum_phase_calls("evaluation").high == 6
    lab.run()
    assert lab.counts() == (3, 6, 12)
    assert owed(lab) == (0, 0)
    lab.tasks[0]["rubric"]["quick"] = LATENCY
    assert owed(lab) == (6, 0)
    requested = listen(monkeypatch)
    assert lab.run(continue_run=True).exit_code == 0
    assert not requested.requests
    assert lab.counts() == (3, 6, 18)
    assert all(record["values"] == {"short": 1.0, "quick": 1.0} for record in checked(lab).values())


def test_a_changed_check_owes_its_factor_and_the_others_stay(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"short": SHORT, "quick": LATENCY}, judge=False)
    lab.run()
    before = checked(lab)
    lab.tasks[0]["rubric"]["short"] = {"check": "length", "most": 1}
    assert owed(lab) == (6, 0)
    lab.run(continue_run=True, changed="keep")
    assert checked(lab) == before
    assert lab.run(continue_run=True).exit_code == 0
    for answer, record in checked(lab).items():
        assert record["values"] == {"short": 0.0, "quick": 1.0}
        assert record["reasons"]["short"].startswith("has ")
        assert record["criteria"]["quick"] == before[answer]["criteria"]["quick"]
        assert record["criteria"]["short"] != before[answer]["criteria"]["short"]
    assert owed(lab) == (0, 0)


def test_a_changed_answer_is_checked_again(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"empty": {"check": "length", "most": 3}}, judge=False)
    lab.run()
    key = next(iter(lab.records("response_collection")))
    lab.edit("response_collection", key, response="ok")
    assert owed(lab) == (1, 0)
    lab.run(continue_run=True)
    assert checked(lab)[key]["values"] == {"empty": 1.0}
    assert owed(lab) == (0, 0)


def test_what_cannot_be_told_is_missing_with_its_reason_and_owed(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"short": SHORT, "size": {"check": "numeric", "attribute": "size"}}, judge=False)
    run = lab.run()
    assert run.exit_code == 3
    for record in checked(lab).values():
        assert record["values"] == {"short": 1.0}
        assert record["missing"] == ["size"]
        assert record["reasons"] == {"size": "the item has no attribute 'size'"}
    assert {row.score for row in run.results().students} == {None}  # never over other factors
    assert any("no answer is scored in size" in note for note in run.results().notes)
    assert owed(lab) == (6, 0)
    lab.tasks[0]["rubric"].pop("size")
    assert owed(lab) == (0, 0)


def test_scores_and_reasons_of_checks_are_shown(tmp_path: Path, coeval: Command) -> None:
    lab = lab_of(tmp_path, {"brief": {"check": "length", "most": 1}, "mood": MOOD}, judge=False)
    lab.run()
    shown = coeval("show", "--run", lab.path, "--id", "story__ann__00001").out
    record = checked(lab)["story__ann__00001__ann"]
    assert "check: brief 0, mood" in shown
    assert f"brief: {record['reasons']['brief']}" in shown


def test_where_all_checks_fail_the_record_is_a_failure(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"size": {"check": "numeric", "attribute": "size"}}, judge=False)
    run = lab.run()
    assert run.exit_code == 3
    assert "9 of 15 records there" in repr(run)
    for record in checked(lab).values():
        assert record["status"] == "failed"
        assert record["error"] == {"kind": "check", "message": "size: the item has no attribute 'size'"}
    assert owed(lab) == (6, 0)


def test_records_of_checks_survive_repair(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"plot": "Things happen.", "short": SHORT, "mood": MOOD})
    lab.run()
    found = repair_run(RunDir(lab.path), RepairOptions(dry_run=True))
    assert not found.flaws
    assert [file.owed for file in found.files if file.phase == "evaluation"] == [0, 0]
    lab.lose("evaluation", next(iter(checked(lab).values()))["id"])
    found = repair_run(RunDir(lab.path), RepairOptions(dry_run=True))
    assert found.count_owed("evaluation") == 1
    assert lab.run(continue_run=True).exit_code == 0


def test_mistakes_stand_with_their_lines(tmp_path: Path) -> None:
    rubric = {
        "a": {"check": "lenght", "most": 5},
        "b": {"check": "length", "mst": 5},
        "c": {"check": "length"},
        "d": {"check": "not_contains", "values": ["N/A", None]},
    }
    with pytest.raises(ConfigError) as error:
        load_config(lab_of(tmp_path, rubric, judge=False).file)
    lines = [problem.partition("  ")[2] for problem in error.value.problems]
    assert lines == [
        "tasks[0].rubric.a.check  V-37  'lenght' is not a kind of check; did you mean 'length'?",
        "tasks[0].rubric.b.mst  V-37  the key 'mst' is unknown; did you mean 'most'?",
        "tasks[0].rubric.c.check  V-37  length: needs least or most",
        "tasks[0].rubric.d.values[1]  V-37  is null, not text or a whole number or a number; "
        "put it in quotes",
    ]


def test_a_judge_is_needed_where_one_factor_is_judged(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="judge"):
        load_config(lab_of(tmp_path, {"short": SHORT, "plot": "Things happen."}, judge=False).file)


@pytest.mark.process
def test_checks_are_scores_of_students_and_no_part_of_judges_agreement(tmp_path: Path) -> None:
    """Of 12 answers, each has two scores of each of two judges, and one of each of two checks."""
    models = [model("ann"), model("ben", "student", "judge")]
    rubric = {"plot": "Things happen.", "style": "It reads well."}
    of_judges = Lab(tmp_path, models, [task(total=6, rubric=rubric)], id="judged")
    half = {"check": "similarity", "value": "x", "metric": "f1"}
    both = Lab(tmp_path, models, [task(total=6, rubric={**rubric, "short": SHORT, "like": half})], id="both")
    for lab in (of_judges, both):
        assert lab.run().exit_code == 0
    alone, measured = (
        compute_run_measures(RunReader(lab.path, read_planned_names(RunDir(lab.path))))
        for lab in (of_judges, both)
    )
    assert measured.measures.units == 12 * (2 * 2 + 2)
    assert measured.measures.judges.keys() == alone.measures.judges.keys()
    assert measured.measures.agreement == alone.measures.agreement
    assert measured.measures.panel == alone.measures.panel
    for student in measured.measures.students.values():
        assert student.score.missing == 0
        assert student.by_aspect["short"].value == 1.0
        assert student.by_aspect["like"].value == 0.0
        assert student.by_aspect["short"].missing == 0
    for row in open_run(both.path).results().students:
        assert row.least == row.most == row.score


# --- Code


GRADERS = (
    "def long(response):\n    return len(response) > 10\n\ndef fussy(response):\n    raise ValueError('no')\n"
)


@pytest.fixture
def graders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "graders.py").write_text(GRADERS)
    return tmp_path / "graders.py"


def python(name: str) -> dict[str, Any]:
    return {"check": "python", "function": f"graders.py:{name}"}


@pytest.mark.process
def test_a_changed_function_owes_its_factor_alone(graders: Path, tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"long": python("long"), "short": SHORT}, judge=False)
    assert lab.run().exit_code == 0
    graders.write_text(GRADERS.replace("> 10", "> 10**6"))
    assert owed(lab) == (6, 0)
    assert lab.run(continue_run=True).exit_code == 0
    assert all(record["values"] == {"long": 0.0, "short": 1.0} for record in checked(lab).values())
    assert owed(lab) == (0, 0)


@pytest.mark.process
def test_compare_says_that_only_the_code_of_a_check_differs(graders: Path, tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"long": python("long"), "short": SHORT}, judge=False)
    one = lab.run().path
    lab.id = "same"
    same = lab.run().path
    lab.id = "other"
    graders.write_text(GRADERS.replace("> 10", "> 10**6"))
    other = lab.run().path
    said = "story: the check long runs other code or options for other than for exp"
    assert [note for note in coeval.compare(one, other).notes if "check" in note] == [said]
    assert not [note for note in coeval.compare(one, same).notes if "check" in note]


@pytest.mark.process
def test_a_function_that_raises_costs_its_factor_alone(graders: Path, tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"long": python("long"), "fussy": python("fussy")}, judge=False)
    assert lab.run().exit_code == 3
    for record in checked(lab).values():
        assert record["values"] == {"long": 1.0}
        assert record["reasons"] == {"fussy": "raised ValueError: no"}


def test_code_that_cannot_run_is_refused_at_the_start(graders: Path, tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"a": python("nothing"), "b": {"check": "python", "function": "none.py:f"}})
    with pytest.raises(ConfigError) as error:
        read_config(lab.file, start=RunOptions())
    first, second = error.value.problems
    assert "rubric.a.function  V-38  graders.py defines no nothing" in first
    assert "rubric.b.function  V-38  cannot read none.py" in second


@pytest.mark.process
def test_a_command_needs_a_sandbox_or_leave_to_run_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = lab_of(tmp_path, {"a": {"check": "command", "argv": ["/bin/true"]}}, judge=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"V-38  would run without a sandbox: bubblewrap is not installed"):
        lab.run()
    run = lab.run(allow_unsandboxed=True)
    assert run.exit_code == 0
    assert all(record["values"] == {"a": 1.0} for record in checked(lab).values())


def test_an_inherited_file_introduces_no_code(graders: Path, tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"long": python("long")}, judge=False)
    lab.path.mkdir(parents=True)
    (lab.path / "config.yaml").write_text(lab.file.read_text())
    heir = Lab(tmp_path, lab.models, [], {"resume_from": "exp"}, id="heir")
    with pytest.raises(ConfigError, match=r"V-38  runs graders\.py:long, which .* this file does not"):
        load_config(heir.file)


def test_a_dry_run_names_the_code(graders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab = lab_of(tmp_path, {"long": python("long"), "short": SHORT}, judge=False)
    graders.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n{GRADERS}")
    print_dry_run(load_config(lab.file), RunOptions(), None)
    assert "Runs code: graders.py:long (story, long)" in capsys.readouterr().out
    assert not (tmp_path / "ran").exists()
