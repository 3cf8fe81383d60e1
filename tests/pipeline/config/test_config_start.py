"""Whether a run may start in its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coeval.core.errors import ConfigError
from coeval.pipeline.config.load_file import read_config
from coeval.pipeline.run_options import RunOptions


def start(text: str, **how: Any) -> list[str]:
    Path("e.yaml").write_text(text)
    try:
        read_config("e.yaml", start=RunOptions(**how))
    except ConfigError as error:
        return error.problems
    return []


@pytest.fixture
def run(folder: Path) -> Path:
    path = folder / "runs" / "exp-1"
    path.mkdir(parents=True)
    return path


def put(run: Path, name: str, *records: dict[str, str]) -> None:
    file = run / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_a_new_run_starts_where_nothing_stands(folder: Path, valid: str) -> None:
    assert start(valid) == []


def test_a_failed_start_is_not_a_run(run: Path, valid: str) -> None:
    (run / "probe_results.json").write_text("{}")
    (run / "cost_estimate.json").write_text("{}")
    (run / "phase3_datapoints").mkdir()
    assert start(valid) == []


def test_artifacts_of_a_new_phase_refuse_and_name_the_ways_out(run: Path, valid: str) -> None:
    put(run, "phase3_datapoints/news.large.datapoints.jsonl", {"teacher_model_id": "large"})
    put(run, "phase4_responses/news.large.responses.jsonl", {"teacher_model_id": "large"})
    (problem,) = start(valid)
    assert problem.startswith("e.yaml:19  experiment.id  V-11  ")
    for word in (
        "phase3_datapoints",
        "phase4_responses",
        "continue_run=True",
        "another id",
        "overwrite=True",
    ):
        assert word in problem
    assert start(valid, overwrite=True) == []
    phases = "storage_folder: runs\n  phases: {data_generation: Extend, response_collection: Model}"
    assert start(valid.replace("storage_folder: runs", phases)) == []


def test_items_of_ones_own_are_no_obstacle(run: Path, valid: str) -> None:
    """However they are written: the run that starts reads them."""
    arc = "  - {name: arc, interface: benchmark, roles: [teacher], parameters: {task: news}}\ntasks:"
    text = valid.replace("tasks:", arc)
    put(run, "phase3_datapoints/news.arc.datapoints.jsonl", {"id": "1", "prompt": "?"})
    assert start(text) == []
    (run / "phase3_datapoints/news.arc.datapoints.jsonl").write_text('{"id": 1, "pro')
    assert start(text) == []
    assert "V-11" in start(valid)[0]  # arc is no teacher of this one
    put(run, "phase3_datapoints/news.large.datapoints.jsonl", {"teacher_model_id": "large"})
    (problem,) = start(text)
    assert "V-11" in problem
    assert "news.large.datapoints.jsonl belongs to no benchmark teacher of this file" in problem
    assert "items are read from runs/exp-1/phase3_datapoints/news.arc.datapoints.jsonl" in problem
    (run / "meta.json").write_text("{}")
    assert "overwrite=True" in start(text)[0]


def test_continue_wants_the_run_it_names(run: Path, valid: str) -> None:
    (problem,) = start(valid, continue_run=True)
    assert problem.startswith("e.yaml:19  experiment.id  V-14  there is no run")
    meta = {"experiment_id": "other", "status": "running", "created_at": "", "updated_at": ""}
    (run / "meta.json").write_text(json.dumps(meta))
    (problem,) = start(valid, continue_run=True)
    assert "'other'" in problem
    (run / "meta.json").write_text(json.dumps(meta | {"experiment_id": "exp-1"}))
    assert start(valid, continue_run=True) == []
    (run / "meta.json").write_text("{")
    assert "V-14" in start(valid, continue_run=True)[0]


def test_what_hinders_a_start_is_told_together_with_every_mistake(run: Path, valid: str) -> None:
    put(run, "phase3_datapoints/news.large.datapoints.jsonl", {"teacher_model_id": "large"})
    text = valid.replace("name: small", "name: small\n    temprature: 1").replace("total: 5", "total: -2")
    problems = start(text, only_models=("large", "smal"))
    assert [tuple(problem.split("  ")[:3]) for problem in problems] == [
        ("e.yaml:1", "models", "V-30"),
        ("e.yaml:7", "models[1].temprature", "V-18"),
        ("e.yaml:16", "tasks[0].sampling.total", "V-21"),
        ("e.yaml:20", "experiment.id", "V-11"),
    ]
    assert "did you mean 'small'?" in problems[0]


@pytest.mark.parametrize("broken", ["id: ..", "id: a/b", "id: [1]", "storage_folder: 3", "phases: []"])
def test_a_start_is_not_looked_into_where_its_folder_is_not_known(run: Path, valid: str, broken: str) -> None:
    key = broken.partition(":")[0]
    lines = [line for line in valid.splitlines() if not line.startswith(f"  {key}:")]
    problems = start("\n".join([*lines, f"  {broken}"]))
    assert len(problems) == 1
    assert f"experiment.{key}" in problems[0]
