"""Workbook, paper and pictures of what ``eval-framework`` left, and of a comparison, read back."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import openpyxl
import pytest
from cli.eval_process import finish, start, write_prompts
from cli.invoked import Command
from fakes.openai_chat import Answer, Fault, fake
from openpyxl.utils.cell import range_boundaries
from openpyxl.workbook import Workbook
from openpyxl.worksheet.worksheet import Worksheet
from pipeline.experiments import Lab, model, task
from reports.workbook_tables import summary_lines, table_rows

EVIL = '=HYPERLINK("http://evil","x")\x1b[31m\u202e</t>]]>&<c><f>1+1</f>'
PLAIN = "all of this is written in small letters"
LOST = "@SUM(1+1) this one is lost"
PROMPTS = ("say it in small letters", "-1+1|cmd", LOST, *(f"and once more {n}" for n in range(5)))
CHART = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"


def rows(sheet: Worksheet) -> list[dict[str, Any]]:
    head, *others = sheet.iter_rows(values_only=True)
    return [dict(zip(map(str, head), row, strict=True)) for row in others]


def reply(messages: list[dict[str, Any]]) -> Answer | Fault:
    said = messages[-1]["content"]
    if LOST in said:
        return Fault(400, "The prompt was filtered.", code="content_filter", param="prompt")
    if "plot" in said and "style" in said:
        return Answer('{"plot": "High", "style": "Low"}')
    return Answer(EVIL if "cmd" in said else PLAIN)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``mine``: IFEval with prompts of ours, and an experiment's items, judged; ``twice``: two samples."""
    import asyncio

    folder = tmp_path_factory.mktemp("outputs")
    prompts = write_prompts(folder / "prompts.jsonl", "change_case:english_lowercase", PROMPTS)

    async def evaluate() -> None:
        lab = Lab(folder, [model("ann")], [task(total=4)])
        await lab.arun()
        ifeval = ["--ifeval-input", prompts]
        async with fake(reply=reply, extra_fields={"top_k"}) as host:
            common = ["--base-url", host.url, "--probe", "disable"]
            for name, tasks, more in (
                ("mine", f"ifeval,coeval:{lab.path}", ["--judge-model", "jury"]),
                ("twice", "ifeval", ["--num-runs", 2]),
            ):
                how = ["--tasks", tasks, "--model", name, *common, *ifeval, *more, "--output-dir", name]
                ended = await finish(await start(folder, *how))
                assert ended.code == 3, ended  # what was lost stays owed

    asyncio.run(evaluate())
    return folder


@pytest.fixture(scope="module")
def book(outputs: Path) -> Workbook:
    return openpyxl.load_workbook(outputs / "report" / "complete-report.xlsx")


@pytest.fixture(scope="module", autouse=True)
def written(outputs: Path) -> None:
    from coeval.analysis.measures.robust_set import RobustOptions
    from coeval.cli.commands.analyze_command import print_or_write_analysis

    out = outputs / "report"
    for folder, name in (("mine", "complete-report"), ("twice", "all")):
        print_or_write_analysis(outputs / folder, name, "excel", out, options=RobustOptions())


def test_of_several_samples_all_are_counted(outputs: Path) -> None:
    book = openpyxl.load_workbook(outputs / "report" / "report.xlsx")
    assert {row["Samples"] for row in table_rows(book, "Over all samples")} == {2}


def test_what_is_lacking_stands_in_the_summary(book: Workbook, outputs: Path) -> None:
    lines = summary_lines(book)
    assert any("records without a value" in line for line in lines)
    assert any(re.match("mine scores .*75.0 .*in ifeval", line) for line in lines)


def test_hostile_words_are_text_and_every_part_is_sound(book: Workbook, outputs: Path) -> None:
    """What a program that opens it would refuse: parts that are no XML, relations that lead nowhere, ranges
    of filters and charts beyond the data."""
    assert not [cell for sheet in book.worksheets for line in sheet for cell in line if cell.data_type == "f"]
    for path in (outputs / "report").glob("*.xlsx"):
        sound(path)


def sound(path: Path) -> None:
    sizes = {sheet.title: (sheet.max_row, sheet.max_column) for sheet in openpyxl.load_workbook(path)}
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    for name, content in parts.items():
        root = ElementTree.fromstring(content)  # noqa: S314  our own
        if name.endswith(".rels"):
            base = Path(name).parent.parent
            for relation in root:
                assert relation.attrib.get("TargetMode") is None, f"{name} leads out of the file"
                target = relation.attrib["Target"]
                reached = target.lstrip("/") if target.startswith("/") else str(base / target)
                assert Path(re.sub(r"[^/]+/\.\./", "", reached)).as_posix() in parts, (name, target)
        for reference in root.iter(f"{CHART}f"):
            sheet, _, cells = str(reference.text).rpartition("!")
            assert inside(cells, sizes[sheet.strip("'").replace("''", "'")]), (name, reference.text)
    for sheet in openpyxl.load_workbook(path).worksheets[1:]:
        assert inside(sheet.auto_filter.ref, sizes[sheet.title])
        for area in sheet.conditional_formatting:
            assert all(inside(str(part), sizes[sheet.title]) for part in area.sqref.ranges)


def inside(cells: str, size: tuple[int, int]) -> bool:
    _, _, column, row = range_boundaries(cells.replace("$", ""))
    return bool(row <= max(size[0], 2) and column <= size[1])


@pytest.mark.process
def test_a_comparison_has_a_workbook_and_pictures(outputs: Path, tmp_path: Path, coeval: Command) -> None:
    """Options side by side with those that show it, in the order that suits whoever asks."""
    compare = ("compare", outputs / "mine", outputs / "twice")
    excel, figures = tmp_path / "both.xlsx", tmp_path / "figures"
    ended = coeval(*compare, "--json", "--excel", excel, "--figures", figures)
    assert ended.code == 0, ended.err
    assert f"written: {excel}, " in ended.err
    assert " as PNG and SVG in " in ended.err
    sound(excel)
    book = openpyxl.load_workbook(excel)
    compared = json.loads(ended.out)["comparisons"]
    found = [row for row in rows(book["Differences from the baseline"]) if row["Baseline"] == "mine"]
    assert len(found) == len(compared) > 0
    for row, one in zip(found, compared, strict=True):
        assert row["Difference"] == pytest.approx(100 * one["difference"], rel=1e-15)
        assert [row["Difference, from"], row["Difference, to"]] == pytest.approx(
            [100 * end for end in one["ci95_adjusted"]], rel=1e-14
        )
    drawn = {path.suffix for path in figures.iterdir()}
    assert drawn == {".png", ".svg"}

    for flag, taken in (("--excel", tmp_path), ("--figures", excel)):
        refused = coeval(*compare, flag, taken)
        assert (refused.code, refused.out) == (1, ""), flag
        assert "name a f" in refused.err


@pytest.mark.process
def test_there_is_no_report_of_judges_where_none_was_asked(
    outputs: Path, tmp_path: Path, coeval: Command
) -> None:
    words = ("judge-report", "--format", "excel", "--out", tmp_path)
    ended = coeval("analyze", *words, "--run", outputs / "twice")
    assert (ended.code, list(tmp_path.iterdir())) == (1, [])
    assert "nothing to write for judge-report" in ended.err
    assert coeval("analyze", *words, "--run", outputs / "mine").code == 0
    assert "Judges" not in openpyxl.load_workbook(tmp_path / "judge-report.xlsx").sheetnames, "one only"
