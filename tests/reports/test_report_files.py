"""Pictures of a report for print, and the report on paper."""

from __future__ import annotations

import struct
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pypdf
import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, model, task
from reports.browser import CHROMIUM

from coeval.core.errors import UsageError
from coeval.reports.content import (
    Passage,
    PassagePart,
    Report,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
)
from coeval.reports.paper.paper_page import MOST_ROWS, browser, paper_page


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    made = Lab(tmp_path_factory.mktemp("files"), [model("ann"), model("ben", skill=0.3)], [task(total=5)])
    assert made.run().exit_code == 0
    return made


@pytest.mark.slow
def test_every_picture_is_a_file_for_screens_and_one_for_print(
    lab: Lab, tmp_path: Path, coeval: Command
) -> None:
    ended = coeval("analyze", "--run", lab.path, "--figures", tmp_path / "figures")
    assert (ended.code, ended.out) == (0, "")
    drawings, prints = (
        {p.stem: p for p in (tmp_path / "figures").glob(f"*.{kind}")} for kind in ("svg", "png")
    )
    assert drawings.keys() == prints.keys() >= {"forest", "matrix", "dots", "purchases"}
    assert f"{len(prints)} pictures as PNG and SVG" in ended.err
    for name, drawing in drawings.items():
        root = ElementTree.fromstring(drawing.read_text())  # noqa: S314  our own
        wide, high = struct.unpack(">II", prints[name].read_bytes()[16:24])
        assert wide == pytest.approx(float(root.attrib["width"]) * 300 / 72, abs=2)
        assert (wide > 1_000, high > 100) == (True, True)
    assert all(f">{name}<" in drawings["forest"].read_text() for name in ("ann", "ben"))


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")
def test_a_report_is_printed(lab: Lab, tmp_path: Path, coeval: Command) -> None:
    ended = coeval("analyze", "--run", lab.path, "--format", "pdf", "--out", tmp_path)
    assert ended.code == 0, ended.err
    pages = pypdf.PdfReader(tmp_path / "report.pdf").pages
    assert len(pages) > 3
    assert (round(pages[0].mediabox.width), round(pages[0].mediabox.height)) == (595, 842)
    text = " ".join(" ".join(page.extract_text() for page in pages).split())
    for told in (
        "exp",
        "simulated models",
        "Who leads, and is it sure?",
        "Is the benchmark any good?",
        "ann",
        "ben",
    ):
        assert told in text
    assert (tmp_path / "measures.json").exists()


def test_without_a_browser_the_way_out_is_named(
    lab: Lab, tmp_path: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("coeval.reports.paper.paper_page._PLACES", ())
    ended = coeval("analyze", "--run", lab.path, "--format", "pdf", "--out", tmp_path / "out")
    assert (ended.code, ended.out, (tmp_path / "out").exists()) == (1, "", False)
    assert "COEVAL_BROWSER" in ended.err
    monkeypatch.setenv("COEVAL_BROWSER", "nobody")
    with pytest.raises(UsageError, match="COEVAL_BROWSER names nobody"):
        browser()


def test_a_browser_that_prints_nothing_is_told(
    lab: Lab, tmp_path: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'no \033[31mdisplay' >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("COEVAL_BROWSER", str(broken))
    ended = coeval("analyze", "--run", lab.path, "--format", "pdf", "--out", tmp_path / "out")
    assert ended.code == 1
    assert f"{broken} printed nothing: no \\x1b[31mdisplay" in ended.err
    assert not (tmp_path / "out" / "report.pdf").exists()


@pytest.mark.parametrize("kind", ["excel", "pdf"])
def test_what_is_written_needs_a_folder(kind: str, lab: Lab, tmp_path: Path, coeval: Command) -> None:
    ended = coeval("analyze", "--run", lab.path, "--format", kind)
    assert (ended.code, ended.out) == (1, "")
    assert "name a folder for it with --out" in ended.err
    taken = tmp_path / "file"
    taken.touch()
    for flag in ("--out", "--figures"):
        words = ["analyze", "--run", lab.path, "--format", kind, "--out", tmp_path, flag, taken]
        assert "is a file; name a folder" in coeval(*words).err


def test_a_complete_report_is_a_workbook(lab: Lab, tmp_path: Path, coeval: Command) -> None:
    ended = coeval("analyze", "complete-report", "--run", lab.path, "--out", tmp_path)
    assert (ended.code, ended.out) == (0, ""), ended.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["complete-report.xlsx", "measures.json"]


EVIL = "<script>alert(1)</script>\u202e</title>\"' onload=x &amp;"


def test_paper_runs_nothing_whatever_models_say() -> None:
    column = ReportColumn("name", EVIL)
    table = ReportTable("t", EVIL, (column,), ((EVIL,),) * (MOST_ROWS + 1), note=EVIL)
    passage = Passage("p", EVIL, (PassagePart(EVIL), PassagePart(EVIL, stand_in=True)))
    section = ReportSection("s", EVIL, (Sentence(EVIL),), (), (table,), (passage,))
    page = paper_page(Report("description", EVIL, (EVIL,), (Sentence(EVIL),), (section,), EVIL)).decode()
    assert "<script" not in page
    assert "default-src 'none'" in unescape(page)
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 70
    assert f"The first {MOST_ROWS} of {MOST_ROWS + 1} rows; a page (html) and a workbook (excel) hold" in page
