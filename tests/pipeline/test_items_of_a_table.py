"""`tasks[].items`: a table of one's own in the experiment file, whose rows are the items."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from pipeline.experiments import Lab, listen, model

from coeval.api import load_config
from coeval.core.errors import ConfigError, UsageError
from coeval.pipeline.plan.preview import forecast_start
from coeval.pipeline.run_options import RunOptions
from coeval.pipeline.upkeep.repair import RepairOptions, find_missing_records, inspect_run
from coeval.store.rundir import RunDir

STUDENTS = [model("ann", "student"), model("ben", "student")]
JUDGED = [*STUDENTS, model("cat", "judge")]
ROWS = [("Great!", "good"), ("Awful.", "bad"), ("Fine, really", "good"), ("It broke", "bad")]


def reviews(folder: Path, rows: list[tuple[str, str]] | None = None) -> Path:
    path = folder / "reviews.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "mood"), *(ROWS if rows is None else rows)])
    return path


def sentiment(**changes: Any) -> dict[str, Any]:
    """As short as a task can be."""
    items = {"path": "reviews.csv", "prompt": "text", "label": "mood"}
    return {"name": "sentiment", "description": "Name the mood.", "items": items, **changes}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    reviews(tmp_path)
    return Lab(tmp_path, STUDENTS, [sentiment()])


def refused(lab: Lab, **how: Any) -> str:
    with pytest.raises(UsageError) as error:
        lab.run(**how)
    return str(error.value)


def prompts(lab: Lab) -> list[str]:
    return [item["prompt"] for item in lab.lines("data_generation")]


@pytest.mark.process
def test_a_table_with_a_label_needs_nothing_else(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = forecast_start(load_config(lab.file), RunOptions())
    assert (planned.total.low, planned.total.high) == (8, 8)
    assert not lab.path.exists()
    requested = listen(monkeypatch)
    run = lab.run()
    assert run.exit_code == 0
    assert requested.phases() == (0, 0, 0, 8, 0)
    assert prompts(lab) == [text for text, _ in ROWS]
    scored = lab.records("evaluation").values()
    assert {score["label_scores"]["mood"]["expected"] for score in scored} == {"good", "bad"}
    accuracies = run.results().labels
    assert [(each.attribute, each.n) for each in accuracies] == [("mood", 4), ("mood", 4)]
    assert lab.meta()["status"] == "completed"
    requested = listen(monkeypatch)
    assert lab.run(continue_run=True).exit_code == 0
    assert sum(requested.phases()) == 0


def test_a_reference_is_judged_by_a_rubric(lab: Lab) -> None:
    items = {"path": "reviews.csv", "prompt": "{text} ({mood})", "reference": "mood", "where": "mood = good"}
    lab.models, lab.tasks = JUDGED, [sentiment(items=items, rubric={"accuracy": "Agrees."})]
    assert lab.run().exit_code == 0
    assert [(i["prompt"], i["reference_response"]) for i in lab.lines("data_generation")] == [
        ("Great! (good)", "good"),
        ("Fine, really (good)", "good"),
    ]
    assert lab.counts() == (2, 4, 4)


def test_a_total_uses_the_first_rows_and_a_larger_one_more(lab: Lab) -> None:
    lab.tasks[0]["sampling"] = {"total": 2}
    assert lab.run().exit_code == 0
    assert lab.counts()[1] == 4
    lab.tasks[0]["sampling"] = {"total": 3}
    assert lab.run(continue_run=True).exit_code == 0
    assert lab.counts()[1] == 6
    assert "has changed" not in (lab.path / "run.log").read_text()
    lab.tasks[0]["sampling"] = {"total": 9}
    assert lab.run(continue_run=True).exit_code == 3
    assert lab.counts()[1] == 8


@pytest.mark.process
@pytest.mark.parametrize("total", ["all", 9])
def test_a_lost_file_of_items_is_told_and_written_again_by_continue(
    total: str | int, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.run()
    lab.tasks[0]["sampling"] = {"total": total}
    lab.run(continue_run=True)
    [items] = RunDir(lab.path).files("data_generation")
    items.unlink()
    missing = find_missing_records(RunDir(lab.path))
    assert missing.gaps is not None
    [lost] = missing.gaps.short
    assert (lost.missing, missing.gaps.owed, lost.gone) == (4, 4, True)
    assert f"their file {items} is missing; resuming the run rewrites it, without a call" in lost.remedy
    assert [sentence.partition("; ")[0] for sentence in missing.sentences] == [
        "missing from the plan: 4 items"
    ]
    assert not inspect_run(RunDir(lab.path), RepairOptions()).reasons, "no answer to these items is damaged"
    requested = listen(monkeypatch)
    lab.run(continue_run=True)
    assert (sum(requested.phases()), lab.counts()[1]) == (0, 8)


def test_rows_that_are_added_are_answered_by_continue(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert lab.run().exit_code == 0
    reviews(lab.folder, [*ROWS, ("Superb", "great")])
    requested = listen(monkeypatch)
    with caplog.at_level("WARNING"):
        assert lab.run(continue_run=True).exit_code == 0
    assert "reviews.csv, or what is imported from it, has changed since" in (lab.path / "run.log").read_text()
    assert requested.phases() == (0, 0, 0, 2, 0)
    assert not (lab.path / "replaced").exists(), "nothing was replaced"
    found = {record["label_scores"]["mood"]["expected"] for record in lab.records("evaluation").values()}
    assert found == {"good", "bad", "great"}


def test_a_row_that_has_changed_is_asked_about_before_it_is_replaced(lab: Lab) -> None:
    assert lab.run().exit_code == 0
    place = RunDir(lab.path).datapoints("sentiment", "items")
    before = place.read_bytes()
    reviews(lab.folder, [("Great!!", "good"), *ROWS[1:]])
    said = refused(lab, continue_run=True)
    assert 'changed="redo"' in said
    assert "rows of reviews.csv: it, or what is imported from it, has changed since 20" in said
    assert "`items.id: COLUMN` avoids that" in said
    assert "the content of the datapoint" not in said
    assert place.read_bytes() == before
    assert not (lab.path / "replaced").exists()
    assert lab.run(continue_run=True, changed="redo").exit_code == 0
    assert prompts(lab)[0] == "Great!!"
    [kept] = (lab.path / "replaced").rglob("*.jsonl")
    assert kept.read_bytes() == before
    assert lab.counts()[1] == 8 + 2


def test_a_table_that_is_gone_leaves_the_items_that_were_taken(lab: Lab) -> None:
    assert lab.run().exit_code == 0
    (lab.folder / "reviews.csv").unlink()
    lab.models.append(model("dan", "student"))
    assert lab.run(continue_run=True).exit_code == 0
    assert lab.counts()[1] == 12
    assert "the items imported on" in (lab.path / "run.log").read_text()


def test_a_new_run_takes_over_answers_to_the_same_rows(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lab.run().exit_code == 0
    modes = dict.fromkeys(("data_generation", "response_collection", "evaluation"), "Extend")
    later = Lab(
        lab.folder,
        [*STUDENTS, model("dan", "student")],
        lab.tasks,
        {"resume_from": "exp", "phases": modes},
        "v2",
    )
    requested = listen(monkeypatch)
    assert later.run().exit_code == 0
    assert requested.phases() == (0, 0, 0, 4, 0)
    assert later.counts()[1] == 12


def test_overwrite_leaves_the_items_and_answers_them_anew(lab: Lab) -> None:
    assert lab.run().exit_code == 0
    assert lab.run(overwrite=True).exit_code == 0
    assert lab.counts() == (4, 8, 8)


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"path": "review.csv"}, "items.path  V-33  there is no file review.csv; did you mean reviews.csv?"),
    ({"prompt": "txt"}, "items.prompt  V-33  reviews.csv has no column 'txt'; did you mean 'text'?"),
    ({"label": "moot"}, "items.label  V-33  reviews.csv has no column 'moot'; did you mean 'mood'?"),
    (
        {"attributes": {"length": "len"}},
        "items.attributes.length  V-33  reviews.csv has no column 'len'; columns: ",
    ),
    ({"promt": "text"}, "items.promt  V-18  the key 'promt' is unknown; did you mean 'prompt'?"),
    ({"where": ["mood = 'good"]}, "items.where  V-32  'mood = 'good' is not one condition"),
    ({"sample": 0}, "items.sample  V-21  is 0; use at least 1"),
    ({"prompt": None}, "items.prompt  V-20  is empty, not text; write text"),
]


@pytest.mark.parametrize(
    ("changes", "reported"), MISTAKES, ids=[next(iter(changes)) for changes, _ in MISTAKES]
)
def test_a_mistake_is_told_with_its_line(changes: dict[str, Any], reported: str, lab: Lab) -> None:
    lab.tasks[0]["items"] |= changes
    said = refused(lab)
    assert reported in said
    line = int(said.split(":")[1].split()[0])
    assert next(iter(changes)) in lab.file.read_text().splitlines()[line - 1]
    assert not lab.path.exists()


def test_a_list_of_columns_is_their_mapping_to_themselves(lab: Lab) -> None:
    items = lab.tasks[0]["items"]
    items["attributes"] = ["text"]
    lab.tasks[0]["label_attributes"] = ["mood", "text"]
    assert load_config(lab.file).tasks[0].items is not None
    listed = load_config(lab.file).tasks[0].items.attributes  # type: ignore[union-attr]
    assert listed == {"text": "text"}
    for wrong, reported in (
        (["txt"], "V-33  reviews.csv has no column 'txt'"),
        (["text", 3], "V-20  is a list"),
    ):
        items["attributes"] = wrong
        with pytest.raises(ConfigError, match=reported):
            lab.run()


def test_a_task_without_label_or_rubric_is_told_what_it_lacks(lab: Lab) -> None:
    del lab.tasks[0]["items"]["label"]
    assert "V-20  the required key 'rubric' is missing; add it" in refused(lab)
    lab.tasks[0]["label_attributes"] = ["moot"]
    lab.tasks[0]["items"]["attributes"] = {"mood": "mood"}
    assert "V-17  'moot' is not a target attribute; did you mean 'mood'?" in refused(lab)
    lab.tasks[0]["label_attributes"] = ["mood"]
    assert lab.run().exit_code == 0


def test_all_items_are_those_of_a_table(lab: Lab) -> None:
    lab.models = [*JUDGED, model("eve", "teacher")]
    lab.tasks = [
        {
            **sentiment(rubric={"a": "Good."}),
            "items": None,
            "target_attributes": {},
            "sampling": {"total": "all"},
        }
    ]
    assert "V-32  is all, which only a task with `items` allows" in refused(lab)
    lab.tasks = [sentiment()]
    lab.models = [model("items", "student")]
    assert "V-32  'items' is the teacher of a task with items" in refused(lab)


def test_rows_that_make_no_item_are_told_by_line(lab: Lab) -> None:
    reviews(lab.folder, [("Great!", "good"), ("", "bad")])
    assert "reviews.csv:3: its `text` is empty" in refused(lab)
    with pytest.raises(ConfigError):
        forecast_start(load_config(lab.file), RunOptions())
    assert not lab.path.exists()


def test_it_stands_beside_a_task_that_models_write(lab: Lab) -> None:
    lab.models = [*JUDGED, model("eve", "teacher")]
    written = {
        "name": "story", "description": "Tell.", "target_attributes": {"mood": ["glad"]},
        "sampling": {"total": 2}, "rubric": {"plot": "Good."},
    }  # fmt: skip
    lab.tasks.append(written)
    assert lab.run().exit_code == 0
    ids = {key.rpartition("__")[0] for key in lab.records("data_generation")}
    assert ids == {"sentiment__items", "story__eve"}


def reported_students(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a student was sent for the first row."""
    requested = listen(monkeypatch)
    assert lab.run().exit_code == 0
    texts = [request.messages[-1].content for _, request in requested.requests]
    return next(text for text in texts if text.endswith("Great!"))


def test_students_are_told_the_labels_that_are_declared(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.tasks = [sentiment(target_attributes={"mood": ["good", "bad"]})]
    assert reported_students(lab, monkeypatch) == (
        "Name the mood.\n\nWhat the answer should look like: One of: good, bad\n\nInput:\n\nGreat!"
    )
    assert "are not shown the values" not in (lab.path / "run.log").read_text()


def test_without_an_output_description_there_is_no_heading_for_one(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reported_students(lab, monkeypatch) == "Name the mood.\n\nInput:\n\nGreat!"
    assert (
        "the students of sentiment are not shown the values of mood (bad, good): name them in its "
        "output_description, or declare them in target_attributes"
    ) in (lab.path / "run.log").read_text()


def test_an_output_description_is_sent_as_it_stands(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.tasks = [sentiment(target_attributes={"mood": ["good", "bad"]}, output_description="One word.")]
    assert reported_students(lab, monkeypatch) == (
        "Name the mood.\n\nWhat the answer should look like: One word.\n\nInput:\n\nGreat!"
    )


def test_answers_to_rows_that_are_no_longer_wanted_are_not_damaged(lab: Lab) -> None:
    assert lab.run().exit_code == 0
    lab.tasks = [sentiment(items={**sentiment()["items"], "where": "mood = bad"})]
    assert lab.run(continue_run=True).exit_code == 0
    report = inspect_run(RunDir(lab.path), RepairOptions())
    assert [(file.invalid, file.owed) for file in report.files if file.phase == "response_collection"] == [
        (0, 0),
        (0, 0),
    ]
    assert sum(file.invalid for file in report.files) == 0
