"""The report of a run that compares labels and asks no judge: nothing in it is an empty frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pypdf
import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, model, quiz
from reports.browser import CHROMIUM, chromium, draw_all, opened

import coeval as api
from coeval.reports.content.report_content import Report
from coeval.reports.experiment.experiment_report import experiment_report
from coeval.reports.experiment.run_evidence import run_evidence
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


def test_its_sections_say_what_is_known_and_what_cannot_be(report: Report) -> None:
    for section in report.sections:
        assert section.sentences, section.anchor
        assert all(table.rows for table in section.tables), section.anchor
        shown = {table.name for table in section.tables}
        assert {picture.table for picture in section.pictures} <= shown, section.anchor
    said = {section.anchor: " ".join(one.text for one in section.sentences) for section in report.sections}
    assert "No judge scored an answer" in said["judges"]
    assert "No student is surely" not in said["where"]
    assert "None of 8 items is passed" not in said["benchmark"]
    assert "No item has a judged score" in said["benchmark"]


def test_accuracies_are_its_result(report: Report, measures: dict[str, Any]) -> None:
    leads = report.sections[0]
    assert [table.name for table in leads.tables] == ["labels"]
    assert [picture.table for picture in leads.pictures] == ["labels"]
    found = measures["labels"]["quiz"]["colour"]["students"]
    for row in report.table("labels").records():
        student = found[row["student"]]
        assert (row["accuracy"], row["correct"]) == (student["accuracy"], student["correct"])
        assert row["n"] + row["failed"] == 8, "every item was answered, or failed"
    assert sum(row["failed"] for row in report.table("labels").records())
    for row in report.table("by-label").records():
        student = found[row["student"]]
        assert (
            row["recall"] == student["confusion"][row["part"]][row["part"]] / student["expected"][row["part"]]
        )
        assert row["n"] == student["expected"][row["part"]]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")
def test_page_paper_and_pictures_show_them(lab: Lab, report: Report, tmp_path: Path, coeval: Command) -> None:
    for kind in ("html", "pdf"):
        ended = coeval("analyze", "--run", lab.path, "--format", kind, "--out", tmp_path)
        assert ended.code == 3, ended.err
    text = " ".join(page.extract_text() for page in pypdf.PdfReader(tmp_path / "report.pdf").pages)
    assert "Labels: how often they are right" in text
    ended = coeval("analyze", "--run", lab.path, "--figures", tmp_path / "figures")
    assert ended.code == 3, ended.err
    drawn = {path.stem for path in (tmp_path / "figures").glob("*.svg")}
    assert drawn == {picture.name for section in report.sections for picture in section.pictures}
    with chromium() as browser:
        seen = opened(browser, tmp_path / "report.html")
        draw_all(seen.page)
        assert seen.page.locator("#labels").evaluate("one => one.open")
        assert seen.page.locator("#filters summary").count() == 0, "no score is there to be chosen"
        assert seen.complaints == []
