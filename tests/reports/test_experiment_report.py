"""What a run's report says: every number is that of the measures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from opened_evidence import run_evidence
from pipeline.experiments import Lab, model, quiz, task
from written_run import Run

import coeval as api
from coeval.pipeline.plan.run_reading import open_run_reader
from coeval.reports.charts.drawn_pictures import draw_pictures
from coeval.reports.content import Report
from coeval.reports.experiment.experiment_report import experiment_report
from coeval.reports.experiment.where_section import drop_values_of_large_attributes
from coeval.reports.folder_report import make_folder_report
from coeval.reports.items.item_browser import ItemBrowser
from coeval.store.rundir import RunDir


def report_of(folder: Path) -> Report:
    with run_evidence(RunDir(folder)) as evidence:
        return experiment_report(evidence)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    models = [
        model("ann"),
        model("ben", skill=0.5, failure_rate=0.3, severity=0.04),
        model("cem", "student", skill=0.2),
    ]
    settings = {"generation_retries": 0, "probe_on_fail": "warn"}
    made = Lab(tmp_path_factory.mktemp("report"), models, [task(total=6), quiz(total=4)], settings)
    made.run()
    return made


def test_an_example_quotes_the_judge_who_is_nearest_the_mean_on_what_cost_most(tmp_path: Path) -> None:
    run = Run(tmp_path / "quoted")
    given = {
        "a-harsh": {"plot": "Low", "style": "Low"},
        "b-fair": {"plot": "Medium", "style": "Low"},
        "c-kind": {"plot": "High", "style": "Medium"},
    }
    for judge, scores in given.items():
        run.judged(1, "ahead", judge, dict.fromkeys(scores, "High"))
        run.response(1, "behind")
        reasons = {factor: f"{judge} of {factor}" for factor in scores}
        run.evaluation(1, "behind", judge, scores, reasons=reasons)
    [example] = report_of(run.folder).examples
    assert example.quotes[-1] == "b-fair on behind, style: “b-fair of style”"


@pytest.fixture(scope="module")
def report(lab: Lab) -> Report:
    return report_of(lab.path)


@pytest.fixture(scope="module")
def measures(lab: Lab) -> dict[str, Any]:
    return api.open_run(lab.path).measures()


def rows(report: Report, table: str) -> list[dict[str, Any]]:
    return report.table(table).to_flat_dicts()


@pytest.mark.process
def test_it_answers_six_questions_in_order(report: Report) -> None:
    assert [section.anchor for section in report.sections] == [
        "leads",
        "value",
        "where",
        "judges",
        "benchmark",
        "cost",
    ]
    names = [table.name for section in report.sections for table in section.tables]
    assert len(names) == len(set(names))
    for section in report.sections:
        assert section.sentences, section.anchor
        assert {picture.table for picture in section.pictures} <= {table.name for table in section.tables}
    assert [alert.text for alert in report.alerts if not alert.command] == [
        "Simulated models: these numbers describe no real model."
    ]


@pytest.mark.system
def test_labels_take_the_places_of_names_and_records_keep_them(tmp_path: Path) -> None:
    long = "a-model-of-a-name-that-is-longer-than-there-is-room"
    models = [
        model("ann"),
        {**model(f"{long}-1", skill=0.4), "label": "Second"},
        model(f"{long}-2", skill=0.2),
    ]
    lab = Lab(tmp_path, models, [task(total=3)])
    lab.run()
    before = lab.counts()
    reported = report_of(lab.path)
    assert reported.shown_names.key == {f"{long}-1": "Second"}
    assert f"{long}-1" in {row["student"] for row in rows(reported, "students")}
    [forest] = [figure.svg for figure in draw_pictures(reported) if figure.name == "forest"]
    labels = re.findall(r"<text[^>]*>([^<]+)</text>", forest)
    assert {"ann", "Second"} <= set(labels)
    assert not any(label.startswith("a-model") and label.endswith("-1") for label in labels)
    lab.models[1]["label"] = "Another"
    lab.run(continue_run=True)
    assert lab.counts() == before, "a label is no part of a recipe"
    assert report_of(lab.path).shown_names.key == {f"{long}-1": "Another"}


@pytest.mark.process
def test_its_numbers_are_those_of_the_measures(report: Report, measures: dict[str, Any]) -> None:
    for row in rows(report, "students"):
        student = measures["students"][row["student"]]
        assert row["score"] == student["score"]
        assert [row["score_low"], row["score_high"]] == student["ci95"]["score"]
        assert (row["n"], row["missing"]) == (student["n"]["score"], student["missing"]["score"])
        least, most = student["bounds"]
        assert [row["least"], row["most"]] == ([None, None] if least == most else [least, most])
    for row in rows(report, "parts"):
        student = measures["students"][row["student"]]
        scores = {**student["by_task_aspect"]["story"], **student["score_by_task"]}
        assert row["score"] == scores[row["part"].removeprefix("story · ")]
    for row in rows(report, "agreement"):
        assert row["kappa"] == measures["agreement"][f"{row['judge']}|{row['other']}"]["kappa"]
    for row in rows(report, "judge-levels"):
        assert row["count"] == measures["judges"][row["name"]]["levels"][row["level"]]
    for row in rows(report, "labels"):
        found = measures["labels"][row["task"]][row["label"]]["students"][row["student"]]
        assert (row["accuracy"], row["correct"]) == (found["accuracy"], found["correct"])
    levels = [sum(found["levels"].values()) for found in measures["students"].values()]
    assert levels == [found["valid_evals"] for found in measures["students"].values()]
    assert sum(levels) == measures["units"]


def test_students_stand_by_task_and_by_some_of_the_scores_as_measured(
    lab: Lab, report: Report, measures: dict[str, Any]
) -> None:
    shown = rows(report, "standings")
    of = {"all scores": measures, "without own": measures["without_own"]}
    assert {row["scores"] for row in shown} == set(of)
    assert measures["without_own"]["judges"] == ["ann", "ben"]
    for name in of:
        own = [row for row in shown if row["scores"] == name]
        assert [row["student"] for row in own if row["task"] is None and row["score"]] == of[name]["ranking"][
            "order"
        ]
        for row in own:
            found = of[name]["students"][row["student"]]
            value, bounds = found["score"], found["ci95"]["score"]
            if row["task"] is not None:
                value = found["score_by_task"][row["task"]]
                bounds = found["ci95"]["score_by_task"][row["task"]]
            assert (row["score"], [row["score_low"], row["score_high"]]) == (value, bounds)
    results = api.open_run(lab.path).results().students
    for row in shown:
        if row["scores"] == "all scores":
            [one] = [r for r in results if (r.student, r.task) == (row["student"], row["task"])]
            assert row["score"] == pytest.approx(one.score, abs=1e-12)


def test_the_first_section_does_not_repeat_the_lead_above_it(report: Report) -> None:
    texts = [said.text for said in report.sections[0].sentences]
    assert len(report.lead) <= 3
    assert not {said.text for said in report.lead} & set(texts)
    assert any(text.startswith("Without self-judgments ") for text in texts)
    assert not any(text.startswith(("ann has the highest score", "ann leads")) for text in texts)


def test_who_is_ahead_stands_first_and_by_how_much(report: Report, measures: dict[str, Any]) -> None:
    order = measures["ranking"]["order"]
    for row in rows(report, "differences"):
        assert order.index(row["better"]) < order.index(row["other"])
        pair = measures["ranking"]["differences"].get(f"{row['better']}|{row['other']}")
        if pair is None:
            pair = measures["ranking"]["differences"][f"{row['other']}|{row['better']}"]
            assert row["difference"] == pair["difference"]
        else:
            assert row["difference"] == -pair["difference"]
        assert row["difference_low"] <= row["difference"] <= row["difference_high"]


def test_what_failed_is_told_with_its_reason_and_the_way_on(lab: Lab, report: Report) -> None:
    failed = rows(report, "failures")
    assert failed
    assert {row["model"] for row in failed} == {"ben"}
    [alert] = [alert for alert in report.alerts if alert.command]
    assert alert.text.startswith("The run is incomplete: ")
    assert alert.command == f"coeval run --config {lab.path}/config.yaml --continue"
    spent = rows(report, "phases")
    on_disk = sum(len(path.read_text().splitlines()) for path in lab.path.glob("phase4_responses/*.jsonl"))
    assert sum(row["records"] for row in spent if row["what"] == "answers") <= on_disk


def test_what_may_have_been_billed_is_told_beside_what_was(tmp_path: Path) -> None:
    made = Lab(tmp_path, [model("ann")], [task(total=1)])
    made.run()
    file = made.path / "usage.json"
    usage = json.loads(file.read_text())
    usage["models"]["ann"]["uncertain_usd"] = 0.25
    file.write_text(json.dumps(usage))
    (cost,) = (section for section in report_of(made.path).sections if section.anchor == "cost")
    said = " ".join(sentence.text for sentence in cost.sentences)
    assert "cost up to $0.25 more" in said
    assert "coeval status RUN --settle MODEL=USD" in said


@pytest.mark.process
def test_a_run_that_has_hardly_begun_has_a_report(tmp_path: Path) -> None:
    made = Lab(tmp_path, [model("ann", failure_rate=1.0)], [task(total=1)], {"probe_on_fail": "warn"})
    made.run()
    report = report_of(made.path)
    assert report.lead[0].text == "No student has a score yet."
    assert [section.anchor for section in report.sections] == [
        "leads",
        "where",
        "judges",
        "benchmark",
        "cost",
    ]


@pytest.mark.process
def test_items_name_students_as_they_are_ranked(lab: Lab, measures: dict[str, Any]) -> None:
    with open_run_reader(RunDir(lab.path)) as (reader, _):
        browser = ItemBrowser(reader)
        make_folder_report(reader).give_measures_to(browser)
        assert browser.facets.students == measures["ranking"]["order"] == ["ann", "ben", "cem"]
        browser.order_student_facet(["cem"])
        assert browser.facets.students == ["cem", "ann", "ben"]


@pytest.mark.process
def test_a_run_that_was_killed_is_called_stopped(tmp_path: Path) -> None:
    made = Lab(tmp_path, [model("ann")], [task(total=1)])
    made.run()
    assert any(fact.startswith("completed, ") for fact in report_of(made.path).facts)
    (made.path / "meta.json").write_text(json.dumps(made.meta() | {"status": "running"}))
    assert any(fact.startswith("stopped, ") for fact in report_of(made.path).facts)


def test_a_leaning_is_sure_on_the_page_as_it_is_among_the_findings(
    report: Report, measures: dict[str, Any]
) -> None:
    reported = {"strictness": "severity"}
    checked = 0
    for row in rows(report, "biases"):
        if row["bias"] not in reported:
            continue
        bias = measures["judges"][row["judge"]]["bias"][reported[row["bias"]]]
        assert [row["value_low"], row["value_high"]] == bias["ci95"]
        assert row["sure"] == (bias["p_adjusted"] < 0.05)
        checked += row["value_low"] > 0 or row["value_high"] < 0
    assert checked, "one whose interval leaves zero out, and which Holm's p-value does not call sure"
    assert not any(row["sure"] for row in rows(report, "biases"))


@pytest.mark.process
def test_judges_who_were_asked_the_very_same_are_held_to_themselves(tmp_path: Path) -> None:
    twice = [model(name, "judge", model="same") for name in ("ben", "bob")]
    made = Lab(tmp_path, [model("ann"), *twice], [task(total=6)])
    made.run()
    report, measures = report_of(made.path), api.open_run(made.path).measures()
    assert measures["judges"]["ann"]["consistency"] is None
    assert [row["judge"] for row in rows(report, "itself")] == ["ben", "bob"]
    for row in rows(report, "itself"):
        judge = measures["judges"][row["judge"]]
        assert (row["spa"], row["count"]) == (judge["consistency"]["spa"], judge["consistency"]["count"])
        assert [row["spa_low"], row["spa_high"]] == judge["ci95"]["consistency"]["spa"]


def test_an_attribute_that_is_an_id_is_in_no_picture() -> None:
    strata = [*(f"amount={n}" for n in range(60)), "kind=refund", "kind=late"]
    assert drop_values_of_large_attributes(strata) == ["kind=refund", "kind=late"]


@pytest.mark.process
def test_items_are_read_by_their_numbers_and_first_words(report: Report) -> None:
    ids = {row["item"] for row in rows(report, "items-shown")}
    assert ids
    labels = [report.shown_names.text(item) for item in ids]
    assert len(set(labels)) == len(ids)
    assert all(label.startswith("#") and "“" in label for label in labels)
    assert not ids & set(report.shown_names.key), "the key is of models"
