"""The report of a run that compares labels and asks no judge: nothing in it is an empty frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli.invoked import Command
from opened_evidence import run_evidence
from pipeline.experiments import Lab, model, quiz, task
from reports.browser import CHROMIUM, chromium, draw_all, opened

import coeval as api
from coeval.reports.content import Report
from coeval.reports.experiment.experiment_report import experiment_report
from coeval.store.rundir import RunDir


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    models = [
        model("tea", "teacher"),
        model("ann", "student", skill=0.9, failure_rate=0.3),
        model("ben", "student", skill=0.2),
    ]
    settings = {"generation_retries": 0, "probe_on_fail": "warn"}
    made = Lab(tmp_path_factory.mktemp("labels"), models, [quiz(total=8)], settings)
    made.run()
    return made


@pytest.fixture(scope="module")
def report(lab: Lab) -> Report:
    with run_evidence(RunDir(lab.path)) as evidence:
        return experiment_report(evidence)


@pytest.fixture(scope="module")
def measures(lab: Lab) -> dict[str, Any]:
    return api.open_run(lab.path).measures()


@pytest.mark.process
def test_its_sections_say_what_is_known_and_what_cannot_be(report: Report) -> None:
    for section in report.sections:
        assert section.sentences, section.anchor
        assert all(table.rows for table in section.tables), section.anchor
        shown = {table.name for table in section.tables}
        assert {picture.table for picture in section.pictures} <= shown, section.anchor
    said = {section.anchor: " ".join(one.text for one in section.sentences) for section in report.sections}
    assert "No judge scored an answer" in said["judges"]
    assert "No student's score deviates" not in said["where"]
    assert "too easy or too hard" not in said["benchmark"], "labels say how hard an item is"


@pytest.mark.process
def test_how_hard_an_item_is_follows_from_its_labels(
    lab: Lab, report: Report, measures: dict[str, Any]
) -> None:
    found = measures["labels"]["quiz"]["colour"]["students"]
    right = sum(one["correct"] for one in found.values())
    assert sum(row["difficulty"] is not None for row in report.table("items-shown").to_flat_dicts()) == 8
    with run_evidence(RunDir(lab.path)) as evidence:
        of_items = [one for one in evidence.measured.measures.items.values() if one.students]
    answered = sum((1 - (one.difficulty or 0.0)) * one.students for one in of_items)
    assert answered == pytest.approx(right)
    assert measures["coverage"]["quiz"]["scored"] == len(of_items) == 8


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Most items have labels alone."""
    models = [
        model("tea", "teacher"),
        *(model(name, "student", skill=at) for name, at in (("ann", 0.9), ("ben", 0.3))),
    ]
    made = Lab(
        tmp_path_factory.mktemp("mixed"),
        [*models, *(model(name, "judge") for name in ("jay", "kim"))],
        [task(total=6), quiz(total=20)],
    )
    made.run()
    return made


@pytest.mark.process
def test_the_headline_says_which_items_it_leaves_out(mixed: Lab, coeval: Command) -> None:
    left_out = "Scores are over 6 of 26 items; the other 20 (quiz) have labels, reported as accuracy."
    for command in ("results", "analyze"):
        assert left_out in " ".join(coeval(command, "--run", mixed.path).out.split())
    assert left_out in api.open_run(mixed.path).results()._repr_html_()
    with run_evidence(RunDir(mixed.path)) as evidence:
        found = experiment_report(evidence)
    assert found.lead[0].text.startswith("ann leads")
    second, labels = (said.text for said in found.sections[0].sentences[:2])
    assert (second, labels.split(":")[0]) == (left_out, "ann leads in quiz (colour)")
    for row in found.table("students").to_flat_dicts():
        accuracy = found.table("labels").to_flat_dicts()
        assert row["label-0"] == next(one["accuracy"] for one in accuracy if one["student"] == row["student"])
    benchmark = " ".join(said.text for said in found.sections[4].sentences)
    assert "too easy or too hard" not in benchmark


@pytest.mark.process
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")
def test_so_does_a_choice(mixed: Lab, tmp_path: Path, coeval: Command) -> None:
    assert coeval("analyze", "--run", mixed.path, "--format", "html", "--out", tmp_path).code == 0
    with chromium() as browser:
        page = opened(browser, tmp_path / "report.html").page
        sentences = {
            query: page.evaluate("query => coevalPage.figures(query).then((found) => found.status)", query)
            for query in ("factor=plot", "task=story", "task=quiz")
        }
    assert "Scores are over 6 of 26 items; the other 20 (quiz)" in sentences["factor=plot"]
    assert not any("Scores are over" in sentences[query] for query in ("task=story", "task=quiz"))


def test_accuracies_are_its_result(report: Report, measures: dict[str, Any]) -> None:
    leads = report.sections[0]
    assert [table.name for table in leads.tables] == ["labels", "differences"]
    assert leads.pictures == (), "the first screen draws the accuracies of its front table"
    found = measures["labels"]["quiz"]["colour"]["students"]
    for row in report.table("labels").to_flat_dicts():
        student = found[row["student"]]
        assert (row["accuracy"], row["correct"]) == (student["accuracy"], student["correct"])
        assert row["n"] + row["failed"] == 8, "every item was answered, or failed"
    assert sum(row["failed"] for row in report.table("labels").to_flat_dicts())
    for row in report.table("by-label").to_flat_dicts():
        student = found[row["student"]]
        assert (
            row["recall"] == student["confusion"][row["part"]][row["part"]] / student["expected"][row["part"]]
        )
        assert row["n"] == student["expected"][row["part"]]


@pytest.mark.process
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")
def test_page_and_pictures_show_them(lab: Lab, report: Report, tmp_path: Path, coeval: Command) -> None:
    ended = coeval("analyze", "--run", lab.path, "--format", "html", "--out", tmp_path)
    assert ended.code == 3, ended.err
    ended = coeval("analyze", "--run", lab.path, "--figures", tmp_path / "figures")
    assert ended.code == 3, ended.err
    drawn = {path.stem for path in (tmp_path / "figures").glob("*.svg")}
    assert drawn == {picture.name for section in report.sections for picture in section.pictures}
    with chromium() as browser:
        seen = opened(browser, tmp_path / "report.html")
        draw_all(seen.page)
        assert seen.page.locator("#labels").evaluate("one => one.open")
        assert seen.page.locator("#choices").count() == 0, "no score is there to be chosen"
        assert seen.complaints == []
