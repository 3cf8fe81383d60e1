"""What a notebook and a data frame make of a run: short words, escaped tables, plain columns."""

from __future__ import annotations

import asyncio
import importlib
import re
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest
from pipeline.experiments import PHASES, Lab, model, quiz, task

import coeval
from coeval.analysis.run_results import LabelAccuracy, Results, StudentScore
from coeval.api.stoppable import shown
from coeval.pipeline.run_session import RunSummary


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A run of 120 stories and 4 questions: no column can be told by its first hundred values."""
    models = [model("tea", "teacher"), model("ann", "student", "judge", skill=0.9), model("ben", "student")]
    lab = Lab(tmp_path_factory.mktemp("shown"), models, [task(total=120), quiz(total=4)])
    lab.run()
    return lab


@pytest.fixture
def run(lab: Lab) -> coeval.Run:
    return coeval.open_run(lab.path)


def frame(library: str, table: dict[str, Any]) -> Any:
    return pytest.importorskip(library, reason=f"{library} is not installed").DataFrame(table)


@pytest.mark.parametrize("library", ["pandas", "polars"])  # polars takes 180 MB, and so is not locked
def test_tables_are_data_frames(run: coeval.Run, library: str) -> None:
    scores = frame(library, run.results().table())
    assert list(scores["student"]) == ["ann", "ben"] * 3
    assert list(scores["task"])[2:] == ["quiz", "quiz", "story", "story"]
    assert list(scores["n"]) == [120, 120, 0, 0, 120, 120]
    assert list(frame(library, run.results().label_table())["attribute"]) == ["colour", "colour"]
    for phase, count in zip(PHASES, (124, 248, 248), strict=True):
        assert len(frame(library, run.records(phase).table())) == count


def test_a_data_frame_of_judgments_can_be_worked_with(run: coeval.Run) -> None:
    judged = pd.DataFrame(run.records("evaluation").table())
    levels = judged[judged.task_id == "story"].groupby("student_model_id")["scores.plot"].value_counts()
    assert levels["ann"].get("High", 0) > levels["ben"].get("High", 0)
    assert judged["label_scores.colour.match"].notna().sum() == 8


def test_short_words_for_everything(lab: Lab, run: coeval.Run) -> None:
    assert repr(run) == f"Run({str(lab.path)!r})"
    assert repr(run.records("response_collection")) == "Records(248 × Response)"
    assert repr(run.results()).startswith("Results('ann' 0.")
    config = coeval.load_config(lab.file)
    assert repr(config) == str(config) == "Config('exp': 3 models, 2 tasks)"
    again = lab.run(continue_run=True)
    assert repr(again) == f"Run({str(lab.path)!r}, Summary(620 of 620 records there))"


def test_a_credential_is_in_no_words_for_a_configuration(lab: Lab) -> None:
    lab.models[0]["access_key"] = "sk-secret-of-tea"
    try:
        config = coeval.load_config(lab.file)
    finally:
        del lab.models[0]["access_key"]
    assert config.models[0].access_key == "sk-secret-of-tea"
    shown = (repr(config), str(config), config._repr_html_(), repr(config.models), str(config.models[0]))
    assert not any("secret" in text for text in shown)


def test_results_are_a_table_in_a_notebook(run: coeval.Run) -> None:
    html = run.results()._repr_html_()
    assert "<th>student</th><th>overall</th><th>story</th><th>quiz (labels)</th><th>n</th>" in html
    assert "<th>no label</th>" in html
    assert "Label accuracy" in html
    assert "<td>completed</td>" in run._repr_html_()


def test_scores_are_drawn_where_they_lie(run: coeval.Run) -> None:
    shown = run._repr_html_()
    [plot] = re.findall(r"<svg.*?</svg>", shown)
    points = dict(re.findall(r'text-anchor="end">(\w+)</text><circle cx="([\d.]+)"', plot))
    overall = {score.student: score.mean for score in run.results().students if score.task is None}
    lefts = re.findall(r'<text x="([\d.]+)" y="\d+" text-anchor="middle">', plot)
    left, right = float(lefts[0]), float(lefts[-1])
    for student, mean in overall.items():
        assert mean is not None
        assert float(points[student]) == pytest.approx(left + mean * (right - left), abs=0.1)


def test_a_run_whose_records_cannot_be_read_says_so_in_a_notebook(tmp_path: Path) -> None:
    assert "is no run" in coeval.Run(tmp_path)._repr_html_()


HOSTILE = "<script>alert(1)</script>"


def hostile_results() -> Results:
    score = StudentScore(student=HOSTILE, task=None, mean=0.5, low=0.4, high=0.6, n=3, units=3, failed=0)
    label = LabelAccuracy(
        task=HOSTILE, student=HOSTILE, attribute=HOSTILE, accuracy=1, low=0.5, high=1, n=3, correct=3
    )
    return Results(
        (score, msgspec.structs.replace(score, task=HOSTILE)), (label,), simulated=False, notes=(HOSTILE,)
    )


def test_what_models_and_files_say_is_text_in_a_notebook(tmp_path: Path) -> None:
    results = hostile_results()
    summary = RunSummary(notes=[HOSTILE], stopped={"m": HOSTILE})
    shown = coeval.Run(tmp_path / HOSTILE, summary)._repr_html_() + results._repr_html_()
    assert shown.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 10
    assert "<script" not in shown
    assert "\x1b" not in repr(
        msgspec.structs.replace(
            results, students=(msgspec.structs.replace(results.students[0], student="\x1b[2J"),)
        )
    )


async def test_lines_of_progress_are_plain(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    await lab.arun(continue_run=True)
    assert capsys.readouterr().err == "", "nobody asked"
    await lab.arun(continue_run=True, progress=True)
    assert "evaluation: 248/248 records" in capsys.readouterr().err
    async with shown(True, None, asyncio.Event()) as watching:
        watching.warn(f"the host says \x1b[2J and\n{HOSTILE}")
    assert capsys.readouterr().err == f"warning: the host says \\x1b[2J and\\n{HOSTILE}\n"


def test_results_as_plain_data(run: coeval.Run) -> None:
    data = run.results().as_dict()
    assert data.keys() == {
        *(
            "students",
            "labels",
            "simulated",
            "notes",
            "left_out",
            "beyond_total",
            "metrics",
            "missing",
            "costs",
        )
    }
    assert data["students"][0].keys() == set(StudentScore.__struct_fields__)
    assert msgspec.json.decode(msgspec.json.encode(data), type=Results) == run.results()


def test_the_package_lists_what_it_loads_late() -> None:
    fresh = importlib.import_module("coeval")
    assert set(fresh.__all__) <= set(dir(fresh))
    assert {"run", "arun", "load_config", "open_run", "Run", "Config", "__version__"} <= set(dir(fresh))
