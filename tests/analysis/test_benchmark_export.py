"""A run's datapoints as a data set: what lies in the folder, and that others read it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, model, task
from written_run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run(tmp_path / "run", task="haiku", teacher="t|1")
    (tmp_path / "run").mkdir()
    meta = {"experiment_id": 'my "run": <b>', "status": "completed", "created_at": "2026-02-24T12:00:00Z"}
    meta |= {"updated_at": "2026-02-24T12:00:00Z"}
    (tmp_path / "run/meta.json").write_text(json.dumps(meta))
    for n in range(1, 5):
        made.datapoint(n, prompt=f"=prompt {n} «ü»", reference_response=f"reference {n}")
        for place, student in enumerate("xyz"):
            made.response(n, student)
            made.evaluation(n, student, "j", {"a": "High" if place >= n % 3 else "Low"})
    made.datapoint(5, prompt=None, status="failed")
    return made


@pytest.mark.process
def test_the_data_set_is_read_by_others(run: Run, tmp_path: Path, coeval: Command) -> None:
    out = tmp_path / "data set"
    ended = coeval("analyze", "export-benchmark", "--run", run.folder, "--out", out)
    assert (ended.code, ended.out) == (0, "")
    assert "4 datapoints" in ended.err
    lines = [json.loads(line) for line in (out / "jsonl/haiku.jsonl").read_text().splitlines()]
    assert [line["prompt"] for line in lines] == [f"=prompt {n} «ü»" for n in range(1, 5)]
    assert {line["attribute_form"] for line in lines} == {"strict"}
    table = pd.read_parquet(out / "data/haiku.parquet")
    rows: list[dict[str, Any]] = table.astype(object).where(table.notna(), None).to_dict("records")
    assert rows == lines
    assert lines[0]["difficulty"] == pytest.approx(1 / 3)


def test_the_provenance_says_what_it_is(run: Run, tmp_path: Path, coeval: Command) -> None:
    path = "/home/me/own.csv"
    origin: dict[str, Any] = {"source": path, "files": [{"path": path, "bytes": 1, "sha256": "0"}]}
    origin |= {"map": {"prompt": "q"}, "rows": 1_200, "items": 900, "taken_at": "2026-02-24T12:00:00Z"}
    hub = origin | {"source": "org/set", "url": "https://hub/org/set", "license": "MIT"}
    (run.folder / "sources.json").write_text(json.dumps({"haiku": {"own": [origin], "set": [hub]}}))
    out = tmp_path / "out"
    assert coeval("analyze", "export-benchmark", "--run", run.folder, "--out", out).code == 0
    provenance = json.loads((out / "provenance.json").read_text())
    assert (provenance["experiment"], provenance["teachers"]) == ('my "run": <b>', ["t|1"])
    assert provenance["sources"]["haiku"]["own"][0]["files"][0]["path"] == "own.csv"
    [source] = provenance["sources"]["haiku"]["set"]
    assert (source["source"], source["license"]) == ("org/set", "MIT")
    assert "/home/me" not in (out / "provenance.json").read_text()
    for file in provenance["files"]:
        assert hashlib.sha256((out / file["path"]).read_bytes()).hexdigest() == file["sha256"]


@pytest.mark.process
def test_nothing_that_is_there_is_written_over(run: Run, tmp_path: Path, coeval: Command) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("x")
    refused = coeval("analyze", "export-benchmark", "--run", run.folder, "--out", tmp_path / "mine")
    assert refused.code == 1
    assert "new folder" in refused.err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["file"]
    assert coeval("analyze", "export-benchmark", "--run", run.folder).code == 1
    assert (
        coeval(
            "analyze", "export-benchmark", "--run", run.folder, "--out", tmp_path / "n", "--format", "csv"
        ).code
        == 1
    )
    empty = Run(tmp_path / "empty")
    empty.datapoint(1, prompt=None, status="failed")
    nothing = coeval("analyze", "export-benchmark", "--run", empty.folder, "--out", tmp_path / "no")
    assert nothing.code == 1
    assert not (tmp_path / "no").exists()


@pytest.mark.process
def test_items_of_ones_own_are_not_called_simulated(tmp_path: Path, coeval: Command) -> None:
    """Only what simulated models made is: their items, or how hard others' items are."""
    items = tmp_path / "own.csv"
    items.write_text("prompt,answer\n" + "".join(f"Question {n}?,Answer {n}.\n" for n in range(6)))
    mine = task("mine", total=6, items={"path": str(items), "prompt": "prompt", "reference": "answer"})
    models = [model("ann", "student"), model("jay", "judge")]
    tea = model("tea", "teacher")
    for tasks, roles, simulated in (
        ([mine], models, []),
        ([mine, task(total=3)], [*models, tea], ["tea"]),
        ([task(total=3)], [*models, tea], ["tea"]),
    ):
        folder = tmp_path / f"{len(tasks)}-{len(roles)}"
        folder.mkdir()
        lab = Lab(folder, roles, tasks)
        assert lab.run().exit_code == 0
        out = folder / "out"
        assert coeval("analyze", "export-benchmark", "--run", lab.path, "--out", out).code == 0
        provenance = json.loads((out / "provenance.json").read_text())
        assert (provenance["simulated"], provenance["simulated_teachers"]) == (True, simulated)
