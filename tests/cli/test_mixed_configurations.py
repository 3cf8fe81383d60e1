"""Whoever shows the scores of a run says so where records of another configuration are among them."""

from __future__ import annotations

import re
from pathlib import Path
from unicodedata import normalize

import openpyxl
import pypdf
import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, model, quiz, task
from reports.browser import CHROMIUM

KEPT = (
    "of another configuration, and counted all the same: 3 responses, 6 evaluations; --redo-changed makes "
    "them again"
)


def words(*texts: str) -> str:
    return " ".join(" ".join(texts).split())


@pytest.mark.slow
def test_kept_records_are_told_wherever_scores_are_shown(here: Path, coeval: Command) -> None:
    models = [
        model("tea", "teacher"),
        model("ann", "student"),
        model("ben", "student"),
        model("jud", "judge"),
    ]
    lab = Lab(here, models, [task()])
    assert coeval("run", "--config", lab.file).code == 0
    run = ("--run", str(lab.path))
    shows = [("results", *run), ("analyze", *run), ("status", *run), ("compare", str(lab.path))]
    for command in shows:
        assert "another configuration" not in words(*coeval(*command)[1:3]), command
    lab.models[1]["role_parameters"] = {"student": {"temperature": 0.9}}
    lab.models[3]["role_parameters"] = {"judge": {"temperature": 0.1}}
    started = coeval("run", "--config", lab.file, "--continue", "--keep-changed")
    assert KEPT in words(started.out, started.err)
    for command in (*shows, ("results", *run, "--json"), ("status", *run, "--json")):
        shown = coeval(*command)
        assert (shown.code, words(shown.out, shown.err).count(KEPT)) == (0, 1), command
    assert coeval("analyze", *run, "--format", "html", "--out", "page").code == 0
    page = re.sub(r"<[^>]+>", "", (here / "page" / "report.html").read_text())
    assert page.count(KEPT.removeprefix("of")) == 2, "at the head, and below what is missing"

    told = KEPT.removeprefix("of")
    for name in ("all", "complete-report", "judge-report"):
        shown = coeval("analyze", name, *run, "--format", "excel", "--out", "book")
        assert (shown.code, words(shown.err).count(KEPT)) == (0, 1), name
        stem = "report" if name == "all" else name
        assert any(told in line for line in summary(here / "book" / f"{stem}.xlsx")), name
    assert coeval("compare", str(lab.path), "--excel", "both.xlsx").code == 0
    assert any(told in line for line in summary(here / "both.xlsx"))

    lost = next((lab.path / "phase5_evaluations").glob("*.jsonl"))
    lost.write_text("".join(lost.read_text().splitlines(keepends=True)[:-1]))
    shown = coeval("analyze", "judge-report", *run, "--format", "excel", "--out", "book")
    assert shown.code == 3
    [missing] = [line for line in summary(here / "book" / "judge-report.xlsx") if "is not there" in line]
    told = missing.partition(";")[0]  # the files stand on lines of their own
    assert told.casefold() in words(shown.err).casefold()
    if CHROMIUM is not None:
        shown = coeval("analyze", "judge-report", *run, "--format", "pdf", "--out", "paper")
        assert shown.code == 3
        pages = pypdf.PdfReader(here / "paper" / "judge-report.pdf").pages
        printed = normalize("NFKC", words(*(page.extract_text() for page in pages)))  # ligatures
        assert "another configuration, and counted all the same" in printed
        assert missing in printed


def summary(path: Path) -> list[str]:
    return [str(cell) for (cell,) in openpyxl.load_workbook(path)["Summary"].iter_rows(values_only=True)]


def test_labels_compared_by_earlier_rules_are_not_missing(here: Path, coeval: Command) -> None:
    lab = Lab(here, tasks=[quiz()])
    assert coeval("run", "--config", lab.file).code == 0
    for compared in (lab.path / "phase5_evaluations").iterdir():
        text = compared.read_text()
        assert "labels-2." in text
        compared.write_text(text.replace("labels-2.", "labels-1."))
    status = coeval("status", "--run", lab.path)
    assert status.code == 0
    assert "Files that lack records" not in status.out
