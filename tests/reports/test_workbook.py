"""The workbook of a run, read back: its numbers are those of the measures, its texts are texts."""

from __future__ import annotations

import zipfile
from pathlib import Path
from statistics import fmean
from typing import Any

import openpyxl
import pytest
from openpyxl.workbook import Workbook
from pipeline.experiments import Lab, model, quiz, task
from reports.workbook_tables import summary_lines, table_rows

import coeval as api
from coeval.analysis.measures.measured import Measured
from coeval.analysis.measures.measured_run import measure_run
from coeval.analysis.measures.run_measures import MeasureOptions
from coeval.cli.commands.analyze_command import ReportPlaces, tell_files
from coeval.core.text import dollars
from coeval.pipeline.plan.run_reading import reading
from coeval.reports.content import Cell, Report, ReportColumn, ReportSection, ReportTable
from coeval.reports.workbook.report_workbook import write_workbook
from coeval.reports.workbook.workbook_file import LONGEST, SHORT, SheetTable, sheet_text
from coeval.store.rundir import RunDir

EVIL = '=HYPERLINK("http://evil","x")\x00\x1b[31m\u202e</t>]]>&<c><f>1+1</f>'
LONG = "long \U0001f600" * 200_000


def same(numbers: Any) -> Any:
    """As a workbook holds them: with 16 digits."""
    return None if numbers is None else pytest.approx(numbers, rel=1e-15, abs=0)


def same_points(*scores: float | None) -> Any:
    """Likewise, of scores that a workbook shows in points."""
    return [None if score is None else same(100 * score) for score in scores]


def write(folder: Path, name: str, out: Path) -> None:
    tell_files(folder, name, "excel", ReportPlaces(out), MeasureOptions())


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    models = [model("ann"), model("ben", skill=0.5, failure_rate=0.3), model("cem", "student", skill=0.2)]
    settings = {"generation_retries": 0, "probe_on_fail": "warn"}
    made = Lab(tmp_path_factory.mktemp("workbook"), models, [task(total=6), quiz(total=4)], settings)
    made.run()
    good = [key for key, record in made.records("response_collection").items() if "status" not in record]
    made.edit("response_collection", good[0], response=EVIL)
    made.edit("response_collection", good[1], response=LONG)
    made.edit(
        "data_generation",
        next(iter(made.records("data_generation"))),
        prompt="-1+1|cmd",
        reference_response="@x",
        passage_source="=guide.md#120",
    )
    return made


@pytest.fixture(scope="module")
def written(lab: Lab) -> Path:
    out = lab.folder / "report"
    write(lab.path, "complete-report", out)
    return out / "complete-report.xlsx"


@pytest.fixture(scope="module")
def book(written: Path) -> Workbook:
    return openpyxl.load_workbook(written)


@pytest.fixture(scope="module")
def measures(lab: Lab) -> dict[str, Any]:
    return api.open_run(lab.path).measures()


@pytest.mark.process
def test_eight_sheets_have_frozen_heads_filters_and_widths(book: Workbook) -> None:
    needed = ["Summary", "Students", "Tasks", "Judges", "Benchmark", "Cost", "Items", "Answers"]
    assert book.sheetnames == needed
    for sheet in book.worksheets[1:]:
        alone = sheet.title in ("Items", "Answers")
        assert sheet.freeze_panes == ("B2" if alone else "B1"), sheet.title
        assert sheet.auto_filter.ref.startswith("A1:"), sheet.title
        assert all(8 <= width.width <= 62 for width in sheet.column_dimensions.values())
    assert book["Students"]["C2"].number_format == "0.0"
    assert len(book["Students"]._charts) == 1
    assert book["Students"].conditional_formatting
    chart = book["Students"]._charts[0]
    [series] = chart.series
    assert series.val.numRef.f == "Students!$C$2:$C$4"
    assert len(series.errBars.plus.numLit.pt) == 3
    assert len(book["Summary"]._charts) == 1


@pytest.mark.process
def test_it_prints_on_twelve_pages_in_landscape(book: Workbook) -> None:
    pages = 0
    for sheet in book.worksheets:
        assert (sheet.page_setup.orientation, sheet.page_setup.paperSize) == ("landscape", 9)
        assert (sheet.sheet_properties.pageSetUpPr.fitToPage, sheet.page_setup.fitToWidth or 1) == (True, 1)
        assert sheet.print_area
        pages += sheet.page_setup.fitToHeight or 1
        if sheet.title in ("Items", "Answers"):
            assert sheet.print_title_rows == "$1:$1"
    assert pages <= 12


def test_colours_of_numbers_begin_at_zero(tmp_path: Path) -> None:
    columns = (
        ReportColumn("name", "Name"),
        ReportColumn("a", "A", "points"),
        ReportColumn("b", "B", "share"),
    )
    rows = (("x", Measured(0.296, 0.2, 0.4, 9, 0), -0.3), ("y", Measured(0.5, 0.4, 0.6, 9, 0), 0.2))
    section = ReportSection("s", "What?", (), (), (ReportTable("t", "T", columns, rows),))
    write_workbook(tmp_path / "book.xlsx", Report("experiment", "r", (), (), (section,)))
    sheet = openpyxl.load_workbook(tmp_path / "book.xlsx")["T"]
    scales = [rule.colorScale for found in sheet.conditional_formatting for rule in found.rules]
    ends = [[float(end.val) for end in scale.cfvo] for scale in scales]
    assert ends == [[-50, 0, 50], [-0.3, 0, 0.3]]
    assert all([end.type for end in scale.cfvo] == ["num"] * 3 for scale in scales)


def test_amounts_have_the_decimals_that_pages_give_them(tmp_path: Path) -> None:
    columns = (ReportColumn("name", "Name"), ReportColumn("cost", "Cost", "usd"))
    amounts = (0, 0.00002, 0.0123, 0.0054, 0.1, 1234.5)
    table = ReportTable("t", "T", columns, tuple((dollars(usd), usd) for usd in amounts))
    report = Report("experiment", "r", (), (), (ReportSection("s", "What?", (), (), (table,)),))
    write_workbook(tmp_path / "book.xlsx", report)
    for text, cell in openpyxl.load_workbook(tmp_path / "book.xlsx")["T"].iter_rows(min_row=2):
        literal, _, decimals = cell.number_format.removeprefix('"').partition('"#,##0.')
        written = f"{literal}{cell.value:,.{len(decimals)}f}" if decimals else literal.rstrip('"')
        assert written == text.value


def test_all_items_answers_and_failures_are_there(book: Workbook, lab: Lab) -> None:
    items = {row["Item"]: row for row in table_rows(book, "Items")}
    assert items.keys() == lab.records("data_generation").keys()
    with reading(RunDir(lab.path)) as (reader, _):
        measured = measure_run(reader).measures.items
    for name, found in measured.items():
        assert [items[name]["Difficulty"]] == same_points(found.difficulty)
        assert items[name]["Discrimination"] == same(found.discrimination)
    answers = table_rows(book, "Answers")
    good = {k for k, r in lab.records("data_generation").items() if r.get("status") != "failed"}
    kept = [r for r in lab.records("response_collection").values() if r["datapoint_id"] in good]
    assert len(answers) == len(kept)
    failed = {
        key: record
        for phase in ("data_generation", "response_collection", "evaluation")
        for key, record in lab.records(phase).items()
        if record.get("status") == "failed"
    }
    reported = {row["Record"]: row for row in table_rows(book, "Failures")}
    assert reported.keys() == failed.keys() != set()
    assert all(reported[key]["Reason"] == record["error"]["kind"] for key, record in failed.items())


def test_what_models_said_is_text_and_nothing_else(book: Workbook, written: Path) -> None:
    for sheet in book.worksheets:
        for line in sheet.iter_rows():
            assert all(cell.data_type != "f" for cell in line)
    with zipfile.ZipFile(written) as archive:
        for name in archive.namelist():
            if name.startswith("xl/worksheets/sheet"):
                assert b"<f>" not in archive.read(name)
    answers = [cell for cell in book["Answers"]["I"] if str(cell.value).startswith("=")]
    [evil] = answers
    assert evil.value == EVIL.replace("\x00", "").replace("\x1b", "").replace("\u202e", "")
    assert (evil.data_type, evil.quotePrefix) == ("s", True)
    [long] = [cell for cell in book["Answers"]["I"] if str(cell.value).startswith("long ")]
    assert long.value.endswith(f"… [cut: {len(LONG):,} characters in all]")
    assert len(long.value.encode("utf-16-le")) // 2 <= LONGEST
    first = table_rows(book, "Items")[0]
    texts = [first[name] for name in ("Prompt", "Reference answer", "Source")]
    assert texts == ["-1+1|cmd", "@x", "=guide.md#120"]


@pytest.mark.process
def test_what_is_left_out_is_told(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coeval.reports.workbook.record_sheets.MOST_RECORDS", 5)
    write(lab.path, "complete-report", tmp_path)
    book = openpyxl.load_workbook(tmp_path / "complete-report.xlsx")
    texts = [cell.value for cell in book["Answers"]["A"]]
    assert len(texts) == 1 + 5 + 2
    assert texts[-1].startswith("the first 5 of ")
    assert any(str(cell.value).startswith("→ Answers: the first 5 of ") for cell in book["Summary"]["A"])


def test_texts_of_a_workbook_stay_within_what_can_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long texts are kept whole while they fit, from there on the beginning of each; the sheet says so."""
    monkeypatch.setattr("coeval.reports.workbook.workbook_file.MOST_TEXT", 2_500)
    columns = (ReportColumn("n", "N", "count"), ReportColumn("text", "Text"))
    texts = ["a" * 1_000, "b" * 200, "c" * 1_000, "d" * 1_000, "e" * 200, "f" * 40_000]
    whole = "somebody has all"
    first, again = (SheetTable(name, columns, list(enumerate(texts)), total=7, whole=whole) for name in "xy")
    report = Report("comparison", "t", (), (), ())
    write_workbook(tmp_path / "t.xlsx", report, (first, again))
    book = openpyxl.load_workbook(tmp_path / "t.xlsx")
    kept = [str(cell.value) for cell in book["x"]["B"][1:7]]
    assert kept[:3] == texts[:3]
    assert kept[3] == "d" * SHORT + " … [cut: 1,000 characters in all]"
    assert kept[4] == texts[4]
    assert kept[5] == "f" * SHORT + " … [cut: 40,000 characters in all]"
    reported = f"the first 6 of 7; texts longer than {SHORT} characters are cut from row 5 on; " + whole
    assert book["x"]["A"][-1].value == reported
    assert book["y"]["B"][1].value == "a" * SHORT + " … [cut: 1,000 characters in all]"
    assert f"→ x: {reported}" in [cell.value for cell in book["Summary"]["A"]]


@pytest.mark.process
def test_one_section_alone_is_a_workbook_too(lab: Lab, tmp_path: Path) -> None:
    write(lab.path, "judges", tmp_path)
    book = openpyxl.load_workbook(tmp_path / "judges.xlsx")
    assert book.sheetnames[:2] == ["Summary", "Judges"]
    assert not {"Students", "Items", "Failures"} & set(book.sheetnames)


ODD_CELLS: tuple[Cell, ...] = (
    "+1",
    " @SUM(A1)",
    "a\r\nb\tc",
    "\ud800lone",
    "_x0041_",
    float("inf"),
    float("nan"),
    Measured(None, None, None, 0, 3),
    Measured(0.5, 0.25, 0.75, 4, 0),
    None,
    True,
    "",
    7,
)
READ_BACK = ("+1", " @SUM(A1)", "a\nb\tc", "lone", "_x0041_", None, None, None, 50, None, "yes", None, 700)


def test_odd_cells_and_names_make_a_book_that_can_be_read(tmp_path: Path) -> None:
    columns = (ReportColumn("name", "=Name"), ReportColumn("value", "Value", "points", "What it means"))
    table = ReportTable(
        "t", "A/B: [x]?*'", columns, tuple((str(n), cell) for n, cell in enumerate(ODD_CELLS))
    )
    again = ReportTable("u", "a b  x", columns, ())
    empty = ReportTable("v", "History" * 9, columns, ())
    section = ReportSection("s", "=Q?", (), (), (table, again, empty))
    write_workbook(tmp_path / "odd.xlsx", Report("comparison", "'T\x07", ("=f",), (), (section,)))
    book = openpyxl.load_workbook(tmp_path / "odd.xlsx")
    sheet = book.worksheets[1]
    assert [cell.value for cell in sheet["B"][1 : len(READ_BACK) + 1]] == [
        value if value != "_x0041_" else "_x005F_x0041_"
        for value in READ_BACK  # as openpyxl shows it
    ]
    assert [cell.value for cell in sheet[10]] == ["8", 50, 25, 75, 4]
    assert all(len(name) <= 31 for name in book.sheetnames)
    assert book["Summary"]["A1"].value == "'T"


def test_no_text_is_longer_than_a_cell_takes() -> None:
    for text in ("x" * LONGEST, "x" * (LONGEST + 1), "\U0001f600" * 20_000, "\U0001f600" * 16_383):
        units = len(sheet_text(text).encode("utf-16-le")) // 2
        assert units <= LONGEST
        assert ("[cut: " in sheet_text(text)) == (len(text.encode("utf-16-le")) // 2 > LONGEST)


def test_each_of_several_answers_has_a_row_with_its_own_score(tmp_path: Path) -> None:
    models = [
        model("ann", "student", skill=0.5) | {"samples": 3},
        model("tea", "teacher"),
        model("joe", "judge"),
    ]
    lab = Lab(tmp_path, models, [task(total=6)])
    lab.run()
    write(lab.path, "all", tmp_path / "out")
    found = table_rows(openpyxl.load_workbook(tmp_path / "out" / "report.xlsx"), "Answers")
    value = {"High": 1.0, "Medium": 0.5, "Low": 0.0}
    judged = {
        record["response_id"]: 100 * fmean(value[level] for level in record["scores"].values())
        for record in lab.records("evaluation").values()
    }
    answers = {
        (record["datapoint_id"], record.get("sample", 0) + 1): (judged[key], record["response"])
        for key, record in lab.records("response_collection").items()
    }
    assert len(answers) == 18
    assert {(row["Item"], row["Sample"]): (row["Score"], row["Answer"]) for row in found} == answers


def test_checks_that_could_not_be_computed_are_among_the_failures(tmp_path: Path) -> None:
    models = [model("ann", "student"), model("tea", "teacher"), model("joe", "judge")]
    length = {"check": "length", "most": 500, "unit": "words"}
    rubric = {"clear": "It is.", "lines": {"check": "numeric", "attribute": "nothing"}, "length": length}
    lab = Lab(tmp_path, models, [task(total=4, rubric=rubric)])
    lab.run()
    write(lab.path, "all", tmp_path / "out")
    book = openpyxl.load_workbook(tmp_path / "out" / "report.xlsx")
    failed = table_rows(book, "Failures")
    assert {(row["What"], row["Model"], row["Message"]) for row in failed} == {
        ("score", "check", "no score in lines")
    }
    assert f"{len(failed)} records failed" in summary_lines(book)[1]
