"""Frames and lists of rows from Python, as items and as answers."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import coeval
from coeval.api.given_tables import _write_rows_and_list_columns
from coeval.core.errors import ConfigError, UsageError

ROWS = [
    {"prompt": "Great!", "mood": "good"},
    {"prompt": "Awful.", "mood": "bad"},
    {"prompt": "Fine", "mood": "good"},
]
ANSWERS = {"Great!": "good", "Awful.": "good", "Fine": "good"}


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    return {
        "tasks": [{"name": "t", "description": "Name the mood.", "items": {"label": "mood"}}],
        "experiment": {"id": "exp", "storage_folder": "runs"},
    }


class Polars:
    """As far as a frame of polars is asked."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def iter_rows(self, *, named: bool) -> Iterator[dict[str, Any]]:
        assert named
        return iter(self._rows)


def right(run: coeval.Run) -> dict[str, tuple[int, int]]:
    return {label.student: (label.correct, label.n) for label in run.results().labels}


@pytest.mark.process
def test_cells_may_be_arrays_and_numbers_of_numpy(experiment: dict[str, Any]) -> None:
    frame = pd.DataFrame(
        {"id": [1, 2], "prompt": ["Great!", "Awful."], "options": [np.array(["good", "bad"])] * 2}
    )
    frame["answer"] = [1, 0]
    experiment["tasks"][0]["items"] = {"choices": "options", "label": "answer"}
    run = coeval.run(
        experiment, items=frame, answers={"prod": [{"id": 1, "answer": "B"}, {"id": 2, "answer": "B"}]}
    )
    assert run.exit_code == 0
    assert right(run) == {"prod": (1, 2)}
    (given,) = (run.path / "given").glob("*.items.jsonl")
    assert '"options":["good","bad"],"answer":1' in given.read_text()


@pytest.mark.process
@pytest.mark.parametrize("kind", [list, pd.DataFrame, pa.Table.from_pylist, Polars, tuple])
def test_rows_of_every_kind(experiment: dict[str, Any], kind: Any) -> None:
    answers = kind([{"question": prompt, "answer": answer} for prompt, answer in ANSWERS.items()])
    run = coeval.run(experiment, items=kind(ROWS), answers={"prod": answers})
    assert run.exit_code == 0
    assert right(run) == {"prod": (2, 3)}
    assert (
        coeval.run(experiment, items=kind(ROWS), answers={"prod": answers}, continue_run=True).exit_code == 0
    )
    config = coeval.load_config(run.path / "config.yaml")
    assert coeval.run(config, continue_run=True).exit_code == 0, "its tables lie in its folder"


@pytest.mark.process
def test_by_task_by_prompt_and_by_id(experiment: dict[str, Any]) -> None:
    experiment["tasks"].append({**experiment["tasks"][0], "name": "u"})
    numbered = [{"id": n, **row} for n, row in enumerate(ROWS)]
    by_id = [{"id": n, "response": row["mood"]} for n, row in enumerate(ROWS)]
    run = coeval.run(
        experiment, items={"t": numbered, "u": numbered[:2]}, answers={"dict": ANSWERS, "ids": by_id[:2]}
    )
    assert run.exit_code == 3
    found = {(label.task, label.student): (label.correct, label.n) for label in run.results().labels}
    assert found == {("t", "dict"): (2, 3), ("u", "dict"): (1, 2), ("t", "ids"): (2, 2), ("u", "ids"): (2, 2)}


@pytest.mark.process
def test_a_changed_frame_is_noticed(experiment: dict[str, Any]) -> None:
    experiment["tasks"][0]["rubric"] = {"tone": "Is kind."}
    experiment["models"] = [{"name": "cat", "interface": "simulated", "roles": ["judge"]}]
    assert coeval.run(experiment, items=ROWS, answers={"prod": ANSWERS}).exit_code == 0
    changed = {**ANSWERS, "Fine": "splendid"}
    with pytest.raises(UsageError, match=r"answers of prod in .*which have changed"):
        coeval.run(experiment, items=ROWS, answers={"prod": changed}, continue_run=True)
    assert coeval.run(
        experiment, items=ROWS, answers={"prod": changed}, continue_run=True, changed="redo"
    ).exit_code == 0  # fmt: skip


@pytest.mark.process
def test_values_that_are_missing_and_values_that_are_no_text(experiment: dict[str, Any]) -> None:
    frame = pd.DataFrame({
        "prompt": ["a", "b", "c"],
        "answer": ["x", float("nan"), None],
        "day": [pd.Timestamp("2026-01-02"), pd.NaT, datetime.date(2026, 1, 3)],
        "n": pd.array([1, pd.NA, 3], dtype="Int64"),
    })  # fmt: skip
    items = [{"prompt": name, "mood": "x"} for name in "abc"]
    run = coeval.run(experiment, items=items, answers={"prod": frame})
    assert run.exit_code == 3
    assert right(run) == {"prod": (1, 1)}
    lines = (run.path / "given" / "prod.answers.jsonl").read_text().splitlines()
    assert [json.loads(line)["n"] for line in lines] == [1, None, 3]
    assert json.loads(lines[1])["answer"] is None


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        (
            {"items": [{"x": 1}]},
            "items of t: which column is the prompt? There are x, and none is called prompt",
        ),
        (
            {"items": ROWS, "answers": {"p": [{"prompt": "a", "x": 1}]}},
            "answers of p: which column is the respons",
        ),
        ({"items": []}, "there are no rows"),
        ({"items": 3}, "items and answers are frames, or lists of mappings"),
        ({"items": "reviews.csv"}, "items and answers are frames, or lists of mappings"),
        ({"items": {"v": ROWS}}, "items: no task is named v"),
        ({"items": {"../v": ROWS}}, "'../v' is not a valid name"),
        ({"answers": {"../p": ANSWERS}}, "'../p' is not a valid name"),
    ],
)
def test_what_cannot_be_taken_is_told(experiment: dict[str, Any], given: dict[str, Any], wrong: str) -> None:
    with pytest.raises(UsageError) as error:
        coeval.run(experiment, **given)
    assert wrong in str(error.value)


def test_a_broken_experiment_is_told_as_ever(experiment: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="V-18"):
        coeval.run({**experiment, "taks": []}, items=ROWS, answers={"prod": ANSWERS})
    loaded = coeval.load_config({**experiment, "tasks": [{**experiment["tasks"][0], "items": None}]} | {
        "models": [{"name": "a", "interface": "simulated", "roles": ["teacher", "student", "judge"]}],
        "tasks": [{
            "name": "t", "description": "d", "target_attributes": {}, "rubric": {"f": "c"},
            "sampling": {"total": 1, "target": [0, 0]},
        }],
    })  # fmt: skip
    with pytest.raises(UsageError, match="not with a loaded one"):
        coeval.run(loaded, items=ROWS)
    parts: list[dict[str, Any]] = [{"tasks": "x"}, {"students": 3}, {"experiment": []}]
    for broken in parts:
        with pytest.raises(UsageError):
            coeval.run({**experiment, **broken}, items=ROWS, answers={"prod": ANSWERS})


def test_whole_numbers_beside_a_missing_one_are_no_floats(experiment: dict[str, Any]) -> None:
    """As pandas has them: a label 1 is not 1.0, and an id 10.0 finds the item 10."""
    frame = pd.DataFrame({"mood": [1, None, 1], "x": [1, 0.5, 2]})
    _write_rows_and_list_columns(Path("rows.jsonl"), frame)
    assert Path("rows.jsonl").read_text().splitlines() == [
        '{"mood":1,"x":1.0}', '{"mood":null,"x":0.5}', '{"mood":1,"x":2.0}',
    ]  # fmt: skip
