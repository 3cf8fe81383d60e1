"""A redo that fails never hides the good record: not from the plan, nor from whoever reads the run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pipeline.experiments import PHASES, Lab, listen, model, task

import coeval
from coeval.analysis.run_results import Results
from coeval.pipeline.upkeep.repair import Wanted, repair
from coeval.store.rundir import RunDir


def finished(folder: Path, **changes: Any) -> Lab:
    models = [
        model("tea", "teacher"),
        model("ann", "student"),
        model("ben", "student"),
        model("jud", "judge"),
    ]
    lab = Lab(folder, models, [task(**changes)], {"probe_mode": "disable", "generation_retries": 1})
    assert lab.run().exit_code == 0
    return lab


def parameters(lab: Lab, name: str) -> dict[str, Any]:
    [found] = [entry["parameters"] for entry in lab.models if entry["name"] == name]
    values: dict[str, Any] = found
    return values


def redo_in_vain(lab: Lab, name: str) -> None:
    """Change a model, which then fails whatever it is asked; and take both back."""
    values = parameters(lab, name)
    before = dict(values)
    values |= {"temperature": 0.3, "failure_rate": 1.0}
    assert lab.run(continue_run=True, changed="redo").exit_code == 3
    values.clear()
    values.update(before)


def read_back(lab: Lab) -> tuple[Results, list[Any]]:
    """The scores, without what was paid and what is said of them, and every record that counts."""
    run = coeval.open_run(lab.path)
    return msgspec.structs.replace(run.results(), costs=(), notes=()), [
        record for phase in PHASES for record in run.records(phase)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tea", "ann", "jud"])
def test_it_hides_nothing_in_any_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    lab = finished(tmp_path)
    before, lines = read_back(lab), lab.counts()
    redo_in_vain(lab, name)
    assert sum(lab.counts()) > sum(lines), "the failures stand beside the good records"
    assert read_back(lab) == before
    [told] = coeval.open_run(lab.path).results().notes
    assert "of another configuration" in told, "than that which failed, and which the folder holds"
    counted = repair(RunDir(lab.path), Wanted(dry_run=True))
    assert sum(file.owed for file in counted.files) == 0
    asked = listen(monkeypatch)
    again = lab.run(continue_run=True)
    assert (again.exit_code, asked.requests) == (0, [])
    assert lab.meta()["status"] == "completed"


def test_status_counts_the_good_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from coeval.cli.commands.status import status

    lab = finished(tmp_path)
    redo_in_vain(lab, "ann")
    status(lab.path)
    shown = capsys.readouterr().out
    assert re.search(r"response_collection +\S+ +2 +6 +0 +0 *$", shown, re.MULTILINE)


def test_a_run_that_takes_over_takes_the_good_one(tmp_path: Path) -> None:
    lab = finished(tmp_path)
    before = read_back(lab)
    redo_in_vain(lab, "jud")
    heir = Lab(
        tmp_path, lab.models, lab.tasks, lab.settings | {"phases": dict.fromkeys(PHASES, "Extend")}, "heir"
    )
    heir.settings["resume_from"] = lab.id
    assert heir.run().exit_code == 0
    assert read_back(heir) == before


def test_the_next_redo_asks_otherwise_than_the_failed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its seeds go on from all askings on record; those that failed would only fail again."""
    lab = finished(tmp_path)
    parameters(lab, "ann")["temperature"] = 0.3
    seeds: list[set[int | None]] = []
    for rate in (1.0, 0.0):
        parameters(lab, "ann")["failure_rate"] = rate
        asked = listen(monkeypatch)
        lab.run(continue_run=True, changed="redo")
        seeds.append({request.seed for name, request in asked.requests if name == "ann"})
    assert [len(found) for found in seeds] == [6, 3]
    assert not seeds[0] & seeds[1]


def test_a_factor_that_fails_to_join_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = finished(tmp_path, evaluation_mode="per_factor")
    before = {key: record["scores"] for key, record in lab.records("evaluation").items()}
    lab.tasks[0]["rubric"]["ending"] = "It ends well."
    parameters(lab, "jud")["failure_rate"] = 1.0
    assert lab.run(continue_run=True, changed="keep").exit_code == 3
    parameters(lab, "jud")["failure_rate"] = 0.0
    asked = listen(monkeypatch)
    assert lab.run(continue_run=True, changed="keep").exit_code == 0
    assert asked.phases() == (0, 0, 0, 0, 6), "only the new factor"
    joined = lab.records("evaluation")
    assert all(joined[key]["scores"].items() >= scores.items() for key, scores in before.items())
